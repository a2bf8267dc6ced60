"""Test the emulator against the PTX manual's fragments, and test that it reports errors of kernels."""

import numpy as np
import pytest

from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.ptx.copy import address, copy_async, copy_commit, copy_wait, shared_base, store_global
from engine.backends.numba_cuda.ptx.mma import ldmatrix, ldmatrix_transposed, mma, swizzle
from engine.backends.numba_cuda.ptx.warp import pack_bf16, round_bf16, shuffle_xor, sync_warp
from engine.backends.numba_cuda.toolchain import cuda, rebuilt, types
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.cuda_emulator import EmulationError, launch
from .gate import assembled, tool

RNG = np.random.default_rng(5)
wait = copy_wait[0]


def kernel(body, *signature, threads=32, shared=0):
    """Return a Kernel for a test."""
    return Kernel(body.__name__, body, signature, threads, shared)


def multiply(a, b, sums):
    """Run one mma on fragments in their register layout: [32 lanes, registers]."""
    lane = cuda.threadIdx.x
    result = mma(a[lane, 0], a[lane, 1], a[lane, 2], a[lane, 3], b[lane, 0], b[lane, 1],
                 sums[lane, 0], sums[lane, 1], sums[lane, 2], sums[lane, 3])
    for i in range(4):
        sums[lane, i] = result[i]


def test_mma_has_the_fragments_of_the_manual():
    # PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": element i of a lane's fragment.
    lanes = np.arange(32)[:, None]
    group, member = lanes // 4, lanes % 4
    i8, i4 = np.arange(8), np.arange(4)
    a_place = group + 8 * ((i8 // 2) % 2), member * 2 + (i8 & 1) + 8 * (i8 >= 4)
    b_place = member * 2 + (i4 & 1) + 8 * (i4 >= 2), group + 0 * i4
    c_place = group + 8 * (i4 >= 2), member * 2 + (i4 & 1)
    a, b, c = (to_bfloat16(RNG.standard_normal(shape)) for shape in ((16, 16), (16, 8), (16, 8)))
    sums = from_bfloat16(c[c_place])
    u32 = types.uint32[:, ::1]
    launch(kernel(multiply, u32, u32, types.float32[:, ::1]), 1, np.ascontiguousarray(a[a_place]).view(np.uint32),
           np.ascontiguousarray(b[b_place]).view(np.uint32), sums)
    expected = from_bfloat16(a).astype(np.float64) @ from_bfloat16(b) + from_bfloat16(c)
    np.testing.assert_allclose(sums, expected[c_place], atol=1e-5)


def load(source, plain, transposed):
    """Four 8x8 matrices of 16 bits, one below the other in memory, loaded both ways."""
    lane = types.uint32(cuda.threadIdx.x)
    place = types.uint32(shared_base() + lane * 16)
    copy_async(place, address(source) + types.int64(lane * 16), types.uint32(16))
    copy_commit()
    wait()
    sync_warp()
    one, other = ldmatrix(place), ldmatrix_transposed(place)
    for i in range(4):
        plain[lane, i] = one[i]
        transposed[lane, i] = other[i]


LOAD = kernel(load, types.uint16[:, ::1], types.uint32[:, ::1], types.uint32[:, ::1], shared=512)


def test_ldmatrix_deals_rows_as_the_manual_says():
    source = RNG.integers(0, 65536, (32, 8)).astype(np.uint16)
    plain, transposed = np.zeros((2, 32, 4), np.uint32)
    launch(LOAD, 1, source, plain, transposed)
    for got, matrices in ((plain, source.reshape(4, 8, 8)), (transposed, source.reshape(4, 8, 8).transpose(0, 2, 1))):
        expected = np.ascontiguousarray(matrices).reshape(4, 32, 2).view(np.uint32)[:, :, 0]
        np.testing.assert_array_equal(got, expected.T)


@pytest.mark.parametrize("pitch", [64, 128, 192, 256])
def test_eight_swizzled_rows_fall_on_all_banks(pitch):
    for chunk in range(pitch // 16):
        places = [row * pitch // 16 + (chunk ^ swizzle.py_func(row, pitch)) for row in range(8, 16)]
        assert len({place % 8 for place in places}) == 8
        assert [16 * place // pitch for place in places] == list(range(8, 16))  # each stays in its row


def convert(x, rounded, packed):
    lane = cuda.threadIdx.x
    rounded[lane] = round_bf16(x[lane])
    packed[lane] = pack_bf16(x[lane], shuffle_xor(x[lane], 5))


def test_conversions_and_shuffle():
    x = RNG.standard_normal(32, np.float32)
    x[:3] = 1 + 2**-8, 1 + 3 * 2**-8, -np.inf  # two ties, to even: down and up
    rounded, packed = np.zeros(32, np.uint16), np.zeros(32, np.uint32)
    launch(kernel(convert, types.float32[::1], types.uint16[::1], types.uint32[::1]), 1, x, rounded, packed)
    assert rounded[:3].tolist() == [0x3F80, 0x3F82, 0xFF80]
    np.testing.assert_array_equal(rounded[3:], to_bfloat16(x[3:]))
    np.testing.assert_array_equal(packed & 0xFFFF, rounded)
    np.testing.assert_array_equal(packed >> 16, rounded[np.arange(32) ^ 5])


@pytest.mark.skipif(tool("ptxas") is None, reason="needs ptxas: make test-cuda")
@pytest.mark.parametrize("made", [
    LOAD, kernel(multiply, types.uint32[:, ::1], types.uint32[:, ::1], types.float32[:, ::1]),
    kernel(convert, types.float32[::1], types.uint16[::1], types.uint32[::1])],
    ids=lambda made: made.name)
def test_ptxas_takes_what_is_emulated_here(made, tmp_path):
    assert assembled(made, made.arch, tmp_path).warnings == []


def copy_part(source, out, size, waits):
    """Copy 16 bytes through shared memory; only `size` of them come from the source."""
    base = shared_base()
    copy_async(base, address(source), types.uint32(size))
    copy_commit()
    if waits:
        wait()
    pieces = ldmatrix(types.uint32(base))
    if cuda.threadIdx.x < 4:
        store_global(address(out) + cuda.threadIdx.x * 4, pieces[0])


COPY = kernel(copy_part, types.uint32[::1], types.uint32[::1], types.int32, types.boolean, shared=16)


def test_copies_fill_with_zeros_and_land_when_waited_for():
    source, out = np.arange(1, 5, dtype=np.uint32), np.zeros(4, np.uint32)
    launch(COPY, 1, source, out, 8, True)
    assert out.tolist() == [1, 2, 0, 0]
    launch(COPY, 1, source, out, 16, False)
    assert out.tolist() == [0xFFFFFFFF] * 4  # the initial contents of shared memory, because the wait is missing
    launch(COPY, 1, source, out, 16, False, late=False)
    assert out.tolist() == source.tolist()


def test_nothing_is_read_where_the_size_is_zero():
    out = np.ones(4, np.uint32)
    launch(COPY, 1, np.zeros(1, np.uint32), out, 0, True)
    assert not out.any()


def test_reading_past_an_argument_is_an_error():
    with pytest.raises(EmulationError, match="16 bytes outside all arguments"):
        launch(COPY, 1, np.zeros(3, np.uint32), np.zeros(4, np.uint32), 16, True)


def past_shared(source):
    copy_async(types.uint32(shared_base() + 8), address(source), types.uint32(16))
    copy_commit()
    wait()


def test_shared_memory_is_bounded_and_aligned():
    with pytest.raises(EmulationError, match="16 bytes, aligned to 16, expected within 64"):
        launch(kernel(past_shared, types.uint32[::1], shared=64), 1, np.zeros(4, np.uint32))


def half_waits(out):
    if cuda.threadIdx.x < 16:
        cuda.syncthreads()
    out[0] = 1


def test_a_barrier_that_not_all_reach_is_a_deadlock():
    with pytest.raises(EmulationError, match="deadlock: 16 threads from 0 at syncthreads"):
        launch(kernel(half_waits, types.int32[::1]), 1, np.zeros(1, np.int32))


def test_the_only_thread_may_be_the_one_that_finds_the_deadlock():
    with pytest.raises(EmulationError, match="deadlock: 1 threads from 0"):
        launch(kernel(diverges, types.float32[::1], threads=1), 1, np.zeros(1, np.float32))


def diverges(out):
    if cuda.threadIdx.x < 16:
        sync_warp()
    else:
        out[0] = shuffle_xor(types.float32(1), 1)


def test_lanes_that_part_ways_are_a_deadlock():
    with pytest.raises(EmulationError, match=r"deadlock: 16 threads from 0 at .*bar.warp.sync"):
        launch(kernel(diverges, types.float32[::1]), 1, np.zeros(1, np.float32))


def hands_over(out, waits):
    stage = cuda.shared.array(32, types.int32)
    stage[cuda.threadIdx.x] = cuda.threadIdx.x
    if waits:
        sync_warp()
    out[cuda.threadIdx.x] = stage[31 - cuda.threadIdx.x]


def test_a_lane_that_reads_another_ones_number_waits_for_the_warp():
    handed, out = kernel(hands_over, types.int32[::1], types.boolean), np.zeros(32, np.int32)
    launch(handed, 1, out, True)
    assert out.tolist() == [*range(31, -1, -1)]
    with pytest.raises(EmulationError, match=r"reads what another one wrote .* without sync_warp"):
        launch(handed, 1, out, False)


def branches(x, out):
    lane = cuda.threadIdx.x
    kept = types.int32(7)
    if (lane % 2 == 0 and x[lane] > 3) or lane == 31:
        kept += x[lane]
    elif lane < 8:
        if lane == 1:
            kept = -1
        else:
            kept, x[lane] = kept * 2, 100
    for i in range(lane, 20 if lane < 4 else 12, 5):
        if i == 7:
            continue
        kept += i
    while kept > 50:
        kept -= 50 if lane > 16 else 40
    if lane == 30:
        return
    out[lane] = kept if lane != 5 else min(kept, x[lane])


def test_lanes_take_their_own_branches():
    x, own, out = RNG.integers(0, 9, (3, 32)).astype(np.int32)
    own[:], expected = x, out.copy()

    class Thread:
        def __init__(self, lane):
            self.threadIdx = type("Index", (), {"x": lane})

    for lane in range(32):
        rebuilt(branches, lambda value, lane=lane: Thread(lane) if value is cuda else value)(own, expected)
    launch(kernel(branches, types.int32[::1], types.int32[::1]), 1, x, out)
    assert out.tolist() == expected.tolist()
    assert x.tolist() == own.tolist()


def leaves(out):
    for i in range(cuda.threadIdx.x):
        if i > 3:
            break
        out[i] = i


def test_what_the_emulator_cannot_run_is_named():
    with pytest.raises(EmulationError, match=r"test_emulate.py:\d+: the emulator does not run a break"):
        launch(kernel(leaves, types.int32[::1]), 1, np.zeros(32, np.int32))


def fails(out):
    cuda.syncthreads()
    out[cuda.threadIdx.x] = 1
    cuda.syncthreads()


def test_a_threads_error_is_the_launchs():
    with pytest.raises(IndexError):
        launch(kernel(fails, types.int32[::1]), 1, np.zeros(31, np.int32))


def number(out):
    stage = cuda.shared.array(64, types.int32)
    stage[cuda.threadIdx.x] = cuda.grid(1)
    cuda.syncthreads()
    out[cuda.blockIdx.y, cuda.grid(1)] = stage[63 - cuda.threadIdx.x] + 1000 * cuda.gridDim.x


def test_blocks_grids_and_static_shared_memory():
    out = np.zeros((2, 128), np.int32)
    launch(kernel(number, types.int32[:, ::1], threads=64), (2, 2), out)
    np.testing.assert_array_equal(out, np.tile(2000 + np.r_[63:-1:-1, 127:63:-1], (2, 1)))
