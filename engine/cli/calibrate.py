"""Implement `engine calibrate`: fit the probabilities of a model to labelled texts, and write the calibrated model."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from ..base.errors import InputError, UnsupportedError
from ..files.writing import check_folder, replacing
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.reranker import Reranker
from ..loading.load import choose_kind, load_model, open_source
from ..loading.npz_model import save
from ..studies import LINES, RELEVANCES, label_numbers, parse_labelled
from ..studies.calibrate import CalibrationReport, calibrate, task_of
from ..uncertainty import plot
from ..weights.calibration import ARRAYS_OF
from ..weights.model import Model
from .console import MODEL_OR_GGUF, TABS, TABS_ADVICE, add_model, print_row, read_lines, run_options


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `engine calibrate`, except those of the backend."""
    add_model(command, MODEL_OR_GGUF)
    command.add_argument(
        "--data", required=True, metavar="FILE",
        help="UTF-8 text, tab-separated, a labelled text on each line: " + "; ".join(
            f"{line} ({task})" for task, line in LINES.items()))
    command.add_argument("-o", "--output", metavar="FILE", help="the calibrated model to write, ending in .npz; "
                         "without it, the command only reports")
    command.add_argument("--picture", metavar="FILE", help="draw the reliability before and after as an .svg file")
    command.add_argument("--task", choices=ARRAYS_OF, help="what to calibrate, where the model can do several of these")
    bias = command.add_mutually_exclusive_group()
    bias.add_argument("--bias", action="store_true", default=None, help="fit a bias for each class beside the "
                      "temperature; by default where each class has 30 texts to fit to")
    bias.add_argument("--no-bias", dest="bias", action="store_false", help="fit a temperature alone")
    command.add_argument("--seed", type=int, default=0, help="of the permutation that halves the texts; by default 0")


def run(args: argparse.Namespace) -> None:
    """Calibrate a model, print how good its probabilities are before and after, and write the calibrated model."""
    for path, suffix in ((args.output, ".npz"), (args.picture, ".svg")):
        if path is not None:
            if not path.endswith(suffix):
                raise InputError(f"expected the name of a file that ends in {suffix}, not {path!r}")
            check_folder(Path(path))
    lines = read_lines(args.data, kept=TABS, other=TABS_ADVICE)
    source = open_source(args.model, revision=args.revision)
    kind = choose_kind(source, args.kind)
    if kind == "transcribe":
        raise UnsupportedError("a model of speech is not calibrated; classes, tags, answers, pairs and next tokens are")
    model = load_model(source, kind=kind)
    loaded = _holder(model, kind, source.answers() if kind == "rank" else None, run_options(args))
    task = task_of(loaded, args.task)
    if task == "answer" and args.picture is not None:
        raise InputError("answers have no reliability to draw; leave --picture out")
    texts, labels = parse_labelled(task, lines, args.data)
    # `calibrate` would check these labels, too; the check here names the line of the file in its message.
    if task in ("classify", "rank") and labels is not None:
        names = loaded.heads["classify"].labels if isinstance(loaded, Engine) and task == "classify" else RELEVANCES
        labels = [*label_numbers(labels, names, f"{args.data}, line", first=1)]
    report = calibrate(loaded, texts, labels, task=task, bias=args.bias, seed=args.seed,
                       show_progress_bar=sys.stderr.isatty())
    _print(report)
    if args.picture is not None:
        assert report.before is not None
        assert report.after is not None
        with replacing(Path(args.picture)) as file:
            file.write(plot.reliability(report.before, report.after, title=f"{task}, before and after").encode())
    if args.output is not None:
        save(model.with_calibration(report.calibration), args.output)
        print(f"{args.output}: {os.path.getsize(args.output) / 1e6:.1f} MB")


def _holder(model: Model, kind: str, answers: Any, options: dict[str, Any]) -> Engine | Generator | Reranker:
    """Return the object that runs a model. answers: ids of the tokens that a reranker scores. options: of `load`."""
    if model.kind == "encode":
        return Engine(model, **options)
    return Reranker(model, answers=answers or None, **options) if kind == "rank" else Generator(model, **options)


def _print(report: CalibrationReport) -> None:
    """Print the calibration, and the measures of the probabilities before and after it."""
    calibration = report.calibration
    print(f"{calibration.task}: {calibration!r}")
    if report.before is None or report.after is None:
        losses = calibration.arrays["losses"]
        covered = int((losses < float("inf")).sum())
        print_row("questions", f"{len(losses):,}, of which {covered:,} have the right answer among the candidates")
        return
    print_row("fitted to", f"{report.fitted:,}")
    print_row("measured on", f"{report.before.count:,} others")
    for label, name in (("ECE", "ece"), ("Brier score", "brier"), ("log loss", "log_loss"), ("accuracy", "accuracy")):
        print_row(label, f"{getattr(report.before, name):.4f} before, {getattr(report.after, name):.4f} after")
