"""Compute the softmax of rows; see softmax.pxi."""

from __future__ import annotations

import numpy as np

from ..compiler.compiling import helper, inline
from ..compiler.structs import Float, Floats, Size, Vector
from ..compiler.vector import v_add, v_iota, v_largest, v_less, v_loadn, v_max, v_mul, v_select, v_set1, v_storen, v_sub
from ..target import VL
from .elementwise import v_exp2_bounded
from .lanes import sum_of, sum_of_numbers


@inline
def entries(x: Floats, n: Size) -> Vector:
    """Load n entries of a row, and -inf in the other lanes."""
    return v_select(v_less(v_iota(), v_set1(np.float32(n))), v_loadn(x, n), v_set1(-np.inf))


@helper
def largest(x: Floats, n: Size, least: Float) -> Float:
    """Return the largest of n numbers and `least`. NaN is ignored."""
    highest = v_set1(least)
    for i in range(0, n, VL):
        highest = v_max(entries(x + i, min(n - i, VL)), highest)
    return v_largest(highest)


@inline
def power(x: Vector, maximum: Vector) -> Vector:
    """Return 2^((x - maximum) log2 e): 0 where that is below 2^-126, and NaN where x - maximum is NaN."""
    y = v_mul(v_sub(x, maximum), v_set1(1.4426950408889634))    # log2 e
    return v_select(v_less(v_set1(-126.0), y), v_exp2_bounded(y), v_max(v_set1(0.0), y))


@inline
def _add_powers(sum: Vector, x: Floats, i: Size, n: Size, maximum: Vector) -> Vector:
    """Return sum + 2^((x - maximum) log2 e) for VL numbers from x[i] on, or for n if these are fewer: `entries` puts
    -inf in the other lanes, whose powers are 0.
    """
    return v_add(sum, power(entries(x + i, min(n, VL)), maximum))


sum_of_powers = sum_of(_add_powers)


def softmax(x: Floats, x_stride: Size, out: Floats, out_stride: Size, M: Size, N: Size) -> None:
    """Compute out[M,N] = 2^((x - max) log2 e), divided by its sum; out may equal x.

    The maximum starts at the most negative finite number, so that all powers of a row of -inf are 0 and its sum 0 marks
    an empty row. The maximum may ignore NaN, but the sum does not, and it makes the whole row NaN.
    """
    for _ in range(M):
        maximum = v_set1(largest(x, N, -np.finfo(np.float32).max))
        for i in range(0, N, VL):
            n = min(N - i, VL)
            v_storen(out + i, power(entries(x + i, n), maximum), n)
        total = sum_of_numbers(out, N, 0)
        scale = v_set1(np.float32(1.0) / total if total != 0 else np.float32(0.0))
        for i in range(0, N, VL):
            n = min(N - i, VL)
            v_storen(out + i, v_mul(v_loadn(out + i, n), scale), n)
        x += x_stride
        out += out_stride
