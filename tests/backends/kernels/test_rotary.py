"""Test the rotary embedding against float64: both kinds of pairs, every width, whole and partial."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.cpu.native import native

from .tools import GUARD, assert_as_good, available, load

LAYOUTS = pytest.mark.parametrize("interleaved", [False, True])


def rotated(x, cos, sin, interleaved):
    """Rotate x [B,H,T,d] by cos, sin [B,T,r/2]."""
    half = cos.shape[-1]
    first, second = slice(half), slice(half, 2 * half)
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    out = x.copy()
    cos, sin = cos[:, None], sin[:, None]
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def make(seed, shape, width, dtype=np.float32):
    rng = np.random.default_rng(seed)
    B, _, T, _ = shape
    angles = 100 * rng.standard_normal((B, T, width // 2))
    return rng.standard_normal(shape).astype(dtype), np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def run(kernels, x, cos, sin, interleaved, threads=1):
    buffer = np.full(x.size + 64, GUARD)
    out = buffer[32 : 32 + x.size].reshape(x.shape)
    native.rotate(kernels, x, cos, sin, interleaved, out, threads)
    assert (buffer[:32] == GUARD).all()
    assert (buffer[32 + x.size :] == GUARD).all()
    return out.copy()


def check(kernels, x, cos, sin, interleaved):
    exact = rotated(*(a.astype(np.float64) for a in (x, cos, sin)), interleaved)
    assert_as_good(run(kernels, x, cos, sin, interleaved), exact, rotated(x, cos, sin, interleaved), operand=x)


@LAYOUTS
def test_every_width(kernels, interleaved):
    for width in (*range(0, 20, 2), 30, 32, 34, 48, 64, 66, 128):
        for rest in (0, 1, 9):
            if width + rest:
                check(kernels, *make(width + rest, (1, 2, 3, width + rest), width), interleaved)


@settings(max_examples=30, deadline=None)
@given(B=st.integers(1, 3), H=st.integers(1, 3), T=st.integers(0, 5), half=st.integers(0, 40), rest=st.integers(1, 5),
       interleaved=st.booleans(), name=st.sampled_from(available()))
def test_any_size(B, H, T, half, rest, interleaved, name):
    check(load(name), *make(half, (B, H, T, 2 * half + rest), 2 * half), interleaved)


@LAYOUTS
def test_what_is_not_turned_is_copied_to_the_bit(kernels, interleaved):
    x, cos, sin = make(1, (1, 1, 2, 21), 10)
    x[0, 0, 1, 15] = np.nan
    assert np.array_equal(run(kernels, x, cos, sin, interleaved)[..., 10:], x[..., 10:], equal_nan=True)


@LAYOUTS
def test_in_place(kernels, interleaved):
    for width in (6, 16, 36, 64):
        x, cos, sin = make(width, (2, 3, 4, width + 3), width)
        expected = run(kernels, x, cos, sin, interleaved)
        native.rotate(kernels, x, cos, sin, interleaved, x)
        assert np.array_equal(x, expected)


@LAYOUTS
def test_angles_and_rows_may_have_any_strides(kernels, interleaved):
    x, cos, sin = make(2, (3, 4, 5, 24), 20)
    shared = tuple(np.broadcast_to(a[:1, :1], a.shape) for a in (cos, sin))
    by_token = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    assert np.array_equal(run(kernels, by_token, *shared, interleaved),
                          run(kernels, x, *(np.ascontiguousarray(a) for a in shared), interleaved))
