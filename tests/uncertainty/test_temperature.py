"""Temperatures and biases: scikit-learn's, an own optimum in float64, and data that have none."""

import numpy as np
import pytest

from engine import InputError
from engine.uncertainty.probabilities import probabilities
from engine.uncertainty.temperature import fit_scale_and_bias, fit_temperature, log_loss

from ..tools.paths import HEADS

GOLDEN = HEADS / "calibration.npz"


def problem(seed, n=400, K=4, bias=None):
    """Return logits, and labels that are drawn from softmax(z / 2 + bias)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, K)) * 3
    chances = np.cumsum(probabilities(logits, 2.0, bias), axis=1)
    return logits.astype(np.float32), (rng.random((n, 1)) > chances).sum(axis=1)


def slope(logits, labels, scale):
    """Return the derivative of the log loss by 1/T: the mean over texts of E[z] - z[label], in plain loops."""
    total = 0.0
    for row, label in zip(logits.astype(np.float64), labels, strict=True):
        e = np.exp(row * scale - (row * scale).max())
        total += float(e @ row / e.sum() - row[label])
    return total / len(labels)


def optimum(logits, labels):
    """Return the best temperature by bisection of the slope, which rises with 1/T."""
    low, high = 1e-3, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(logits, labels, middle) < 0 else (low, middle)
    return 2 / (low + high)


def test_the_temperatures_of_scikit_learn():
    with np.load(GOLDEN) as file:
        expected = file["problem.temperatures"]
        found = [fit_temperature(file[f"problem.{i}.logits"], file[f"problem.{i}.labels"])
                 for i in range(len(expected))]
    assert len(expected) == 20
    assert max(expected) / min(expected) > 3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_an_own_optimum(seed):
    logits, labels = problem(seed, n=150, K=3 + seed)
    assert abs(fit_temperature(logits, labels) - optimum(logits, labels)) < 1e-6


def test_one_output_is_two_classes():
    logits, labels = problem(3, K=2)
    single = logits[:, 1:] - logits[:, :1]
    assert fit_temperature(single, labels) == pytest.approx(fit_temperature(logits, labels), abs=1e-6)
    t, bias = fit_scale_and_bias(single, labels)
    both, biases = fit_scale_and_bias(logits, labels)
    assert bias.shape == (1,)
    assert (t, bias[0]) == pytest.approx((both, biases[1] - biases[0]), abs=1e-5)
    np.testing.assert_allclose(probabilities(single, t, bias), probabilities(logits, both, biases), atol=1e-5)


def test_biases():
    wanted = np.array([1.5, -0.5, -1.0, 0.0])
    logits, labels = problem(5, n=20_000, bias=wanted)
    t, bias = fit_scale_and_bias(logits, labels)
    assert t == pytest.approx(2, abs=0.05)
    np.testing.assert_allclose(bias, wanted, atol=0.08)
    best = log_loss(logits, labels, 1 / t, bias)
    assert best < log_loss(logits, labels, 1 / fit_temperature(logits, labels)) - 0.1
    rng = np.random.default_rng(0)
    for _ in range(20):     # every other point nearby is worse
        other = rng.normal(size=5) * 0.01
        assert log_loss(logits, labels, 1 / t + other[0], bias + other[1:]) > best


def test_a_class_without_texts():
    logits, labels = problem(6, K=4)
    labels = labels.clip(0, 2)
    t, bias = fit_scale_and_bias(logits, labels)
    assert np.isfinite([t, *bias]).all()
    assert bias.argmin() == 3


def test_parts_of_large_data_give_the_whole(monkeypatch):
    logits, labels = problem(7)
    whole = log_loss(logits, labels, 0.7)
    monkeypatch.setattr("engine.uncertainty.temperature.BLOCK_LOGITS", 12)
    assert log_loss(logits, labels, 0.7) == pytest.approx(whole, rel=1e-14)


def test_labels_without_a_best_temperature():
    logits, _ = problem(8)
    with pytest.raises(InputError, match="with some mistakes among them"):
        fit_temperature(logits, logits.argmax(axis=1))
    with pytest.raises(InputError, match="check that the labels belong to the texts"):
        fit_temperature(logits, logits.argmin(axis=1))
    with pytest.raises(InputError, match="with some mistakes among them"):
        fit_scale_and_bias(logits, logits.argmax(axis=1))


def test_each_row_is_computed_alone():
    logits, _ = problem(9, n=33, K=7)
    whole = probabilities(logits, 1.7, np.arange(7))
    for i in (0, 5, 32):
        assert probabilities(logits[i : i + 1], 1.7, np.arange(7)).tobytes() == whole[i].tobytes()
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-15)
    assert probabilities(np.array([[1000.0, -1000.0]])).tolist() == [[1.0, 0.0]]
