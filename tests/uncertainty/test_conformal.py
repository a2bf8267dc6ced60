"""Thresholds and sets, against written-out loops on random problems; too few scores; bad coverages."""

import math
from fractions import Fraction

import numpy as np
import pytest

from engine import InputError
from engine.uncertainty import (
    SCORES,
    aps_scores,
    check_coverage,
    class_thresholds,
    lac_scores,
    probabilities,
    threshold,
)


def lac_of(row, y):
    return np.float32(1 - row[y])


def aps_of(row, y):
    """Return the sum of the probabilities that are at least that of y, from the largest one on."""
    total = 0.0
    for p in sorted((p for p in row if p >= row[y]), reverse=True):
        total += p
    return np.float32(total)


def set_of(row, score, calibration, coverage):
    """Return the set of one text, as the formula says it."""
    k = math.ceil(coverage * (len(calibration) + 1))
    limit = sorted(calibration)[k - 1]
    return [y for y in range(len(row)) if score(row, y) <= limit]


def test_random_problems():
    rng = np.random.default_rng(0)
    sizes = set()
    for number in range(250):
        n, K = int(rng.integers(20, 60)), int(rng.integers(2, 9))
        coverage = Fraction(int(rng.integers(50, 95)), 100)
        logits = rng.normal(size=(n + 3, K)) * rng.uniform(0.1, 4)
        if number % 5 == 0:
            logits = logits.round()         # so that classes, and texts, have equal probabilities
        p, labels = probabilities(logits), rng.integers(0, K, n)
        for name, score in (("lac", lac_of), ("aps", aps_of)):
            scores = SCORES[name](p)
            limit = threshold(scores[np.arange(n), labels], float(coverage))
            calibration = [score(row, y) for row, y in zip(p[:n].tolist(), labels, strict=True)]
            for i in range(n, n + 3):
                found = np.flatnonzero(scores[i] <= limit).tolist()
                assert found == set_of(p[i].tolist(), score, calibration, coverage)
                sizes.add(len(found))
    assert sizes >= set(range(6))


def test_scores_of_one_text():
    p = np.array([[0.1, 0.6, 0.3]])
    np.testing.assert_allclose(lac_scores(p), [[0.9, 0.4, 0.7]])
    np.testing.assert_allclose(aps_scores(p), [[1.0, 0.6, 0.9]])
    np.testing.assert_allclose(aps_scores(np.array([[0.25, 0.5, 0.25]])), [[1.0, 0.5, 1.0]])
    assert lac_scores(p).dtype == aps_scores(p).dtype == np.float32


def test_the_coverage_is_that_of_the_formula():
    """The set holds the class of a text that is like the others in exactly k of n + 1 cases."""
    scores = np.arange(10, dtype=np.float32)
    for coverage, k in ((0.5, 6), (0.9, 10), (0.8, 9), (0.1, 2), (0.7, 8)):
        held = sum(scores[i] <= threshold(np.delete(scores, i), coverage) for i in range(10))
        assert held == math.ceil(Fraction(repr(coverage)) * 10) <= k
        assert threshold(scores, coverage) == k - 1


@pytest.mark.parametrize(("coverage", "least"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_too_few_scores(coverage, least):
    assert threshold(np.arange(least, dtype=np.float32), coverage) == least - 1
    with pytest.raises(InputError, match=rf"needs the scores of {least} labelled queries at least, and there are"):
        threshold(np.arange(least - 1, dtype=np.float32), coverage, "queries")


def test_thresholds_of_classes():
    scores, classes = np.arange(30, dtype=np.float32), np.arange(30) % 3
    assert class_thresholds(scores, classes, 0.9, ("a", "b", "c")).tolist() == [27, 28, 29]
    with pytest.raises(InputError, match=r"9 labelled texts of the class 'b' at least, and there are 5"):
        class_thresholds(scores[15:], np.repeat([0, 1], [10, 5]), 0.9, ("a", "b"))


@pytest.mark.parametrize("coverage", [0, 1, 0.0, 1.0, -0.1, 1.1, 90, math.nan, math.inf, True, "0.9", None, [0.9]])
def test_bad_coverages(coverage):
    with pytest.raises(InputError, match="coverage must be a number between 0 and 1"):
        check_coverage(coverage)


def test_coverages_of_numpy():
    assert check_coverage(np.float32(0.5)) == check_coverage(np.float64(0.5)) == 0.5
    assert check_coverage(np.float32(0.6)) == 0.6       # although it is above 0.6
