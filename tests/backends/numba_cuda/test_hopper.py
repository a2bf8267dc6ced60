"""Test Hopper's units in the emulator: the meaning of descriptors and boxes, and the errors that it reports."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.ptx import emulated
from engine.backends.numba_cuda.ptx.copy import address, shared_base
from engine.backends.numba_cuda.ptx.hopper import (
    BY_ROWS,
    barrier_arrive,
    barrier_expect,
    barrier_init,
    barrier_wait,
    by_columns,
    copy_box,
    wgmma,
    wgmma_wait,
)
from engine.backends.numba_cuda.tensor_map import encode
from engine.backends.numba_cuda.toolchain import cuda, device_function
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools import cuda_emulator
from ...tools.hopper_emulator import tensor_map

BARRIER = 64 * 1024
"""Address of the barrier, behind all boxes."""


def integers(rows, columns, seed=0):
    """Return a matrix of bfloat16 whose products are exact."""
    return to_bfloat16(np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(np.float32))


@device_function
def put(sums, out):
    """Write a thread's sums of [64, n] to their places."""
    thread = cuda.threadIdx.x
    for i in range(sums.size):
        out[thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2), i // 4 * 8 + thread % 4 * 2 + i % 2] = sums[i]


def launch(body, *arguments, threads=128, late=True):
    cuda_emulator.launch(Kernel("test", body, (), threads, BARRIER + 64), 1, *arguments, late=late)


def product(left, right, n, *, panels=1, left_in_registers=False, wait_before=True, late=True):
    """Compute [64, n] with the emulator: left [64, 64] by rows; right [n, 64], or [64, n] in panels of 64 columns."""
    transposed = right.shape == (64, n)
    multiply = wgmma(n, 4, transposed=transposed, left_in_registers=left_in_registers)
    wait = wgmma_wait(n // 2, 0)
    kind = by_columns(64 * 128) if transposed else BY_ROWS
    out = np.full((64, n), np.nan, np.float32)
    pairs = left.view(np.uint32)

    def body(left_map, right_map, out, pairs):
        thread = cuda.threadIdx.x
        if thread == 0:
            barrier_init(BARRIER, 1)
            barrier_expect(BARRIER, (64 + n) * 128)
            copy_box(0, address(left_map), 0, 0, BARRIER)
            for panel in range(panels):
                copy_box(64 * 128 * (1 + panel), address(right_map), 64 * panel, 0, BARRIER)
        cuda.syncthreads()
        if wait_before:
            barrier_wait(BARRIER, 0)
        sums = cuda.local.array(n // 2, np.float32)
        if left_in_registers:
            operand = cuda.local.array(16, np.uint32)
            for i in range(16):
                row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i % 2)
                operand[i] = pairs[row, i // 4 * 8 + i % 4 // 2 * 4 + thread % 4]
        else:
            operand = 0 | BY_ROWS
        multiply(sums, operand, 64 * 128 // 16 | kind, 0)
        multiply(sums, operand, 64 * 128 // 16 | kind, 1)
        wait(sums)
        put(sums, out)

    launch(body, tensor_map(left, 64), tensor_map(right, 64 if transposed else n), out, pairs, late=late)
    return out


@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
@pytest.mark.parametrize("left_in_registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize(("n", "panels"), [(24, 0), (64, 1), (128, 2)])
def test_products_are_exact_in_both_layouts(n, panels, left_in_registers, late):
    left = integers(64, 64)
    right = integers(64, n, 1) if panels else integers(n, 64, 1)
    got = product(left, right, n, panels=panels or 1, left_in_registers=left_in_registers, late=late)
    right = from_bfloat16(right) if panels else from_bfloat16(right).T
    np.testing.assert_array_equal(got, 2 * from_bfloat16(left) @ right)


def test_who_does_not_wait_for_a_box_multiplies_what_was_there():
    assert np.isnan(product(integers(64, 64), integers(16, 64), 16, wait_before=False)).all()


def test_a_box_is_swizzled_and_zero_outside():
    matrix = np.arange(1, 12 * 72 + 1, dtype=np.uint16).reshape(12, 72)
    seen = []

    def body(made):
        barrier_init(BARRIER, 1)
        barrier_expect(BARRIER, 16 * 128)
        copy_box(1024, address(made), 64, 4, BARRIER)
        barrier_wait(BARRIER, 0)
        box = emulated.current().block.shared_bytes(int(shared_base()) + 1024, 16 * 128, 1024)
        seen.append(box.view(np.uint16).reshape(16, 8, 8))

    launch(body, tensor_map(matrix, 16), threads=1)
    (chunks,) = seen
    for row in range(16):
        straight = np.concatenate([chunks[row, chunk ^ row % 8] for chunk in range(8)])
        assert straight.tolist() == ([*matrix[4 + row, 64:].tolist()] + [0] * 56 if row < 8 else [0] * 64)


def test_sums_read_before_the_wait_are_not_the_product():
    multiply = wgmma(8, 1)
    out = np.zeros((64, 8), np.float32)

    def body(out):
        sums = cuda.local.array(4, np.float32)
        multiply(sums, 0 | BY_ROWS, 0 | BY_ROWS, 0)
        put(sums, out)

    launch(body, out)
    np.testing.assert_array_equal(out, np.full(out.shape, 0xAB, np.float32))


def refill(patient):
    """Fill a slot, multiply it and fill it again; if `patient`, only when the product is done."""
    first, second = integers(64, 64), integers(64, 64, 1)
    multiply, wait = wgmma(64, 4), wgmma_wait(32, 0)
    out = np.zeros((64, 64), np.float32)

    def body(first_map, second_map, out):
        thread = cuda.threadIdx.x
        if thread == 0:
            barrier_init(BARRIER, 1)
            barrier_expect(BARRIER, 64 * 128)
            copy_box(0, address(first_map), 0, 0, BARRIER)
        cuda.syncthreads()
        barrier_wait(BARRIER, 0)
        sums = cuda.local.array(32, np.float32)
        multiply(sums, 0 | BY_ROWS, 0 | BY_ROWS, 0)
        if patient:
            wait(sums)
        if thread == 0:
            barrier_expect(BARRIER, 64 * 128)
            copy_box(0, address(second_map), 0, 0, BARRIER)
        barrier_wait(BARRIER, 1)
        wait(sums)
        put(sums, out)

    launch(body, tensor_map(first, 64), tensor_map(second, 64), out)
    return np.array_equal(out, from_bfloat16(first) @ from_bfloat16(first).T)


def test_a_slot_refilled_before_the_wait_spoils_the_product():
    assert refill(patient=True)
    assert not refill(patient=False)


def test_a_barrier_that_lacks_bytes_is_a_deadlock():
    def body(made):
        if cuda.threadIdx.x == 0:
            barrier_init(BARRIER, 1)
            barrier_expect(BARRIER, 16 * 128 + 2)
            copy_box(0, address(made), 0, 0, BARRIER)
        cuda.syncthreads()
        barrier_wait(BARRIER, 0)

    with pytest.raises(cuda_emulator.EmulationError, match="deadlock"):
        launch(body, tensor_map(integers(16, 64), 16), threads=2)


def test_a_wait_tells_a_phase_from_the_next_only():
    passed = []

    def body():
        if cuda.threadIdx.x == 0:
            barrier_init(BARRIER, 64)
        cuda.syncthreads()
        barrier_wait(BARRIER, 1)
        passed.append("before the first")
        barrier_arrive(BARRIER)
        barrier_wait(BARRIER, 0)
        passed.append("the first")
        barrier_wait(BARRIER, 1)

    with pytest.raises(cuda_emulator.EmulationError, match="deadlock"):
        launch(body, threads=64)
    assert sorted(passed) == ["before the first"] * 2 + ["the first"] * 2


@pytest.mark.parametrize(("body", "message"), [
    (lambda made: copy_box(512, address(made), 0, 0, BARRIER), "aligned to 1024"),
    (lambda made: copy_box(0, 12345, 0, 0, BARRIER), "no tensor map's"),
    (lambda made: barrier_arrive(BARRIER + 8), "no mbarrier was made"),
], ids=["misaligned", "no map", "no barrier"])
def test_misuse_is_named(body, message):
    misuse = device_function(body)

    def whole(made):
        barrier_init(BARRIER, 1)
        misuse(made)

    with pytest.raises(cuda_emulator.EmulationError, match=message):
        launch(whole, tensor_map(integers(16, 64), 16), threads=1)


@pytest.mark.parametrize(("descriptor", "message"), [(0, "128-byte swizzle"), (BY_ROWS | 3 << 49, "128-byte swizzle"),
                                                     (BY_ROWS | 0x3FFF, "reaches byte")])
def test_a_wrong_descriptor_is_named(descriptor, message):
    multiply, wait = wgmma(8, 1), wgmma_wait(4, 0)

    def body():
        sums = cuda.local.array(4, np.float32)
        multiply(sums, descriptor, 0 | BY_ROWS, 0)
        wait(sums)

    with pytest.raises(cuda_emulator.EmulationError, match=message):
        launch(body)


@pytest.mark.parametrize("given", [(8, 4, 64, 64), (16, 4, 60, 64), (16, 4, 64, 257), (16, 0, 64, 64)])
def test_a_tensor_map_of_what_tma_cannot_copy_is_refused(given):
    with pytest.raises(ValueError, match="a tensor map takes"):
        encode(*given)
