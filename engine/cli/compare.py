"""Implement `engine compare`: how far the vectors of a precision are from float32's, or how a calibration holds."""

from __future__ import annotations

import argparse
import sys

from ..base.errors import InputError
from ..heads.coverage import FALSE_ALARM_RATE
from ..studies import COVERAGE, compare_calibration, compare_precision, parse_data, parse_labelled
from .console import TABS, TABS_ADVICE, print_row, read_lines


def add_calibration(command: argparse.ArgumentParser) -> None:
    """Add the options of `engine compare` for a calibrated model."""
    command.add_argument("--calibration", action="store_true", help="say how the calibration of a model that engine "
                         "calibrate wrote holds in bfloat16 and int8, on labelled texts that it was not calibrated on")
    command.add_argument("--other", metavar="FILE", help="with --calibration: a second file of labelled texts, such as "
                         "texts of another kind")
    command.add_argument("--coverage", type=float, metavar="C", help="with --calibration: how often sets of labels "
                         f"shall hold the right one; by default {COVERAGE}")


def compare(args: argparse.Namespace) -> None:
    """Print how much the vectors of another precision differ from float32's, or how the calibration holds."""
    if args.calibration:
        _compare_calibration(args)
        return
    if args.other is not None or args.coverage is not None:
        raise InputError("--other and --coverage are for --calibration")
    if args.precision is None:
        raise InputError("give the precision to compare with float32 with --precision")
    data = parse_data(read_lines(args.data, kept=TABS, other=TABS_ADVICE), args.data)
    result = compare_precision(args.model, args.precision, data, backend=args.backend, threads=args.threads,
                               bits=args.bits, show_progress_bar=sys.stderr.isatty(), revision=args.revision)
    print(f"{args.precision} against float32: {len(data.rows):,} {'lines' if data.scores is None else 'scored pairs'}")
    print_row("cosine", f"mean {result.cosine_mean:.5f}, min {result.cosine_min:.5f}")
    if result.spearman is not None:
        before, after = result.spearman
        print_row("Spearman x 100", f"{before:.3f} in float32, {after:.3f} in {args.precision}: {after - before:+.3f}")


def _compare_calibration(args: argparse.Namespace) -> None:
    """Print how the calibration of a model holds in each precision, for each file."""
    data = {}
    for name in [args.data, *([] if args.other is None else [args.other])]:
        texts, labels = parse_labelled("classify", read_lines(name, kept=TABS, other=TABS_ADVICE), name)
        assert labels is not None
        data[name] = texts, labels
    precisions = ["float32", *(("bfloat16", "int8") if args.precision is None else {args.precision} - {"float32"})]
    coverage = COVERAGE if args.coverage is None else args.coverage
    for row in compare_calibration(args.model, data, precisions=precisions, coverage=coverage, backend=args.backend,
                                   threads=args.threads, bits=args.bits, revision=args.revision,
                                   show_progress_bar=sys.stderr.isatty()):
        print(f"{row.precision}, {row.data}: {row.measures.count:,} texts")
        print_row("accuracy, ECE", f"{row.measures.accuracy:.4f}, {row.measures.ece:.4f}")
        print_row("log loss, Brier", f"{row.measures.log_loss:.4f}, {row.measures.brier:.4f}")
        for score, share in row.coverage.items():
            print_row(f"{score.upper()} for {coverage:g}",
                      f"covers {share:.4f}, {row.set_size[score]:.2f} labels a text")
        print_row("shift", f"D {row.distance:.3f}, p {row.p_value:.2g}"
                  + (": unlike the texts of the calibration" if row.p_value <= FALSE_ALARM_RATE else ""))
