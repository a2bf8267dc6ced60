"""Test norms, embeddings, gates and pooling, emulated, against the reference in float64."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels import embedding, norm, pooling
from engine.backends.reference import formulas as ops
from engine.encoding.pooling import pool
from engine.model.text_config import POOLINGS
from engine.weights.bfloat16 import to_bfloat16

from ...tools.cuda_emulator import launch

EPS = np.finfo(np.float32).eps
PARTS = ("words", "positions", "token_types", "norm", "bfloat16")
"""The parts of an embedding; a model may lack any of them."""
BF16 = 2.0**-8
"""Relative rounding error of bfloat16: at most half an ulp."""


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def guarded(rows, D, dtype):
    """Return an array for results, followed by a row that must not change."""
    array = np.full((rows + 1, D), 12345, dtype)
    return array, array[:rows]


def close(out, exact, factor=8):
    assert np.abs(out - exact).max() <= factor * EPS * max(1.0, np.abs(exact).max())


@pytest.mark.parametrize("D", [1, 31, 32, 100])
@pytest.mark.parametrize("rows", [1, 5])
def test_norm(rows, D):
    x, weight, bias = normal(0, rows, D) * 3 + 2, normal(1, D), normal(2, D)
    (all32, out32), (all16, out16) = guarded(rows, D, np.float32), guarded(rows, D, np.uint16)
    launch(norm.layer_norm_kernel(D), norm.norm_grid(rows), x, weight, bias, np.float32(1e-5), out32, out16)
    close(out32, ops.layer_norm(*(a.astype(np.float64) for a in (x, weight, bias)), 1e-5), 32)
    assert np.array_equal(out16, to_bfloat16(out32))
    assert (all32[rows] == 12345).all()
    assert (all16[rows] == 12345).all()


def test_norm_of_a_large_mean_loses_no_more_than_the_input_did():
    x = normal(0, 2, 64) + np.float32(1000)
    out = np.empty_like(x)
    launch(norm.layer_norm_kernel(64, bfloat16=False), norm.norm_grid(2), x, np.ones(64, np.float32),
           np.zeros(64, np.float32), np.float32(1e-12), out, np.zeros((1, 1), np.uint16))
    exact = ops.layer_norm(x.astype(np.float64), None, None, 1e-12)
    assert np.abs(out - exact).max() <= 2000 * EPS


@pytest.mark.parametrize("missing", [(), *((part,) for part in PARTS)], ids=str)
def test_embedding(missing):
    D, N = 40, 6
    rng = np.random.default_rng(3)
    ids, positions, types = (rng.integers(0, n, N, np.int32) for n in (11, 7, 2))
    word, position, token_type = normal(4, 11, D), normal(5, 7, D), normal(6, 2, D)
    weight, bias = normal(7, D), normal(8, D)
    rows = word[ids]
    (all32, out32), (all16, out16) = guarded(N, D, np.float32), guarded(N, D, np.uint16)
    kernel = embedding.embedding_kernel(D, **dict.fromkeys(missing, False))
    launch(kernel, embedding.embedding_grid(N), ids, positions, types, rows if "words" in missing else word, position,
           token_type, weight, bias, np.float32(1e-12), out32, out16)
    exact = rows.astype(np.float64)
    exact = exact if "positions" in missing else exact + position[positions]
    exact = exact if "token_types" in missing else exact + token_type[types]
    exact = exact if "norm" in missing else ops.layer_norm(exact, weight, bias, 1e-12)
    close(out32, exact, 32)
    assert np.array_equal(out16, np.full_like(out16, 12345) if "bfloat16" in missing else to_bfloat16(out32))
    assert (all32[N] == 12345).all()
    assert (all16[N] == 12345).all()


@pytest.mark.parametrize("skips", [(0, 0, 0, 0, 0), (2, 0, 0, 1, 2)])
@pytest.mark.parametrize("mode", pooling.MODES)
def test_pooling(mode, skips):
    skips = np.array(skips, np.int32)
    cu_seqlens = np.array([0, 4, 4, 5, 8, 10], np.int32)
    x = normal(11, 10, 130)
    whole, out = guarded(5, 130, np.float32)
    launch(pooling.pooling_kernel(mode), pooling.pooling_grid(5, 130), x, cu_seqlens, skips, out)
    close(out, pool(x.astype(np.float64), cu_seqlens, [mode], skips))
    assert (whole[5] == 12345).all()


def test_pooling_has_all_modes():
    assert pooling.MODES == POOLINGS


def test_maximum_keeps_nan():
    x = normal(12, 6, 2)
    x[2, 0], x[3, 1] = np.nan, np.nan
    out = np.empty((2, 2), np.float32)
    starts = np.array([0, 3, 6], np.int32)
    launch(pooling.pooling_kernel("max"), pooling.pooling_grid(2, 2), x, starts, np.zeros(2, np.int32), out)
    assert np.array_equal(np.isnan(out), [[True, False], [False, True]])
