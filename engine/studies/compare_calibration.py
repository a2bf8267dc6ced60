"""Measure how well a calibration holds in other precisions and on other texts: `engine compare --calibration`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError
from ..encoding.call import PLAIN
from ..heads.coverage import calibration_of, shift_of
from ..methods.run import compute
from ..methods.workload import Logits
from ..model.bits import FASTEST
from ..uncertainty.conformal import SCORES, check_coverage, threshold
from ..uncertainty.measures import Measures, measure
from .compare import load_in
from .labelled import label_numbers

COVERAGE = 0.9
"""The default for the share of the texts whose set of labels shall hold the right one."""

Labelled = tuple[Sequence[Any], Sequence[Any]]
"""Texts and their labels, of one length."""


@dataclass(frozen=True)
class Calibrated:
    """How well a calibration holds for one file of labelled texts in one precision."""

    precision: str
    data: str
    measures: Measures
    """Measures of the calibrated probabilities."""
    coverage: dict[str, float]
    """The share of the texts whose set of labels holds the right one, by the name of the conformal score."""
    set_size: dict[str, float]
    """The mean number of labels of a set."""
    distance: float
    """The Kolmogorov-Smirnov distance of the confidences to those of the calibration."""
    p_value: float
    """The probability that texts like those of the calibration have at least this distance."""


def compare_calibration(path: str | os.PathLike[str], data: Mapping[str, Labelled], *,
                        precisions: Sequence[str] = ("float32", "bfloat16", "int8"), coverage: float = COVERAGE,
                        backend: str = "auto", threads: int | None = None, bits: str = FASTEST,
                        show_progress_bar: bool | None = None,
                        revision: str | None = None) -> list[Calibrated]:
    """Classify labelled texts in each precision with the calibration of the model's file, and say how well it holds.

    data: texts and labels by name, such as that of a file; not the ones that the model was calibrated on. The results
    are ordered by precision, then by data. Raises the errors of `Engine.load` and of `Engine.classify` with a coverage.
    """
    share = check_coverage(coverage)
    engines = load_in(precisions, path, backend=backend, threads=threads, bits=bits, revision=revision)
    calibrated = []
    for precision, engine in zip(precisions, engines, strict=True):
        runner = engine.runner_of("classify")
        if "classify" not in engine.calibrated_tasks:
            raise UnsupportedError("compare reads the sets of labels of texts, and this model has no classes of "
                                   "which a text has one")
        calibration = calibration_of(engine.calibrations, "classify")
        limits = {name: threshold(calibration.arrays[name], share) for name in SCORES}
        for name, (texts, labels) in data.items():
            if not texts:
                raise InputError(f"{name}: there are no labelled texts to compare on")
            right = label_numbers(labels, runner.config.labels, f"{name}, text")
            with PLAIN.showing(len(texts), show_progress_bar, precision) as call:
                chances = runner.probabilities(compute(Logits(runner, texts), call))
            # By score, which classes are in each text's set: bool [texts, classes].
            inside = {score: SCORES[score](chances) <= limit for score, limit in limits.items()}
            rows = np.arange(len(right))
            calibrated.append(Calibrated(
                precision, name, measure(chances, right),
                {score: float(sets[rows, right].mean()) for score, sets in inside.items()},
                {score: float(sets.sum(axis=1).mean()) for score, sets in inside.items()},
                *shift_of(chances.max(axis=1).astype(np.float32), calibration)))
    return calibrated
