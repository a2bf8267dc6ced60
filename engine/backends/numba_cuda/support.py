"""The operations of a program that the kernels run, and their arrays. Everything else is refused by name.

The result of an operation is one array, which is called after its first buffer: the query, key and value heads that one
Linear computes lie side by side in [N, 3 H d], and an Attend reads this array as a whole. An array has up to two forms:
float32, for norms and residuals, and the operand form, for products. This module needs no CUDA package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ...base.errors import UnsupportedError
from ...programs.operations import (
    Attend,
    Buffer,
    Embed,
    Heads,
    Linear,
    LinearPart,
    Norm,
    Operation,
    Store,
    Table,
    reads,
    writes,
)
from ...programs.program import Program

ANY = object()
"""Stands for all values of a field."""


def _any(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, ANY)


RUNS: dict[type, dict[str, Any]] = {
    Embed: _any("out", "width", "word", "position", "token_type", "layer") | {"scale": (1.0,)},
    Table: _any("name", "rows"),
    Norm: _any("x", "out", "weight", "bias", "eps", "layer") | {"kind": ("layer",), "residual": (None,)},
    Linear: _any("x", "parts", "residual", "layer")
            | {"activation": (None, "gelu", "gelu_tanh", "relu"), "gate": (False,), "scale": (1.0,)},
    LinearPart: _any("weight", "bias", "out", "width", "heads"),
    Heads: _any("buffers", "layer", "eps") | {"rotary": (), "norms": ((),), "joint": (False,)},
    Attend: _any("q", "k", "v", "out", "scale", "layer")
            | {"window": ((None, None),), "bias": (None,), "observed": ((),), "relative": (None,), "keys": ("pass",),
               "softcap": (0.0,)},
    Store: _any("x", "layer") | {"array": (0,), "top": (False,), "softcap": (0.0,)},
}
"""The operations that run, with the values of each field that run.

Of a field that is not listed, only the default runs, because a default leaves an operation as it was without the field.
"""

FLOAT32, OPERAND = "float32", "operand"


def forms(operation: Operation) -> tuple[str, ...]:
    """Return the forms in which the kernel of an operation writes its result."""
    match operation:
        case Embed() | Norm():
            return FLOAT32, OPERAND
        case Linear():
            return (OPERAND if operation.residual is None else FLOAT32,)
        case Attend():
            return (OPERAND,)
    return ()


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
    problems = list(_unlisted(program)) or list(_misplaced(program))
    if not problems and not any(isinstance(operation, Attend) for operation in program.operations):
        problems = ["a model without layers"]   # the kernel of the embeddings is taken for the start of a first layer
    if problems:
        raise UnsupportedError(f"the cuda backend does not run {'; '.join(dict.fromkeys(problems))}; cython, numba and "
                               "reference run it")


def _unlisted(program: Program) -> Iterator[str]:
    """Name the operations, fields and values that are not listed."""
    for operation, shapes in program.steps():
        yield from _unlisted_fields(operation)
        # Maps to heads are those of an Attend, and `_misplaced` looks where their results go.
        if isinstance(operation, Linear) and operation.layer is None and not operation.parts[0].heads:
            yield "Linear outside of the layers"
        if isinstance(operation, Attend):
            q, k, v = (shapes[name] for name in reads(operation))
            if not q == k == v:
                yield f"Attend with {_heads(q)} for queries, {_heads(k)} for keys and {_heads(v)} for values"


def _heads(buffer: Buffer) -> str:      # for messages
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
    """Name the operations that read or write something else than one whole array, in a form that it has."""
    last = len(program.operations) - 1
    arrays: dict[str, tuple[tuple[str, ...], Buffer]] = {}      # all buffers in the array of each buffer, and its shape
    written: dict[str, tuple[str, ...]] = {}                    # the forms in which each was written last
    for i, (operation, shapes) in enumerate(program.steps()):
        name = type(operation).__name__
        if isinstance(operation, Embed) != (i == 0) or isinstance(operation, Store) != (i == last):
            yield f"{name} as operation {i + 1} of {last + 1}"
        for form, operand in _operands(operation):
            if any(arrays[buffer][0] != operand or form not in written[buffer] for buffer in operand):
                yield f"{name} of {', '.join(operand)} where this is not one array in {form} form"
        for buffer in writes(operation):
            array = writes(operation), shapes[buffer]
            written[buffer] = forms(operation)
            if arrays.setdefault(buffer, array) != array:
                yield f"{name} that writes {buffer} to another array than before"


def _operands(operation: Operation) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the form and the buffers of each array that the kernel of an operation reads."""
    buffers = reads(operation)
    match operation:
        case Linear():
            return (OPERAND, buffers[:1]), (FLOAT32, buffers[1:])
        case Attend():
            return ((OPERAND, buffers),)
    return ((FLOAT32, buffers),)
