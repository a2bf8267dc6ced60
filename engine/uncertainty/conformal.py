"""Compute split conformal prediction: sets that hold the right class as often as promised (Vovk et al. 2005).

The score of a class says how badly it fits a text. The right classes of n labelled texts have scores s. The threshold
for a coverage c is the k-th smallest of them, k = ceil(c (n + 1)), and the set of a new text holds the classes whose
score is at most the threshold. If the new text is like the labelled ones (exchangeable with them), its set holds the
right class with a probability of at least c, and of at most c + 1 / (n + 1) if no scores are equal.

    LAC   s(y) = 1 - p(y)                                   the smallest sets (Sadinle et al. 2019)
    APS   s(y) = sum of p(k) over k with p(k) >= p(y)       larger sets for harder texts (Romano et al. 2020)

Scores are rounded to float32, labelled and new ones alike, because the file of a model holds them in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.arguments import is_number
from ..base.errors import InputError, shown


def check_coverage(coverage: Any) -> float:
    """Return a coverage as the float that it is printed as; raises `InputError` unless it lies between 0 and 1."""
    if not is_number(coverage, np.floating) or not 0 < coverage < 1:
        raise InputError(f"coverage must be a number between 0 and 1, such as 0.9, not {shown(coverage)}; 1 would ask "
                         "for sets of all labels, and 0 for empty ones")
    return float(str(coverage))


def threshold(scores: np.ndarray, coverage: float, what: str = "texts") -> np.float32:
    """Return the threshold for the scores [n] of labelled texts: the k-th smallest, k = ceil(coverage (n + 1)).

    The coverage counts as the decimal fraction that it is printed as, so that 0.9 of 10 is 9. Raises `InputError` if
    there are too few scores, and says how many are needed. what: the noun for what has the scores, for this message.
    """
    share = Fraction(repr(float(coverage)))
    k = math.ceil(share * (len(scores) + 1))
    if k > len(scores):
        raise InputError(f"coverage={coverage} needs the scores of {least_count(coverage)} labelled {what} at least, "
                         f"and there are {len(scores)}; calibrate on more, or ask for less")
    return np.float32(np.partition(scores, k - 1)[k - 1])


def least_count(coverage: float) -> int:
    """Return the least number of scores that a coverage needs: n with ceil(coverage (n + 1)) <= n."""
    share = Fraction(repr(float(coverage)))
    return math.ceil(share / (1 - share))


def class_thresholds(scores: np.ndarray, classes: np.ndarray, coverage: float, labels: tuple[str, ...]
                     ) -> NDArray[np.float32]:
    """Return the threshold of each class, from the labelled texts of this class alone: float32 [K].

    The coverage then holds for the texts of each class. scores, classes: [n]. Raises `InputError` for too few texts.
    """
    return np.array([threshold(scores[classes == i], coverage, f"texts of the class {shown(label)}")
                     for i, label in enumerate(labels)], np.float32)


def lac_scores(probabilities: np.ndarray) -> NDArray[np.float32]:
    """Return the LAC score of each class: float32 [n, K] from probabilities [n, K]."""
    return (1 - probabilities.astype(np.float64)).astype(np.float32)


def aps_scores(probabilities: np.ndarray) -> NDArray[np.float32]:
    """Return the APS score of each class: float32 [n, K] from probabilities [n, K].

    The sum runs from the most probable class to the least probable one. Classes with equal probabilities have one
    score, which counts all of them.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ordered = np.take_along_axis(probabilities, order, axis=1).astype(np.float64)
    sums = np.cumsum(ordered, axis=1)
    for k in range(sums.shape[1] - 2, -1, -1):
        is_tie = ordered[:, k] == ordered[:, k + 1]
        sums[is_tie, k] = sums[is_tie, k + 1]       # from the last class to the first, so that all equal classes agree
    scores = np.empty(probabilities.shape, np.float32)      # in the order of the classes again
    np.put_along_axis(scores, order, sums.astype(np.float32), axis=1)
    return scores


SCORES: dict[str, Callable[[np.ndarray], NDArray[np.float32]]] = {"lac": lac_scores, "aps": aps_scores}
"""The score functions, by the names by which users choose one."""
