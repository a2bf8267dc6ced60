"""List the operations that the kernels run, lay out their results, and refuse everything else by name.

The result of an operation is one array, which is called after its first buffer: the query, key and value heads that one
Linear computes lie side by side in one row, and an Attend reads this array as a whole. An array has up to two forms:
float32, for norms and residuals, and the operand form, for products; an operation writes the forms that later ones
read. Rows, and heads, are followed by zeros up to a width that suits the kernels (`Layout`). This module needs no CUDA
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from ...base.errors import UnsupportedError
from ...programs.operations import (
    Affine,
    Attend,
    Buffer,
    DistanceBias,
    Embed,
    Heads,
    Linear,
    LinearPart,
    Norm,
    Operation,
    Relative,
    Rotary,
    Store,
    Table,
    reads,
    writes,
)
from ...programs.program import Program

ANY = object()
"""Stands for all values of a field."""


def _any(*names: str) -> dict[str, Any]:
    """Return fields of which all values run."""
    return dict.fromkeys(names, ANY)


RUNS: dict[type, dict[str, Any]] = {
    Embed: _any("out", "width", "word", "position", "token_type", "layer", "scale"),
    Table: _any("name", "rows"),
    Norm: _any("x", "out", "weight", "bias", "eps", "kind", "layer", "residual"),
    Linear: _any("x", "parts", "activation", "gate", "residual", "layer", "scale"),
    LinearPart: _any("weight", "bias", "out", "width", "heads"),
    Heads: _any("buffers", "layer", "eps", "rotary", "norms", "joint"),
    Rotary: _any("theta", "width", "positions", "interleaved", "scale", "frequencies", "factor"),
    Attend: _any("q", "k", "v", "out", "scale", "layer")
            | _any("window", "bias", "relative", "softcap") | {"observed": ((),), "keys": ("pass",)},
    DistanceBias: _any("table", "max_distance", "one_sided"),
    Relative: _any("table", "width", "key", "query", "norm", "eps", "limit", "buckets"),
    Affine: _any("weight", "bias"),
    Store: _any("x", "layer") | {"array": (0,), "top": (False,), "softcap": (0.0,)},
}
"""The operations that run, with the values of each field that run.

Of a field that is not listed, only the default runs, because a default leaves an operation as it was without the field.
"""

FLOAT32, OPERAND = "float32", "operand"
"""The forms of an array: for norms and residuals, and for products."""


LARGEST_ROW = 16_384
"""The widest row that the kernel of norms and of embeddings keeps in registers."""


@dataclass(frozen=True)
class Layout:
    """How a row of a buffer lies on the device: each of its parts is followed by zeros.

    Parts are heads, or the whole row of a buffer without heads.
    """

    parts: int
    width: int
    """Numbers of a part."""
    padded: int
    """Numbers of a part with the zeros behind it."""

    @property
    def columns(self) -> int:
        """Return the length of a row, zeros included."""
        return self.parts * self.padded

    def pad_parts(self, array: np.ndarray, axis: int = 0) -> np.ndarray:
        """Return an array with zeros after each part along an axis, which grows to `columns` numbers."""
        if self.width == self.padded:
            return array
        shape = array.shape
        parted = array.reshape(*shape[:axis], self.parts, self.width, *shape[axis + 1:])
        zeros = [(0, 0)] * parted.ndim
        zeros[axis + 1] = 0, self.padded - self.width
        return np.pad(parted, zeros).reshape(*shape[:axis], self.columns, *shape[axis + 1:])


def layouts(program: Program, head_width: Callable[[int], int]) -> dict[str, Layout]:
    """Return the layout of each buffer; `head_width` returns the width of a head with its zeros.

    The zeros behind rows end them at a multiple of 8 numbers, so that pieces of 16 bytes hold whole numbers.
    """

    def layout(buffer: Buffer) -> Layout:
        parts = buffer.heads or 1
        width = buffer.width // parts
        return Layout(parts, width, head_width(width) if buffer.heads else -(-width // 8) * 8)

    return {name: layout(buffer) for name, buffer in buffers_of(program).items()}


@dataclass(frozen=True)
class Step:
    """An operation, the forms of its result, and the norm that its kernel computes with it."""

    operation: Operation
    forms: frozenset[str]
    """The forms in which it writes its result."""
    norm: Norm | None = None
    """The norm that the kernel of the embeddings also computes, in place."""


def steps_of(program: Program) -> tuple[Step, ...]:
    """Return the steps of a program. Each writes the forms that are read before the next write of the same buffer."""
    norm, wanted = embedding_norm(program), dict[str, set[str]]()      # wanted: the forms of each buffer that are read
    made: list[Step] = []       # from the last step to the first
    for operation in reversed(program.operations):
        if operation is norm:
            continue
        forms: set[str] = set()
        if not isinstance(operation, Heads):        # it changes an array in place, which another operation has written
            for name in writes(operation):
                forms |= wanted.pop(name, set())
        for form, buffers in operands(operation):
            for name in buffers:
                wanted.setdefault(name, set()).add(form)
        made.append(Step(operation, frozenset(forms), norm if isinstance(operation, Embed) else None))
    return tuple(reversed(made))


def operands(operation: Operation) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the form and the buffers of each array that the kernel of an operation reads."""
    buffers = reads(operation)
    match operation:
        case Linear():
            return (OPERAND, buffers[:1]), (FLOAT32, buffers[1:])
        case Attend() | Heads():
            return ((OPERAND, buffers),)
        case Norm():
            return (FLOAT32, buffers[:1]), (FLOAT32, buffers[1:])
    return ((FLOAT32, buffers),)


def buffers_of(program: Program) -> dict[str, Buffer]:
    """Return all buffers of a program. `check` makes sure that none changes its shape in the course of it."""
    *_, (_, shapes) = program.steps()
    return shapes


def embedding_norm(program: Program) -> Norm | None:
    """Return the Norm that the embedding kernel computes, too: one of the embeddings that follows them, in place."""
    embed, second, *_ = program.operations
    return second if isinstance(second, Norm) and reads(second) == writes(second) == writes(embed) else None


def check(program: Program) -> None:
    """Raise one `UnsupportedError` that names everything in a program that this backend does not run."""
    problems = list(_unlisted(program)) or list(_misplaced(program)) or [
        "Linear with a gate, whose result is no input of a Linear" for step in steps_of(program)
        if isinstance(step.operation, Linear) and step.operation.gate and FLOAT32 in step.forms]
    if problems:
        raise UnsupportedError(f"the cuda backend does not run {'; '.join(dict.fromkeys(problems))}; cython, numba and "
                               "reference run it")


def _unlisted(program: Program) -> Iterator[str]:
    """Name the operations, fields and values that `RUNS` does not list, and the widths that no kernel has."""
    for operation, shapes in program.steps():
        yield from _unlisted_fields(operation)
        if isinstance(operation, Attend):
            q, v = shapes[operation.q], shapes[operation.v]
            if operation.relative is not None and q.heads != v.heads:
                yield f"Attend with relative positions and {v.heads} heads of keys for {q.heads} of queries"
            if q.width // (q.heads or 1) != v.width // (v.heads or 1):
                yield f"Attend with {_heads(q)} for queries and {_heads(v)} for values"
        if isinstance(operation, Norm | Embed) and shapes[operation.out].width > LARGEST_ROW:
            yield f"{type(operation).__name__} of rows wider than {LARGEST_ROW}"


def _heads(buffer: Buffer) -> str:
    """Return the number and the width of heads, for messages."""
    return f"{buffer.heads} heads of {buffer.width // (buffer.heads or 1)}"


def _unlisted_fields(item: Any) -> Iterator[str]:
    """Name the fields of an operation, or of a part of it, whose values are not listed."""
    name, listed = type(item).__name__, RUNS.get(type(item))
    if listed is None:
        yield name
        return
    for field in fields(item):
        value, allowed = getattr(item, field.name), listed.get(field.name, (field.default,))
        if allowed is ANY:
            for part in value if isinstance(value, tuple) else (value,):
                if is_dataclass(part):
                    yield from _unlisted_fields(part)
        elif value not in allowed:
            yield f"{name} with {field.name}" + ("" if is_dataclass(value) else f"={value!r}")


def _misplaced(program: Program) -> Iterator[str]:
    """Name the operations that read or write other buffers than all of one array, or stand in another place."""
    last = len(program.operations) - 1
    arrays: dict[str, tuple[tuple[str, ...], Buffer]] = {}      # all buffers in the array of each buffer, and its shape
    for i, (operation, shapes) in enumerate(program.steps()):
        name = type(operation).__name__
        if isinstance(operation, Embed) != (i == 0) or isinstance(operation, Store) != (i == last):
            yield f"{name} as operation {i + 1} of {last + 1}"
        for _, buffers in operands(operation):
            # A Heads may change the first heads of an array alone.
            if any((arrays[buffer][0][:len(buffers)] if isinstance(operation, Heads) else arrays[buffer][0]) != buffers
                   for buffer in buffers):
                yield f"{name} of {', '.join(buffers)} where this is not one array"
        for buffer in () if isinstance(operation, Heads) else writes(operation):
            array = writes(operation), shapes[buffer]
            if arrays.setdefault(buffer, array) != array:
                yield f"{name} that writes {buffer} to another array than before"
