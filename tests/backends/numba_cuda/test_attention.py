"""Test flash attention with mma.sync, run as Python, against float64."""

from itertools import pairwise

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels.attention import WIDTHS, attention_kernel, tiles
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.cuda_emulator import launch


def problem(lengths, d, H, G, seed=0):
    """Return qkv as bfloat16 [N, (H+2G)d], and cu_seqlens."""
    cu_seqlens = np.cumsum([0, *lengths]).astype(np.int32)
    qkv = np.random.default_rng(seed).standard_normal((cu_seqlens[-1], (H + 2 * G) * d))
    return to_bfloat16(qkv), cu_seqlens


def run(qkv, cu_seqlens, d, H, rows=64, scale=None, late=True):
    """Return the kernel's output as float32 [N, H, d]."""
    out = np.full((len(qkv), H * d), 0x7FFF, np.uint16)
    work = tiles(cu_seqlens, rows)
    launch(attention_kernel(d, rows), (len(work), H), qkv, out, cu_seqlens, work, np.float32(scale or d**-0.5),
           late=late)
    return from_bfloat16(out).reshape(-1, H, d)


def definition(qkv, cu_seqlens, d, H):
    """Compute the same in float64, sequence by sequence."""
    x = from_bfloat16(qkv).astype(np.float64).reshape(len(qkv), -1, d)
    G = (x.shape[1] - H) // 2
    result = np.zeros((len(x), H, d))
    for begin, end in pairwise(cu_seqlens):
        for h in range(H):
            k, v = x[begin:end, H + h // (H // G)], x[begin:end, H + G + h // (H // G)]
            scores = x[begin:end, h] @ k.T * d**-0.5
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            result[begin:end, h] = weights / weights.sum(axis=1, keepdims=True) @ v
    return result


def check(got, expected):
    """Check the bound for bfloat16, 3e-3 of the norm, for every head of every sequence."""
    error, size = (np.linalg.norm(x, axis=(0, 2)) for x in (got - expected, expected))
    assert np.all(error <= 3e-3 * size), error / size


@pytest.mark.parametrize(("d", "rows", "lengths", "heads"), [
    (32, 64, [1, 63, 65], (1, 1)),      # shorter than a tile of queries, of keys, and longer
    (64, 64, [64, 129], (1, 1)),
    (64, 128, [127], (2, 1)),           # two query heads on one key head
    (96, 64, [66], (4, 2)),
    (128, 128, [129], (1, 1)),
], ids=str)
def test_attention(d, rows, lengths, heads):
    qkv, cu_seqlens = problem(lengths, d, *heads)
    check(run(qkv, cu_seqlens, d, heads[0], rows), definition(qkv, cu_seqlens, d, heads[0]))


@pytest.mark.parametrize("d", WIDTHS)
def test_copies_may_land_at_once(d):
    qkv, cu_seqlens = problem([70], d, 1, 1)
    np.testing.assert_array_equal(run(qkv, cu_seqlens, d, 1, late=False), run(qkv, cu_seqlens, d, 1))


def test_bits_depend_on_the_sequence_alone():
    qkv, cu_seqlens = problem([70, 75], 64, 1, 1)
    together = run(qkv, cu_seqlens, 64, 1)
    alone = run(qkv[70:].copy(), np.array([0, 75], np.int32), 64, 1)
    np.testing.assert_array_equal(together[70:], alone)
    np.testing.assert_array_equal(run(qkv, cu_seqlens, 64, 1, rows=128), together)


def test_nan_stays_in_its_sequence():
    qkv, cu_seqlens = problem([66, 30, 70], 32, 1, 1)
    qkv[70] = 0x7FFF
    got = run(qkv, cu_seqlens, 32, 1)
    assert np.isnan(got[66:96]).all()
    assert np.isfinite(np.delete(got, np.s_[66:96], axis=0)).all()


def test_large_scores_do_not_overflow():
    qkv, cu_seqlens = problem([40], 32, 1, 1)
    got = run(qkv, cu_seqlens, 32, 1, scale=1e4)  # a softmax so sharp that it picks the largest score
    x = from_bfloat16(qkv).astype(np.float64).reshape(40, 3, 32)
    np.testing.assert_allclose(got[:, 0], x[np.argmax(x[:, 0] @ x[:, 1].T, axis=1), 2], rtol=1e-2)


def test_tiles_cover_each_query_once():
    work = tiles(np.array([0, 64, 64, 129]), 64)
    assert work.tolist() == [[0, 0], [2, 0], [2, 64]]


def test_widths_are_named():
    with pytest.raises(ValueError, match=r"head width of \(32, 64, 96, 128\)"):
        attention_kernel(48)
