"""Test norms, embeddings, heads, copies and pooling, emulated, against the reference in float64."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels import copy, embedding, heads, norm, pooling
from engine.backends.numba_cuda.support import LARGEST_ROW
from engine.backends.reference import formulas as ops
from engine.encoding.pooling import pool
from engine.model.text_config import POOLINGS
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.cuda_emulator import launch

EPS = np.finfo(np.float32).eps
PARTS = ("words", "positions", "token_types", "norm", "bfloat16")
"""The parts of an embedding; a model may lack any of them."""
BF16 = 2.0**-8
"""Relative rounding error of bfloat16: at most half an ulp."""
DUMMY = np.zeros((1, 8), np.float32)


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def guarded(rows, D, dtype):
    """Return an array for results, followed by a row that must not change."""
    array = np.full((rows + 1, D), 12345, dtype)
    return array, array[:rows]


def close(out, exact, factor=8):
    assert np.abs(out - exact).max() <= factor * EPS * max(1.0, np.abs(exact).max())


def padded(array, columns):
    """Return an array with zeros behind its rows."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, columns - array.shape[-1])])


BOTH = norm.TO_FLOAT32 + norm.TO_BFLOAT16
NORMS = {"layer": ops.layer_norm, "rms": lambda x, weight, bias, eps: ops.rms_norm(x, weight, eps)}


def run_norm(kind, threads, x, weight, bias, residual=None, outputs=BOTH, eps=1e-5):
    """Return the float32 and the bfloat16 rows of a norm; rows are padded to 8, and must stay so."""
    rows, D = x.shape
    P = -(-D // 8) * 8
    (all32, out32), (all16, out16) = guarded(rows, P, np.float32), guarded(rows, P, np.uint16)
    launch(norm.norm_kernel(kind, threads), norm.row_grid(rows, threads), *(padded(a, P) for a in (x, weight, bias)),
           np.float32(eps), np.int32(D), DUMMY if residual is None else padded(residual, P),
           np.int32(residual is not None), np.int32(outputs), out32, out16)
    assert (all32[rows] == 12345).all()
    assert (all16[rows] == 12345).all()
    if outputs & norm.TO_FLOAT32:
        assert not out32[:, D:].any()
    return out32[:, :D], out16[:, :D]


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize(("rows", "D", "threads"), [(1, 1, 32), (5, 31, 32), (5, 100, 32), (2, 136, 128)])
def test_norm(rows, D, threads, kind):
    x, weight, bias = normal(0, rows, D) * 3 + 2, normal(1, D), normal(2, D)
    bias = bias if kind == "layer" else np.zeros_like(bias)
    out32, out16 = run_norm(kind, threads, x, weight, bias)
    close(out32, NORMS[kind](*(a.astype(np.float64) for a in (x, weight, bias)), 1e-5), 32)
    assert np.array_equal(out16, to_bfloat16(out32))


@pytest.mark.parametrize("kind", NORMS)
def test_norm_of_a_wide_row_with_a_residual(kind):
    """512 threads share the row, and the result is bfloat16 alone."""
    D = LARGEST_ROW
    x, weight, bias, residual = normal(0, 1, D), normal(1, D), np.zeros(D, np.float32), normal(3, 1, D)
    out32, out16 = run_norm(kind, norm.row_threads(D), x, weight, bias, residual, norm.TO_BFLOAT16)
    exact = NORMS[kind](x.astype(np.float64), weight, bias, 1e-5) + residual
    assert (out32 == 12345).all()
    assert np.abs(from_bfloat16(out16) - exact).max() <= BF16 * 1.01 * np.abs(exact).max()


def test_the_threads_of_a_row():
    assert [norm.row_threads(D) for D in (1, 1024, 1025, 4096, 4097, LARGEST_ROW)] == [32, 32, 128, 128, 512, 512]
    assert [norm.row_grid(9, threads) for threads in norm.THREADS] == [(3,), (9,), (9,)]


def test_norm_of_a_large_mean_loses_no_more_than_the_input_did():
    x, ones, zeros = normal(0, 2, 64) + np.float32(1000), np.ones(64, np.float32), np.zeros(64, np.float32)
    out, _ = run_norm("layer", 32, x, ones, zeros, outputs=norm.TO_FLOAT32, eps=1e-12)
    exact = ops.layer_norm(x.astype(np.float64), None, None, 1e-12)
    assert np.abs(out - exact).max() <= 2000 * EPS


@pytest.mark.parametrize("missing", [(), *((part,) for part in PARTS)], ids=str)
def test_embedding(missing):
    D, N, scale = 40, 6, 2.5
    rng = np.random.default_rng(3)
    ids, positions, types = (rng.integers(0, n, N, np.int32) for n in (11, 7, 2))
    word, position, token_type = normal(4, 11, D), normal(5, 7, D), normal(6, 2, D)
    weight, bias = normal(7, D), normal(8, D)
    rows = word[ids]
    (all32, out32), (all16, out16) = guarded(N, D, np.float32), guarded(N, D, np.uint16)
    parts = sum(bit for name, bit in (("words", embedding.WORDS), ("positions", embedding.POSITIONS),
                                      ("token_types", embedding.TOKEN_TYPES)) if name not in missing)
    outputs = norm.TO_FLOAT32 if "bfloat16" in missing else BOTH
    launch(embedding.embedding_kernel(None if "norm" in missing else "layer", 32), norm.row_grid(N, 32), ids, positions,
           types, rows if "words" in missing else word, position, token_type, np.float32(scale), np.int32(parts),
           weight, bias, np.float32(1e-12), np.int32(D), np.int32(outputs), out32, out16)
    exact = rows.astype(np.float64) * scale
    exact = exact if "positions" in missing else exact + position[positions]
    exact = exact if "token_types" in missing else exact + token_type[types]
    exact = exact if "norm" in missing else ops.layer_norm(exact, weight, bias, 1e-12)
    close(out32, exact, 32)
    assert np.array_equal(out16, np.full_like(out16, 12345) if "bfloat16" in missing else to_bfloat16(out32))
    assert (all32[N] == 12345).all()
    assert (all16[N] == 12345).all()


@pytest.mark.parametrize("neighbours", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize(("kind", "bfloat16", "half"), [
    (None, True, 9), ("each", False, 6), ("joint", False, 9), ("joint", True, 0)], ids=str)
def test_heads(kind, bfloat16, half, neighbours):
    """Heads of 18 columns in 32: values and the zeros behind heads stay as they are."""
    N, H, G, d, P = 3, 5, 2, 18, 32
    x = padded(normal(9, N, H + 2 * G, d), P)
    x = from_bfloat16(to_bfloat16(x)) if bfloat16 else x
    angles, positions = normal(10, 7, max(half, 1)).astype(np.float64), np.array([6, 0, 3], np.int32)
    cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    weights = normal(11, 2, H * d if kind == "joint" else d)
    array = to_bfloat16(x) if bfloat16 else x.copy()
    launch(heads.heads_kernel(kind, bfloat16), (N, 2), array.reshape(N, -1), np.int32(H), np.int32(G), np.int32(d),
           weights, np.float32(1e-5), cos, sin, np.int32(half), np.int32(neighbours), positions)
    exact = x.astype(np.float64)
    for i, part in enumerate((np.s_[:, :H, :d], np.s_[:, H:H + G, :d])):
        own = exact[part]
        if kind is not None:
            rows = own.reshape((N, -1) if kind == "joint" else (-1, d))
            own = ops.rms_norm(rows, weights[i, :rows.shape[1]].astype(np.float64), 1e-5).reshape(own.shape)
        if half:
            own = ops.rotate(own.transpose(1, 0, 2)[None], *(a[positions][None] for a in (cos, sin)), neighbours)[0]
            own = own.transpose(1, 0, 2)
        exact[part] = own
    out = from_bfloat16(array) if bfloat16 else array
    assert np.abs(out - exact).max() <= (BF16 if bfloat16 else 32 * EPS) * np.abs(exact).max()
    assert np.array_equal(out[:, H + G:], x[:, H + G:])


@pytest.mark.parametrize("bfloat16", [True, False])
def test_copy(bfloat16):
    x = normal(12, 5, 16)
    whole, out = guarded(5, 11, np.uint16 if bfloat16 else np.float32)
    launch(copy.copy_kernel(bfloat16), copy.copy_grid(5, 11), x, out)
    assert np.array_equal(out, to_bfloat16(x[:, :11]) if bfloat16 else x[:, :11])
    assert (whole[5] == 12345).all()


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
