"""The test of Kolmogorov and Smirnov: all orders of few numbers, and how often it errs."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from engine.uncertainty import kolmogorov_smirnov


def distance(a, b):
    """Return the largest distance of two distribution functions, as integers: D n m."""
    return max(abs(sum(x <= t for x in a) * len(b) - sum(x <= t for x in b) * len(a)) for t in (*a, *b))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 6), (2, 3), (4, 4), (5, 3), (6, 4), (5, 7)])
def test_all_orders(n, m):
    orders = [(own, [i for i in range(n + m) if i not in own]) for own in combinations(range(n + m), n)]
    apart = [distance(a, b) for a, b in orders]
    for (a, b), d in zip(orders, apart, strict=True):
        found, p = kolmogorov_smirnov(np.array(a), np.array(b))
        assert found == d / (n * m)
        assert p == pytest.approx(sum(other >= d for other in apart) / comb(n + m, n), rel=1e-12)


def test_equal_numbers_make_it_careful():
    rng = np.random.default_rng(0)
    alarms = sum(kolmogorov_smirnov(rng.integers(0, 4, 30), rng.integers(0, 4, 25))[1] <= 0.2 for _ in range(300))
    assert alarms < 60
    assert kolmogorov_smirnov(np.zeros(5), np.zeros(9)) == (0, 1)


@pytest.fixture(scope="module")
def p_values():
    """Return those of 1500 pairs of samples of one distribution."""
    rng = np.random.default_rng(1)
    return np.array([kolmogorov_smirnov(rng.random(31), rng.random(20))[1] for _ in range(1500)])


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_no_more_false_alarms_than_stated(p_values, rate):
    times, alarms = len(p_values), (p_values <= rate).sum()
    assert alarms <= rate * times + 3 * (rate * (1 - rate) * times) ** 0.5
    assert alarms > 0.7 * rate * times      # and it is no test that never alarms


def test_a_shift_is_found():
    rng = np.random.default_rng(2)
    a = rng.normal(size=4096).astype(np.float32)
    assert kolmogorov_smirnov(a, rng.normal(size=4096) + 0.2)[1] < 1e-6
    assert kolmogorov_smirnov(a, a + 9) == (1, pytest.approx(0, abs=1e-300))
    assert kolmogorov_smirnov(a[:200], a[200:])[1] > 0.01
