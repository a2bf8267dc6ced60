"""Turn a program into instructions for the native interpreter: place buffers, and find where threads have to wait.

A buffer whose rows are needed after an Attend is kept for all tokens of a pass. Any other buffer holds one block of
rows for each thread. Heads that an Attend reads lie head by head; everything else lies in rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

import numpy as np

from ...program import KEYS, Attend, Buffer, Embed, Heads, Linear, Norm, Operation, Program, Store, reads, writes
from ..execute import band
from .native import Executor, Product, padded_stride
from .panels import Packer, allocate


@dataclass
class Placed:
    """Where a buffer lies, in floats; see `Buffer` in machine.pxi."""

    index: int
    in_pass: bool
    stride: int
    heads: int
    """0 if it lies in rows."""
    offset: int = 0

    @property
    def floats(self) -> int:
        """Return the number of floats for each row."""
        return self.stride * max(1, self.heads)


def lower(program: Program, product: Product, packer: Packer, threads: int) -> Executor:
    """Pack the weights of a program that are not packed yet, and return it ready to run on `threads` threads."""
    placed = place(program, packer)
    steps = fuse(program)
    in_pass, in_block = ([p for p in placed.values() if p.in_pass is kept] for kept in (True, False))
    executor = Executor(
        product, [(p.in_pass, p.offset, p.stride, p.heads) for p in placed.values()], 2 * len(steps),
        token_floats=sum(p.floats for p in in_pass), block_floats=sum(p.floats for p in in_block), threads=threads,
        allocate=allocate)
    emitter = _Emitter(executor, packer, product, placed)
    for step in steps:
        emitter.emit(*step)
    executor.start()
    return executor


def place(program: Program, packer: Packer) -> dict[str, Placed]:
    """Decide for each buffer where it lies, in the order in which they are first written."""
    by_head = {name for op in program.operations if isinstance(op, Attend) for name in (op.q, op.k, op.v)}
    kept = kept_buffers(program)
    placed: dict[str, Placed] = {}
    ends = {True: 0, False: 0}
    shapes: dict[str, list[Buffer]] = {}
    for operation, after in program.steps():
        for name in writes(operation):
            shapes.setdefault(name, []).append(after[name])
    for name, uses in shapes.items():
        width = max(packer.padded(use.width, use.heads) for use in uses)
        heads = (uses[0].heads or 0) if name in by_head else 0
        if name in by_head and len({(use.width, use.heads) for use in uses}) > 1:
            raise ValueError(f"the heads of {name!r} change their shape in the course of the program")
        stride = width // heads if heads else padded_stride(width)
        placed[name] = Placed(len(placed), name in kept, stride, heads, ends[name in kept])
        ends[name in kept] += placed[name].floats
    return placed


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


Step = tuple[Operation, dict[str, Buffer], bool]
"""An operation, the shapes of buffers after it, and whether its result goes to the caller."""


def fuse(program: Program) -> list[Step]:
    """Return the steps of a program, with a Norm that is followed by the last Store of its result as one step."""
    steps: list[Step] = [(operation, dict(shapes), False) for operation, shapes in program.steps()]
    if len(steps) > 1:
        (norm, shapes, _), (store, _, _) = steps[-2:]
        if isinstance(norm, Norm) and isinstance(store, Store) and norm.out == store.x and norm.residual is None:
            steps[-2:] = [(norm, shapes, True)]
    return steps


@dataclass
class _Meetings:
    """Finds before which instructions a team that works by columns has to meet.

    Threads need not meet between two instructions that both split the data by "rows" or both by "heads", because each
    thread then uses only its own share of the data. They meet around any other use: "panels", "pieces" or "all".
    """

    written: dict[str, str] = field(default_factory=dict)
    read: dict[str, set[str]] = field(default_factory=dict)

    def before(self, reads: Mapping[str, str], writes: Mapping[str, str]) -> bool:
        """Return whether threads meet before an instruction that splits its inputs and results in these ways."""
        meets = any(self._clash(self.written.get(name), how) for name, how in (*reads.items(), *writes.items()))
        meets = meets or any(self._clash(earlier, how) for name, how in writes.items()
                             for earlier in self.read.get(name, ()))
        if meets:
            self.written, self.read = {}, {}
        for name, how in reads.items():
            self.read.setdefault(name, set()).add(how)
        self.written |= writes
        return meets

    @staticmethod
    def _clash(earlier: str | None, now: str) -> bool:
        return earlier is not None and (earlier != now or now not in ("rows", "heads"))


_OPERANDS = "operands"
"""A name for the operands of a product; no buffer of a program has this name."""


def _taps(operation: Attend) -> np.ndarray:
    """Return head, array of weights and array of entropy of each tap, -1 for no array: int32 [n, 3]."""
    rows = [(tap.head, tap.weights, tap.entropy) for tap in operation.taps]
    return np.array([[-1 if number is None else number for number in row] for row in rows], np.int32).reshape(-1, 3)


class _Emitter:
    def __init__(self, executor: Executor, packer: Packer, product: Product, placed: dict[str, Placed]):
        self._executor, self._packer, self._product, self._placed = executor, packer, product, placed
        self._meetings = _Meetings()

    def emit(self, operation: Operation, shapes: dict[str, Buffer], stored: bool) -> None:
        """Append the instructions of one operation."""
        at = {name: placed.index for name, placed in self._placed.items()}
        meets = self._meetings.before
        match operation:
            case Embed():
                tables = map(self._packer.table, (operation.word, operation.position, operation.token_type),
                             (operation.scale, 1.0, 1.0))
                self._executor.embed(at[operation.out], operation.width, *tables,
                                     meets=meets({}, {operation.out: "rows"}))
            case Norm():
                norm = self._packer.norm(operation.weight, operation.bias, operation.eps, shapes[operation.x].width)
                self._executor.norm(
                    at[operation.x], at[operation.out], norm,
                    residual=-1 if operation.residual is None else at[operation.residual],
                    rms=operation.kind == "rms", stored=stored,
                    meets=meets(dict.fromkeys(reads(operation), "rows"), {} if stored else {operation.out: "rows"}))
            case Linear():
                self._linear(operation, shapes[operation.x], at)
            case Heads():
                rotary = operation.rotary
                cos, sin = (None, None) if rotary is None else self._packer.angles(rotary)
                for name, weight in zip_longest(operation.buffers, operation.norms):
                    width = shapes[name].width // (shapes[name].heads or 1)
                    own = None if weight is None else self._packer.norm(weight, None, operation.eps, width)
                    self._executor.heads(at[name], own, cos, sin, width, rotary is not None and rotary.interleaved,
                                         meets=meets({name: "heads"}, {name: "heads"}))
            case Attend(keys="cache" | "memory"):
                self._attend_state(operation, shapes, at)
            case Attend():
                q, operands = shapes[operation.q], (operation.q, operation.k, operation.v)
                bias = None if operation.bias is None else self._packer.bias(operation.bias, q.heads or 1)
                self._executor.attend(
                    at[operation.q], at[operation.k], at[operation.v], at[operation.out], q.width // (q.heads or 1),
                    operation.scale, *band(operation), bias, self._packer.relative(operation, shapes), _taps(operation),
                    meets=meets(dict.fromkeys(operands, "all"), {operation.out: "pieces"}))
            case Store():
                self._executor.store(at[operation.x], shapes[operation.x].width, operation.array,
                                     meets=meets({operation.x: "rows"}, {}))

    def _attend_state(self, operation: Attend, shapes: dict[str, Buffer], at: dict[str, int]) -> None:
        q, k = shapes[operation.q], shapes[operation.k]
        cached = operation.keys == "cache"
        operands = (operation.q, operation.k, operation.v) if cached else (operation.q,)
        bias = None if operation.bias is None else self._packer.bias(operation.bias, q.heads or 1)
        assert operation.layer is not None
        self._executor.attend_state(
            at[operation.q], at[operation.k] if cached else -1, at[operation.v] if cached else -1, at[operation.out],
            KEYS.index(operation.keys), operation.layer, k.heads or 1, q.width // (q.heads or 1), operation.scale,
            *band(operation), bias,
            meets=self._meetings.before(dict.fromkeys(operands, "all"), {operation.out: "pieces"}))

    def _linear(self, operation: Linear, x: Buffer, at: dict[str, int]) -> None:
        if operation.scale != 1.0:
            raise ValueError(f"{operation}: a product inside of a program does not scale its input")
        packed, source, first = self._packer.linear(operation, x), operation.x, writes(operation)[0]
        self._check_adjacent(operation)
        if self._product.converts:
            meets = self._meetings.before({source: "rows"}, {_OPERANDS: "rows"})
            self._executor.convert(at[source], packed, meets=meets)
            source = _OPERANDS
        read = {source: "all"} | ({operation.residual: "panels"} if operation.residual is not None else {})
        self._executor.multiply(
            at[operation.x], at[first], packed, residual=-1 if operation.residual is None else at[operation.residual],
            gated=operation.gate, meets=self._meetings.before(read, dict.fromkeys(writes(operation), "panels")))

    def _check_adjacent(self, operation: Linear) -> None:
        """Raise unless the results of all parts are one run of heads of equal width, or one buffer."""
        results = [self._placed[name] for name in writes(operation)]
        for before, after in pairwise(results):
            if not (before.heads and after.heads and before.stride == after.stride and before.in_pass and after.in_pass
                    and after.offset == before.offset + before.floats):
                raise ValueError(f"{operation}: parts must be heads of one width whose buffers are first written here")
