"""Compute exp2 and the activations of one vector. elementwise.pxi explains the polynomials and their bounds."""

from __future__ import annotations

from math import frexp

import numpy as np

from ...cpu.native.layout import ENUMS
from ..compiler.compiling import helper, inline
from ..compiler.structs import Float, Floats, Int, Size, Vector
from ..compiler.vector import (
    v_abs,
    v_add,
    v_div,
    v_fma,
    v_fnma,
    v_less,
    v_load,
    v_loadn,
    v_max,
    v_min,
    v_mul,
    v_scale,
    v_select,
    v_set1,
    v_store,
    v_storen,
    v_sub,
)
from ..target import VL

LN_2 = 0.6931471805599453
ROUNDER = 12582912.0
"""1.5 * 2^23: adding it rounds a small float to an integer, which is then in the lowest bits of the sum."""

IDENTITY, GELU, GELU_TANH, RELU, SILU = (ENUMS["Activation"][name]
                                         for name in ("IDENTITY", "GELU", "GELU_TANH", "RELU", "SILU"))


@inline
def pair(c0: float, c1: float, x: Vector) -> Vector:
    """Return c0 + c1 x."""
    return v_fma(v_set1(c1), x, v_set1(c0))


@inline
def v_exp2_bounded(x: Vector) -> Vector:
    """Return 2^x = 2^n 2^r with n = round(x), for -126 <= x <= 127, within 2.6 ulp."""
    rounder = v_set1(ROUNDER)
    z = v_add(x, rounder)
    r = v_sub(x, v_sub(z, rounder))
    r2 = v_mul(r, r)
    p = pair(9.6755413e-3, 1.3276408e-3, r)
    p = v_fma(p, r2, pair(2.4022120e-1, 5.5507135e-2, r))
    p = v_fma(p, r2, pair(1.0000001, 6.9314694e-1, r))
    return v_scale(p, z)


@inline
def v_exp2(x: Vector) -> Vector:
    """Return 2^x for x <= 127, and 2^-126 below -126. NaN passes through v_max as its second operand."""
    return v_exp2_bounded(v_max(v_set1(-126.0), x))


@helper
def natural_logarithm(x: Float) -> np.float32:
    """Return ln x, in float64 with additions, products and quotients alone.

    For x = m 2^e, m around 1, it is e ln 2 + 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1).
    """
    if not 0 < x < np.inf:
        return np.float32(x if x > 0 else -np.inf if x == 0 else np.nan)
    m, exponent = frexp(np.float64(x))
    if m < 0.5**0.5:
        m *= 2.0
        exponent -= 1
    s = (m - 1.0) / (m + 1.0)
    s2, series = s * s, 0.0
    for i in range(15, 0, -2):
        series = series * s2 + 1.0 / i
    return np.float32(exponent * LN_2 + 2.0 * s * series)


@inline
def v_gelu(x: Vector) -> Vector:
    """Return x Phi(x) = max(x, 0) - a Phi(-a), a = |x|, with a polynomial for log2 Phi(-a) on [0, 8]."""
    t = v_min(v_set1(8.0), v_abs(x))
    t2 = v_mul(t, t)
    p = pair(-7.6134697e-6, 3.8151214e-7, t)
    p = v_fma(p, t2, pair(-2.4583828e-4, 6.311736e-5, t))
    p = v_fma(p, t2, pair(7.0112413e-3, -5.743285e-5, t))
    p = v_fma(p, t2, pair(-4.5920473e-1, -5.2485343e-2, t))
    p = v_fma(p, t2, pair(-9.9999994e-1, -1.1511066, t))
    return v_fnma(t, v_exp2_bounded(p), v_max(v_set1(0.0), x))


@inline
def v_swish(x: Vector, y: Vector) -> Vector:
    """Return x / (1 + 2^y), where y grows as x falls; return 0 from y = 126 on, where it is below |x| 2^-126."""
    return v_select(v_less(v_set1(126.0), y), v_set1(0.0), v_div(x, v_add(v_set1(1.0), v_exp2(y))))


@inline
def v_gelu_tanh(x: Vector) -> Vector:
    """Return x / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    cubic = v_fma(v_mul(v_mul(x, x), x), v_set1(0.044715), x)
    return v_swish(x, v_mul(cubic, v_set1(-2.3022082)))     # -2 sqrt(2/pi) log2 e


@inline
def v_silu(x: Vector) -> Vector:
    """Return x / (1 + e^-x)."""
    return v_swish(x, v_mul(x, v_set1(-1.4426950408889634)))    # -log2 e


@inline
def v_activate(activation: Int, x: Vector) -> Vector:
    """Return activation(x)."""
    if activation == GELU:
        return v_gelu(x)
    if activation == GELU_TANH:
        return v_gelu_tanh(x)
    if activation == RELU:
        return v_max(v_set1(0.0), x)
    if activation == SILU:
        return v_silu(x)
    return x


@inline
def activate_as(activation: Int, x: Floats, stride: Size, M: Size, N: Size) -> None:
    """Compute x = activation(x) in place, for an activation that is known at compile time."""
    tail = N % VL
    for row in range(M):
        start = x + row * stride
        for i in range(N // VL):
            v_store(start + i * VL, v_activate(activation, v_load(start + i * VL)))
        if tail:
            v_storen(start + (N - tail), v_activate(activation, v_loadn(start + (N - tail), tail)), tail)


@helper
def activate_rows(activation: Int, x: Floats, stride: Size, M: Size, N: Size) -> None:
    """Compute x[M,N] = activation(x[M,N]) in place; kernels call this."""
    if activation == GELU:
        activate_as(GELU, x, stride, M, N)
    elif activation == GELU_TANH:
        activate_as(GELU_TANH, x, stride, M, N)
    elif activation == RELU:
        activate_as(RELU, x, stride, M, N)
    elif activation == SILU:
        activate_as(SILU, x, stride, M, N)


def activate(activation: Int, x: Floats, stride: Size, M: Size, N: Size) -> None:
    """Compute x[M,N] = activation(x[M,N]) in place; the kernel table holds this."""
    activate_rows(activation, x, stride, M, N)


@inline
def gate_as(activation: Int, x: Floats, x_stride: Size, y: Floats, y_stride: Size, out: Floats, out_stride: Size,
            M: Size, N: Size) -> None:
    """Compute out = activation(x) y, for an activation that is known at compile time."""
    for row in range(M):
        for i in range(0, N, VL):
            n = min(N - i, VL)
            value = v_activate(activation, v_loadn(x + (row * x_stride + i), n))
            v_storen(out + (row * out_stride + i), v_mul(value, v_loadn(y + (row * y_stride + i), n)), n)


def gate(activation: Int, x: Floats, x_stride: Size, y: Floats, y_stride: Size, out: Floats, out_stride: Size, M: Size,
         N: Size) -> None:
    """Compute out[M,N] = activation(x[M,N]) y[M,N]; out may be x."""
    if activation == GELU:
        gate_as(GELU, x, x_stride, y, y_stride, out, out_stride, M, N)
    elif activation == GELU_TANH:
        gate_as(GELU_TANH, x, x_stride, y, y_stride, out, out_stride, M, N)
    elif activation == RELU:
        gate_as(RELU, x, x_stride, y, y_stride, out, out_stride, M, N)
    elif activation == SILU:
        gate_as(SILU, x, x_stride, y, y_stride, out, out_stride, M, N)
    else:
        gate_as(IDENTITY, x, x_stride, y, y_stride, out, out_stride, M, N)
