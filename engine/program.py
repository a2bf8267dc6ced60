"""A model's computation as data: a straight list of operations over named buffers.

A buffer is a matrix with one row for each token. There are six kinds of operations, and no control flow:

    Embed    out = word rows + position rows + token type rows, or the caller's embeddings in place of word rows
    Norm     out = layer_norm(x) or rms_norm(x); then a residual
    Linear   several linear maps of one input, which may be scaled; then an activation, a gate, or a residual
    Heads    norms each head of queries and keys, and rotates it by its position
    Attend   out = softmax(q k^T * scale + bias) v, for each head of each sequence, inside a band of keys
    Store    writes x to an array of the caller

Every backend runs the same list, and the rest of the engine derives names, shapes, FLOPs and memory from it.
`engine.architectures` turns a `ModelConfig` into a program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .lazy import lazy


@dataclass(frozen=True)
class Buffer:
    """The shape of a buffer at some point of a program."""

    width: int
    """Columns of a row."""
    heads: int | None = None
    """Number of heads that lie side by side in a row; None for a row without heads."""


@dataclass(frozen=True)
class Parameter:
    """The shape of a parameter, and its use, which decides how it may be stored."""

    shape: tuple[int, ...]
    kind: str
    """"linear" for the weight of a linear map, "table" for a large table of the embeddings, "small" for all else."""
    heads: int = 1
    """Number of heads that the inputs of a linear map come from."""


@dataclass(frozen=True)
class Table:
    """A table whose rows are picked by number: the name of the parameter, and its number of rows."""

    name: str
    rows: int


@dataclass(frozen=True)
class Embed:
    """out = scale * word rows + position rows + token type rows; an absent table adds nothing.

    The caller may give embeddings in place of the scaled word rows, and must where there is no word table.
    """

    out: str
    width: int
    word: Table | None = None
    position: Table | None = None
    token_type: Table | None = None
    layer: int | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Norm:
    """out = the norm of each row of x, times the weight, plus the bias, plus the residual; out may be x."""

    x: str
    out: str
    weight: str
    bias: str | None
    eps: float
    kind: str = "layer"
    """"layer" for LayerNorm, "rms" for RMSNorm."""
    layer: int | None = None
    residual: str | None = None
    """A buffer that is added to the result; not out."""


@dataclass(frozen=True)
class Part:
    """One linear map of a `Linear`: its parameters, the buffer that it writes, and that buffer's shape."""

    weight: str
    bias: str | None
    out: str
    width: int
    heads: int | None = None
    """Number of heads that the columns of the result form; None if the result has no heads."""


@dataclass(frozen=True)
class Linear:
    """out = x W^T + b for each part, followed by at most one of activation, gate and residual.

    activation   applied to the result
    gate         two parts that write one buffer: out = activation(x Wg^T + bg) * (x Wu^T + bu), the gate first
    residual     a buffer that is added to the result of the only part
    scale        a number by which x is multiplied first
    """

    x: str
    parts: tuple[Part, ...]
    activation: str | None = None
    gate: bool = False
    residual: str | None = None
    layer: int | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding: pair i of a head's first `width` columns turns by position / scale * theta^(-2i/width).

    Su et al., "RoFormer" (arXiv 2104.09864), equation 34.
    """

    theta: float
    width: int
    positions: int
    """Positions are below this number."""
    interleaved: bool = False
    """Whether a pair is columns 2i and 2i+1; else it is columns i and i + width/2."""
    scale: float = 1.0
    frequencies: tuple[float, ...] = ()
    """The angle of each pair at position 1, in place of theta^(-2i/width) / scale."""
    factor: float = 1.0
    """The result is multiplied by this number."""


@dataclass(frozen=True)
class Heads:
    """Computes the RMSNorm of each head of each of these buffers, then rotates it, in place; either may be absent."""

    buffers: tuple[str, ...]
    rotary: Rotary | None = None
    layer: int | None = None
    norms: tuple[str, ...] = ()
    """The weight of the norm of each buffer; empty for no norm."""
    eps: float = 0.0


@dataclass(frozen=True)
class DistanceBias:
    """What each head adds to a score, by the distance from the query to the key; see `engine.positions`.

    table: the table [buckets, H] of T5's buckets; None for ALiBi, which has no parameters.
    """

    table: Table | None = None
    max_distance: int = 0
    """The last bucket holds all distances from this one on."""
    one_sided: bool = False
    """Whether all buckets are for keys at or before the query."""


@dataclass(frozen=True)
class Tap:
    """What an `Attend` also writes to the caller's arrays of one head; None for an array that nobody asked for."""

    head: int
    weights: int | None = None
    """Number of the array of attention weights: [T,T] of each sequence, one sequence after the other."""
    entropy: int | None = None
    """Number of the array of the entropies -sum w ln w of each token's weights, one number for each token."""


@dataclass(frozen=True)
class Affine:
    """The names of a weight and of the bias that belongs to it; the bias may be absent."""

    weight: str
    bias: str | None


@dataclass(frozen=True)
class Relative:
    """A table of relative positions: key vectors K and query vectors Q of the distance t - s of a query and a key.

    A score becomes (q_t . k_s + q_t . K[b] + k_s . Q[b]) * scale, where b is the row of the distance
    (`positions.relative_rows`). The rows of K are the map `key` of the normed rows of the table, cut into heads as k
    is, and those of Q the map `query`, cut into heads as q is. He et al., "DeBERTa" (arXiv 2006.03654), section 3.1.
    They do not depend on the text, so backends compute them once.
    """

    table: Table
    width: int
    """Columns of the table."""
    key: Affine | None
    """The map that makes K; None for a score without that term."""
    query: Affine | None
    norm: Affine | None
    """The LayerNorm of the table; None for no norm."""
    eps: float
    limit: int
    """Distances of this size and larger ones share a row."""
    buckets: int = 0
    """Half of the rows, where far distances share rows; 0 for a row for each distance."""


KEYS = ("pass", "cache", "memory")
"""Where the keys and values of an Attend come from."""


@dataclass(frozen=True)
class Attend:
    """out = softmax(q k^T * scale + bias) v for each head of each sequence; query head h reads key head h // (H/G).

    window: how many keys a query sees to its left and to its right, beside its own; None for all of them.
    bias: by distance; None for no bias.
    taps: the heads whose attention weights, or the entropy of them, go to the caller.
    relative: a table of relative positions that adds to the scores.
    keys: "pass" for the rows of k and v that the pass computes; "cache" for these rows after those of earlier passes,
        which the backend keeps by layer; "memory" for inputs of the program with a row for each token of the source.
    """

    q: str
    k: str
    v: str
    out: str
    scale: float
    window: tuple[int | None, int | None] = (None, None)
    layer: int | None = None
    bias: DistanceBias | None = None
    taps: tuple[Tap, ...] = ()
    relative: Relative | None = None
    keys: str = "pass"


@dataclass(frozen=True)
class Store:
    """Writes the rows of x to one of the caller's arrays; array 0 is the result of the program."""

    x: str
    layer: int | None = None
    array: int = 0


Operation = Embed | Norm | Linear | Heads | Attend | Store


def reads(operation: Operation) -> tuple[str, ...]:
    """Return the names of the buffers that an operation reads."""
    match operation:
        case Embed():
            return ()
        case Linear() | Norm():
            return (operation.x,) if operation.residual is None else (operation.x, operation.residual)
        case Heads():
            return operation.buffers
        case Attend():
            return (operation.q, operation.k, operation.v)
    return (operation.x,)


def writes(operation: Operation) -> tuple[str, ...]:
    """Return the names of the buffers that an operation writes, each once."""
    match operation:
        case Linear():
            return tuple(dict.fromkeys(part.out for part in operation.parts))
        case Heads():
            return operation.buffers
        case Store():
            return ()
    return (operation.out,)


@dataclass(frozen=True)
class Program:
    """A checked list of operations. Raises `ValueError` if it cannot be run, which is a mistake of its author."""

    operations: tuple[Operation, ...]
    inputs: tuple[tuple[str, Buffer], ...] = ()
    """The names and shapes of the buffers that the caller fills: vectors to start from, or a memory."""

    def __post_init__(self) -> None:
        list(self.steps())

    def steps(self) -> Iterator[tuple[Operation, dict[str, Buffer]]]:
        """Yield each operation, with the shapes of the buffers after it; do not change the dictionary."""
        shapes = dict(self.inputs)
        for operation in self.operations:
            if missing := [name for name in reads(operation) if name not in shapes]:
                raise ValueError(f"{operation} reads {missing[0]!r}, which nothing has written")
            shapes.update(_results(operation, shapes))
            yield operation, shapes

    @lazy
    def parameters(self) -> dict[str, Parameter]:
        """Return every parameter by its name, in the order of use."""
        found: dict[str, Parameter] = {}
        for operation, shapes in self.steps():
            for name, parameter in _parameters(operation, shapes):
                if found.setdefault(name, parameter) != parameter:
                    raise ValueError(f"{name} is used as {found[name]} and as {parameter}")
        return found


def _results(operation: Operation, shapes: dict[str, Buffer]) -> dict[str, Buffer]:
    """Return the shapes of the buffers that an operation writes; raises `ValueError` if its operands do not fit."""

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
            require(len(operation.norms) in (0, len(operation.buffers)), "norms must be as many as buffers, or none")
            return {}
        case Attend():
            q, k, v = (shapes[name] for name in (operation.q, operation.k, operation.v))
            if q.heads is None or k.heads is None or v.heads is None:
                raise ValueError(f"{operation}: queries, keys and values must be heads")
            require(k.heads == v.heads and q.heads % k.heads == 0, "key heads must divide query heads")
            require(q.width // q.heads == k.width // k.heads, "queries and keys have heads of different widths")
            require(all(0 <= tap.head < q.heads for tap in operation.taps), f"a tap's head is not below {q.heads}")
            where = operation.keys
            require(where in KEYS, f"no keys are called {where!r}")
            require(where == "pass" or (operation.layer is not None and operation.relative is None),
                    "keys of a state need a layer, and no relative positions")
            require(where != "memory" or (operation.bias, *operation.window) == (None,) * 3, "a memory has no position")
            require(operation.relative is None or operation.relative.key is not None
                    or operation.relative.query is not None, "relative positions need a map of keys or of queries")
            return {operation.out: Buffer(q.heads * (v.width // v.heads), q.heads)}
    return {}


def _parameters(operation: Operation, shapes: dict[str, Buffer]) -> Iterator[tuple[str, Parameter]]:
    """Yield the name of each parameter that an operation reads, and the parameter."""
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
                yield part.weight, Parameter((part.width, x.width), "linear", x.heads or 1)
                if part.bias is not None:
                    yield part.bias, Parameter((part.width,), "small")
        case Heads():
            for weight, name in zip(operation.norms, operation.buffers, strict=bool(operation.norms)):
                yield weight, Parameter((shapes[name].width // (shapes[name].heads or 1),), "small")
        case Attend():
            if operation.bias is not None and operation.bias.table is not None:
                table = operation.bias.table
                yield table.name, Parameter((table.rows, shapes[operation.q].heads or 1), "small")
            if operation.relative is not None:
                yield from _relative_parameters(operation.relative, shapes[operation.q], shapes[operation.k])


def _relative_parameters(relative: Relative, q: Buffer, k: Buffer) -> Iterator[tuple[str, Parameter]]:
    yield relative.table.name, Parameter((relative.table.rows, relative.width), "small")
    for norm in (relative.norm.weight, relative.norm.bias) if relative.norm else ():
        if norm is not None:
            yield norm, Parameter((relative.width,), "small")
    for affine, heads in ((relative.key, k), (relative.query, q)):
        if affine is not None:
            yield affine.weight, Parameter((heads.width, relative.width), "linear")
            if affine.bias is not None:
                yield affine.bias, Parameter((heads.width,), "small")
