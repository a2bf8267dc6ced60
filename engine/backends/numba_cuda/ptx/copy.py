"""Provide addresses, and asynchronous copies from global to shared memory (cp.async; PTX ISA 7.0, sm_80)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..toolchain import ir, types
from .emulated import WARP, current, store_rows
from .inline import Statement, f32, function, i64, make, u32

_ALIGN = 1024  # alignment in bytes that TMA's widest swizzle requires


def _address(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Emit the address of an array's data."""
    data = context.make_array(signature.args[0])(context, builder, value=values[0]).data
    return builder.ptrtoint(data, ir.IntType(64))


address = make(i64, (types.Array,), _address, lambda array: np.int64(array.ctypes.data))
"""Return the address of an array's first element, int64."""


def _shared_base(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Emit the address of the block's dynamic shared memory, a global variable of no size in address space 3."""
    kind = ir.ArrayType(ir.IntType(8), 0)
    name = "dynamic_shared"
    memory = builder.module.globals.get(name) or ir.GlobalVariable(builder.module, kind, name, addrspace=3)
    memory.linkage, memory.align = "external", _ALIGN
    return builder.ptrtoint(memory, ir.IntType(32))


shared_base = make(u32, (), _shared_base, lambda: np.uint32(0))
"""Return the start of the block's dynamic shared memory, as a uint32 address that is a multiple of 1024."""


# The functions below are what the emulator runs in place of the instructions, for the lanes of a warp that run.
def _copy(to: Any, source: Any, size: Any) -> None:
    """Run `copy_async`; if the block is `late`, the bytes land only when the warp waits for their group."""
    warp = current()
    block, (to, source, size) = warp.block, warp.those(to, source, size)
    copied = size > 0

    def land() -> None:
        shared, places = block.shared_places(to, 16)
        rows = np.zeros((len(to), 16), np.uint8)
        if copied.any():
            memory, found = block.places(source[copied], 16)
            rows[copied] = np.where(np.arange(16) < size[copied, None], memory[found], 0)
        shared[places] = rows

    if block.late:
        warp.uncommitted.append(land)
    else:
        land()


def _commit() -> None:
    """Run `copy_commit`: the copies so far become the warp's latest group."""
    warp = current()
    warp.converged("cp.async.commit_group")
    warp.copies.append(warp.uncommitted)
    warp.uncommitted = []


def _wait(pending: int) -> None:
    """Run `copy_wait[pending]`: let the copies of all groups but the latest `pending` land."""
    warp = current()
    warp.converged("cp.async.wait_group")
    while len(warp.copies) > pending:
        for land in warp.copies.popleft():
            land()


def _store(to: Any, *values: Any) -> None:
    """Run a store of one or more numbers of each lane."""
    to, *columns = current().those(to, *values)
    store_rows(to, np.stack(columns, axis=1), np.ones(len(to), bool))


def _load_quad(source: Any) -> tuple[np.ndarray, ...]:
    """Run `load_quad`: four arrays [32], with zeros for the lanes that do not run."""
    warp = current()
    quads: np.ndarray = np.zeros((WARP, 4), np.float32)
    memory, places = warp.block.places(*warp.those(source), 16)
    quads[warp.numbers()] = memory[places].view(np.float32)
    return tuple(quads.T)


copy_async = function(Statement("cp.async.cg.shared.global [$0], [$1], 16, $2;", (), (u32, i64, u32), _copy,
                                memory=True), alone=True)
"""(to, source, size): start to copy `size` bytes to 16 bytes of shared memory; the other bytes become 0.

Both addresses are aligned to 16. With size 0 nothing is read. The copy bypasses the L1 cache.
"""
copy_commit = function(Statement("cp.async.commit_group;", (), (), _commit, memory=True), alone=True)
"""Commit this thread's copies so far as a group."""
copy_wait = [function(Statement(f"cp.async.wait_group {pending};", (), (), partial(_wait, pending), memory=True),
                      alone=True) for pending in range(8)]
"""copy_wait[n] waits until at most the n latest groups of this thread are unfinished.

Other threads see the copied data after `cuda.syncthreads()`.
"""
store_global = function(Statement("st.global.b32 [$0], $1;", (), (i64, u32), _store, memory=True), alone=True)
"""(address, value): write a uint32."""
store_pairs = function(Statement("st.global.v2.b32 [$0], {$1, $2};", (), (i64, u32, u32), _store, memory=True),
                       alone=True)
"""(address, value, value): write two uint32; the address is a multiple of 8."""
store_quad = function(Statement("st.global.v4.f32 [$0], {$1, $2, $3, $4};", (), (i64, *[f32] * 4), _store, memory=True),
                      alone=True)
"""(address, four values): write four float32; the address is a multiple of 16."""
load_quad = function(Statement("ld.global.v4.f32 {$0, $1, $2, $3}, [$4];", (f32,) * 4, (i64,), _load_quad, memory=True),
                     alone=True)
"""Read four float32 from an address that is a multiple of 16."""
