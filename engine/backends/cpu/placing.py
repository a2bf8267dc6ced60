"""Where the buffers of a program lie, and in which form: floats, operands of products, or heads in bfloat16.

A buffer whose rows are needed after an Attend is kept for all tokens of a pass. Any other buffer holds one block of
rows for each thread. Heads that an Attend reads lie head by head; everything else lies in rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...programs.operations import Attend, Buffer, Linear, reads, writes
from ...programs.program import Program
from .native.native import Product, padded_stride
from .packer import Packer


@dataclass
class Placed:
    """Where a buffer lies, in floats; see `Buffer` in machine.pxi."""

    index: int
    in_pass: bool
    stride: int
    heads: int
    """0 if it lies in rows."""
    offset: int = 0
    bfloat16: bool = False
    """Whether its numbers are bfloat16."""
    operands: int = 0
    """The numbers from one row to the next if it holds operands; otherwise 0."""
    only_converted: bool = False
    """Whether its floats are only read to be converted to operands."""

    @property
    def floats(self) -> int:
        """Return the number of floats for each row."""
        return self.stride * max(1, self.heads) // (2 if self.bfloat16 else 1)


def place(program: Program, product: Product, packer: Packer) -> dict[str, Placed]:
    """Decide for each buffer where it lies, in the order in which they are first written, then for their operands.

    A buffer that only products write and read exists as operands alone, if the product can write these.
    """
    by_head = {name for op in program.operations if isinstance(op, Attend) for name in (op.q, op.k, op.v)}
    kept = kept_buffers(program)
    placed: dict[str, Placed] = {}
    ends = {True: 0, False: 0}
    shapes: dict[str, list[Buffer]] = {}
    for operation, after in program.steps():
        for name in writes(operation):
            shapes.setdefault(name, []).append(after[name])
    inputs = widths_of_inputs(program, packer) if product.converts else {}
    only = operands_only(program) if product.converts else set()
    without_floats = only - results_deeper_than(product.operands_depth, program, packer)
    bfloat16 = bfloat16_heads(program, packer) if product.attends_rows else set()
    for name, uses in shapes.items():
        width = max(packer.padded(use.width, use.heads) for use in uses)
        if name in without_floats:
            continue
        heads = (uses[0].heads or 0) if name in by_head else 0
        if name in by_head and len({(use.width, use.heads) for use in uses}) > 1:
            raise ValueError(f"the heads of {name!r} change their shape in the course of the program")
        stride = width // heads if heads else padded_stride(width)
        placed[name] = Placed(len(placed), name in kept, stride, heads, ends[name in kept], name in bfloat16,
                              only_converted=name in only)
        ends[name in kept] += placed[name].floats
    for name, width in inputs.items():
        operands = product.operands_stride(width)
        floats = operands * product.operand_bytes // 4 + 2      # and a RowRange
        placed[operands_of(name)] = Placed(len(placed), False, floats, 0, ends[False], operands=operands)
        ends[False] += floats
    return placed


def operands_of(name: str) -> str:
    """Return the name of a buffer's rows as operands; no buffer of a program has such a name."""
    return f"operands of {name}"


def widths_of_inputs(program: Program, packer: Packer) -> dict[str, int]:
    """Return the buffers that products read, and the largest width of each."""
    found: dict[str, int] = {}
    for operation, shapes in program.steps():
        if isinstance(operation, Linear):
            found[operation.x] = max(found.get(operation.x, 0), packer.depth(shapes[operation.x]))
    return found


def bfloat16_heads(program: Program, packer: Packer) -> set[str]:
    """Return the heads that products write and only attention without options reads; they can be bfloat16."""
    found: set[str] = set()
    others: set[str] = set()
    for operation, shapes in program.steps():
        if isinstance(operation, Attend):
            heads = [shapes[name] for name in (operation.q, operation.k, operation.v) if name in shapes]
            widths = [buffer.width // (buffer.heads or 1) for buffer in heads]
            plain = (operation.keys == "pass" and operation.scale > 0 and operation.window == (None, None)
                     and operation.bias is None and operation.relative is None
                     and all(width % 32 == 0 for width in widths))
            (found if plain else others).update((operation.q, operation.k, operation.v))
            others |= {operation.out}
        elif isinstance(operation, Linear):
            others |= set(reads(operation)) | (set() if operation.residual is None else set(writes(operation)))
        else:
            others |= {*reads(operation), *writes(operation)}
    # q, k and v of an Attend have one form.
    for operation in program.operations:
        if isinstance(operation, Attend) and {operation.q, operation.k, operation.v} & others:
            others |= {operation.q, operation.k, operation.v}
    return found - others


def operands_only(program: Program) -> set[str]:
    """Return the buffers that products alone write, without a residual, and read as input in the same segment."""
    products: set[str] = set()
    others = kept_buffers(program)
    for operation in program.operations:
        if isinstance(operation, Linear) and operation.residual is None and len(writes(operation)) == 1:
            products |= set(writes(operation))
        else:
            inputs = {operation.x} if isinstance(operation, Linear) else set()
            others |= {*reads(operation), *writes(operation)} - inputs
    return products - others


def results_deeper_than(depth: int, program: Program, packer: Packer) -> set[str]:
    """Return the buffers that products of more than this depth write."""
    return {name for operation, shapes in program.steps() if isinstance(operation, Linear)
            and packer.depth(shapes[operation.x]) > depth for name in writes(operation)}


def kept_buffers(program: Program) -> set[str]:
    """Return the buffers that an Attend reads or writes, or that are written before an Attend and read after it."""
    kept: set[str] = set()
    written: dict[str, int] = {}
    segment, inputs = 0, dict(program.inputs)
    for operation in program.operations:
        own = [name for name in reads(operation) if name not in inputs]
        if isinstance(operation, Attend):
            kept |= {*own, *writes(operation)}
            segment += 1
        kept |= {name for name in own if written[name] != segment}
        written |= dict.fromkeys(writes(operation), segment)
    return kept
