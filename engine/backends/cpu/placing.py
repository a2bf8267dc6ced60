"""Decide where the buffers of a program lie, and in which form: floats, operands of products, or bfloat16 heads.

A product is the GEMM of a `Linear`, and its operands are the rows of its input in the form that its kernel multiplies,
such as int8 codes. A buffer whose rows are needed after an Attend is kept for all tokens of a pass, and a buffer behind
a Pick for all picked rows. Any other buffer holds one block of rows for each thread. Heads that an Attend reads lie
head by head; everything else lies in rows. Heads that a product stores for the caller are kept as arrays of the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...programs.operations import Attend, Buffer, Linear, Operation, Pick, Store, reads, writes
from ...programs.program import Program
from .native.native import Product, padded_stride
from .packer import Packer

PLACES = ("pass", "picked", "block")
"""The regions of memory, for the rows of all tokens of a pass, for all picked rows, or for a block of rows a thread."""


@dataclass
class Placed:
    """The place and the form of a buffer; `lower` passes them on as a `Buffer` of machine.pxi."""

    index: int
    """Its place in the executor's list of buffers, by which instructions name it."""
    where: str
    """One of `PLACES`."""
    stride: int
    """Numbers from one row to the next."""
    heads: int
    """How many heads lie one after another, each in rows of its own; 0 if the buffer lies in whole rows."""
    offset: int = 0
    """The number of floats, for each row, of the buffers that lie before it in the same place."""
    bfloat16: bool = False
    """Whether its numbers are bfloat16."""
    operands: int = 0
    """The numbers from one row to the next if it holds operands; otherwise 0."""
    only_converted: bool = False
    """Whether its floats are only read to be converted to operands."""

    @property
    def in_pass(self) -> bool:
        """Return whether all rows are kept, of all tokens or of all picked ones."""
        return self.where != "block"

    @property
    def floats(self) -> int:
        """Return the number of floats for each row."""
        return self.stride * max(1, self.heads) // (2 if self.bfloat16 else 1)


def place(program: Program, product: Product, packer: Packer) -> dict[str, Placed]:
    """Return the place of each buffer by name: first in the order of their first writes, then the buffers of operands.

    A buffer that only products write and read exists as operands alone, if the product can write these: a kernel can
    for a depth (columns of its input) of up to `operands_depth`.
    """
    by_head = {name for op in program.operations if isinstance(op, Attend) for name in (op.q, op.k, op.v)}
    shapes, stored = shapes_of(program, packer), arrays_of(program)
    by_head |= stored
    where = dict.fromkeys(kept_buffers(program) | stored, "pass") | dict.fromkeys(picked_buffers(program), "picked")
    placed: dict[str, Placed] = {}
    ends = dict.fromkeys(PLACES, 0)         # floats for each row of the buffers so far, by region
    input_widths = widths_of_inputs(program, packer) if product.converts else {}
    operands_alone = operands_only(program) if product.converts else set()
    without_floats = operands_alone - results_deeper_than(product.operands_depth, program, packer)
    bfloat16 = bfloat16_heads(program) if product.attends_rows else set()
    for name, uses in shapes.items():
        width = max(packer.padded(use.width, use.heads) for use in uses)
        if name in without_floats:
            continue
        heads = (uses[0].heads or 0) if name in by_head else 0
        if name in by_head and len({(use.width, use.heads) for use in uses}) > 1:
            raise ValueError(f"the heads of {name!r} change their shape in the course of the program")
        stride, region = width // heads if heads else padded_stride(width), where.get(name, "block")
        placed[name] = Placed(len(placed), region, stride, heads, offset=ends[region], bfloat16=name in bfloat16,
                              only_converted=name in operands_alone)
        ends[region] += placed[name].floats
    for name, width in input_widths.items():
        operands = product.operands_stride(width)
        floats = operands * product.operand_bytes // 4 + 2      # 2: a RowRange, the offset and step of int8 codes
        region = "picked" if where.get(name) == "picked" else "block"
        if region == "picked":
            floats = -(-floats // 16) * 16      # the next buffer begins at a cache line, whatever the number of rows
        placed[operands_of(name)] = Placed(len(placed), region, stride=floats, heads=0, offset=ends[region],
                                           operands=operands)
        ends[region] += floats
    return placed


def shapes_of(program: Program, packer: Packer) -> dict[str, list[Buffer]]:
    """Return the shapes of each buffer, one for each time that it is written; buffers come in the order of writing.

    The buffers are those of the program, the scaled inputs of products, and the arrays of the caller that hold heads.
    """
    written = {name: [buffer] for name, buffer in inputs_in_rows(program)}
    stored = stored_products(program)
    for i, (operation, shapes) in enumerate(program.steps()):
        if isinstance(operation, Linear) and operation.scale != 1.0:
            written[input_of(operation)] = [Buffer(packer.depth(shapes[operation.x]))]
        if i in stored:     # the product writes to the caller's memory, so its own buffers need no place
            written |= {array_of(store): [shapes[store.x]] for store in stored[i] if shapes[store.x].heads}
        else:
            for name in writes(operation):
                written.setdefault(name, []).append(shapes[name])
    return written


def inputs_in_rows(program: Program) -> list[tuple[str, Buffer]]:
    """Return the inputs that the caller fills with rows; inputs with heads are the keys and values of a source."""
    return [(name, buffer) for name, buffer in program.inputs if buffer.heads is None]


def stored_products(program: Program) -> dict[int, tuple[Store, ...]]:
    """Return, by the place of a product in the program, the Stores of its results, which nothing else reads.

    Such a product writes the memory of the caller itself: heads, or the best of each picked row.
    """
    products = {}
    operations = program.operations
    for i, operation in enumerate(operations):
        if isinstance(operation, Linear):
            results = writes(operation)
            end = i + 1 + len(results)
            stores = tuple(each for each in operations[i + 1 : end] if isinstance(each, Store))
            stores_all = tuple(store.x for store in stores) == results      # a Store follows for each, in their order
            if (stores_all and all(store.top or part.heads for store, part in zip(stores, operation.parts, strict=True))
                    and not any(is_read(name, operations[end:]) for name in results)):
                products[i] = stores
    return products


def is_read(name: str, following: tuple[Operation, ...]) -> bool:
    """Return whether a buffer is read before it is written again."""
    for operation in following:
        if name in reads(operation):
            return True
        if name in writes(operation):
            return False
    return False


def array_of(store: Store) -> str:
    """Return the name of the buffer that stands for an array of the caller; no buffer of a program has such a name."""
    return f"array {store.array}"


def arrays_of(program: Program) -> set[str]:
    """Return the buffers of the caller's arrays that products write head by head.

    Raises `ValueError` unless these are all results of the program, in the order of their arrays 0, 1, ...
    """
    stores = [store for group in stored_products(program).values() for store in group if not group[0].top]
    by_head = [store.array for store in stores]
    every = [operation.array for operation in program.operations if isinstance(operation, Store)]
    if stores and (by_head != every or every != [*range(len(every))]):
        raise ValueError(f"heads in the arrays {by_head} of {every} are not all results")
    return set(map(array_of, stores))


def picked_buffers(program: Program) -> set[str]:
    """Return the buffers of picked rows: what the first Pick and the operations after it write."""
    picked: set[str] = set()
    after_pick = False
    for operation in program.operations:
        after_pick |= isinstance(operation, Pick)
        if after_pick:
            picked |= {*writes(operation)}
            if isinstance(operation, Linear):
                picked.add(input_of(operation))     # its scaled input is written for it alone
    return picked


def input_of(operation: Linear) -> str:
    """Return the name of the buffer that a product reads: its input x, or "scale * x" for a scaled copy of it."""
    return operation.x if operation.scale == 1.0 else f"{operation.scale!r} * {operation.x}"


def operands_of(name: str) -> str:
    """Return the name of a buffer's rows as operands; no buffer of a program has such a name."""
    return f"operands of {name}"


def widths_of_inputs(program: Program, packer: Packer) -> dict[str, int]:
    """Return the buffers that products read, and the largest width of each: K of the product, its padding included."""
    widths: dict[str, int] = {}
    for operation, shapes in program.steps():
        if isinstance(operation, Linear):
            name = input_of(operation)
            widths[name] = max(widths.get(name, 0), packer.depth(shapes[operation.x]))
    return widths


def bfloat16_heads(program: Program) -> set[str]:
    """Return the heads that products write and only attention without options reads; they can be bfloat16.

    The attention kernel that reads bfloat16 rows has no options, and needs heads of a multiple of 32 columns.
    """
    plain_heads: set[str] = set()
    otherwise_used: set[str] = set()
    for operation, shapes in program.steps():
        if isinstance(operation, Attend):
            heads = [shapes[name] for name in (operation.q, operation.k, operation.v) if name in shapes]
            widths = [buffer.width // (buffer.heads or 1) for buffer in heads]
            plain = (operation.keys == "pass" and operation.scale > 0 and operation.window == (None, None)
                     and operation.bias is None and operation.relative is None and not operation.softcap
                     and all(width % 32 == 0 for width in widths))
            (plain_heads if plain else otherwise_used).update((operation.q, operation.k, operation.v))
            otherwise_used |= {operation.out}
        elif isinstance(operation, Linear):
            otherwise_used |= {*reads(operation)}
            if operation.residual is not None:
                otherwise_used |= {*writes(operation)}
        else:
            otherwise_used |= {*reads(operation), *writes(operation)}
    for operation in program.operations:        # q, k and v of an Attend have one form: all bfloat16, or none
        if isinstance(operation, Attend) and {operation.q, operation.k, operation.v} & otherwise_used:
            otherwise_used |= {operation.q, operation.k, operation.v}
    return plain_heads - otherwise_used


def operands_only(program: Program) -> set[str]:
    """Return the buffers that products alone write, without a residual, and read as input before the next Attend.

    A product of several results writes floats, and a residual is added in floats.
    """
    products: set[str] = set()
    otherwise_used = kept_buffers(program)
    for operation in program.operations:
        if isinstance(operation, Linear) and operation.residual is None and len(writes(operation)) == 1:
            products |= {*writes(operation)}
        else:
            inputs = {operation.x} if isinstance(operation, Linear) else set()
            otherwise_used |= {*reads(operation), *writes(operation)} - inputs
    return products - otherwise_used


def results_deeper_than(depth: int, program: Program, packer: Packer) -> set[str]:
    """Return the buffers that products of more than this depth write."""
    return {name for operation, shapes in program.steps() if isinstance(operation, Linear)
            and packer.depth(shapes[operation.x]) > depth for name in writes(operation)}


def kept_buffers(program: Program) -> set[str]:
    """Return the buffers that an Attend reads or writes, or that are written before an Attend and read after it."""
    kept: set[str] = set()
    written: dict[str, int] = {}
    segment, inputs = 0, dict(program.inputs)       # a segment is the operations between two Attends
    for operation in program.operations:
        read = [name for name in reads(operation) if name not in inputs]
        if isinstance(operation, Attend):
            kept |= {*read, *writes(operation)}
            segment += 1
        kept |= {name for name in read if written[name] != segment}
        written |= dict.fromkeys(writes(operation), segment)
    return kept
