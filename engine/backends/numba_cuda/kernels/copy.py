"""Copy rows of float32 to rows of another width, or of bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..kernel import Kernel
from ..ptx.warp import round_bf16
from ..toolchain import cuda, types

THREADS = 256


def copy_kernel(bfloat16: bool) -> Kernel:
    """Make the kernel (x f32 [N,P], out [N,M]) that copies the first M <= P numbers of each row.

    bfloat16: whether out is uint16, rounded to bfloat16; otherwise it is float32. A thread copies one number. The grid
    is `copy_grid`.
    """

    def copy(x: Any, out: Any) -> None:
        number = types.int64(cuda.blockIdx.x) * THREADS + types.int64(cuda.threadIdx.x)
        row, column = number // out.shape[1], number % out.shape[1]
        if row < out.shape[0]:
            out[row, column] = round_bf16(x[row, column]) if bfloat16 else x[row, column]

    kind = (types.uint16 if bfloat16 else types.float32)[:, ::1]
    return Kernel(f"copy to {'bfloat16' if bfloat16 else 'float32'}", copy, (types.float32[:, ::1], kind),
                  threads=THREADS, registers=48)


def copy_grid(rows: int, columns: int) -> tuple[int]:
    """Return the grid for an `out` of this shape."""
    return (-(-rows * columns // THREADS),)


def variants() -> Iterator[Kernel]:
    """Yield the kernel of each precision."""
    yield from map(copy_kernel, (True, False))
