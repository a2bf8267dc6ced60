"""Implement `engine bench`: the speed of a model beside the limits of this machine."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from ..base.errors import UnsupportedError
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.load import load
from .console import run_options

MEASURING = {Engine: "..studies.bench", Generator: "..studies.bench_generation"}
"""The module that measures the objects of each class; it is imported when it is used, because it needs the compiled
kernels."""


def bench(args: argparse.Namespace) -> None:
    """Print the speed of a model for several shapes, beside the measured limits of this machine."""
    loaded = load(args.model, **run_options(args, "revision", *(["long_context"] if args.long_context else [])))
    if type(loaded) not in MEASURING:
        raise UnsupportedError("engine bench measures encoders and models that generate, not a "
                               f"{type(loaded).__name__}")
    measuring: Any = import_module(MEASURING[type(loaded)], __package__)
    print(loaded)
    print(measuring.HEADER)
    for measurement in measuring.measure(loaded):
        print(measuring.row(measurement), flush=True)
    print(measuring.LEGEND)
