"""Hopper's asynchronous units (sm_90a): mbarriers, TMA copies of boxes, products of a warpgroup (wgmma), shares of
registers.

A warpgroup is four warps, 128 threads. Its product is 64 rows by n columns, of which thread t = 32 w + l holds what a
lane l of mma.sync would hold of rows 16 w on: in four registers for each 8 columns (`mma.py`). Operands lie in shared
memory in rows of 64 elements, swizzled, at multiples of 1024 bytes, as TMA writes them. PTX ISA 9.0, "Asynchronous
Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

from typing import Any

from ..toolchain import cuda, device_function, ir, types
from . import emulate, emulate_hopper
from .inline import Statement, function, i32, i64, make, u32

BY_ROWS = 1 << 62 | 1024 // 16 << 32 | 1 << 16
"""Of a matrix descriptor: 128-byte swizzle, depth along memory's lines, 1024 bytes from 8 rows to the next 8.

A descriptor is this | address // 16. A step of 16 along the depth adds 2 to it, 64 rows add 512.
"""


def by_columns(panel: int) -> int:
    """The same for an operand whose depth goes down memory's lines; `panel`: bytes from 64 columns to the next 64."""
    return 1 << 62 | 1024 // 16 << 32 | panel // 16 << 16


def _alone(text: str, inputs: tuple[Any, ...], python: Any) -> Any:
    return function(Statement(text, (), inputs, python, memory=True), alone=True)


barrier_init = _alone("mbarrier.init.shared::cta.b64 [$0], $1;", (u32, u32),
                      lambda at, arrivals: emulate_hopper.make_barrier(int(at), int(arrivals)))
"""(barrier, arrivals): make an mbarrier of 8 bytes in shared memory."""
barrier_expect = _alone("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", (u32, u32),
                        lambda at, size: emulate_hopper.expect(int(at), int(size)))
"""(barrier, bytes): arrive, and announce bytes that copies will bring before the phase ends."""
barrier_arrive = _alone("mbarrier.arrive.shared::cta.b64 _, [$0];", (u32,),
                        lambda at: emulate_hopper.barrier(int(at)).arrive())
"""(barrier): arrive."""
barrier_wait = _alone("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra WAIT; }",
                      (u32, u32), lambda at, parity: emulate.current().block.wait_until(
                          lambda: emulate_hopper.barrier(int(at)).passed(int(parity))))
"""(barrier, parity): wait for the end of the phase of this parity. The first is even; before it, an odd one ended."""
fence_barriers = _alone("fence.mbarrier_init.release.cluster;", (), lambda: None)
"""Show new mbarriers to the units that signal them; `cuda.syncthreads()` shows them to threads."""
fence_tensor_map = _alone("fence.proxy.tensormap::generic.acquire.gpu [$0], 128;", (i64,), lambda at: None)
"""(tensor map's address): see in this block what a copy wrote there before the launch."""
copy_box = _alone("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                  "[$0], [$1, {$2, $3}], [$4];", (u32, i64, i32, i32, u32),
                  lambda *operands: emulate_hopper.copy_box(*(int(x) for x in operands)))
"""(to, tensor map's address, column, row, barrier): begin to copy the box there; its bytes count at the barrier."""


def ring_barriers(slots: int, consumers: int, others: int) -> Any:
    """A function that makes the mbarriers of a ring of slots in shared memory; all threads of a block call it first.

        make_barriers(thread, at)

    at: where they lie, 8 bytes each: for every slot the one that says it is full, at which the producer expects the
        bytes; for every slot the one that says it is empty again, at which all consumers arrive; `others`, at which
        one thread does
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
                      lambda at: emulate.current().block.shared_bytes(int(at), 16, 16).fill(0))
"""(to): write 16 zero bytes to shared memory."""
fence_async = _alone("fence.proxy.async.shared::cta;", (), lambda: None)
"""Let what this thread wrote to shared memory be seen by products that its warpgroup begins after it has met."""
warpgroup_meet = _alone("bar.sync $0, 128;", (u32,), lambda number: emulate_hopper.warpgroup(
    f"barrier {number}", (), lambda _: None))
"""(number, 1 to 15): wait for the warpgroup, which alone uses this number."""


def set_registers(count: int, grow: bool) -> Any:
    """A function that sets the registers of each thread of the warpgroup (setmaxnreg), 24 to 256 in eights.

    Growing waits until others have let go: all shares together must not exceed what the block was launched with.
    """
    return _alone(f"setmaxnreg.{'inc' if grow else 'dec'}.sync.aligned.u32 {count};", (), lambda: None)


def _places(context: Any, builder: Any, kind: Any, value: Any, count: int) -> list[Any]:
    data = context.make_array(kind)(context, builder, value=value).data
    return [builder.gep(data, [ir.Constant(ir.IntType(64), i)]) for i in range(count)]


def _replace(context: Any, builder: Any, text: str, places: list[Any], letters: list[str], inputs: list[Any],
             read: bool = True) -> Any:
    """An asm block that changes the sums in place: $0, $1 ... are these; if `read`, these again; other inputs."""
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
    """A function that begins a group of products: sums (+)= left right^T over `steps` of 16 along the depth.

        multiply(sums, left, right, keep)

    sums: `cuda.local.array` of float32, row_tiles n / 2, not to be touched before `wgmma_wait`
    left: descriptor (int64) of [64 row_tiles, 16 steps]; or, of one row tile, a local array of uint32, 4 a step, not to
        be touched either
    right: descriptor of [n, 16 steps]; `transposed`: depth goes down memory's lines, in panels of 64 columns
    keep: int32, 0 to begin new sums; `fresh`: there is no such argument, sums are new and may be free until then
    """
    count, quads = row_tiles * n // 2, 4 * steps if left_in_registers else 0
    advance = (2, 128 if transposed else 2)
    left_at = count if fresh else 2 * count
    right_at = left_at + (quads or 1)
    lines = ["{ .reg .pred p; .reg .b64 a, b; wgmma.fence.sync.aligned;"]
    for step in range(steps):
        lines.append(f"setp.ne.b32 p, {1 if step else 0 if fresh else f'${right_at + 1}'}, 0;")
        lines.append(f"add.s64 b, ${right_at}, {step * advance[1]};")
        for tile in range(row_tiles):
            sums = ",".join(f"${i}" for i in range(tile * n // 2, (tile + 1) * n // 2))
            if left_in_registers:
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
        letters = ["r"] * quads if quads else ["l"]
        letters += ["l"] if fresh else ["l", "r"]
        return _replace(context, builder, text, places, letters, [*left, *values[2:]], not fresh)

    def python(sums: Any, left: Any, right: Any, keep: Any = 0) -> None:
        emulate_hopper.warpgroup(text, (sums, left, right, keep), lambda arguments: emulate_hopper.multiply(
            arguments, row_tiles, n, steps, advance, 512, transposed, left_in_registers))

    kinds = (types.Array, types.Array if left_in_registers else i64, i64, *[i32] * (not fresh))
    return make(types.void, kinds, generate, python)


def wgmma_wait(count: int, pending: int) -> Any:
    """A function of a local array of `count` sums: wait until at most the `pending` latest groups are under way.

    The sums pass through it, so that no use of them is scheduled before.
    """
    text = f"wgmma.wait_group.sync.aligned {pending};"

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _replace(context, builder, text, _places(context, builder, signature.args[0], values[0], count), [], [])

    def python(sums: Any) -> None:
        emulate_hopper.warpgroup(text, (), lambda _: emulate_hopper.settle_products(pending))

    return make(types.void, (types.Array,), generate, python)


