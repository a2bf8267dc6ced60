"""Compute a linear layer of few rows with mma.sync (sm_80 and later): out = act(x w^T + bias), or + residual.

For up to `MOST_ROWS` tokens the time goes into reading the weights and into waiting for sums, so that a block takes 16
channels only, and more multiprocessors read. The weights are the left operand: 16 channels by 8 tokens a product.
Steps of 64 along the depth pass through a ring of slots of shared memory, as in `linear.py`; a slot holds 16 lines of
the weights, then those of the tokens, 128 bytes each.

    tokens    shared    registers (ptxas)    multiplying warps
    16        37 KB     51 to 56             1
    64        75 KB     54 to 64             4, of 16 tokens each

Products commute, and every sum runs over the depth in steps of 16, in order: the bits are those of the other kernels.
At the end a warp exchanges its sums through shared memory, so that its lanes hold what `ptx/epilogue.py` expects.

Limit: 33 cycles for each 16 along the depth, the latency of mma.sync, or the memory. No GPU has run this kernel yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..kernel import Kernel
from ..ptx.copy import address, copy_async, copy_commit, copy_wait, shared_base
from ..ptx.epilogue import epilogue, epilogue_name, epilogues
from ..ptx.mma import swizzle, warp_product
from ..ptx.warp import sync_warp
from ..toolchain import cuda, device_function, types

MOST_ROWS = 128
"""The most tokens for which `products.py` launches these kernels."""
TOKENS = (16, 64)
"""Tokens of a block."""
CHANNELS = 16
"""Channels of a block."""
DEPTH = 64
"""Depth of a step, in elements."""
LINE = 2 * DEPTH
"""Bytes of a line of a slot."""
STAGES = {16: 9, 64: 7}
"""Slots of the ring, by the tokens of a block: two blocks of 64 tokens share a multiprocessor of 164 KB."""
UNROLLED = {16: 3, 64: 1}
"""Number of slots per iteration of the loop, as unrolled by ptxas."""
THREADS = 128
_PITCH = CHANNELS + 4   # of the exchanged sums: the lanes of a warp then write to different banks


def linear_kernel(activation: str = "identity", residual: bool = False, tokens: int = 64, *, gate: bool = False,
                  wide: bool = False) -> Kernel:
    """Make the kernel for one epilogue and number of tokens of a block; the grid is `linear_grid`.

        kernel(x, w, bias, residual, out, laid_out)

    The arguments are those of `linear.linear_kernel`; laid_out: int32, 1 if w comes from `linear_hopper.lay_out`.
    """
    slot, stages = (CHANNELS + tokens) * LINE, STAGES[tokens]
    ring, ahead = stages * slot, (stages - 1) * DEPTH       # ahead: how far the copies are ahead of the product
    warps = tokens // 16        # that multiply, 16 tokens each
    size, share = 4 if residual or wide else 2, 2 if gate else 1    # as in linear.py
    fetch, exchange = _fetch(tokens), _exchange(tokens)
    multiply = warp_product(rows=CHANNELS, columns=16, depth=DEPTH, pitch=LINE, a_pitch=LINE)
    finish = epilogue(1, row_step=16, column_tiles=2, activation=activation, residual=residual, gate=gate, wide=wide)
    wait = copy_wait[stages - 2]        # until the slot that is multiplied next is full

    def kernel(x: Any, w: Any, bias: Any, res: Any, out: Any, laid_out: Any) -> None:
        thread, lane = types.uint32(cuda.threadIdx.x), types.uint32(cuda.threadIdx.x % 32)
        top, first = types.int64(cuda.blockIdx.y) * tokens, types.int64(cuda.blockIdx.x) * CHANNELS
        N, K, M = x.shape[0], w.shape[1], types.int64(out.shape[1]) * share
        slots, own = shared_base(), types.uint32(thread // 32 * 16)     # own: the warp's first token
        # Addresses for ldmatrix: the lane's rows and chunks, as warp_product requires.
        w_row, x_row = (types.uint32(slots + lane % 16 * LINE),
                        types.uint32(slots + (CHANNELS + own + lane // 16 * 8 + lane % 8) * LINE))
        w_chunk, x_chunk = (types.uint32((lane // 16 ^ swizzle(lane, LINE)) * 16),
                            types.uint32((lane // 8 % 2 ^ swizzle(lane, LINE)) * 16))
        sums = cuda.local.array((2, 4), types.float32)      # of 8 tokens each
        for j in range(2):
            for e in range(4):
                sums[j, e] = types.float32(0)
        reading, writing = types.uint32(0), types.uint32(0)     # offsets of the slots that are read and written next
        for k in range(-ahead, K, DEPTH):       # below 0, the first slots are only filled
            if k >= 0:
                wait()
                cuda.syncthreads()
            if k + ahead < K:
                fetch(x, w, top, first, types.int64(k + ahead), laid_out, types.uint32(slots + writing), thread)
            copy_commit()
            writing = types.uint32(writing + slot) if writing + slot < ring else types.uint32(0)
            if k >= 0:
                if thread < 32 * warps:
                    multiply(sums, types.uint32(w_row + reading), w_chunk, types.uint32(x_row + reading), x_chunk)
                reading = types.uint32(reading + slot) if reading + slot < ring else types.uint32(0)

        if thread < 32 * warps:
            exchange(sums, own, lane)
            row, column = top + types.int64(own + lane // 4), first + types.int64(lane % 4 * 4)
            place = row * out.shape[1] + column // share
            finish(sums, address(bias) + column * 4, address(res) + place * 4, address(out) + place * size,
                   out.shape[1], types.int32(N - row), types.int32(M - column))

    halves, floats = types.uint16[:, ::1], types.float32[:, ::1]
    return Kernel(
        name=f"linear few {tokens} {epilogue_name(activation, residual, gate, wide)}", body=kernel,
        signature=(halves, halves, types.float32[::1], floats, floats if residual or wide else halves, types.int32),
        threads=THREADS, shared=ring, registers=64, blocks_per_sm=4,
        instructions={"HMMA": UNROLLED[tokens] * 2 * DEPTH // 16})


def linear_grid(N: int, M: int, tokens: int) -> tuple[int, int]:
    """Return the grid for N tokens and M channels."""
    return -(-M // CHANNELS), -(-N // tokens)


def _fetch(tokens: int) -> Any:
    """Make a device function that starts to copy a thread's chunks of a slot: one of the weights, the others of x.

    It copies tokens from `top` on, channels from `first` on, and depths from k on.
    """
    lines = THREADS // (LINE // 16)     # lines that all threads copy together: those of the weights

    @device_function
    def fetch(x: Any, w: Any, top: Any, first: Any, k: Any, laid_out: Any, slot: Any, thread: Any) -> None:
        line, chunk = thread // 8, thread % 8
        to = types.uint32(slot + line * LINE + (chunk ^ swizzle(line, LINE)) * 16)
        depth = k + types.int64(chunk * 8)
        K, pitch = w.shape[1], types.int64(x.shape[1] * 2)
        # Channel PERMUTED[line] of ptx/epilogue.py, unless the rows of w lie in that order.
        channel = line if laid_out != 0 else line % 8 // 2 * 4 + line // 8 * 2 + line % 2
        column, row = first + types.int64(channel), top + types.int64(line)
        inside = depth < K
        size = types.uint32(16 if inside and column < w.shape[0] else 0)        # 0 copies zeros
        copy_async(to, address(w) + (column * K + depth) * 2, size)
        source = address(x) + row * pitch + depth * 2
        for i in range(tokens // lines):
            size = types.uint32(16 if inside and row + i * lines < x.shape[0] else 0)
            copy_async(types.uint32(to + (1 + i) * lines * LINE), source + i * lines * pitch, size)

    return fetch


def _exchange(tokens: int) -> Any:
    """Make a device function (sums, own, lane) that gives a warp's sums the order of products with x on the left.

    Before, the sums of an array [2, 4] are of channels g and g + 8 and of tokens 2t and 2t + 1 of every eight; after,
    of tokens g and g + 8 and of channels 2t and 2t + 1 of every eight (g, t: `ptx/mma.py`).
    """
    shape = (tokens, _PITCH)

    @device_function
    def exchange(sums: Any, own: Any, lane: Any) -> None:
        exchanged = cuda.shared.array(shape, types.float32)
        for j in range(2):
            for e in range(4):
                exchanged[own + 8 * j + lane % 4 * 2 + e % 2, lane // 4 + e // 2 * 8] = sums[j, e]
        sync_warp()
        for j in range(2):
            for e in range(4):
                sums[j, e] = exchanged[own + lane // 4 + e // 2 * 8, 8 * j + lane % 4 * 2 + e % 2]

    return exchange


def variants() -> Iterator[Kernel]:
    """Yield the kernels of every epilogue and number of tokens."""
    yield from (linear_kernel(tokens=tokens, **options) for tokens in TOKENS for options in epilogues())
