"""Sum up the numbers of a row with the same bits on all instruction sets; simd/common.h explains the lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..compiler.compiling import inline
from ..compiler.structs import Float, Floats, Size, Vector
from ..compiler.vector import v_add, v_loadn, v_set1, v_sum
from ..target import VL

LANES = 16
"""The partial sums of a row: lane i adds the numbers whose index is i modulo LANES."""


@inline
def _l_sum(part0: Vector, part1: Vector, part2: Vector, part3: Vector) -> Float:
    """Return the sum of the lanes: the upper half is added to the lower half, repeatedly.

    The vectors that LANES numbers do not fill are zeros, which change no sum.
    """
    if VL <= 4:
        return v_sum(v_add(v_add(part0, part2), v_add(part1, part3)))
    return v_sum(v_add(part0, part1))


def sum_of(add: Callable[..., Any]) -> Any:
    """Return a function (x, n, other) that sums up n terms of a row in lanes.

    add: (sum, x, i, n, other) adds the terms of VL numbers from x[i] on to a vector of sums; of n numbers if these are
    fewer, and of none if n is not positive.
    """

    @inline
    def sum_of_terms(x: Floats, n: Size, other: Any) -> Float:
        """Return the sum of the terms of x [n]; part0 to part3 are the vectors that LANES numbers fill."""
        zero = v_set1(0.0)
        part0, part1, part2, part3 = zero, zero, zero, zero
        for i in range(0, n, LANES):
            part0 = add(part0, x, i, n - i, other)
            if VL <= 8:
                part1 = add(part1, x, i + VL, n - i - VL, other)
            if VL <= 4:
                part2 = add(part2, x, i + 2 * VL, n - i - 2 * VL, other)
                part3 = add(part3, x, i + 3 * VL, n - i - 3 * VL, other)
        return _l_sum(part0, part1, part2, part3)

    return sum_of_terms


@inline
def _add_numbers(sum: Vector, x: Floats, i: Size, n: Size, other: Any) -> Vector:
    """Add the numbers themselves. other: not used."""
    return v_add(sum, v_loadn(x + i, min(n, VL)))


sum_of_numbers = sum_of(_add_numbers)
