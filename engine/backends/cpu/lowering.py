"""Turn a program into instructions for the native interpreter, with barriers where threads have to wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from ...programs.operations import (
    KEYS,
    Attend,
    Buffer,
    Embed,
    Heads,
    Linear,
    Norm,
    Operation,
    Pick,
    Store,
    reads,
    writes,
)
from ...programs.program import Program
from ..execute import band
from .native.native import Executor, Product
from .packer import Packer, allocate
from .placing import PLACES, Placed, array_of, input_of, inputs_in_rows, operands_of, place, stored_products


def lower(program: Program, product: Product, packer: Packer, threads: int, storage: int = 0) -> Executor:
    """Pack the weights of a program that are not packed yet, and return it ready to run on `threads` threads.

    storage: the form of the keys and values in a decoder's cache, a number of `STORAGE`.
    """
    steps = fuse(program)
    placed = place(program, product, packer)
    floats = {where: sum(p.floats for p in placed.values() if p.where == where) for where in PLACES}    # for each row
    buffers = [(p.in_pass, p.offset, p.stride, p.heads, p.bfloat16, p.operands) for p in placed.values()]
    most_instructions = 3 * len(steps) * most_parts(steps, product)     # a product has three: scale, convert, multiply
    executor = Executor(product, buffers, most_instructions, token_floats=floats["pass"], block_floats=floats["block"],
                        picked_floats=floats["picked"], threads=threads, allocate=allocate)
    emitter = _Emitter(executor, packer, product, placed, storage)
    for name, buffer in inputs_in_rows(program):
        emitter.emit_input(name, buffer)
    emitter.emit(steps)
    executor.start()
    return executor


Step = tuple[Operation, dict[str, Buffer], tuple[Store, ...]]
"""An operation, the shapes of buffers after it, and the Stores of its results if it writes memory of the caller."""


def fuse(program: Program) -> list[Step]:
    """Return the steps of a program; a product that writes the caller's memory is one step with its Stores.

    A Norm at the end is one step with the Store of its result, too.
    """
    stored = stored_products(program)
    fused = {i + j for i, stores in stored.items() for j in range(1, 1 + len(stores))}     # the Stores after products
    steps: list[Step] = [(operation, dict(shapes), stored.get(i, ()))
                         for i, (operation, shapes) in enumerate(program.steps()) if i not in fused]
    if len(steps) > 1:
        (norm, shapes, _), (store, _, _) = steps[-2:]
        if isinstance(norm, Norm) and isinstance(store, Store) and norm.out == store.x and norm.residual is None:
            steps[-2:] = [(norm, shapes, (store,))]
    return steps


def most_parts(steps: list[Step], product: Product) -> int:
    """Return the largest number of parts in which the result of a product goes to the next product.

    A part has up to `hidden_columns` columns, so that it stays in the L2 cache; 0 of these means that all go at once.
    """
    widest = max((buffer.width for _, shapes, stores in steps if not stores for buffer in shapes.values()), default=1)
    return -(-widest // product.hidden_columns) if product.hidden_columns else 1


def multiplied_next(name: str, following: list[Operation]) -> bool:
    """Return whether a product reads a buffer before its next write and before the next Attend, in `following`."""
    for operation in following:
        if isinstance(operation, Linear) and operation.x == name:
            return True
        if isinstance(operation, Attend) or name in writes(operation):
            return False
    return False


@dataclass
class _Meetings:
    """Finds before which instructions the threads have to meet, when they share each instruction (`run_by_columns`).

    An instruction splits the data of a buffer between the threads by "rows", by "heads", by the "panels" of columns of
    a product, or by the "pieces" of attention; or each thread uses "all" of it. Threads need not meet between two
    instructions that both split it by rows or both by heads, because each thread then uses only its own share.
    """

    written: dict[str, str] = field(default_factory=dict)
    """By the name of each buffer that was written since the last meeting: how it was split."""
    read: dict[str, set[str]] = field(default_factory=dict)
    """By the name of each buffer that was read since the last meeting: all ways in which it was split."""

    def add(self, reads: Mapping[str, str], writes: Mapping[str, str]) -> bool:
        """Record the next instruction, and return whether the threads have to meet before it.

        Call it once for each instruction, in the order in which they run. reads, writes: by the name of each buffer
        that the instruction reads or writes, how it splits the buffer.
        """
        meet = any(self._must_wait(self.written.get(name), how) for name, how in (*reads.items(), *writes.items()))
        meet = meet or any(self._must_wait(earlier, how) for name, how in writes.items()
                           for earlier in self.read.get(name, ()))
        if meet:
            self.written, self.read = {}, {}
        for name, how in reads.items():
            self.read.setdefault(name, set()).add(how)
        self.written |= writes
        return meet

    @staticmethod
    def _must_wait(earlier: str | None, now: str) -> bool:
        """Return whether threads must meet between two uses of a buffer, as they touch the shares of each other.

        Each use is named by how threads divide the buffer; earlier: None if there was no use before. Only where both
        divide it by rows, or both by heads, does each thread touch its own share alone.
        """
        return earlier is not None and (earlier != now or now not in ("rows", "heads"))


def _observed_rows(operation: Attend) -> np.ndarray:
    """Return head, array of weights and array of entropy of each observed head, -1 for no array: int32 [n, 3]."""
    rows = [(each.head, each.weights, each.entropy) for each in operation.observed]
    return np.array([[-1 if number is None else number for number in row] for row in rows], np.int32).reshape(-1, 3)


class _Emitter:
    """Appends the instructions of steps to an executor; `at` in its methods is the index of each buffer, by name."""

    def __init__(self, executor: Executor, packer: Packer, product: Product, placed: dict[str, Placed], storage: int):
        self._executor, self._packer, self._product, self._placed = executor, packer, product, placed
        self._storage = storage
        self._meetings = _Meetings()
        self._converted: set[str] = set()
        """The buffers whose rows have been converted to operands of products since the last Attend."""

    def emit_input(self, name: str, buffer: Buffer) -> None:
        """Append the instruction that copies rows of the caller to the buffer of an input of the program."""
        self._executor.embed(self._placed[name].index, buffer.width, word=None, position=None, token_type=None,
                             needs_barrier=self._meetings.add({}, {name: "rows"}))

    def emit(self, steps: list[Step]) -> None:
        """Append the instructions of all steps."""
        at = {name: placed.index for name, placed in self._placed.items()}
        operations = [step[0] for step in steps]
        done = 0
        for i, (operation, shapes, stores) in enumerate(steps):
            if i < done:        # the second product of a pair, which came with the first one
                continue
            following = operations[i + 1 :]
            if parts := self._parts_between(operation, shapes, following):
                self._emit_pair_in_parts(steps[i : i + 2], at, parts)
                done = i + 2
            else:
                self._emit(operation, shapes, stores, following, at)
            if isinstance(operation, Pick):
                self._emit_logits(steps[i + 1 :], at)
                return
            if isinstance(operation, Attend):
                self._converted.clear()     # operands hold one block of rows, and blocks begin anew after an Attend

    def _parts_between(self, operation: Operation, shapes: dict[str, Buffer],
                       following: list[Operation]) -> list[tuple[int, int]]:
        """Return the columns first <= column < last of each part in which a product hands its result to the next one.

        No parts if there is no such pair: the buffer between the two must be in the thread's own memory, which holds at
        most `hidden_columns` of its columns at a time, and nothing else may read it.
        """
        most_columns = self._product.hidden_columns
        if not (most_columns and isinstance(operation, Linear) and following and isinstance(following[0], Linear)):
            return []
        hidden = writes(operation)[0]
        if hidden in self._placed or following[0].x != hidden or multiplied_next(hidden, following[1:]):
            return []
        NR, width = self._product.kernels.NR, shapes[hidden].width
        count, panels = -(-width // most_columns), -(-width // NR)      # a panel has NR columns
        if count == 1 or not all(name in self._placed for name in writes(following[0])):
            return []
        if self._product.fresh_depth:   # the second product begins new sums after each most_columns of its depth
            ends = [min(width, i * most_columns) for i in range(count + 1)]
        else:       # parts of about equal width, of whole panels
            ends = [min(width, panels * i // count * NR) for i in range(count + 1)]
            ends[-1] = width
        return list(pairwise(ends))

    def _emit_pair_in_parts(self, steps: list[Step], at: dict[str, int], parts: list[tuple[int, int]]) -> None:
        """Append the instructions of two products for all parts of the columns between them."""
        pair = []
        for operation, shapes, _ in steps:
            assert isinstance(operation, Linear)
            pair.append(self._prepare_multiplication(operation, shapes[operation.x], at))
        for first, last in parts:
            for arguments in pair:
                self._executor.multiply(**arguments, first_hidden=first, last_hidden=last)
                # Where threads share an instruction, the first part computes the whole product, and the others nothing.
                arguments["needs_barrier"] = False

    def _emit_logits(self, steps: list[Step], at: dict[str, int]) -> None:
        """Append the instructions for picked rows; raises `ValueError` unless their one operation computes logits."""
        self._meetings = _Meetings()    # all threads meet before the first of these instructions
        logits = [(operation, shapes) for operation, shapes, stores in steps
                  if isinstance(operation, Linear) and not operation.activation and stores and stores[0].top]
        if not len(logits) == len(steps) == 1:
            raise ValueError(f"{[step[0] for step in steps]}: picked rows have one product without an activation, of "
                             "which the best numbers are stored")
        operation, shapes = logits[0]
        source = self._emit_operands(operation, shapes[operation.x], at)
        self._executor.logits(at[source], self._packer.linear(operation, shapes[operation.x]), operation.parts[0].width,
                              needs_barrier=self._meetings.add({source: "all"}, {}))

    def _emit(self, operation: Operation, shapes: dict[str, Buffer], stores: tuple[Store, ...],
              following: list[Operation], at: dict[str, int]) -> None:
        """Append the instructions of one operation; an index of -1 stands for no buffer."""
        stored = bool(stores)
        if not isinstance(operation, Linear):
            self._converted -= set(writes(operation))
        match operation:
            case Embed():
                tables = map(self._packer.table, (operation.word, operation.position, operation.token_type),
                             (operation.scale, 1.0, 1.0))
                self._executor.embed(at[operation.out], operation.width, *tables,
                                     needs_barrier=self._meetings.add({}, {operation.out: "rows"}))
            case Norm():
                norm = self._packer.norm(operation.weight, operation.bias, operation.eps, shapes[operation.x].width)
                written = {} if stored else {operation.out: "rows"}
                operands = -1       # the buffer of the same rows in the form that products multiply, or none
                if not stored and self._product.converts and multiplied_next(operation.out, following):
                    operands = at[operands_of(operation.out)]
                    written[operands_of(operation.out)] = "rows"
                    self._converted.add(operation.out)
                self._executor.norm(
                    at[operation.x], at[operation.out], norm,
                    residual=-1 if operation.residual is None else at[operation.residual], operands=operands,
                    rms=operation.kind == "rms", stored=stored,
                    needs_barrier=self._meetings.add(dict.fromkeys(reads(operation), "rows"), written))
            case Linear() | Store() if (stores and stores[0].top) or (isinstance(operation, Store) and operation.top):
                raise ValueError(f"{operation}: only the best numbers of a product of picked rows are stored")
            case Linear():
                self._executor.multiply(**self._prepare_multiplication(operation, shapes[operation.x], at, stores))
            case Heads():
                self._emit_heads(operation, shapes, at)
            case Attend(keys="cache" | "cross"):
                self._emit_attend_state(operation, shapes, at)
            case Attend():
                q, heads = shapes[operation.q], (operation.q, operation.k, operation.v)
                bias = None if operation.bias is None else self._packer.bias(operation.bias, q.heads or 1)
                self._executor.attend(
                    at[operation.q], at[operation.k], at[operation.v], at[operation.out], q.width // (q.heads or 1),
                    operation.scale, operation.softcap, *band(operation), bias,
                    self._packer.relative(operation, shapes), _observed_rows(operation), self._packer.longest,
                    needs_barrier=self._meetings.add(dict.fromkeys(heads, "all"), {operation.out: "pieces"}))
            case Store():
                x = shapes[operation.x]
                width = self._packer.padded(x.width, x.heads) if self._placed[operation.x].heads else x.width
                self._executor.store(at[operation.x], width, operation.array,
                                     needs_barrier=self._meetings.add({operation.x: "rows"}, {}))
            case Pick():
                self._executor.pick(at[operation.x], at[operation.out], shapes[operation.out].width,
                                    needs_barrier=self._meetings.add({operation.x: "rows"}, {}))

    def _emit_heads(self, operation: Heads, shapes: dict[str, Buffer], at: dict[str, int]) -> None:
        """Append the instructions that norm and rotate the heads of queries and keys."""
        rotary = operation.rotary
        cos, sin = (None, None) if rotary is None else self._packer.angles(rotary)
        for name, weight in zip_longest(operation.buffers, operation.norms):    # without norms, each weight is None
            width = shapes[name].width // (shapes[name].heads or 1)
            norm_width = shapes[name].width if operation.joint else width
            norm = None if weight is None else self._packer.norm(weight, bias=None, eps=operation.eps, width=norm_width)
            if norm is not None and operation.joint:        # the norm of all heads of a row is the norm of the row
                self._executor.norm(at[name], at[name], norm, residual=-1, operands=-1, rms=True, stored=False,
                                    needs_barrier=self._meetings.add({name: "rows"}, {name: "rows"}))
                norm = None     # only the rotation is left for the instruction of heads
            if norm is not None or rotary is not None:
                self._executor.heads(at[name], norm, cos, sin, width, rotary is not None and rotary.interleaved,
                                     needs_barrier=self._meetings.add({name: "heads"}, {name: "heads"}))

    def _emit_attend_state(self, operation: Attend, shapes: dict[str, Buffer], at: dict[str, int]) -> None:
        """Append the instruction of attention over keys and values in the cache of a decoder, or of a source."""
        q, k = shapes[operation.q], shapes[operation.k]
        cached = operation.keys == "cache"      # otherwise a source's keys and values, which no buffer holds (-1)
        operands = (operation.q, operation.k, operation.v) if cached else (operation.q,)
        bias = None if operation.bias is None else self._packer.bias(operation.bias, q.heads or 1)
        assert operation.layer is not None
        self._executor.attend_state(
            at[operation.q], at[operation.k] if cached else -1, at[operation.v] if cached else -1, at[operation.out],
            KEYS.index(operation.keys), operation.layer, k.heads or 1, q.width // (q.heads or 1), operation.scale,
            operation.softcap, *band(operation), bias, self._storage,
            needs_barrier=self._meetings.add(dict.fromkeys(operands, "all"), {operation.out: "pieces"}))

    def _emit_operands(self, operation: Linear, x: Buffer, at: dict[str, int]) -> str:
        """Append the instructions that scale and convert the input of a product; return the buffer that it reads."""
        source, width = input_of(operation), self._packer.depth(x)
        if source != operation.x:
            self._converted.discard(source)
            needs_barrier = self._meetings.add({operation.x: "rows"}, {source: "rows"})
            self._executor.scale(at[operation.x], at[source], width, operation.scale, needs_barrier=needs_barrier)
        if not self._product.converts:
            return source
        operands = operands_of(source)
        if source not in self._converted:
            needs_barrier = self._meetings.add({source: "rows"}, {operands: "rows"})
            self._executor.convert(at[source], at[operands], width, needs_barrier=needs_barrier)
            self._converted.add(source)
        return operands

    def _prepare_multiplication(self, operation: Linear, x: Buffer, at: dict[str, int],
                                stores: tuple[Store, ...] = ()) -> dict[str, Any]:
        """Append the instructions that prepare the input of a product; return the arguments of its own instruction."""
        packed, source = self._packer.linear(operation, x), self._emit_operands(operation, x, at)
        results = tuple(map(array_of, stores)) or writes(operation)
        first = results[0]
        read = {source: "all"} | ({operation.residual: "panels"} if operation.residual is not None else {})
        self._converted -= set(writes(operation))
        approximate = False
        if first in self._placed:
            self._check_adjacent(operation, results)
            out, operands, written = at[first], -1, dict.fromkeys(results, "panels")
            approximate = self._product.approximates and self._placed[first].only_converted
        else:
            out, operands, written = -1, at[operands_of(first)], {operands_of(first): "panels"}
            self._converted.add(first)
        return {
            "x": at[source], "out": out, "map": packed,
            "residual": -1 if operation.residual is None else at[operation.residual], "operands": operands,
            "approximate": approximate, "gated": operation.gate,
            "needs_barrier": self._meetings.add(read, written),
        }

    def _check_adjacent(self, operation: Linear, results: tuple[str, ...]) -> None:
        """Raise unless the results of all parts are one run of heads of equal width, or one buffer."""
        for before, after in pairwise(self._placed[name] for name in results):
            if not (before.heads and after.heads and before.stride == after.stride and before.in_pass and after.in_pass
                    and after.offset == before.offset + before.floats):
                raise ValueError(f"{operation}: parts must be heads of one width whose buffers are first written here")
