"""Elementary functions with the same bits on every CPU, in every version of NumPy and of the C library.

NumPy and libm choose code by the CPU, and their exp, log, sine or power differ in the last bit. Functions that decide a
result are therefore computed here, only from operations that IEEE 754 defines to the bit: additions, products,
quotients, comparisons, conversions, and changes of the exponent. NumPy rounds each of them by itself, on every CPU. The
sums in a product of matrices are exact, so that they do not depend on their order.

Errors are below 1.5 ulp in float32 and 5 ulp in float64; those of `power` grow with the size of exponent * ln base. NaN
stays NaN, and denormal numbers are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_LN_2 = Fraction(693147180559945309417232121458176568075500134360255254120680, 10**60)
_HALF_PI = Fraction(314159265358979323846264338327950288419716939937510582097494, 2 * 10**59)


def _pieces(x: Fraction, bits: int, count: int) -> list[float]:
    """Return `count` numbers of at most `bits` bits whose sum is x; the last one is the remainder, in float64."""
    pieces = []
    for _ in range(count - 1):
        exponent = bits - (x.numerator.bit_length() - x.denominator.bit_length() + 1)       # x 2^exponent < 2^bits
        pieces.append(float(Fraction(int(x * Fraction(2) ** exponent)) / Fraction(2) ** exponent))
        x -= Fraction(pieces[-1])
    return [*pieces, float(x)]


def _inverse_factorials(count: int, step: int, first: int) -> list[float]:
    """Return 1/n! for n = first, first + step, ...: `count` numbers, rounded to float64."""
    return [1 / math.factorial(n) for n in range(first, first + step * count, step)]     # one rounding, because of ints


class _Exp:
    """The function e^x in one float type: x = n ln 2 + r, |r| <= ln 2 / 2, and e^r by its series of `terms` terms."""

    def __init__(self, dtype: type, integer: type, bits: int, terms: int, lowest: float, highest: float):
        """Compute the constants. integer: the type of ints as wide as dtype. bits: those of the first piece of ln 2, so
        that its product with n is exact. lowest, highest: below the one e^x is 0, above the other infinity."""
        self.dtype, self.integer = dtype, integer
        self.mantissa = np.finfo(dtype).nmant
        self.bias = np.finfo(dtype).maxexp - 1
        self.log2_e = dtype(float(1 / _LN_2))
        self.ln_2 = [dtype(piece) for piece in _pieces(_LN_2, bits, count=2)]
        self.series = [dtype(term) for term in reversed(_inverse_factorials(terms, step=1, first=0))]
        self.lowest, self.highest = dtype(lowest), dtype(highest)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return e^x of each number, in an array of the same shape and type."""
        x = np.minimum(np.maximum(x, self.lowest), self.highest)    # NaN passes through both
        n = np.rint(x * self.log2_e)
        r = (x - n * self.ln_2[0]) - n * self.ln_2[1]
        p = np.full_like(r, self.series[0])
        for term in self.series[1:]:
            p *= r
            p += term
        with np.errstate(invalid="ignore"):     # NaN becomes any integer, and then 0
            exponent = n.astype(self.integer)
        exponent = np.where(np.isnan(x), 0, exponent).astype(self.integer)
        half = exponent >> 1        # two factors, because 2^n alone may be a denormal number or too large
        with np.errstate(over="ignore", under="ignore"):
            p *= self._power_of_2(half)
            p *= self._power_of_2(exponent - half)
        return p

    def _power_of_2(self, n: np.ndarray) -> np.ndarray:
        """Return 2^n by its bits, n + bias as the exponent and a mantissa of zeros; no 2^n may be a denormal number."""
        return (n + self.integer(self.bias) << self.integer(self.mantissa)).view(self.dtype)


_EXP = {np.dtype(np.float32): _Exp(np.float32, np.int32, bits=15, terms=8, lowest=-104.5, highest=89.0),
        np.dtype(np.float64): _Exp(np.float64, np.int64, bits=32, terms=14, lowest=-746.0, highest=710.0)}

_LN_2_PIECES = _pieces(_LN_2, bits=32, count=2)
_HALF_PI_PIECES = _pieces(_HALF_PI, bits=22, count=5)
_EXACT_TURNS = 2**31
"""Products of a piece of pi/2 and a number of quarter turns below this one are exact."""
_SINE = [(-1) ** i * term for i, term in enumerate(_inverse_factorials(8, step=2, first=1))]
_COSINE = [(-1) ** i * term for i, term in enumerate(_inverse_factorials(9, step=2, first=0))]


def exp(x: ArrayLike) -> NDArray[Any]:
    """Return e^x in the shape of x: in float32 for float32, and in float64 for all other numbers."""
    x = np.asarray(x)
    x = x if x.dtype in _EXP else x.astype(np.float64)
    return _EXP[x.dtype](x)


def log(x: ArrayLike) -> NDArray[Any]:
    """Return ln x in the shape of x, computed in float64 (float32 for float32): -inf for 0, NaN for numbers below 0."""
    return _in_float64(_log, x)


def log10(x: ArrayLike) -> NDArray[Any]:
    """Return the logarithm to the base 10, computed in float64; float32 for float32."""
    return _in_float64(lambda x: _log(x) / _LN_10, x)


def log1p(x: ArrayLike) -> NDArray[Any]:
    """Return ln(1 + x) for x of at least 0, computed in float64; float32 for float32."""
    return _in_float64(_log1p, x)


def tanh(x: ArrayLike) -> NDArray[Any]:
    """Return the hyperbolic tangent, computed in float64; float32 for float32."""
    return _in_float64(_tanh, x)


def cos_sin(x: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cosine and the sine of angles of at most 2^31 quarter turns, in float64: two arrays of their shape."""
    x = np.asarray(x, np.float64)
    n = np.rint(x * float(1 / _HALF_PI))        # quarter turns; r is what remains, within pi/4
    if not (np.abs(n) < _EXACT_TURNS).all():
        raise ValueError(f"angles must be finite, and less than {_EXACT_TURNS:,} quarter turns")
    r = x
    for piece in _HALF_PI_PIECES:
        r = r - n * piece
    r2 = r * r
    sine, cosine = r * _polynomial(_SINE, r2), _polynomial(_COSINE, r2)
    quarter = n.astype(np.int64) & 3        # x = r + quarter * pi/2 + whole turns
    odd = quarter & 1 == 1      # after one or three quarter turns, cosine and sine change places
    return (np.where((quarter == 1) | (quarter == 2), -1.0, 1.0) * np.where(odd, sine, cosine),
            np.where(quarter & 2 == 2, -1.0, 1.0) * np.where(odd, cosine, sine))


def power(base: ArrayLike, exponent: ArrayLike) -> NDArray[np.float64]:
    """Return base^exponent for a positive base, in float64; exact for the exponents 0 and 1."""
    base, exponent = np.asarray(base, np.float64), np.asarray(exponent, np.float64)
    return np.where(exponent == 1, base, exp(exponent * log(base)))


_EXACT_BITS = 53
"""The bits of the integers that float64 holds."""


def product(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """Return a [n,K] times b [m,K] transposed, in float64, within 2^-38 sqrt(K) times the largest numbers of both rows.

    NumPy multiplies by a library that chooses the order of its sums by the CPU. So each number is split into two
    integers, in a unit of its row, that are so small that every sum of their products is exact in any order.
    """
    K = np.shape(a)[1]
    bits = (_EXACT_BITS - max(K - 1, 1).bit_length()) // 2      # of each integer: the sum of K products fits float64
    (high, low, units), (other_high, other_low, other_units) = (_integers(np.asarray(x, np.float64), bits)
                                                                for x in (a, b))
    sums = (high @ other_low.T + low @ other_high.T) * 2.0**-bits + high @ other_high.T
    return np.ldexp(sums + 0.0, units + other_units.T - 2 * bits)   # + 0.0 turns -0.0, which depends on order, to 0.0


_Complex = tuple[NDArray[np.float64], NDArray[np.float64]]
"""(real parts, imaginary parts) of complex numbers."""


def spectrum(x: NDArray[np.float64]) -> _Complex:
    """Return the discrete Fourier transform of each column of x [N,n], N even: its real and imaginary part [N/2+1,n].

    X_k = sum over t of x_t e^(-2 pi i k t / N), for k from 0 to N/2. `numpy.fft` has other bits in other versions.
    """
    # Z is the transform of the complex numbers z_t = x_2t + i x_2t+1, half as many. The real and imaginary numbers have
    # the transforms (Z_k + conj Z_-k) / 2 and (Z_k - conj Z_-k) / 2i, and the second is turned by e^(-2 pi i k / N).
    half = len(x) // 2
    parts = _transform(x[::2], x[1::2])
    real, imaginary = (np.append(part, part[:1], axis=0) for part in parts)
    real_back, imaginary_back = real[::-1], imaginary[::-1]
    cosine, sine = (table[:, None] for table in _angles_of_turns(2 * half, step=1, count=half + 1))
    odd = _rotate((imaginary + imaginary_back) * 0.5, (real_back - real) * 0.5, cosine, sine)
    return (real + real_back) * 0.5 + odd[0], (imaginary - imaginary_back) * 0.5 + odd[1]


def _transform(real: NDArray[np.float64], imaginary: NDArray[np.float64]) -> _Complex:
    """Return the discrete Fourier transform of each column of complex numbers: real and imaginary part, [N,n] each.

    A transform of p m numbers is m transforms of p numbers, one factor for each number, and p transforms of m numbers.
    Each factor p of N is a step, from [p, left, done, n] to [left, p, done, n], so that rows end in their places.
    """
    N, n = real.shape
    left, done = N, 1       # the product of the factors of N that are left, and of the factors that are done
    for p in _factors(N):
        left //= p
        parts = _transform_of_few(real.reshape(p, left, done, n), imaginary.reshape(p, left, done, n))
        real, imaginary = np.empty((2, left, p, done, n))
        for q, (a, b) in enumerate(parts):
            if q and left > 1:
                cosine, sine = _angles_of_turns(p * left, step=q, count=left)
                a, b = _rotate(a, b, cosine[:, None, None], sine[:, None, None])
            real[:, q], imaginary[:, q] = a, b
        done *= p
    return real.reshape(N, n), imaginary.reshape(N, n)


def _rotate(real: NDArray[np.float64], imaginary: NDArray[np.float64], cosine: NDArray[np.float64],
            sine: NDArray[np.float64]) -> _Complex:
    """Return (real + i imaginary) (cosine - i sine), a rotation by the negative angle."""
    return real * cosine + imaginary * sine, imaginary * cosine - real * sine


@cache
def _angles_of_turns(N: int, step: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cosines and the sines of 2 pi step j / N for j below count: [count] each, which nobody may change."""
    return cos_sin(2 * np.pi * step * np.arange(count) / N)


@cache
def _factors(N: int) -> tuple[int, ...]:
    """Return numbers whose product is N: primes, and 4 in place of 2 times 2."""
    factors = []
    for p in (4, *range(2, N + 1)):
        while N % p == 0:
            factors.append(p)
            N //= p
    return tuple(factors)


def _transform_of_few(real: NDArray[np.float64], imaginary: NDArray[np.float64]) -> list[_Complex]:
    """Return the discrete Fourier transform over the first axis, of size p, which is 4 or a prime: p results."""
    p = len(real)
    if p == 2:
        return [(real[0] + real[1], imaginary[0] + imaginary[1]), (real[0] - real[1], imaginary[0] - imaginary[1])]
    if p == 4:
        (a, c), (b, d) = (_transform_of_few(real[i::2], imaginary[i::2]) for i in range(2))
        return [(a[0] + b[0], a[1] + b[1]), (c[0] + d[1], c[1] - d[0]),
                (a[0] - b[0], a[1] - b[1]), (c[0] - d[1], c[1] + d[0])]
    # Elements h and p - h meet the same cosine and opposite sines, so that only their sums and differences are needed:
    # X_q = x_0 + sum over h < p/2 of (x_h + x_p-h) cos - i (x_h - x_p-h) sin, of the angle 2 pi q h / p; X_p-q has + i.
    first, last = slice(1, p // 2 + 1), slice(-1, p // 2, -1)
    even, odd = [[both(part[first], part[last]) for part in (real, imaginary)] for both in (np.add, np.subtract)]
    parts = [(real[0] + even[0].sum(axis=0), imaginary[0] + even[1].sum(axis=0))] * p       # the first is X_0
    for q in range(1, p // 2 + 1):
        cosine, sine = (table[1:, None, None, None] for table in _angles_of_turns(p, step=q, count=p // 2 + 1))
        a, b = real[0] + (even[0] * cosine).sum(axis=0), imaginary[0] + (even[1] * cosine).sum(axis=0)
        c, d = (odd[1] * sine).sum(axis=0), (odd[0] * sine).sum(axis=0)
        parts[q], parts[-q] = (a + c, b - d), (a - c, b + d)
    return parts


def _integers(x: NDArray[np.float64], bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """Return integers of `bits` bits, high and low [n,K], and e [n,1]: x is about (high + low 2^-bits) 2^(e - bits)."""
    _, e = np.frexp(np.abs(x).max(axis=1, keepdims=True, initial=0))        # the largest |x| of a row is below 2^e
    scaled = np.ldexp(x, bits - e)
    high = np.rint(scaled)
    return high, np.rint(np.ldexp(scaled - high, bits)), e


def _in_float64(function: Callable[[NDArray[np.float64]], NDArray[np.float64]], x: ArrayLike) -> NDArray[Any]:
    """Return function(x), computed in float64, in the shape of x; float32 for float32."""
    x = np.asarray(x)
    y = function(np.atleast_1d(x).astype(np.float64, copy=False)).reshape(x.shape)
    return y.astype(np.float32) if x.dtype == np.float32 else y


def _polynomial(terms: list[float], x: np.ndarray) -> np.ndarray:
    """Return terms[0] + terms[1] x + terms[2] x^2 + ..."""
    y = np.full_like(x, terms[-1])
    for term in reversed(terms[:-1]):
        y *= x
        y += term
    return y


def _log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln x: for x = m 2^n with m around 1, n ln 2 + 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1)."""
    m, n = np.frexp(x)
    small = m < 0.5**0.5        # frexp gives 1/2 <= m < 1; double small ones, so that m is around 1
    m[small] *= 2
    n -= small
    with np.errstate(invalid="ignore", divide="ignore"):
        s = (m - 1) / (m + 1)
        y = _polynomial(_ODD, s * s)
        y *= 2 * s
        y += n * _LN_2_PIECES[1]
        y += n * _LN_2_PIECES[0]
    y[x == np.inf] = np.inf
    y[x == 0] = -np.inf
    y[~(x >= 0)] = np.nan
    return y


_ODD = [1.0 / i for i in range(1, 24, 2)]       # the factors of the series: 1, 1/3, 1/5, ...
_LN_10 = float(_log(np.array([10.0]))[0])


def _log1p(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln(1 + x): 1 + x is rounded to y, and ln(1 + x) is nearly ln y + (1 + x - y) / y."""
    y = 1 + x
    with np.errstate(invalid="ignore"):
        return np.where(y == np.inf, y, _log(y) + (x - (y - 1)) / y)


def _tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return tanh x, by 1 - 2 / (e^2x + 1) and, below 2^-9, where that would lose digits, by the series."""
    away = np.abs(x)
    near = away - away * away * away / 3 * (1 - 0.4 * away * away)
    return np.copysign(np.where(away < 2.0**-9, near, 1 - 2 / (exp(2 * away) + 1)), x)
