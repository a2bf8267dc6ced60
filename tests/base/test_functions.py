"""Elementary functions are within their stated errors, also at the ends of their ranges.

tests/backends/test_portable_bits.py compares their bits between processes whose libraries choose other code.
"""

import numpy as np
import pytest

from engine.base.functions import cos_sin, exp, log, log1p, log10, power, product, spectrum, tanh

RANDOM = np.random.default_rng(0)


def ulps(found, expected):
    """Return how many ulps of the type of `found` lie between, at most; both have NaN at the same places."""
    found, expected = np.asarray(found), np.asarray(expected, np.longdouble)
    assert (np.isnan(found) == np.isnan(expected)).all()
    finite = np.isfinite(found)
    rounded = expected.astype(found.dtype)
    assert (found[~finite] == rounded[~finite])[~np.isnan(found[~finite])].all()
    return float((np.abs(found[finite] - expected[finite]) / np.spacing(np.abs(rounded[finite]))).max(initial=0))


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.float32, -110, 95), (np.float64, -760, 720)])
def test_exp(dtype, low, high):
    x = np.concatenate([RANDOM.uniform(low, high, 20000), RANDOM.normal(size=20000) * 1e-3,
                        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30]]).astype(dtype)
    with np.errstate(over="ignore"):
        assert ulps(exp(x), np.exp(x.astype(np.longdouble))) < 1.5
    assert exp(x).dtype == dtype
    assert exp(dtype(0)) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms(dtype):
    info = np.finfo(dtype)
    x = np.concatenate([np.exp(RANDOM.uniform(-80, 80, 20000)), 1 + RANDOM.normal(size=20000) * 1e-4,
                        [0.0, -1.0, np.inf, np.nan, info.tiny, info.smallest_subnormal, info.max]]).astype(dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = 1.5 if dtype == np.float32 else 5
        assert ulps(log(x), np.log(x.astype(np.longdouble))) < bound
        assert ulps(log10(x), np.log10(x.astype(np.longdouble))) < bound
        x = np.abs(x)
        assert ulps(log1p(x), np.log1p(x.astype(np.longdouble))) < bound
    assert log(x).dtype == log10(x).dtype == log1p(x).dtype == dtype
    assert log(dtype(1)) == 0 == log1p(dtype(0))


def test_tanh():
    x = np.concatenate([RANDOM.normal(size=20000) * 3, RANDOM.normal(size=20000) * 1e-3, [0.0, np.inf, -np.inf, np.nan,
                        1e-30, -1e-40, 50]]).astype(np.float32)
    assert ulps(tanh(x), np.tanh(x.astype(np.longdouble))) < 0.51
    assert np.signbit(tanh(np.float32(-0.0)))


@pytest.mark.parametrize("largest", [1.0, 1e4, 2.0**20, 2.0**31])
def test_cosine_and_sine(largest):
    x = np.concatenate([RANDOM.uniform(-largest, largest, 20000), [0.0, largest]])
    cosine, sine = cos_sin(x)
    error = 4e-16 if largest < 2e6 else 1e-12
    assert np.abs(cosine - np.cos(x)).max() < error
    assert np.abs(sine - np.sin(x)).max() < error


@pytest.mark.parametrize("x", [np.inf, np.nan, 1e10])
def test_angles_too_large(x):
    with pytest.raises(ValueError, match="quarter turns"):
        cos_sin([0.0, x])


def test_power():
    base, exponent = RANDOM.uniform(1, 1e6, 20000), RANDOM.uniform(-2, 2, 20000)
    assert ulps(power(base, exponent), np.power(base.astype(np.longdouble), exponent)) < 40      # of up to 28
    assert (power(base, 1.0) == base).all()
    assert (power(base, 0.0) == 1).all()


@pytest.mark.parametrize("N", [2, 6, 8, 14, 30, 400])
def test_spectrum(N):
    x = RANDOM.standard_normal((N, 7))
    angles = 2 * np.pi * (np.arange(N // 2 + 1)[:, None] * np.arange(N) % N) / N
    real, imaginary = spectrum(x)
    assert np.abs(real - np.cos(angles) @ x).max() < 3e-15 * N
    assert np.abs(imaginary + np.sin(angles) @ x).max() < 3e-15 * N
    alone = spectrum(x[:, 3:4])
    assert all((whole[:, 3:4] == part).all() for whole, part in zip((real, imaginary), alone, strict=True))


def test_a_product_is_near_and_exact_in_any_order():
    """Reversing the depth, or cutting it, changes no bit, as it would change those of a plain product."""
    rng = np.random.default_rng(0)
    for n, m, K in [(1, 1, 1), (3, 5, 2), (7, 4, 3072), (20, 30, 768)]:
        a, b = rng.standard_normal((n, K)) * 1e-9, rng.standard_normal((m, K)) * 1e7
        found = product(a, b)
        exact = a.astype(np.longdouble) @ b.astype(np.longdouble).T
        size = K**0.5 * np.abs(a).max(axis=1)[:, None] * np.abs(b).max(axis=1)
        assert (np.abs(found - exact) <= 2.0**-38 * size).all()
        order = rng.permutation(K)
        assert found.tobytes() == product(a[:, order], b[:, order]).tobytes()
    assert np.isnan(product([[np.nan, 1.0]], [[1.0, 2.0]])).all()
    zeros = product(np.zeros((2, 3)), np.ones((2, 3)))
    assert not zeros.any()
    assert not np.signbit(zeros).any()
