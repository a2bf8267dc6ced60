"""Test the grouping of sequences: complete, within its bounds, balanced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

schedule = pytest.importorskip("engine.backends.cpu.schedule", reason="the compiled kernels are not built")


BUNDLE = 192


def make(lengths, threads, max_tokens=8192, bundle=BUNDLE):
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return cu_seqlens, schedule.make_schedule(cu_seqlens, threads, max_tokens, bundle)


@given(lengths=st.lists(st.integers(0, 300), min_size=1, max_size=40).filter(any), threads=st.integers(1, 5),
       max_tokens=st.integers(300, 1000))
def test_every_sequence_is_in_one_group_within_the_workspace(lengths, threads, max_tokens):
    cu_seqlens, plan = make(lengths, threads, max_tokens)
    expected = sorted((start, T) for start, T in zip(cu_seqlens.tolist(), lengths, strict=False) if T)
    assert sorted((start, T) for start, T, _ in plan.sequences.tolist()) == expected
    numbers = plan.numbers(cu_seqlens)
    assert sorted(numbers.tolist()) == [b for b, T in enumerate(lengths) if T]
    assert np.array_equal(cu_seqlens[numbers], plan.sequences[:, 0])
    in_flight = plan.groups[:, 1].max() * (threads if plan.bundles else 1)
    assert in_flight <= max_tokens
    first = 0
    for count, tokens in plan.groups.tolist():
        _, T, row = plan.sequences[first : first + count].T
        assert row.tolist() == np.concatenate([[0], np.cumsum(T)[:-1]]).tolist()
        assert T.sum() == tokens
        first += count
    assert first == len(expected)


def test_longest_sequences_come_first():
    _, plan = make([3, 200, 7, 150], 1)
    assert plan.sequences[:, 1].tolist() == [200, 150, 7, 3]


@pytest.mark.parametrize(("lengths", "threads", "bundles"), [
    ([128] * 8, 2, True),
    ([128] * 3, 2, False),      # two threads cannot share three equal sequences evenly
    ([512], 2, False),
    ([512], 1, True),
    ([16], 2, False),           # too few tokens to read the weights twice
    ([20] * 30, 4, True),
])
def test_bundles_are_taken_where_they_keep_all_threads_busy(lengths, threads, bundles):
    assert make(lengths, threads)[1].bundles is bundles


def test_bundles_are_even_for_mixed_lengths():
    rng = np.random.default_rng(0)
    _, plan = make(rng.integers(3, 201, 256), 2)
    assert plan.bundles
    assert plan.groups[:, 1].max() <= max(BUNDLE, 200)


@pytest.mark.parametrize("bundle", [192, 512])
def test_bundles_have_the_size_that_the_kernels_ask_for(bundle):
    groups = make([32] * 256, 2, bundle=bundle)[1].groups
    assert bundle - 32 <= groups[:, 1].max() <= bundle


@pytest.mark.parametrize("threads", [1, 3])
def test_single_tokens_are_one_group(threads):
    plan, (_, same) = schedule.schedule_of_single_tokens(5, threads), make([1] * 5, threads)
    assert plan.bundles == same.bundles == (threads == 1)
    assert np.array_equal(plan.sequences, same.sequences)
    assert np.array_equal(plan.groups, same.groups)
