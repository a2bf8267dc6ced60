"""A model's computation as data: a straight list of operations over named buffers.

A buffer is a matrix with one row for each token. There are seven kinds of operations, and no control flow:

    Embed    out = word rows + position rows + token type rows, or the caller's embeddings in place of word rows
    Norm     out = layer_norm(x) or rms_norm(x); then a residual
    Linear   several linear maps of one input, which may be scaled; then an activation, a gate, or a residual
    Heads    norms the heads of queries and keys, each or together, and rotates each by its position
    Attend   out = softmax(q k^T * scale + bias) v, for each head of each sequence, inside a band of keys
    Pick     out = the rows of x that the caller picks; all later operations work on these rows alone
    Store    writes x to an array of the caller, or what each row wants of logits

Every backend runs the same list, and the rest of the engine derives names, shapes, FLOPs and memory from it. `layer`
is the number of an operation's layer, None outside of layers; it finds the layer's part of a cache and what callers
observe, while names of parameters hold it already. `engine.programs` turns a `ModelConfig` into a program.
"""

from __future__ import annotations

from dataclasses import dataclass


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
class LinearPart:
    """One linear map of a `Linear`: its parameters, the buffer that it writes, and that buffer's shape."""

    weight: str
    bias: str | None
    out: str
    width: int
    heads: int | None = None
    """Number of heads that the columns of the result form; None if the result has no heads."""


@dataclass(frozen=True)
class Linear:
    """out = x W^T + b for each part, followed by an activation, a gate with an activation, a residual, or by nothing.

    activation   applied to the result, or with `gate` to the gate
    gate         two parts that write one buffer: out = activation(x Wg^T + bg) * (x Wu^T + bu), the gate first
    residual     a buffer that is added to the result of the only part
    scale        a number by which x is multiplied first
    """

    x: str
    parts: tuple[LinearPart, ...]
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
    """Norms the heads of each buffer by RMSNorm, then rotates them by position, in place; either step may be absent."""

    buffers: tuple[str, ...]
    rotary: Rotary | None = None
    layer: int | None = None
    norms: tuple[str, ...] = ()
    """The weight of the norm of each buffer; empty for no norm."""
    eps: float = 0.0
    joint: bool = False
    """Whether one norm is over all heads of a row together; otherwise each head is normed, all by the same weight."""


@dataclass(frozen=True)
class DistanceBias:
    """A number that each head adds to a score, by the distance from query to key; see `engine.model.positions`.

    table: the table [buckets, H] of T5's buckets; None for ALiBi, which has no parameters.
    """

    table: Table | None = None
    max_distance: int = 0
    """The last bucket holds all distances from this one on."""
    one_sided: bool = False
    """Whether all buckets are for keys at or before the query."""


@dataclass(frozen=True)
class ObservedHead:
    """A head whose attention an `Attend` also writes to the caller's arrays; None for an array that is not wanted."""

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


KEYS = ("pass", "cache", "cross")
"""Where the keys and values of an Attend come from."""


@dataclass(frozen=True)
class Attend:
    """out = softmax(q k^T * scale + bias) v for each head of each sequence; query head h reads key head h // (H/G).

    window: how many keys a query sees to its left and to its right, beside its own; None for all of them.
    bias: by distance; None for no bias.
    softcap: c > 0 maps each score s, before the bias, to c tanh(s/c); 0 for no cap.
    observed: the heads whose attention weights, or the entropy of the weights, go to the caller.
    relative: a table of relative positions that adds to the scores.
    keys: "pass" for the rows of k and v that the pass computes; "cache" for these rows after those of earlier passes,
        which the backend keeps by layer; "cross" for inputs of the program with a row for each token of the source.
    """

    q: str
    k: str
    v: str
    out: str
    scale: float
    window: tuple[int | None, int | None] = (None, None)
    layer: int | None = None
    bias: DistanceBias | None = None
    observed: tuple[ObservedHead, ...] = ()
    relative: Relative | None = None
    keys: str = "pass"
    softcap: float = 0.0


@dataclass(frozen=True)
class Pick:
    """out = the rows of x that the caller picks, in an order that the caller gives.

    Later operations read and write buffers of picked rows alone, and no row of theirs depends on another one.
    """

    x: str
    out: str
    layer: int | None = None


@dataclass(frozen=True)
class Store:
    """Writes the rows of x to one of the caller's arrays; array 0 is the result of the program.

    softcap: c > 0 maps each number x that is written to c tanh(x/c), with `top` alone; 0 for no cap.
    top: whether the caller may ask for words that are chosen by the numbers of each row, and ln(sum of e^x) of the row,
        in place of the row.
    """

    x: str
    layer: int | None = None
    array: int = 0
    top: bool = False
    softcap: float = 0.0


Operation = Embed | Norm | Linear | Heads | Attend | Pick | Store


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
    return (operation.x,)       # of Pick and Store


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
