"""Test the instructions for picked rows: which rows they are, their scale, their logits, and the best of these."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.lowering import lower
from engine.backends.wants import Want
from engine.base.errors import Cancelled
from engine.base.stop import Stop
from engine.programs.operations import Buffer, Linear, LinearPart, Norm, Pick, Store
from engine.programs.program import Program

from .tools import assert_as_good, available, load, turn
from .vocabulary import Vocabulary, log_sum_exp, sort

PRECISIONS = ("float32", "bfloat16", "int8")


def check(vocabulary, k, expected=slice(None), **options):
    """Check all logits of the picked rows, their k best, and some of each; expected: which rows of x these are."""
    logits = vocabulary.logits[expected]
    right = *sort(logits, k), vocabulary.best(k, **options)[2]
    exact, naive = (log_sum_exp(logits, dtype) for dtype in (np.float64, np.float32))
    assert_as_good(right[2][None], exact[None], naive[None], factor=6.0, operand=logits)
    for written in sorted({0, 1, len(logits) // 2, len(logits)}):
        found, *best = vocabulary.mixed(k, written, **options)
        assert np.array_equal(found, logits[:written])
        for own, all_rows in zip(best, right, strict=True):
            assert np.array_equal(own, all_rows[written:])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_number_of_columns(kernels, precision):
    edges = {edge + step for edge in (kernels.VL, kernels.NR, 128, 384) for step in (-1, 0, 1)}
    for V in sorted(edges | {1, 2, 700}):
        check(Vocabulary(kernels, precision, 3, V, 20), 5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_number_of_rows(kernels, precision):
    for M in [1, 2, 6, 7, 63, 64, 65, 130, 1100]:
        check(Vocabulary(kernels, precision, M, 200, 33), 4, threads=2)


def test_several_k_blocks(kernels):
    check(Vocabulary(kernels, "float32", 5, 150, 2100), 4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_scale_multiplies_the_rows(kernels, precision):
    for threads in (1, 3):
        check(Vocabulary(kernels, precision, 5, 150, 33, scale=33**-0.5), 4, threads=threads)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bundles", [False, True])
def test_the_last_tokens_of_each_sequence_are_picked(kernels, precision, bundles):
    """Also none of them, or all; by rows and by columns, or each sequence by one thread."""
    vocabulary = Vocabulary(kernels, precision, 100, 300, 40)
    every = [(5, 1), (1, 1), (30, 30), (7, 0), (16, 15)], [(1, 1)] * 20, [(90, 2), (3, 0), (7, 7)]
    for i, picks in enumerate(every):
        ends = np.cumsum([length for length, _ in picks])
        rows = np.concatenate([np.arange(end - count, end) for end, (_, count) in zip(ends, picks, strict=True)])
        threads = (1, 2, 4)[turn(kernels, PRECISIONS.index(precision), i) % 3]
        check(vocabulary, 3, rows, rows=slice(ends[-1]), picks=picks, threads=threads, bundles=bundles)


def test_a_pass_may_pick_no_row(kernels):
    vocabulary = Vocabulary(kernels, "float32", 100, 300, 40)
    for threads, bundles in ((1, False), (2, False), (2, True)):
        logits, values, _, _ = vocabulary.mixed(3, 0, rows=slice(12), picks=[(5, 0), (7, 0)], threads=threads,
                                                bundles=bundles)
        assert logits.shape == (0, 300)
        assert values.shape == (0, 3)
    check(vocabulary, 3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bits_depend_neither_on_threads_nor_on_other_rows(kernels, precision):
    vocabulary = Vocabulary(kernels, precision, 70, 1500, 48)
    right = vocabulary.best(10)
    for threads in (2, 3, 7, 100):
        for found, expected in zip(vocabulary.best(10, threads=threads), right, strict=True):
            assert np.array_equal(found, expected)
    for row in (0, 5, 63, 64, 69):
        for found, expected in zip(vocabulary.best(10, threads=2, rows=slice(row, row + 1)), right, strict=True):
            assert np.array_equal(found[0], expected[row])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_product(data, name):
    precision = data.draw(st.sampled_from(PRECISIONS))
    M, V, D = (data.draw(st.integers(1, most)) for most in (80, 900, 70))
    vocabulary = Vocabulary(load(name), precision, M, V, D, data.draw(st.sampled_from([1.0, 0.3])))
    check(vocabulary, data.draw(st.integers(1, 64)), threads=data.draw(st.integers(1, 4)))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_stop_leaves_the_product(threads):
    """All threads meet after a stop, too: the next pass is right."""
    class Soon(Stop):
        def check(self):
            raise Cancelled

    # long enough for the caller's thread to look at the clock, which it does every 50 ms
    vocabulary = Vocabulary(load("baseline"), "float32", 700, 8000, 400 * threads)
    for written in (700, 0):
        with pytest.raises(Cancelled):
            vocabulary.choose([Want(best=2)] * (700 - written), written, threads=threads, stop=Soon())
    check(vocabulary, 2, slice(3), rows=slice(3), threads=threads)


def test_results_of_other_sizes_are_refused():
    vocabulary = Vocabulary(load("baseline"), "float32", 4, 30, 16)
    vocabulary.mixed(1, 4)
    wrong = np.empty((3, vocabulary.width), np.float32)
    for arrays in ([wrong], [], [np.empty((5, vocabulary.width), np.float32)]):
        with pytest.raises(ValueError, match="of 4 picked rows are written"):
            vocabulary.run(arrays)
    with pytest.raises(ValueError, match="the logits of 4 rows of 32 need an array"):
        vocabulary.run([np.empty((4, vocabulary.width + 1), np.float32)])
    for count in (3, 5):
        with pytest.raises(ValueError, match="0 of 4 picked rows are written, and `wanted` is for all others"):
            vocabulary.choose([Want(best=1)] * count)
    for picks in ([(4, 5)], [(4, -1)]):
        with pytest.raises(ValueError, match="of the 4 tokens of a sequence cannot be picked"):
            vocabulary.run([wrong], picks=picks)
    executor, one = vocabulary.executors[1], np.array([[0, 4, 0]])
    for picked in (None, np.empty((0, 2), np.int64)):
        with pytest.raises(ValueError, match="picked rows of 1 sequences are missing"):
            executor.forward(one, np.array([[1, 4]]), False, None, vocabulary.x, None, None, [wrong], picked=picked)


@pytest.mark.parametrize("operations", [
    (Store("p"),),
    (Linear("p", (LinearPart("w", None, "y", 8),)), Store("y")),
    (Linear("p", (LinearPart("w", None, "y", 8),), activation="relu"), Store("y", top=True)),
    (Norm("p", "z", "n", None, 1e-5), Linear("z", (LinearPart("w", None, "y", 8),)), Store("y", top=True)),
])  # fmt: skip
def test_other_operations_on_picked_rows_are_refused(operations):
    vocabulary = Vocabulary(load("baseline"), "float32", 4, 30, 16)
    x = (("x", Buffer(16)),)
    with pytest.raises(ValueError, match="picked rows have one product"):
        lower(Program((Pick("x", "p"), *operations), x), vocabulary.product, vocabulary.packer, 1)
    for whole in ((Linear("x", (LinearPart("w", None, "y", 8),)), Store("y", top=True)), (Store("x", top=True),)):
        with pytest.raises(ValueError, match="only the best numbers of a product of picked rows"):
            lower(Program(whole, x), vocabulary.product, vocabulary.packer, 1)
