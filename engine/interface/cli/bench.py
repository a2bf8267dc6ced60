"""Implement `engine bench`."""

from __future__ import annotations

import argparse

from ..engine import Engine


def bench(args: argparse.Namespace) -> None:
    """Print a roofline table: the speed for each shape beside the measured limits."""
    from ..bench import HEADER, measure, row  # imported here, because it needs the compiled kernels

    engine = Engine.load(args.model, backend=args.backend, threads=args.threads, precision=args.precision)
    print(engine)
    print(HEADER)
    for measurement in measure(engine):
        print(row(measurement), flush=True)
    print("of peak: of the highest rate of the products alone; of moment: of their median rate between the passes")
    print("* is the higher floor, which no run can beat; the limits are measured again for each shape")
