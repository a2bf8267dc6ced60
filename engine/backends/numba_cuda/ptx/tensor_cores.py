"""Add as tensor cores do, to the bit: the sums of mma.sync and wgmma in the emulator.

A step of Hopper's tensor cores adds 16 products of bfloat16 to a float32. Products are exact, and the exponent of a
product is the sum of its factors' exponents. With `top`, the largest exponent among the products and the float32, each
of these numbers is cut towards zero below 2^(top - 25), the cut numbers are added exactly, and the sum is cut to 24
bits. Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores" (arXiv 2512.07004). Sums of an H200 have the same
relative error to 14 digits (`docs/gpu.json`), by mma.sync and by wgmma.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

STEP = 16
"""Number of products that are added together."""
_LEAST = -100_000       # the exponent of zero, below all others


@njit
def _parts(bits: int, width: int) -> tuple[int, int]:
    """Return the signed significand, an integer of `width` bits, and the exponent of a float32's bits."""
    exponent, significand = bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent:        # a normal number, whose highest bit is not stored
        significand |= 0x800000
    significand >>= 24 - width
    if significand == 0:
        return 0, _LEAST
    return -significand if bits < 0 else significand, max(exponent, 1) - 127


@njit
def _cut(significand: int, shift: int) -> int:
    """Return significand / 2^shift, cut towards zero."""
    if shift > 62:
        return 0
    return -(-significand >> shift) if significand < 0 else significand >> shift


@njit
def _add(x_bits: np.ndarray, y_bits: np.ndarray, sums: np.ndarray) -> None:     # pragma: no cover - compiled
    """Add x y^T to sums [M,N] in place; x_bits [M,K], y_bits [N,K]: the float32 bits of finite bfloat16 numbers."""
    (M, K), N = x_bits.shape, len(y_bits)
    bits = sums.view(np.int32)
    x, x_exponents = np.empty((M, K), np.int64), np.empty((M, K), np.int64)
    y, y_exponents = np.empty((N, K), np.int64), np.empty((N, K), np.int64)
    for k in range(K):
        for i in range(M):
            x[i, k], x_exponents[i, k] = _parts(x_bits[i, k], 8)
        for j in range(N):
            y[j, k], y_exponents[j, k] = _parts(y_bits[j, k], 8)
    for i in range(M):
        for j in range(N):
            for first in range(0, K, STEP):
                steps = range(first, min(first + STEP, K))
                addend, top = _parts(bits[i, j], 24)
                exponent = top
                for k in steps:
                    top = max(top, x_exponents[i, k] + y_exponents[j, k])
                if top <= _LEAST // 2:
                    sums[i, j] = 0      # nothing but zeros
                    continue
                # In units of 2^(top - 25): a product has 14 bits behind its point, and the float32 has 23.
                total = _cut(addend << 2, top - exponent)
                for k in steps:
                    total += _cut(x[i, k] * y[j, k] << 11, top - x_exponents[i, k] - y_exponents[j, k])
                spare = 0       # how many low bits are more than 24, and are cut
                while abs(total) >> spare >= 1 << 24:
                    spare += 1
                sums[i, j] = math.ldexp(float(_cut(total, spare)), top - 25 + spare)


def add_products(x: np.ndarray, y: np.ndarray, sums: np.ndarray) -> None:
    """Add x y^T to sums in place, in steps of 16 along K.

    x [M,K] and y [N,K]: float32 numbers that bfloat16 holds; sums: float32 [M,N]. Where an operand is not finite, the
    sums are those of float32.
    """
    x, y = (np.ascontiguousarray(operand, np.float32) for operand in (x, y))
    whole = sum(np.isfinite(operand).all() for operand in (x, y, sums)) == 3
    plain = None if whole else x @ y.T + sums
    _add(x.view(np.int32), y.view(np.int32), sums)
    if plain is not None:
        lost = ~np.isfinite(plain)
        sums[lost] = plain[lost]
