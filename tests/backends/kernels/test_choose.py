"""Test the choice of the best logits, and the logarithm of the sum of the exponentials of all logits: the kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.layout import ENUMS, structures

from .table import function, stride, struct
from .tools import assert_as_good, assert_guards, available, guarded, guarded_copy, load
from .vocabulary import empty_best, log_sum_exp, sort

PART = ENUMS[""]["PART"]


class Lists:
    """The candidates of M rows for the k best, between guards, and the struct of each row; fields: of all structs."""

    def __init__(self, M, k, **fields):
        self.M, self.k, self.room = M, k, 2 * k + PART
        self.values, self.own = guarded(M, self.room), guarded(M, self.room)
        self.ids = np.full((M + 2, self.room), 77, np.int32)
        self.rows = (structures()["RowChoice"] * M)()
        for i in range(M):
            self.rows[i] = struct("RowChoice", k=k, bar=-np.inf, values=self.values[i], own=self.own[i],
                                  ids=self.ids[i + 1], penalty=1.0, **fields)

    def choose(self, kernels, logits, first, maximum, sum):
        """Choose from logits [M,n] of tokens from `first` on; maximum, sum: columns [M] of an array."""
        some = guarded_copy(logits)
        function(kernels, "choose")(self.rows, some, stride(some), self.M, int(first), logits.shape[1], maximum, sum,
                                    stride(maximum))
        assert_guards(some)

    def best(self):
        """Return values, own values and ids [M,k] of the best candidates."""
        values, ids = empty_best(self.M, self.k)
        found = values, values.copy(), ids
        for i, row in enumerate(self.rows):
            assert row.count <= self.room
            lists = [array[: row.count] for array in (self.values[i], self.own[i], self.ids[i + 1])]
            assert (np.diff(lists[2]) > 0).all(), "candidates are in the order of ids"
            order = np.argsort(-lists[0], kind="stable")[: self.k]
            for to, own in zip(found, lists, strict=True):
                to[i, : len(order)] = own[order]
        assert_guards(self.values, self.own)
        assert (self.ids[[0, -1]] == 77).all()
        return found


def choose(kernels, logits, k, parts):
    """Choose from logits [M,V] part by part; parts: (first column, columns). Return values, ids and log_sum_exp."""
    M = len(logits)
    lists, sums, out = Lists(M, k), guarded(M, 2 * len(parts)), guarded(1, M)
    for i, (first, n) in enumerate(parts):
        lists.choose(kernels, logits[:, first : first + n], first, sums[:, 2 * i :], sums[:, 2 * i + 1 :])
    maximum, sum = (np.ascontiguousarray(sums[:, part::2]) for part in (0, 1))
    function(kernels, "log_sum_exp")(maximum, sum, len(parts), M, len(parts), out)
    assert_guards(sums, out)
    values, own, ids = lists.best()
    assert np.array_equal(values, own)
    return values, ids, np.array(out[0])


def cut(V, width):
    return [(first, min(width, V - first)) for first in range(0, V, width)]


def check(kernels, logits, k, width):
    values, ids, total = choose(kernels, logits, k, cut(logits.shape[1], width))
    right = sort(logits, k)
    assert np.array_equal(values, right[0])
    assert np.array_equal(ids, right[1])
    exact, naive = (log_sum_exp(logits, dtype) for dtype in (np.float64, np.float32))
    # Its last step adds the logarithm to the maximum.
    operand = np.maximum(np.abs(logits.max(axis=1)), np.log(logits.shape[1]) + 1)
    assert_as_good(total[None], exact[None], naive[None], factor=6.0, operand=operand)


@pytest.mark.parametrize("n", [0, 1, 5, 16, 17, 64, 200])
def test_words_above_a_bar(kernels, n):
    """They are copied in their order, also to where they are, and the sum of their powers is found."""
    rng = np.random.default_rng(n)
    values, own, powers = rng.integers(-4, 5, (3, n)).astype(np.float32)
    ids = rng.integers(0, 2**31, n, np.int32)       # any bits, also those of NaN
    values[rng.random(n) < 0.2] = np.nan
    for bar in (-np.inf, -1.0, 0.0, 9.0):
        stays = values > bar
        lists = [guarded(1, n, n + 16) for _ in range(3)]
        for to, array in zip(lists, (values, own, ids.view(np.float32)), strict=True):
            to[0] = array
        source = [array[0] for array in lists]
        target = [np.full(n + 16, 7, np.float32) for _ in range(3)]
        for to in (target, source):
            kept = function(kernels, "keep_above")(*source, n, bar, *to)
            assert kept == stays.sum()
            for array, right in zip(to, (values, own, ids.view(np.float32)), strict=True):
                assert np.array_equal(array[:kept].view(np.int32), right[stays].view(np.int32))
        alone = values.copy(), ids.view(np.float32).copy()
        both = np.append(alone[0], np.zeros(16, np.float32)), np.append(alone[1], np.zeros(16, np.float32))
        assert function(kernels, "keep_above")(both[0], both[0], both[1], n, bar, both[0], both[0], both[1]) == kept
        assert np.array_equal(both[0][:kept], values[stays])
        sum = function(kernels, "sum_above")(values, powers, n, bar)
        assert sum == powers[stays].sum()


def test_a_sum_of_many_powers_has_a_small_error(kernels):
    n, rng = 5003, np.random.default_rng(1)
    values, powers = rng.standard_normal(n, np.float32), np.exp(rng.uniform(-12, 0, n)).astype(np.float32)
    for bar in (-np.inf, 0.0, 2.0):
        exact = powers[values > bar].sum(dtype=np.float64)
        assert abs(function(kernels, "sum_above")(values, powers, n, bar) - exact) <= (n / 16 + 16) * 2**-24 * exact


def test_every_k(kernels):
    for k in [1, 2, 3, 8, 10, 63, 64]:
        rng = np.random.default_rng(k)
        check(kernels, rng.standard_normal((5, 700), np.float32) * 3, k, 64)
        check(kernels, rng.standard_normal((3, 9), np.float32), k, 4)       # fewer logits than k


def test_every_width_of_a_part(kernels):
    logits = np.random.default_rng(1).standard_normal((3, 150), np.float32)
    edges = {edge + step for edge in (kernels.VL, 2 * kernels.VL, kernels.NR) for step in (-1, 0, 1)}
    for width in sorted({width for width in edges if width <= PART} | {1, 2, PART}):
        check(kernels, logits, 5, width)


def test_rows(kernels):
    for M in [1, 2, 7, 65]:
        check(kernels, np.random.default_rng(M).standard_normal((M, 100), np.float32), 4, 32)


def test_the_lowest_id_comes_first_among_equals(kernels):
    logits = np.random.default_rng(2).integers(-2, 3, (6, 400)).astype(np.float32)
    for k in (1, 5, 64):
        check(kernels, logits, k, 64)
    logits[:, ::3] = -0.0
    check(kernels, np.abs(logits) * -1, 64, 64)


def test_ascending_and_descending_logits(kernels):
    logits = np.arange(300, dtype=np.float32)[None] / 16
    check(kernels, logits, 20, 64)
    check(kernels, logits[:, ::-1], 20, 64)


def test_infinite_logits(kernels):
    """-inf is the smallest logit, and it adds nothing; it is chosen when there is no other."""
    logits = np.random.default_rng(4).standard_normal((4, 100), np.float32)
    logits[0, 40:] = -np.inf        # whole parts
    logits[1, ::2] = -np.inf
    logits[2] = -np.inf
    values, ids, total = choose(kernels, logits, 60, cut(100, 20))
    right = sort(logits, 60)
    assert np.array_equal(values, right[0])
    assert np.array_equal(ids, right[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = log_sum_exp(logits, np.float64)
    assert np.abs(total - exact)[[0, 1, 3]].max() < 1e-5
    assert total[2] == -np.inf


def test_nan_is_not_chosen(kernels):
    logits = np.random.default_rng(5).standard_normal((3, 90), np.float32)
    logits[1, [0, 33, 89]] = np.nan
    logits[2] = np.nan
    values, ids, total = choose(kernels, logits, 8, cut(90, 32))
    right = sort(logits, 8)
    assert np.array_equal(values, right[0])
    assert np.array_equal(ids, right[1])
    assert np.isfinite(total[0])
    assert np.isnan(total[1:]).all()
    logits[0, 5] = np.inf
    values, ids, total = choose(kernels, logits, 8, cut(90, 32))
    assert values[0, 0] == np.inf
    assert ids[0, 0] == 5
    assert np.isnan(total[0])


def test_large_logits(kernels):
    check(kernels, np.random.default_rng(6).standard_normal((3, 200), np.float32) * np.float32(1e4), 5, 64)
    check(kernels, np.random.default_rng(7).standard_normal((3, 200), np.float32) - np.float32(1e6), 5, 64)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(available()))
def test_any_logits(data, name):
    M, V = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 500))
    levels = data.draw(st.sampled_from([3, 50, 100_000]))
    logits = np.random.default_rng(V).integers(-levels, levels, (M, V)).astype(np.float32) / np.float32(levels / 4)
    check(load(name), logits, data.draw(st.integers(1, 64)), data.draw(st.integers(1, PART)))
