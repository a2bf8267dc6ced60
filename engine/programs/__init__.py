"""Turn a `ModelConfig` into programs, which backends run. Only `encoder.py` and `decoder.py` state a layer's order."""

from __future__ import annotations

from functools import lru_cache

from ..model.config import ModelConfig
from .decoder import cross_program as cross_program
from .decoder import head_program as head_program
from .decoder import step_program as step_program
from .decoder import vectors_program
from .encoder import encoder
from .program import Program


@lru_cache(maxsize=16)
def program_of(config: ModelConfig) -> Program:
    """Return the program that computes the token vectors of a model; a decoder's also reads cached keys and values."""
    return vectors_program(config) if config.decodes else Program(tuple(encoder(config)))


@lru_cache(maxsize=16)
def programs_of(config: ModelConfig) -> tuple[Program, ...]:
    """Return all programs of a model: one for an encoder; vectors, cross (for a source) and head for a decoder."""
    if not config.decodes:
        return (program_of(config),)
    return tuple(program for program in (program_of(config), cross_program(config), head_program(config)) if program)
