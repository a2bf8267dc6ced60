"""Turn a `ModelConfig` into a `Program`. Only `encoder.py` states the order of the operations of a layer."""

from __future__ import annotations

from functools import lru_cache

from ..config import ModelConfig
from ..program import Program
from .encoder import encoder


@lru_cache(maxsize=16)
def program_of(config: ModelConfig) -> Program:
    """Return the program that computes the token vectors of a model."""
    return Program(tuple(encoder(config)))
