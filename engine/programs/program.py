"""A program: a checked list of operations, from which the shapes of its buffers and its parameters follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..base.lazy import lazy
from .operations import (
    KEYS,
    Attend,
    Buffer,
    Embed,
    Heads,
    Linear,
    Norm,
    Operation,
    Parameter,
    Pick,
    Relative,
    Store,
    reads,
    writes,
)


@dataclass(frozen=True)
class Program:
    """A checked list of operations. Raises `ValueError` if it cannot be run, which is an error in the engine."""

    operations: tuple[Operation, ...]
    inputs: tuple[tuple[str, Buffer], ...] = ()
    """The names and shapes of the buffers that the caller fills: input vectors, or keys and values of a source."""

    def __post_init__(self) -> None:
        list(self.steps())      # yielding a step checks it

    def steps(self) -> Iterator[tuple[Operation, dict[str, Buffer]]]:
        """Yield each operation with the shapes, by name, of all buffers after it.

        It is one dictionary, which later steps change and callers must not. Raises `ValueError` at a wrong operation.
        """
        shapes = dict(self.inputs)
        of_tokens: set[str] = set()     # buffers with rows of all tokens, which nothing may write after a Pick
        for operation in self.operations:
            if missing := [name for name in reads(operation) if name not in shapes]:
                raise ValueError(f"{operation} reads {missing[0]!r}, which nothing has written")
            results = _results(operation, shapes)
            if isinstance(operation, Pick):
                of_tokens, shapes = {*of_tokens, *shapes}, {}
            if wrong := of_tokens & set(results):
                raise ValueError(f"{operation} writes {min(wrong)!r}, a buffer of all tokens, for picked ones")
            if of_tokens and not isinstance(operation, Norm | Linear | Pick | Store):
                raise ValueError(f"{operation} needs all tokens, and comes after some were picked")
            shapes.update(results)
            yield operation, shapes

    @lazy
    def parameters(self) -> dict[str, Parameter]:
        """Return every parameter by its name, in the order of use. A word table that a Linear reads stays a "table"."""
        parameters: dict[str, Parameter] = {}
        for operation, shapes in self.steps():
            for name, parameter in parameters_read(operation, shapes):
                if parameters.setdefault(name, parameter) not in (parameter, replace(parameter, kind="table")):
                    raise ValueError(f"{name} is used as {parameters[name]} and as {parameter}")
        return parameters


def _results(operation: Operation, shapes: dict[str, Buffer]) -> dict[str, Buffer]:
    """Return the shapes of the buffers that an operation writes; raises `ValueError` if its operands do not fit.

    shapes: of all buffers that are written before it. Buffers that change in place, and keep their shape, are left out.
    """

    def require(fits: bool, what: str) -> None:
        if not fits:
            raise ValueError(f"{operation}: {what}")

    match operation:
        case Embed():
            return {operation.out: Buffer(operation.width)}
        case Norm():
            require(operation.kind in ("layer", "rms"), f"no norm is called {operation.kind!r}")
            require(operation.kind == "layer" or operation.bias is None, "RMSNorm has no bias")
            width = shapes[operation.x].width
            require(operation.residual is None
                    or (operation.residual != operation.out and shapes[operation.residual].width == width),
                    "the residual of a norm has its width and is not its result")
            return {operation.out: Buffer(width)}
        case Linear():
            parts, residual = operation.parts, operation.residual
            # The result holds partial sums until the last K block adds the residual.
            require(not {operation.x, residual} & set(writes(operation)), "a result is the input or the residual")
            require(residual is None or operation.activation is None, "activation and residual exclude each other")
            require(residual is None or (len(parts) == 1 and shapes[residual].width == parts[0].width),
                    "a residual needs one part of its own width")
            require(not operation.gate or (len(parts) == 2 and operation.activation is not None
                                           and (parts[0].out, parts[0].width) == (parts[1].out, parts[1].width)),
                    "a gate needs an activation and two parts that write one buffer")
            require(operation.gate or len(writes(operation)) == len(parts), "two parts write one buffer")
            require(all(part.width % (part.heads or 1) == 0 for part in parts), "a width is no multiple of its heads")
            return {part.out: Buffer(part.width, part.heads) for part in parts}
        case Heads():
            width = 0 if operation.rotary is None else operation.rotary.width
            for name in operation.buffers:
                heads = shapes[name].heads
                require(heads is not None and width % 2 == 0 and width <= shapes[name].width // heads,
                        f"a head of {name} cannot be rotated in {width} columns")
            require(len(operation.norms) == len(operation.buffers) or not (operation.norms or operation.joint),
                    "norms must be as many as buffers, or none unless they are joint")
            return {}
        case Attend():
            q, k, v = (shapes[name] for name in (operation.q, operation.k, operation.v))
            if q.heads is None or k.heads is None or v.heads is None:
                raise ValueError(f"{operation}: queries, keys and values must be heads")
            require(k.heads == v.heads and q.heads % k.heads == 0, "key heads must divide query heads")
            require(q.width // q.heads == k.width // k.heads, "queries and keys have heads of different widths")
            require(all(0 <= each.head < q.heads for each in operation.observed),
                    f"the number of an observed head is not below {q.heads}")
            _check_keys(operation, require)
            return {operation.out: Buffer(q.heads * (v.width // v.heads), q.heads)}
        case Pick():
            require(shapes[operation.x].heads is None, "heads cannot be picked")
            return {operation.out: shapes[operation.x]}
        case Store():
            require(operation.top or not operation.softcap, "only rows whose best numbers are stored can have a cap")
    return {}


def _check_keys(operation: Attend, require: Callable[[bool, str], None]) -> None:
    """Check the options of an Attend that depend on where its keys come from, and those of relative positions."""
    where, has_positions = operation.keys, operation.bias is not None or operation.window != (None, None)
    require(where in KEYS, f"no keys are called {where!r}")
    require(where == "pass" or (operation.layer is not None and operation.relative is None),
            "keys of a state need a layer, and no relative positions")
    require(where != "cross" or not has_positions, "keys of a source have no position")
    if (relative := operation.relative) is not None:
        require(relative.key is not None or relative.query is not None,
                "relative positions need a map of keys or of queries")
        require(not operation.softcap, "a cap of scores leaves out relative positions")


def parameters_read(operation: Operation, shapes: dict[str, Buffer]) -> Iterator[tuple[str, Parameter]]:
    """Yield (name, shape and kind) of each parameter that an operation reads. shapes: of its buffers, by name."""
    match operation:
        case Embed():
            tables = (operation.word, "table"), (operation.position, "table"), (operation.token_type, "small")
            for table, kind in tables:
                if table is not None:
                    yield table.name, Parameter((table.rows, operation.width), kind)
        case Norm():
            width = shapes[operation.x].width
            for name in (operation.weight, operation.bias):
                if name is not None:
                    yield name, Parameter((width,), "small")
        case Linear():
            x = shapes[operation.x]
            for part in operation.parts:
                yield part.weight, Parameter((part.width, x.width), "linear", heads=x.heads or 1)
                if part.bias is not None:
                    yield part.bias, Parameter((part.width,), "small")
        case Heads():
            for weight, name in zip(operation.norms, operation.buffers, strict=False):  # no norms, or one a buffer
                heads = 1 if operation.joint else shapes[name].heads or 1
                yield weight, Parameter((shapes[name].width // heads,), "small")
        case Attend():
            if operation.bias is not None and operation.bias.table is not None:
                table = operation.bias.table
                yield table.name, Parameter((table.rows, shapes[operation.q].heads or 1), "small")
            if operation.relative is not None:
                yield from _relative_parameters(operation.relative, shapes[operation.q], shapes[operation.k])


def _relative_parameters(relative: Relative, q: Buffer, k: Buffer) -> Iterator[tuple[str, Parameter]]:
    """Yield (name, parameter) of a table of relative positions, of its norm, and of its maps to keys and to queries.

    q, k: the shapes of the buffers of queries and keys.
    """
    yield relative.table.name, Parameter((relative.table.rows, relative.width), "small")
    for norm in (relative.norm.weight, relative.norm.bias) if relative.norm else ():
        if norm is not None:
            yield norm, Parameter((relative.width,), "small")
    for affine, heads in ((relative.key, k), (relative.query, q)):
        if affine is not None:
            yield affine.weight, Parameter((heads.width, relative.width), "linear")
            if affine.bias is not None:
                yield affine.bias, Parameter((heads.width,), "small")
