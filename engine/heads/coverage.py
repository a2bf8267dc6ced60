"""Helpers of calls with a coverage: the calibration that they need, ranked lists, and the warning of shifted texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.arguments import is_number, warn_caller
from ..base.errors import InputError, UnsupportedError, shown
from ..uncertainty.conformal import check_coverage, threshold
from ..uncertainty.shift import MOST_COMPARED, kolmogorov_smirnov
from ..weights.calibration import Calibration
from .classify import doubts
from .pairs import count_near_best, pair_scores
from .runner import HeadRunner, top

FALSE_ALARM_RATE = 0.001
"""By default, the share of calls that may warn of a shift although their texts are like those of the calibration."""


def calibration_of(calibrations: Mapping[str, Calibration], task: str) -> Calibration:
    """Return the calibration of a task; raises `UnsupportedError` if the model has none."""
    if task not in calibrations:
        raise UnsupportedError(f"coverage of {task} needs a calibrated model, and this one is not; engine calibrate, "
                               "or engine.calibrate in Python, calibrates it on labelled texts")
    return calibrations[task]


def limit_of_rank(calibrations: Mapping[str, Calibration], coverage: Any, top_k: int | None) -> np.float32 | None:
    """Return how far the logit of a document that is returned may be below the largest one; None without a coverage.

    Raises `InputError` for a top_k beside it, and `UnsupportedError` for a model that is not calibrated on queries.
    """
    if coverage is None:
        return None
    if top_k is not None:
        raise InputError("a coverage says how many documents to return, and so does top_k; leave one of them out")
    share, calibration = check_coverage(coverage), calibration_of(calibrations, "rank")
    if "gaps" not in calibration.arrays:
        raise UnsupportedError("the model is calibrated on pairs without lists of documents; a coverage of rank needs "
                               "labelled queries, each with several documents")
    return threshold(calibration.arrays["gaps"], share, "queries")


def ranked(logits: np.ndarray, scores: np.ndarray, texts: Sequence[Any] | None, top_k: int | None,
           limit: np.float32 | None, probabilities: np.ndarray | None) -> list[dict[str, Any]]:
    """Return the results of `rank`, the best document first. logits, scores: float32 [n], one for each document.

    texts: the documents, to return them; None to leave them out. top_k: the most results, if `limit` is None. limit: as
    `limit_of_rank` returns it. probabilities: calibrated ones of "no" and "yes", [n, 2], for the margin and the
    entropy; None to leave these out.
    """
    count = top_k if limit is None else count_near_best(logits, limit)
    doubt = [{}] * len(logits) if probabilities is None else doubts(probabilities)
    return [{"corpus_id": i, "score": float(scores[i]), **doubt[i], **({} if texts is None else {"text": texts[i]})}
            for i in top(logits, count)]


def ranks_of(runner: HeadRunner, logits: np.ndarray, texts: Sequence[Any] | None, top_k: int | None,
             limit: np.float32 | None, function: Any = None) -> list[dict[str, Any]]:
    """Return the results of `rank` by the logits of the documents, float32 [n, 1]: the last of its three steps.

    The steps before it are `Tokenizer.pairs` and `HeadRunner.logits`. function: the function from logits to scores, by
    its name or as an object of torch.nn; None for the model's. The other arguments are those of `ranked`.
    """
    probabilities = runner.probabilities(logits) if runner.calibration and function is None else None
    return ranked(logits[:, 0], pair_scores(runner, logits, function), texts, top_k, limit, probabilities)


def shift_of(confidences: np.ndarray, calibration: Calibration) -> tuple[float, float]:
    """Return (distance D, p-value) of the Kolmogorov-Smirnov test of confidences [n] against the calibration's."""
    return kolmogorov_smirnov(calibration.arrays["confidences"][:MOST_COMPARED], confidences[:MOST_COMPARED])


def check_rate(value: Any) -> float | None:
    """Return the argument false_alarm_rate of a call, None or a number between 0 and 1; raises `InputError`."""
    if value is not None and (not is_number(value, np.floating) or not 0 < value < 1):
        raise InputError(f"false_alarm_rate must be None or a number between 0 and 1, not {shown(value)}")
    return None if value is None else float(value)


def warn_of_shift(confidences: np.ndarray, calibration: Calibration, rate: float | None) -> None:
    """Warn if the confidences [n] of a call look unlike those of the calibration, by a Kolmogorov-Smirnov test.

    rate: the share of calls that may warn although both are alike; None for no warning.
    """
    if rate is None or not len(confidences):
        return
    distance, p = shift_of(confidences, calibration)
    if p <= rate:
        usual = calibration.arrays["confidences"]
        warn_caller(f"the scores of these {len(confidences)} texts look unlike those of the {len(usual)} texts of "
                    f"the calibration (Kolmogorov-Smirnov: D = {distance:.2f}, p = {p:.1g}; mean confidence "
                    f"{confidences.mean():.2f}, not {usual.mean():.2f}), so the coverage may not hold: calibrate on "
                    "such texts, or say false_alarm_rate=None", UserWarning)
