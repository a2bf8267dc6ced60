"""Test attention with wgmma, emulated, against float64: lengths around a step, grouped heads, neighbours with NaN."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels.attention import UNBOUNDED, tiles
from engine.backends.numba_cuda.kernels.attention_hopper import KEYS, attention_kernel
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools import cuda_emulator
from ...tools.cuda_attention import Change, definition
from ...tools.hopper_emulator import tensor_map

NAN = 0x7FC0


def run(qkv, lengths, H, G, d, rows, late=True, blocks=1, window=(UNBOUNDED, UNBOUNDED), keys=None,
        change=None):
    """Run the kernel; the work list ends with an entry that names an empty sequence, as a plan's may."""
    cu_seqlens = np.cumsum([0, *lengths, 0]).astype(np.int32)
    work = tiles(cu_seqlens, rows, None if keys is None else np.array([*keys, 0]))
    work = np.concatenate([work, np.array([[len(lengths), 0, 0]], np.int32)])
    out = np.full((len(qkv), H * d), NAN, np.uint16)
    change = change or Change(H)
    kernel = attention_kernel(d, rows, capped=change.options["capped"], biased=change.options["biased"])
    cuda_emulator.launch(kernel, blocks, tensor_map(qkv, KEYS), out, cu_seqlens, work, np.int32(G), np.float32(d**-0.5),
                         *map(np.int32, window), *change.arguments(d)[:4], late=late)
    return out


def exact(qkv, lengths, H, G, d, window=(UNBOUNDED, UNBOUNDED), keys=None, change=None):
    return definition(qkv, np.cumsum([0, *lengths]), d, H, window, keys, change).reshape(-1, H * d)


def random_qkv(tokens, H, G, d):
    return to_bfloat16(np.random.default_rng(tokens).standard_normal((tokens, (H + 2 * G) * d), np.float32))


@pytest.mark.parametrize(("lengths", "H", "G", "d", "rows", "late", "blocks"), [
    ([129, 1], 2, 1, 64, 128, True, 1),         # ten steps of one block pass through the ring of four
    ([127, 128], 1, 1, 64, 128, False, 2),
    ([300], 1, 1, 128, 64, True, 2),
    ([257], 1, 1, 128, 128, False, 3),
], ids=str)
def test_attention(lengths, H, G, d, rows, late, blocks):
    qkv = random_qkv(sum(lengths), H, G, d)
    expected = exact(qkv, lengths, H, G, d)
    error = from_bfloat16(run(qkv, lengths, H, G, d, rows, late, blocks)) - expected
    assert np.linalg.norm(error) <= 3e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(("window", "keys"), [
    ((UNBOUNDED, 0), None), ((30, 30), None), ((UNBOUNDED, UNBOUNDED), [150]), ((4, 4), [150])], ids=str)
def test_bands(window, keys):
    """Blocks of 64 and of 128 queries have the same bits, although they visit other steps; others see no key."""
    lengths, d = [270], 64
    qkv = random_qkv(270, 1, 1, d)
    expected = exact(qkv, lengths, 1, 1, d, window, keys)
    got = run(qkv, lengths, 1, 1, d, 64, window=window, keys=keys)
    assert np.linalg.norm(from_bfloat16(got) - expected) <= 3e-3 * np.linalg.norm(expected)
    assert not from_bfloat16(got)[~expected.any(axis=1)].any()
    np.testing.assert_array_equal(run(qkv, lengths, 1, 1, d, 128, window=window, keys=keys), got)


@pytest.mark.parametrize("options", [{"cap": 1.5}, {"biased": True}], ids=str)
def test_changed_scores(options):
    lengths, H, d = [3, 140], 2, 64
    qkv, change = random_qkv(143, H, 1, d), Change(H, **options)
    expected = exact(qkv, lengths, H, 1, d, change=change)
    got = run(qkv, lengths, H, 1, d, 64, change=change)
    assert np.linalg.norm(from_bfloat16(got) - expected) <= 3e-3 * np.linalg.norm(expected)
    np.testing.assert_array_equal(run(qkv, lengths, H, 1, d, 128, change=change), got)


def test_a_sequence_has_the_same_bits_alone_and_beside_nan():
    d, length = 64, 20
    qkv = random_qkv(length, 1, 1, d)
    neighbour = np.full((30, 3 * d), NAN, np.uint16)
    alone = run(qkv, [length], 1, 1, d, 64)
    together = run(np.concatenate([qkv, neighbour]), [length, 30], 1, 1, d, 64)
    np.testing.assert_array_equal(together[:length], alone)


@pytest.mark.parametrize(("d", "rows"), [(96, 128), (64, 32)])
def test_other_widths_and_tiles_are_refused(d, rows):
    with pytest.raises(ValueError, match=f"got d={d}, rows={rows}"):
        attention_kernel(d, rows)
