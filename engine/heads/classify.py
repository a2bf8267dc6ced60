"""Turn logits into classes of texts: labels with scores, as transformers' pipeline of text classification.

A calibrated head gives calibrated probabilities, with their margin and entropy, and sets of labels for a coverage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model.head import FUNCTIONS as NAMES
from ..uncertainty.conformal import SCORES, class_thresholds, threshold
from ..uncertainty.measures import entropy, margin
from .runner import FUNCTIONS, HeadRunner, check_choice, top


def check_function(name: str, function: Any) -> str | None:
    """Return the name of a function of logits, or None for None; raises `InputError`. name: that of the argument."""
    return None if function is None else check_choice(name, function, NAMES)


def labels_of(runner: HeadRunner, logits_of_texts: np.ndarray, top_k: int | None, function: str | None) -> list[Any]:
    """Return the labels of texts by their logits, float32 [n, labels]: the last of three steps of `classify`.

    Each result is that of `best_labels`. function: "softmax", "sigmoid" or "none", in place of the model's own function
    and of its calibration; None for these. It is computed of each text alone, in float32.
    """
    config = runner.config
    if function is None and runner.calibration is not None:
        calibrated = runner.probabilities(logits_of_texts)
        # One label alone has the probabilities [2] of "no" and "yes".
        return [best_labels(config.labels, row[-len(config.labels):].tolist(), top_k, doubt)
                for row, doubt in zip(calibrated, doubts(calibrated), strict=True)]
    compute = FUNCTIONS[config.function if function is None else function]
    results: list[Any] = []
    for logits in logits_of_texts:
        results.append(best_labels(config.labels, compute(logits).tolist(), top_k))
    return results


def best_labels(labels: Sequence[str], scores: Sequence[float], top_k: int | None, more: dict[str, Any] | None = None
                ) -> Any:
    """Return a list of {"label", "score"} of the top_k best labels, the best first; for top_k=1, its only item.

    scores: one for each label. more: further entries of each dictionary.
    """
    best = [{"label": labels[i], "score": scores[i], **(more or {})} for i in top(scores, top_k)]
    return best[0] if top_k == 1 else best


def doubts(probabilities: np.ndarray) -> list[dict[str, float]]:
    """Return the entries "margin" and "entropy" of results, for each row of probabilities [n, K]."""
    return [{"margin": float(m), "entropy": float(e)}
            for m, e in zip(margin(probabilities), entropy(probabilities), strict=True)]


@dataclass(frozen=True)
class Sets:
    """The settings by which labels get into the set of a text."""

    coverage: float
    """The share of texts whose sets shall have the right label."""
    score: str = "lac"
    """The conformal score, one of `engine.uncertainty.SCORES`."""
    by_class: bool = False
    """Whether the coverage holds for the texts of each class, and not only for all texts together."""


def limits_of(runner: HeadRunner, sets: Sets) -> Any:
    """Return the largest conformal score with which a label is in the set of a text: one for all labels, or with
    `by_class` one for each label.

    Raises `InputError` if the calibration has too few texts for the coverage.
    """
    calibration = runner.calibration
    assert calibration is not None
    scores = calibration.arrays[sets.score]
    if sets.by_class:
        return class_thresholds(scores, calibration.arrays["classes"], sets.coverage, runner.config.labels)
    return threshold(scores, sets.coverage)


def label_sets(runner: HeadRunner, logits_of_texts: np.ndarray, sets: Sets, limits: Any
               ) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return (the best label of each text with its set of labels, confidences), float32 [n].

    A confidence is the largest probability of a text. logits_of_texts: float32 [n, labels]. limits: as `limits_of`
    returns them.
    """
    calibrated = runner.probabilities(logits_of_texts)
    inside = SCORES[sets.score](calibrated) <= limits
    results = []
    for row, doubt, kept in zip(calibrated, doubts(calibrated), inside, strict=True):
        order = top(row.tolist(), k=None)
        results.append({"label": runner.config.labels[order[0]], "score": float(row[order[0]]), **doubt,
                        "labels": [{"label": runner.config.labels[i], "score": float(row[i])}
                                   for i in order if kept[i]]})
    return results, calibrated.max(axis=1).astype(np.float32)
