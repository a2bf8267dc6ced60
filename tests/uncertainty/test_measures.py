"""Accuracy, log loss, Brier score, calibration error, margin and entropy, against loops in plain Python."""

import math

import numpy as np
import pytest

from engine.uncertainty.measures import entropy, margin, measure, measure_summary, reliability, summarise
from engine.uncertainty.probabilities import probabilities


def problem(seed, n=300, K=4):
    rng = np.random.default_rng(seed)
    return probabilities(rng.normal(size=(n, K)) * 2), rng.integers(0, K, n)


def test_measures():
    p, labels = problem(0)
    found = measure(p, labels, 10)
    rows = list(zip(p.tolist(), labels.tolist(), strict=True))
    assert found.count == 300
    assert found.accuracy == sum(row.index(max(row)) == y for row, y in rows) / 300
    assert found.log_loss == pytest.approx(-sum(math.log(row[y]) for row, y in rows) / 300)
    assert found.brier == pytest.approx(
        sum(sum((q - (k == y)) ** 2 for k, q in enumerate(row)) for row, y in rows) / 300)
    ordered = sorted((max(row), row.index(max(row)) == y) for row, y in rows)
    bins = [ordered[30 * i : 30 * i + 30] for i in range(10)]
    assert found.ece == pytest.approx(sum(abs(sum(r for _, r in one) - sum(c for c, _ in one)) for one in bins) / 300)
    assert [one.count for one in found.reliability] == [30] * 10
    assert found == measure_summary(np.concatenate([summarise(p[i : i + 7], labels[i : i + 7])
                                                    for i in range(0, 300, 7)]), 10)


def test_equal_confidences_share_a_bin():
    confidences, right = np.repeat([0.5, 0.9], [70, 30]), np.arange(100) % 2 == 0
    bins = reliability(confidences, right)
    assert [(one.accuracy, one.count) for one in bins] == [(0.5, 70), (0.5, 30)]
    assert [one.confidence for one in bins] == pytest.approx([0.5, 0.9])
    order = np.random.default_rng(0).permutation(100)
    assert reliability(confidences[order], right[order]) == bins


@pytest.mark.parametrize("n", [1, 2, 14, 15, 16])
def test_few_texts(n):
    p, labels = problem(1, n)
    found = measure(p, labels)
    assert sum(one.count for one in found.reliability) == n
    assert 0 <= found.ece <= 1


def test_a_calibrated_model_has_a_small_error():
    p, _ = problem(2, 20_000)
    labels = (np.random.default_rng(3).random((20_000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    assert measure(p, labels).ece < 0.012
    assert measure(p ** 3 / (p ** 3).sum(axis=1, keepdims=True), labels).ece > 0.1


def test_a_probability_of_zero():
    assert measure(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])).log_loss == math.inf


def test_margin_and_entropy():
    p = np.array([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]])
    np.testing.assert_allclose(margin(p), [0.2, 1, 0.25])
    assert margin(np.array([[0.7]])).tolist() == [0.7]
    np.testing.assert_allclose(entropy(p), [-(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2)), 0,
                                            1.5 * math.log(2)])
    assert math.copysign(1, entropy(p)[1]) == 1
