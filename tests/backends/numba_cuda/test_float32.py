"""Test the kernels without tensor cores, emulated, against the reference in float64."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels import float32
from engine.backends.numba_cuda.kernels.attention import UNBOUNDED
from engine.backends.numba_cuda.kernels.attention import tiles as tiles_of
from engine.backends.numba_cuda.ptx.epilogue import interleave
from engine.backends.reference import formulas as ops
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.cuda_attention import CHANGES, Change, definition
from ...tools.cuda_emulator import launch

EPS = np.finfo(np.float32).eps
DUMMY = np.zeros((1, 1), np.float32)
PLAIN = Change().arguments(32, np.float32)
"""The arguments of attention for what does not change the scores."""


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize(("activation", "residual"), [
    (None, False), ("gelu", False), ("gelu_tanh", False), ("relu", False), ("silu", False), (None, True)])
@pytest.mark.parametrize(("N", "M", "K"), [(1, 1, 1), (17, 20, 33)])
def test_linear(N, M, K, activation, residual):
    x, w, bias, addend = normal(0, N, K), normal(1, M, K), normal(2, M), normal(3, N, M)
    out = np.full((N + 1, M), 12345, np.float32)
    launch(float32.linear_kernel(activation, residual), float32.linear_grid(N, M), x, w, bias,
           addend if residual else DUMMY, out[:N])
    exact = ops.linear(*(a.astype(np.float64) for a in (x, w, bias)))
    exact = ops.ACTIVATIONS[activation](exact) if activation else exact
    exact = exact + addend if residual else exact
    scale = (np.abs(x) @ np.abs(w).T).max() + 4
    assert np.abs(out[:N] - exact).max() <= K * EPS * scale
    assert (out[N] == 12345).all()


def test_gate():
    N, M, K = 3, 20, 33
    x, gate, up, biases = normal(0, N, K), normal(1, M, K), normal(2, M, K), normal(3, 2, M)
    out = np.full((N + 1, M), 12345, np.float32)
    launch(float32.linear_kernel("silu", gate=True), float32.linear_grid(N, M), x, interleave(gate, up),
           interleave(*biases), DUMMY, out[:N])
    g, u = (ops.linear(*(a.astype(np.float64) for a in (x, w, b))) for w, b in ((gate, biases[0]), (up, biases[1])))
    assert np.abs(out[:N] - ops.ACTIVATIONS["silu"](g) * u).max() <= 1e-4
    assert (out[N] == 12345).all()


@pytest.mark.parametrize(("d", "H", "G"), [(32, 2, 1), (64, 1, 1)])
def test_attention(d, H, G):
    lengths = [1, 5, 3]
    cu_seqlens = np.array([0, 1, 6, 9, 9, 9], np.int32)
    qkv = normal(4, 10, (H + 2 * G) * d)
    out = np.full((10, H * d), 12345, np.float32)
    tiles = np.array([(1, 0, 5), (1, 4, 5), (0, 0, 1), (2, 0, 3), (4, 0, 0)], np.int32)
    launch(float32.attention_kernel(d), float32.attention_grid(len(tiles), H), qkv, out, cu_seqlens, tiles, H, G,
           np.float32(1 / np.sqrt(d)), UNBOUNDED, UNBOUNDED, *PLAIN)
    q, k, v = np.split(qkv.astype(np.float64), [H * d, (H + G) * d], axis=1)
    for b in range(len(lengths)):
        rows = slice(*cu_seqlens[b:b + 2])
        query, key, value = (a[rows].reshape(lengths[b], -1, d).transpose(1, 0, 2) for a in (q, k, v))
        exact = ops.attention(query, key.repeat(H // G, 0), value.repeat(H // G, 0))
        assert np.abs(out[rows].reshape(-1, H, d).transpose(1, 0, 2) - exact).max() <= 40 * EPS
    assert (out[9] == 12345).all()


@pytest.mark.parametrize(("left", "right", "keys"), [(1, 0, 6), (UNBOUNDED, 1, 6), (1, 1, 3)])
def test_band(left, right, keys):
    qkv, out = normal(7, 6, 96), np.empty((6, 32), np.float32)
    tiles = np.array([(0, 0, keys), (0, 4, keys)], np.int32)
    launch(float32.attention_kernel(32), (2, 1), qkv, out, np.array([0, 6], np.int32), tiles, 1, 1, np.float32(0.2),
           left, right, *PLAIN)
    q, k, v = np.split(qkv.astype(np.float64), 3, axis=1)
    t, s = np.arange(6)[:, None], np.arange(6)
    scores = np.where((s >= t - left) & (s <= t + right) & (s < keys), q @ k.T * 0.2, -np.inf)
    assert np.abs(out - ops.softmax(scores) @ v).max() <= 1e-5


@pytest.mark.parametrize("options", CHANGES.values(), ids=CHANGES)
def test_changed_scores(options):
    H, d, cu_seqlens = 2, 32, np.array([0, 2, 9], np.int32)
    qkv, out, change = normal(8, 9, 3 * H * d), np.empty((9, H * d), np.float32), Change(H, N=9, **options)
    rounded = to_bfloat16(qkv)
    work = tiles_of(cu_seqlens, float32.TILE_ROWS)
    launch(float32.attention_kernel(d, **change.options), (len(work), H), from_bfloat16(rounded), out, cu_seqlens, work,
           H, H, np.float32(d**-0.5), UNBOUNDED, UNBOUNDED, *change.arguments(d, np.float32))
    exact = definition(rounded, cu_seqlens, d, H, change=change)
    assert np.abs(out.reshape(9, H, d) - exact).max() <= 1e-5


def test_maps_side_by_side():
    """Each map reads columns of its own, and columns behind them are not read."""
    x, w, out = normal(0, 5, 3 * 20), normal(1, 2 * 18, 20), np.empty((5, 2 * 18), np.float32)
    launch(float32.linear_kernel(), (*float32.linear_grid(5, 18), 2), x, w, np.arange(36, dtype=np.float32), DUMMY, out)
    exact = np.concatenate([x[:, :20] @ w[:18].T, x[:, 20:40] @ w[18:].T], axis=1) + np.arange(36)
    assert np.abs(out - exact).max() <= 1e-4


def test_attention_of_large_scores():
    """The maximum is subtracted, because e^200 would overflow."""
    qkv = np.zeros((3, 3, 32), np.float32)
    qkv[:, 0, 0], qkv[:, 1, 0], qkv[:, 2] = 20, (-10, 10, 9.5), normal(5, 3, 32)
    out = np.empty((3, 32), np.float32)
    launch(float32.attention_kernel(32), (1, 1), qkv.reshape(3, 96), out, np.array([0, 3], np.int32),
           np.array([[0, 0, 3]], np.int32), 1, 1, np.float32(1), UNBOUNDED,
           UNBOUNDED, *PLAIN)
    q, k, v = qkv.astype(np.float64).swapaxes(0, 1)[:, None]
    assert np.abs(out - ops.softmax(q @ k.transpose(0, 2, 1)) @ v).max() <= 1e-5
