"""Test flash attention with mma.sync, run as Python, against float64."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels.attention import UNBOUNDED, WIDTHS, attention_kernel, tiles
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.cuda_attention import CHANGES, Change, definition
from ...tools.cuda_emulator import launch


def problem(lengths, d, H, G, seed=0):
    """Return qkv as bfloat16 [N, (H+2G)d], and cu_seqlens."""
    cu_seqlens = np.cumsum([0, *lengths]).astype(np.int32)
    qkv = np.random.default_rng(seed).standard_normal((cu_seqlens[-1], (H + 2 * G) * d))
    return to_bfloat16(qkv), cu_seqlens


def run(qkv, cu_seqlens, d, H, rows=64, scale=None, late=True, window=(UNBOUNDED, UNBOUNDED), keys=None, change=None):
    """Return the kernel's output as float32 [N, H, d]."""
    out = np.full((len(qkv), H * d), 0x7FFF, np.uint16)
    work, change = tiles(cu_seqlens, rows, keys), change or Change()
    launch(attention_kernel(d, rows, **change.options), (len(work), H), qkv, out, cu_seqlens, work,
           np.float32(scale or d**-0.5), *map(np.int32, window), *change.arguments(d), late=late)
    return from_bfloat16(out).reshape(-1, H, d)


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
    (256, 64, [40], (1, 1)),
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


BANDS = {
    "causal": ((UNBOUNDED, 0), None),
    "window": ((10, 10), None),
    "narrow window": ((0, 0), None),
    "causal window": ((70, 0), None),
    "few keys": ((UNBOUNDED, UNBOUNDED), [66]),
    "few keys and a window": ((5, 3), [66]),        # the last queries see no key
}


@pytest.mark.parametrize(("window", "keys"), BANDS.values(), ids=BANDS)
def test_bands(window, keys):
    """Both kinds of blocks have the same bits, although they visit other steps."""
    keys = keys and np.array(keys)
    qkv, cu_seqlens = problem([150], 32, 1, 1)
    got = run(qkv, cu_seqlens, 32, 1, 64, window=window, keys=keys)
    expected = definition(qkv, cu_seqlens, 32, 1, window, keys)
    check(got, expected)
    assert not got[~expected.any(axis=(1, 2))].any()
    np.testing.assert_array_equal(run(qkv, cu_seqlens, 32, 1, 128, window=window, keys=keys), got)


@pytest.mark.parametrize("options", CHANGES.values(), ids=CHANGES)
def test_changed_scores(options):
    """A sequence behind another one: its terms lie further on; with both kinds of blocks it has the same bits."""
    d, H = 32, 2
    qkv, cu_seqlens = problem([3, 70], d, H, H)
    change = Change(H, N=73, **options)
    got = run(qkv, cu_seqlens, d, H, change=change)
    check(got, definition(qkv, cu_seqlens, d, H, change=change))
    np.testing.assert_array_equal(run(qkv, cu_seqlens, d, H, 128, change=change), got)


def test_steps_outside_of_the_band_are_not_visited():
    """The first query of the second block sees one step of the three, so that NaN in the others does not reach it."""
    qkv, cu_seqlens = problem([192], 32, 1, 1)
    qkv[:64] = qkv[128:] = 0x7FFF
    got = run(qkv, cu_seqlens, 32, 1, window=(0, 0))
    assert np.isnan(got[:64]).all()
    assert np.isfinite(got[64:128]).all()


def test_nan_behind_the_keys_is_not_read():
    qkv, cu_seqlens = problem([70], 32, 1, 1)
    qkv[40:, 32:] = 0x7FFF
    assert np.isfinite(run(qkv, cu_seqlens, 32, 1, keys=np.array([40]))).all()


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
    assert work.tolist() == [[0, 0, 64], [2, 0, 65], [2, 64, 65]]
    assert tiles(np.array([0, 3, 5]), 64, np.array([2, 1])).tolist() == [[0, 0, 2], [1, 0, 1]]


def test_widths_are_named():
    with pytest.raises(ValueError, match="got d=256, rows=128"):
        attention_kernel(256)
    with pytest.raises(ValueError, match=r"head width of \(32, 64, 96, 128, 256\)"):
        attention_kernel(48)
