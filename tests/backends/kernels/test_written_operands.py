"""Test results of a product that become the operands of the next one, on kernels that have this."""

import itertools
from math import erfc, sqrt

import numpy as np
import pytest

from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .tools import WRITING_OPERANDS, convert, fixture_of, multiply_to_operands, pack, round_up, rows_of

kernels = fixture_of(WRITING_OPERANDS)


@pytest.fixture
def writer(kernels):
    """The product whose results can be operands."""
    return kernels.product("bfloat16")


@pytest.mark.parametrize("activation", [None, "relu", "silu", "gelu_tanh"])
def test_results_become_operands(kernels, writer, activation):
    """They are the rounded results, zeros complete the last line in strips, and nothing else is written."""
    for M, N in itertools.product((1, 2, 5, 6, 7, 13, 15, 16, 17, 31, 32, 33, 65), (16, 48, 64, 80)):
        rng = np.random.default_rng(M * N)
        x, w, bias = (rng.standard_normal(shape, np.float32) for shape in ((M, 40), (N, 40), N))
        packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), "bfloat16")
        out = np.empty((M, N), np.float32)
        writer.multiply(packed, convert(writer, x), out)
        expected = convert(writer, out)
        found = np.full_like(expected, 77)
        multiply_to_operands(writer, packed, convert(writer, x), found, M)
        assert np.array_equal(rows_of(writer, found), rows_of(writer, expected)), (M, N)


def test_gelu_of_operands_is_within_its_bound(kernels, writer):
    """x of all sizes: x Phi(x), within 1.3e-4 and the rounding to bfloat16; NaN and infinity stay."""
    special = np.array([np.inf, np.nan], np.float32)
    x = from_bfloat16(to_bfloat16(np.concatenate([np.linspace(-9, 9, 5000), [-1e4, 1e4]]).astype(np.float32)))
    x = np.concatenate([x, special])[:, None]
    packed = pack(kernels, np.eye(16, 1, dtype=np.float32), np.zeros(16, np.float32), ACTIVATIONS["gelu"], "bfloat16")
    rows = np.zeros((round_up(len(x), 16), 64), np.uint8)
    multiply_to_operands(writer, packed, convert(writer, x), rows, len(x))
    found = from_bfloat16(rows_of(writer, rows)[: len(x), :2].copy().view(np.uint16))[:, 0]
    exact = np.array([0.5 * value * erfc(-value / sqrt(2)) for value in x[:-2, 0].astype(float)])
    # Without fused multiply-adds, as in plain C, Phi is not exactly 0 or 1 beyond the cuts.
    unfused = 1e-6 if kernels.isa in ("wide", "amxemulated") else 0
    assert (np.abs(found[:-2] - exact) <= 1.3e-4 + 2.0**-8 * np.abs(exact) + unfused * np.abs(x[:-2, 0])).all()
    assert found[-2] == np.inf
    assert np.isnan(found[-1])
