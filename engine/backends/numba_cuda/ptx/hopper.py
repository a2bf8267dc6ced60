"""Provide Hopper's asynchronous units (sm_90a): mbarriers, TMA copies, products of a warpgroup (wgmma), setmaxnreg.

A warpgroup is four warps, 128 threads. Its product is 64 rows by n columns. Thread t = 32 w + l holds the elements that
lane l of mma.sync would hold of the rows from 16 w on: four registers for each 8 columns (`mma.py`). Operands lie in
shared memory in rows of 64 elements, swizzled, at multiples of 1024 bytes, as TMA writes them. PTX ISA 9.0,
"Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..toolchain import cuda, device_function, ir, types
from .emulated import current
from .inline import Statement, function, i32, i64, make, u32

BY_ROWS = 1 << 62 | 1024 // 16 << 32 | 1 << 16
"""Matrix descriptor bits: 128-byte swizzle, depth along the lines of memory, 1024 bytes from 8 rows to the next 8.

A descriptor is BY_ROWS | address // 16. A step of 16 along the depth adds 2 to it, and 64 rows add 512.
"""


def by_columns(panel: int) -> int:
    """Return the descriptor bits for an operand whose depth runs across the lines of memory.

    panel: bytes from 64 columns to the next 64
    """
    return 1 << 62 | 1024 // 16 << 32 | panel // 16 << 16


def _each(action: Callable[..., None], *operands: Any) -> None:
    """Run an action of the emulator for the operands of each lane, one lane after the other."""
    for values in current().each(*operands):
        action(*values)


def _wait_for_phase(at: int, parity: int) -> None:
    """Run `barrier_wait` in the emulator, for the barrier at an address."""
    block = current().block
    block.wait_until(lambda: block.hopper.barrier(at).passed(parity))


def _alone(text: str, inputs: tuple[Any, ...], python: Any) -> Any:
    """Return the function of a statement without results that a lane runs by itself; python: for the emulator."""
    return function(Statement(text, (), inputs, python, memory=True), alone=True)


barrier_init = _alone("mbarrier.init.shared::cta.b64 [$0], $1;", (u32, u32),
                      lambda *operands: _each(current().block.hopper.make_barrier, *operands))
"""(barrier, arrivals): initialise an mbarrier, 8 bytes in shared memory."""
barrier_expect = _alone("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", (u32, u32),
                        lambda *operands: _each(current().block.hopper.expect, *operands))
"""(barrier, bytes): arrive, and announce the bytes that copies will write before the phase ends."""
barrier_arrive = _alone("mbarrier.arrive.shared::cta.b64 _, [$0];", (u32,),
                        lambda at: _each(lambda one: current().block.hopper.barrier(one).arrive(), at))
"""(barrier): arrive."""
barrier_wait = _alone("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra WAIT; }",
                      (u32, u32), lambda *operands: _each(_wait_for_phase, *operands))
"""(barrier, parity): wait for the end of the phase of this parity; the first is even, and an odd one came before."""
fence_barriers = _alone("fence.mbarrier_init.release.cluster;", (), lambda: None)
"""Make new mbarriers visible to the units that signal them; `cuda.syncthreads()` makes them visible to threads."""
fence_tensor_map = _alone("fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", (i64,), lambda at: None)
"""(address of a tensor map): make the map, which a copy wrote before the launch, visible in this block."""
copy_box = _alone("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                  "[$0], [$1, {$2, $3}], [$4];", (u32, i64, i32, i32, u32),
                  lambda *operands: _each(current().block.hopper.copy_box, *operands))
"""(to, address of a tensor map, column, row, barrier): start to copy a box; its bytes count at the barrier."""


def ring_barriers(slots: int, consumers: int, others: int) -> Any:
    """Return a function that creates the mbarriers of a ring of slots; all threads of a block call it first.

        make_barriers(thread, at)

    at: their address in shared memory, 8 bytes each. Each slot has one barrier for "full", at which the producer
    announces the bytes, and then each slot has one for "empty", at which all consumers arrive. `others` more barriers
    follow; one thread arrives at each.
    """

    @device_function
    def make_barriers(thread: Any, at: Any) -> None:
        if thread == 0:
            for slot in range(slots):
                barrier_init(at + 8 * slot, 1)
                barrier_init(at + 8 * (slots + slot), consumers)
            for other in range(others):
                barrier_init(at + 8 * (2 * slots + other), 1)
            fence_barriers()
        cuda.syncthreads()

    return make_barriers


clear_shared = _alone("{ .reg .b32 z; mov.b32 z, 0; st.shared.v4.b32 [$0], {z, z, z, z}; }", (u32,),
                      lambda at: _each(lambda one: current().block.shared_bytes(one, size=16, align=16).fill(0), at))
"""(to): write 16 zero bytes to shared memory."""
fence_async = _alone("fence.proxy.async.shared::cta;", (), lambda: None)
"""Make this thread's writes to shared memory visible to products that its warpgroup starts after its next meeting."""
warpgroup_meet = function(Statement("bar.sync $0, 128;", (), (u32,), lambda number: current().block.hopper.warpgroup(
    f"barrier {set(number)}", (), lambda _: None), memory=True))
"""(number, 1 to 15): wait for all threads of the warpgroup, which alone uses this number."""


def set_registers(count: int, grow: bool) -> Any:
    """Return a function that sets the registers per thread of the warpgroup (setmaxnreg): 24 to 256, a multiple of 8.

    Growing waits until other warpgroups have released registers: the total must not exceed that of the launch.
    """
    return _alone(f"setmaxnreg.{'inc' if grow else 'dec'}.sync.aligned.u32 {count};", (), lambda: None)


def _places(context: Any, builder: Any, kind: Any, value: Any, count: int) -> list[Any]:
    """Return the addresses, in LLVM, of the first `count` elements of a local array."""
    data = context.make_array(kind)(context, builder, value=value).data
    return [builder.gep(data, [ir.Constant(ir.IntType(64), i)]) for i in range(count)]


def _replace(context: Any, builder: Any, text: str, places: list[Any], letters: list[str], inputs: list[Any],
             read: bool = True) -> Any:
    """Emit an asm block that changes the sums in place.

    The operands $0, $1 ... are the new sums; then, if `read`, the old sums; then the other inputs.
    """
    old = [builder.load(place) for place in places] if read else []
    kind = ir.LiteralStructType([ir.FloatType()] * len(places))
    constraints = ["=f"] * len(places) + [str(i) for i in range(len(old))] + letters + ["~{memory}"]
    asm = ir.InlineAsm(ir.FunctionType(kind, [value.type for value in old + inputs]), text, ",".join(constraints),
                       side_effect=True)
    result = builder.call(asm, old + inputs)
    for i, place in enumerate(places):
        builder.store(builder.extract_value(result, i), place)
    return context.get_dummy_value()


def wgmma(n: int, steps: int, *, row_tiles: int = 1, transposed: bool = False, left_in_registers: bool = False,
          fresh: bool = False) -> Any:
    """Return a function that starts a group of products: sums (+)= left right^T over `steps` of 16 along the depth.

        multiply(sums, left, right, keep)

    - sums: `cuda.local.array` of float32, row_tiles n / 2, not to be used before `wgmma_wait`
    - left: descriptor (int64) of [64 row_tiles, 16 steps]; or, for one row tile, a local array of uint32, 4 per step,
        not to be used before `wgmma_wait` either
    - right: descriptor of [n, 16 steps]; `transposed`: depth runs across the lines of memory, in panels of 64 columns
    - keep: int32, 0 to start new sums. With `fresh` this argument is missing, and the sums are new
    """
    # count: registers of sums; quads: registers of the left operand; advance: what a step adds to each descriptor.
    # Operands of the asm text, by number: new sums, old sums unless fresh, the left one from left_at on, right, keep.
    count, quads = row_tiles * n // 2, 4 * steps if left_in_registers else 0
    advance = (2, 128 if transposed else 2)
    left_at = count if fresh else 2 * count
    right_at = left_at + (quads or 1)
    lines = ["{ .reg .pred p; .reg .b64 a, b; wgmma.fence.sync.aligned;"]
    for step in range(steps):
        keep = 1 if step else 0 if fresh else f"${right_at + 1}"        # later steps always add to the first one's sums
        lines.append(f"setp.ne.b32 p, {keep}, 0;")
        lines.append(f"add.s64 b, ${right_at}, {step * advance[1]};")
        for tile in range(row_tiles):
            sums = ",".join(f"${i}" for i in range(tile * n // 2, (tile + 1) * n // 2))
            if left_in_registers:
                # Flags: the signs of both operands, 1 for plus, and whether a left one in memory is transposed.
                left, flags = "{" + ",".join(f"${left_at + 4 * step + i}" for i in range(4)) + "}", "1, 1"
            else:
                lines.append(f"add.s64 a, ${left_at}, {step * advance[0] + 512 * tile};")
                left, flags = "a", "1, 1, 0"
            lines.append(f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{sums}}}, {left}, b, p, {flags}, "
                         f"{int(transposed)};")
    text = " ".join([*lines, "wgmma.commit_group.sync.aligned; }"])

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        places = _places(context, builder, signature.args[0], values[0], count)
        left = [values[1]]
        if quads:
            left = [builder.load(place) for place in _places(context, builder, signature.args[1], values[1], quads)]
        letters = ["r"] * quads if quads else ["l"]     # constraints of the inputs: "r" has 32 bits, and "l" 64
        letters += ["l"] if fresh else ["l", "r"]
        return _replace(context, builder, text, places, letters, [*left, *values[2:]], not fresh)

    def python(sums: Any, left: Any, right: Any, keep: Any = 0) -> None:
        unit = current().block.hopper
        current().together(lambda *operands: unit.warpgroup(text, operands, lambda arguments: unit.multiply(
            arguments, row_tiles, n, steps, advance, left_tile=512, transposed=transposed,
            rows_in_registers=left_in_registers)), [sums, left, right, keep])

    kinds = (types.Array, types.Array if left_in_registers else i64, i64, *[i32] * (not fresh))
    return make(types.void, kinds, generate, python)


def wgmma_wait(count: int, pending: int) -> Any:
    """Return a function that waits until at most the `pending` latest groups are unfinished.

    Its argument is a local array of `count` sums. The sums pass through the wait, so that the compiler moves no use of
    them before it.
    """
    text = f"wgmma.wait_group.sync.aligned {pending};"

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _replace(context, builder, text, _places(context, builder, signature.args[0], values[0], count), [], [])

    def python(sums: Any) -> None:
        unit = current().block.hopper
        current().together(lambda: unit.warpgroup(text, (), lambda _: unit.settle_products(pending)), [])

    return make(types.void, (types.Array,), generate, python)
