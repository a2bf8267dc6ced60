"""Apply the rotary embedding: rotate pairs of a row's first columns by its angles; see rotary.pxi."""

from __future__ import annotations

from ..compiler.compiling import inline
from ..compiler.structs import Floats, Rotary, Size, Vector
from ..compiler.vector import v_even, v_fma, v_fnma, v_loadn, v_mul, v_odd, v_storen, v_zip_high, v_zip_low
from ..target import VL


@inline
def turned_x(x: Vector, y: Vector, cos: Vector, sin: Vector) -> Vector:
    """Return x cos - y sin."""
    return v_fnma(y, sin, v_mul(x, cos))


@inline
def turned_y(x: Vector, y: Vector, cos: Vector, sin: Vector) -> Vector:
    """Return x sin + y cos."""
    return v_fma(y, cos, v_mul(x, sin))


@inline
def rotate_halves(x: Floats, cos: Floats, sin: Floats, out: Floats, half: Size, n: Size) -> None:
    """Rotate n <= VL pairs, x[i] with x[half + i]."""
    a, b, c, s = v_loadn(x, n), v_loadn(x + half, n), v_loadn(cos, n), v_loadn(sin, n)
    v_storen(out, turned_x(a, b, c, s), n)
    v_storen(out + half, turned_y(a, b, c, s), n)


@inline
def rotate_neighbours(x: Floats, cos: Floats, sin: Floats, out: Floats, n: Size) -> None:
    """Rotate n <= VL pairs, x[2i] with x[2i + 1]."""
    left_n = min(2 * n, VL)     # numbers in each of two vectors
    right_n = 2 * n - left_n
    left, right = v_loadn(x, left_n), v_loadn(x + VL, right_n)
    a, b, c, s = v_even(left, right), v_odd(left, right), v_loadn(cos, n), v_loadn(sin, n)
    a, b = turned_x(a, b, c, s), turned_y(a, b, c, s)
    v_storen(out, v_zip_low(a, b), left_n)
    v_storen(out + VL, v_zip_high(a, b), right_n)


def rotate(rotary: Rotary, x: Floats, x_stride: Size, out: Floats, out_stride: Size, M: Size) -> None:
    """Rotate row m of x[M,d] by the m-th angles; out may equal x."""
    half = rotary.width // 2
    for row in range(M):
        cos, sin = rotary.cos + row * rotary.stride, rotary.sin + row * rotary.stride
        for i in range(0, half, VL):
            n = min(half - i, VL)
            if rotary.interleaved:
                rotate_neighbours(x + 2 * i, cos + i, sin + i, out + 2 * i, n)
            else:
                rotate_halves(x + i, cos + i, sin + i, out + i, half, n)
        for i in range(rotary.width, rotary.d):
            out[i] = x[i]
        x += x_stride
        out += out_stride
