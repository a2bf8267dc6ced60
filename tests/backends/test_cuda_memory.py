"""Test arrays on the GPU, on a stand-in for the driver: views, copies, and memory that comes back."""

import gc
import os
import sys
from functools import partial

import numpy as np
import pytest

from engine.backends.numba_cuda import memory
from engine.base.errors import BackendUnavailable

from ..tools import fake_cuda


@pytest.fixture
def driver(monkeypatch):
    driver, _ = fake_cuda.install(partial(monkeypatch.setitem, sys.modules), memory=10_000)
    return driver


def uploaded(array):
    device = memory.allocate("primary", array.shape, array.dtype)
    memory.copy(device, array, fake_cuda.Stream.handle)
    return device


def downloaded(array):
    host = np.empty(array.shape, array.dtype)
    memory.copy(host, array, fake_cuda.Stream.handle)
    return host


X = np.arange(24, dtype=np.int32).reshape(4, 3, 2)


@pytest.mark.parametrize("view", [
    lambda x: x, lambda x: x[1:3], lambda x: x[:2], lambda x: x[3:99], lambda x: x[2], lambda x: x[-1][1:],
    lambda x: x[1:2].reshape(2, 3), lambda x: x[2:2], lambda x: x.reshape(24)[5:11]])
def test_views_are_those_of_numpy(driver, view):
    device, expected = view(uploaded(X)), view(X)
    assert (device.shape, device.ndim, device.size, device.nbytes, device.dtype, device.strides, len(device)) == (
        expected.shape, expected.ndim, expected.size, expected.nbytes, expected.dtype, expected.strides, len(expected))
    np.testing.assert_array_equal(downloaded(device), expected)


def test_what_is_no_view_side_by_side(driver):
    device = uploaded(X)
    with pytest.raises(IndexError, match="steps of 1; got slice"):
        device[::2]
    with pytest.raises(IndexError, match="row 4 of an array with 4"):
        device[4]
    with pytest.raises(ValueError, match=r"do not fill the shape \(5, 5\)"):
        device.reshape(5, 5)


def test_copies(driver):
    first, second = uploaded(X), memory.allocate("primary", X.shape, X.dtype)
    memory.copy(second[:2], first[2:], fake_cuda.Stream.handle)
    np.testing.assert_array_equal(downloaded(second[:2]), X[2:])
    np.testing.assert_array_equal(downloaded(uploaded(X.T)), X.T)       # a copy without gaps goes to the device
    with pytest.raises(ValueError, match=r"int32 \(4, 3, 2\) does not fit int32 \(3, 3, 2\)"):
        memory.copy(second[:3], first, fake_cuda.Stream.handle)
    with pytest.raises(ValueError, match="without gaps"):
        memory.copy(np.empty((8, 3, 2), np.int32)[::2], first, fake_cuda.Stream.handle)


def test_memory_comes_back_with_the_last_view(driver):
    device = uploaded(X)[1:]
    assert driver.free == 10_000 - X.nbytes
    driver.contexts.append("of the user")
    part = device[0]
    del device
    gc.collect()
    assert driver.free == 10_000 - X.nbytes
    del part
    gc.collect()
    assert (driver.free, driver.contexts) == (10_000, ["primary", "of the user"])


def test_pinned_memory_lives_as_long_as_its_views(driver):
    view = memory.pinned("primary", (5, 3), np.float32)[2:]
    gc.collect()
    view[:] = 7
    assert driver.free == 10_000 - 60
    del view
    gc.collect()
    assert driver.free == 10_000


def test_a_child_frees_nothing(driver):
    device = uploaded(X)
    device.memory._process = os.getpid() + 1
    del device
    gc.collect()
    assert driver.free == 10_000 - X.nbytes


def test_too_little_memory(driver):
    held = uploaded(X)
    with pytest.raises(BackendUnavailable, match=(
            r"too little memory: 2,000 MB more are needed, and 0 MB of 0 MB are free; .*a smaller max_batch_tokens")):
        memory.allocate("primary", (1_000_000, 500), np.float32)
    with pytest.raises(BackendUnavailable, match="the host has no 2,000 MB of page-locked memory"):
        memory.pinned("primary", (1_000_000, 500), np.float32)
    assert held.size == 24


def test_an_empty_array_has_an_address(driver):
    device = memory.allocate("primary", (0, 8), np.float32)
    assert device.pointer in driver.held
    assert downloaded(device).shape == (0, 8)


def test_other_libraries_read_the_address(driver):
    device = uploaded(X)[1:]
    assert device.__cuda_array_interface__ == {
        "version": 3, "shape": (3, 3, 2), "typestr": "<i4", "data": (device.pointer, False), "strides": None}
