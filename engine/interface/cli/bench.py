"""Implement `engine bench`."""

from __future__ import annotations

import argparse

from ...base.errors import UnsupportedError
from ..engine import Engine
from ..generator import Generator
from ..load import load


def bench(args: argparse.Namespace) -> None:
    """Print the speed of a model for several shapes, beside the measured limits of this machine."""
    loaded = load(args.model, backend=args.backend, threads=args.threads, precision=args.precision)
    if isinstance(loaded, Engine):
        _bench_encoder(loaded)
    elif isinstance(loaded, Generator):
        _bench_generator(loaded)
    else:
        raise UnsupportedError("engine bench measures encoders and models that generate, not a "
                               f"{type(loaded).__name__}")


def _bench_encoder(engine: Engine) -> None:
    from ..bench import HEADER, measure, row  # imported here, because it needs the compiled kernels

    print(engine)
    print(HEADER)
    for measurement in measure(engine):
        print(row(measurement), flush=True)
    print("of peak: of the highest rate of the products alone; of moment: of their median rate between the passes")
    print("* is the higher floor, which no run can beat; the limits are measured again for each shape")


def _bench_generator(generator: Generator) -> None:
    from ..bench_generation import HEADER, measure, row

    print(generator)
    print(HEADER)
    for measurement in measure(generator):
        print(row(measurement), flush=True)
    print("GB/s: weights and cache that a step reads; GOP/s: products and attention of a prompt")
    print("of moment: of the rate of reading memory, or of products alone, measured on all threads between the runs")
