"""Measure how good probabilities are: accuracy, log loss, Brier score, expected calibration error (ECE), reliability.

    ECE = sum over bins of (texts of the bin / all texts) * |accuracy of the bin - mean confidence of the bin|

The confidence of a text is the probability of its best class. Bins have equal mass: each has about the same number of
texts, and texts with equal confidences share a bin, so that the order of the texts does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..base.functions import log

BINS = 15
"""The number of bins of the expected calibration error, as in Guo et al. 2017."""


@dataclass(frozen=True)
class Bin:
    """One bin of the calibration error: texts with similar confidences."""

    confidence: float
    """The mean of the confidences."""
    accuracy: float
    """The share of the texts whose best class is right."""
    count: int
    """The number of texts in the bin."""


@dataclass(frozen=True)
class Measures:
    """How good the probabilities of labelled texts are."""

    count: int
    accuracy: float
    log_loss: float
    """The mean of -log(probability of the right class), in nats."""
    brier: float
    """The mean of the squared differences to the right answer, summed over classes: from 0 to 2."""
    ece: float
    """The expected calibration error, from 0 to 1."""
    reliability: tuple[Bin, ...] = ()
    """The bins of the calibration error."""


def measure(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> Measures:
    """Measure probabilities [n, K] of texts whose right classes are `labels`, integers [n]."""
    return measure_summary(summarise(probabilities, labels), bins)


def summarise(probabilities: np.ndarray, labels: np.ndarray) -> NDArray[np.float64]:
    """Return four numbers of each text, [n, 4], for `measure_summary`; the probabilities [n, K] can then be freed.

    Columns: the probability of the right class, that of the best class, 1 if both are one class, and the Brier score.
    """
    rows = np.arange(len(labels))
    p_right, best = probabilities[rows, labels], probabilities.argmax(axis=1)
    # Each probability minus the right one, which is 1 for the right class and 0 for the others, squared and summed.
    squares = np.square(probabilities).sum(axis=1) - np.square(p_right) + np.square(1 - p_right)
    return np.stack([p_right, probabilities[rows, best], best == labels, squares], axis=1).astype(np.float64)


def measure_summary(summary: np.ndarray, bins: int = BINS) -> Measures:
    """Return the measures of texts from the result of `summarise`, [n, 4]."""
    n = len(summary)
    p_right, confidences, is_right, squares = summary.T
    table = reliability(confidences, is_right == 1, bins)
    with np.errstate(divide="ignore"):      # a probability of 0 has an infinite loss
        loss = float(-np.log(p_right).mean())
    ece = sum(each.count / n * abs(each.accuracy - each.confidence) for each in table)
    return Measures(n, float(is_right.mean()), log_loss=loss, brier=float(squares.mean()), ece=ece,
                    reliability=tuple(table))


def reliability(confidences: np.ndarray, right: np.ndarray, bins: int = BINS) -> list[Bin]:
    """Return the bins of equal mass, from the least confidence to the largest; bins without texts are left out.

    confidences: [n], the probability of each text's best class. right: bool [n], whether that class is the right one.
    """
    n = len(confidences)
    ordered = np.sort(confidences)
    edges = ordered[[n * i // bins for i in range(1, bins)]]        # the least confidence of each bin but the first
    places = np.searchsorted(edges, confidences, side="right")
    table = []
    for i in range(bins):
        is_member = places == i
        if is_member.any():
            # Sorted, so that the sum does not depend on the order of the texts.
            table.append(Bin(float(np.sort(confidences[is_member]).mean()), float(right[is_member].mean()),
                             int(is_member.sum())))
    return table


def margin(probabilities: np.ndarray) -> NDArray[np.float64]:
    """Return the largest probability minus the second largest of each row of [n, K]; for K = 1, that one."""
    if probabilities.shape[1] == 1:
        return probabilities[:, 0].astype(np.float64)
    largest_two = -np.partition(-probabilities, 1, axis=1)[:, :2].astype(np.float64)     # the largest one first
    return np.asarray(largest_two[:, 0] - largest_two[:, 1])


def entropy(probabilities: np.ndarray) -> NDArray[np.float64]:
    """Return -sum p log p of each row of [n, K], in nats: 0 for a certain class, log(K) for equal probabilities."""
    entropies = np.zeros(len(probabilities))
    for i, row in enumerate(probabilities.astype(np.float64)):
        positive = row[row > 0]
        entropies[i] = -(positive * log(positive)).sum() + 0.0     # + 0.0, because -0.0 would be printed with its sign
    return entropies
