"""Test the packed GEMM against float64, at sizes around every tile and K block."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.reference.formulas import ACTIVATIONS as FORMULAS
from engine.backends.reference.formulas import linear

from .tools import (
    assert_as_good,
    assert_guards,
    available,
    guarded,
    linear_in_order,
    load,
    operands_of,
    pack,
    round_up,
    widths_of_panels,
)

ROWS = (1, 2, 3, 4, 5, 6, 7, 11, 12, 13)
MORE = 64
"""Columns that only the plain formula computes.

On a single number the plain formula may be exact by luck; on this many numbers it is not.
"""


def make(rng, M, N, K):
    return (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (N, K), (N,)))


def check(kernels, M, N, K, activation=None, with_residual=False, seed=0):
    rng = np.random.default_rng(seed)
    a, w, bias = make(rng, M, N + MORE, K)
    packed = pack(kernels, w[:N], bias[:N], ACTIVATIONS.get(activation, 0))
    padded = round_up(N, kernels.VL)
    residual = np.zeros((M, padded + 5), np.float32)[:, :padded]
    if with_residual:
        residual[:, :N] = rng.standard_normal((M, N))
    out = guarded(M, padded, padded + 5)
    strided = np.full((M, K + 7), np.nan, np.float32)[:, :K]
    strided[:] = a
    product = kernels.product("float32")
    product.multiply(packed, operands_of(product, strided), out, residual if with_residual else None)
    assert_guards(out)
    assert not out[:, N:].any(), "padding must stay zero"

    exact = linear(*(array.astype(np.float64) for array in (a, w, bias)))
    naive = linear_in_order(a, w, bias)
    for sums in (exact, naive):
        sums[:, :N] += residual[:, :N]
    formula = FORMULAS.get(activation, np.copy)
    assert_as_good(out[:, :N], formula(exact), formula(naive), operand=exact)


def test_every_tile_height(kernels):
    for M in ROWS:
        check(kernels, M, kernels.NR + 3, 37)


def test_around_every_slice_of_the_depth(kernels):
    for K in [1, 2, 37, 1023, 1024, 1025, 2049, 3073]:
        check(kernels, 7, kernels.VL + 1, K)


def test_a_residual_is_added_once_to_several_slices(kernels):
    check(kernels, 7, kernels.VL + 1, 2049, with_residual=True)


def test_around_every_vector_and_panel(kernels):
    for N in widths_of_panels(kernels):
        check(kernels, 5, N, 20, with_residual=True)


def test_activations(kernels):
    for activation in ACTIVATIONS:
        for M, N in ((1, 1), (6, kernels.NR), (13, kernels.NR + 1)):
            check(kernels, M, N, 50, activation)


@settings(max_examples=30, deadline=None)
@given(M=st.integers(1, 40), N=st.integers(1, 150), K=st.integers(1, 300), residual=st.booleans(),
       name=st.sampled_from(available()))
def test_any_size(M, N, K, residual, name):
    check(load(name), M, N, K, with_residual=residual, seed=M + N + K)


def test_rows_do_not_depend_on_their_neighbours(kernels):
    """A row's bits are the same in a tile of any height and for every depth, also with several K blocks."""
    rng = np.random.default_rng(1)
    for K in (30, 1500):
        a, w, bias = make(rng, 13, 20, K)
        packed = pack(kernels, w, bias)
        alone = np.concatenate([run(kernels, packed, a[i : i + 1]) for i in range(len(a))])
        for M in ROWS:
            assert np.array_equal(run(kernels, packed, a[:M]), alone[:M])


def run(kernels, packed, a):
    out = guarded(len(a), round_up(20, kernels.VL))
    product = kernels.product("float32")
    product.multiply(packed, operands_of(product, a), out)
    return np.array(out)


def test_columns_can_be_written_block_by_block(kernels):
    """Queries, keys and values are written like this: all columns of one head, then those of the next."""
    rng = np.random.default_rng(2)
    M, heads, width = 7, 5, kernels.VL
    a, w, bias = make(rng, M, heads * width, 33)
    packed = pack(kernels, w, bias)
    plain = guarded(M, heads * width)
    product = kernels.product("float32")
    operands = operands_of(product, a)
    product.multiply(packed, operands, plain)
    blocks = guarded(heads * M, width, width)
    product.multiply(packed, operands[:M], blocks, width=width, block=M * width)
    assert_guards(blocks)
    assert np.array_equal(blocks.reshape(heads, M, width).transpose(1, 0, 2).reshape(M, -1), plain)


def test_fill_refuses_what_does_not_fit(kernels):
    packed = pack(kernels, np.ones((3, 4), np.float32), np.ones(3, np.float32))
    with pytest.raises(ValueError, match="outside"):
        packed.fill(np.ones((3, 5), np.float32))
    with pytest.raises(ValueError, match="outside"):
        packed.fill(np.ones((kernels.VL, 4), np.float32), 1)
