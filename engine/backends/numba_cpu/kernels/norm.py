"""Compute LayerNorm and RMSNorm of rows; see norm.pxi."""

from __future__ import annotations

from math import sqrt

import numpy as np

from ..compiler.compiling import inline
from ..compiler.structs import Floats, Norm, Size, Vector
from ..compiler.vector import v_fma, v_keep, v_load, v_loadn, v_mul, v_set1, v_store, v_storen, v_sub
from ..target import VL
from .lanes import sum_of, sum_of_numbers


@inline
def _add_square(sum: Vector, x: Floats, i: Size, n: Size, mean: Vector) -> Vector:
    """Add the squares of n numbers from x[i] on. mean: not used."""
    value = v_loadn(x + i, min(n, VL))
    return v_fma(value, value, sum)


@inline
def _add_deviation(sum: Vector, x: Floats, i: Size, n: Size, mean: Vector) -> Vector:
    """Add the squares of the deviations from the mean of n numbers from x[i] on."""
    centred = v_keep(v_sub(v_loadn(x + i, min(n, VL)), mean), min(n, VL))
    return v_fma(centred, centred, sum)


_squares, _deviations = sum_of(_add_square), sum_of(_add_deviation)


def layer_norm(norm: Norm, x: Floats, x_stride: Size, out: Floats, out_stride: Size, M: Size) -> None:
    """Compute out = (x - mean) / sqrt(variance + eps) * weight + bias; out may equal x.

    The variance is computed from x - mean: E[x^2] - E[x]^2 loses all its digits where |mean| is large.
    """
    vectors, tail = norm.D // VL, norm.D % VL
    whole = vectors * VL
    weight, bias, D = norm.weight, norm.bias, np.float32(norm.D)
    for _ in range(M):
        mean = v_set1(sum_of_numbers(x, norm.D, 0) / D)
        scale = v_set1(np.float32(1.0) / sqrt(_deviations(x, norm.D, mean) / D + norm.eps))
        for i in range(vectors):
            centred = v_mul(v_sub(v_load(x + i * VL), mean), scale)
            v_store(out + i * VL, v_fma(centred, v_load(weight + i * VL), v_load(bias + i * VL)))
        if tail:
            centred = v_mul(v_sub(v_loadn(x + whole, tail), mean), scale)
            v_storen(out + whole, v_fma(centred, v_loadn(weight + whole, tail), v_loadn(bias + whole, tail)), tail)
        x += x_stride
        out += out_stride


def rms_norm(norm: Norm, x: Floats, x_stride: Size, out: Floats, out_stride: Size, M: Size) -> None:
    """Compute out = x / sqrt(mean(x^2) + eps) * weight; out may equal x."""
    D = norm.D
    for _ in range(M):
        scale = v_set1(np.float32(1.0) / sqrt(_squares(x, D, v_set1(0.0)) / np.float32(D) + norm.eps))
        for i in range(0, D, VL):
            n = min(D - i, VL)
            v_storen(out + i, v_mul(v_mul(v_loadn(x + i, n), scale), v_loadn(norm.weight + i, n)), n)
        x += x_stride
        out += out_stride
