"""Test the division of batches into passes of fixed shapes. Needs no CUDA package."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backends.batch import Batch
from engine.backends.numba_cuda.bucket import Shape, groups, largest_shape, round_tokens, stage
from engine.base.errors import InputError

LENGTHS = st.lists(st.integers(0, 40), max_size=12)


def make_batch(lengths, embeds=False, keys=None):
    N = sum(lengths)
    ids = np.arange(1, N + 1, dtype=np.int32)
    return Batch(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), None if embeds else ids,
                 np.zeros((N, 2), np.float32) if embeds else None, ids * 10, ids * 100, keys)


@given(st.integers(1, 10**6))
def test_buckets_waste_an_eighth_at_most_and_never_fall(tokens):
    rounded = round_tokens(tokens)
    assert tokens <= rounded <= max(16, tokens + tokens // 8 + 1)
    assert round_tokens(tokens + 1) >= rounded
    assert round_tokens(rounded) == rounded


def test_buckets_are_few():
    assert len({round_tokens(n) for n in range(1, 8193)}) == 1 + 8 * 9


@given(LENGTHS, st.integers(40, 100))
def test_groups_are_all_sequences_in_order_and_as_few_as_can_be(lengths, most):
    batch = make_batch(lengths)
    found = groups(batch, most)
    assert [i for group in found for i in range(batch.tokens)[group.tokens]] == list(range(batch.tokens))
    for group in found:
        own = lengths[group.first:group.last]
        assert (sum(own), max(own)) == (group.count, group.longest)
        assert 0 < group.count <= most
    for group in found[:-1]:
        assert group.count + lengths[group.last] > most


def test_a_sequence_that_is_too_long():
    with pytest.raises(InputError, match="a sequence of 9 tokens exceeds max_batch_tokens=8"):
        groups(make_batch([3, 9]), 8)


@given(LENGTHS.filter(any), st.sampled_from([1, 4, 16]), st.booleans())
def test_stage(lengths, tile_rows, embeds):
    batch = make_batch(lengths, embeds)
    group, = groups(batch, 500)
    staging = np.full(largest_shape(500).size, -1, np.int32)
    shape = stage(batch, group, tile_rows, staging)
    assert (shape.tile_rows, shape.embeds) == (tile_rows, embeds)
    assert shape.size <= len(staging)
    assert (staging[shape.size:] == -1).all()
    ids, positions, types, cu_seqlens, tiles = shape.views(staging)
    N, full = batch.tokens, [n for n in lengths if n]
    assert shape.tokens == round_tokens(N)
    for own, source in ((ids, batch.input_ids), (positions, batch.position_ids), (types, batch.token_type_ids)):
        assert np.array_equal(own[:N], np.zeros(N) if source is None else source)
        assert not own[N:].any()
    assert np.array_equal(np.diff(cu_seqlens)[:len(full)], full)
    assert (cu_seqlens[len(full):] == N).all()
    expected = {(b, row) for b, n in enumerate(full) for row in range(0, n, tile_rows)}
    real = [(b, row) for b, row, keys in tiles.tolist() if cu_seqlens[b] < cu_seqlens[b + 1] and keys == full[b]]
    assert len(real) == len(expected)
    assert set(real) == expected
    assert (tiles[len(real):, 0] == shape.tiles).all()
    own_lengths = [full[b] for b, _ in real]
    assert own_lengths == sorted(own_lengths, reverse=True)


def test_stage_with_tokens_that_are_no_keys():
    """The second sequence is empty; the third is the longest, and its entries come first."""
    batch = make_batch([3, 0, 6], keys=np.array([2, 0, 5], np.int32))
    group, = groups(batch, 500)
    staging = np.full(largest_shape(500).size, -1, np.int32)
    tiles = stage(batch, group, 4, staging).views(staging)[4]
    assert tiles.tolist() == [[1, 0, 5], [1, 4, 5], [0, 0, 2], [4, 0, 0]]


def test_few_shapes_for_many_batches():
    rng = np.random.default_rng(0)
    staging = np.empty(largest_shape(5000).size, np.int32)
    shapes = set()
    for _ in range(300):
        batch = make_batch(rng.integers(1, 128, 32).tolist())
        group, = groups(batch, 5000)
        shapes.add(stage(batch, group, 128, staging))
    assert len(shapes) < 20


def test_views_lie_side_by_side():
    shape = Shape(tokens=3, tiles=2, tile_rows=64, embeds=False)
    parts = shape.views(np.arange(shape.size))
    assert np.array_equal(np.concatenate([part.ravel() for part in parts]), np.arange(shape.size))
    assert parts[4].shape == (2, 3)
