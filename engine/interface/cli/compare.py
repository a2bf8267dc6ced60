"""Implement `engine compare`."""

from __future__ import annotations

import argparse
import sys

from ..compare import compare_precision, parse_data
from .console import print_row, read_lines


def compare(args: argparse.Namespace) -> None:
    """Print how much the vectors of another precision differ from float32's, and how well both rank scored pairs."""
    data = parse_data(read_lines(args.data), args.data)
    result = compare_precision(
        args.model,
        args.precision,
        data,
        backend=args.backend,
        threads=args.threads,
        show_progress_bar=sys.stderr.isatty(),
    )
    print(f"{args.precision} against float32: {len(data.rows):,} {'lines' if data.scores is None else 'scored pairs'}")
    print_row("cosine", f"mean {result.cosine_mean:.5f}, min {result.cosine_min:.5f}")
    if result.spearman is not None:
        before, after = result.spearman
        print_row("Spearman x 100", f"{before:.3f} in float32, {after:.3f} in {args.precision}: {after - before:+.3f}")
