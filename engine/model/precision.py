"""`FORMATS`: the table of precisions: their names, how weights are stored in them, and whether linear maps compute in
them; loading, files and backends read it.

NumPy has no bfloat16, so uint16 holds the upper 16 bits of a float32 (`engine.weights.bfloat16`). int8 has a scale for
each row beside it (`engine.weights.quantize`). int4 has blocks of bytes, and two scales for each row
(`engine.weights.int4`); only the weights of linear maps can be stored in it. q8_0, q4_0 and q4_1 are blocks of 32
numbers with a scale in each, as in GGUF files of llama.cpp (`engine.weights.blocks`).

bfloat16x3 is a way to multiply float32 weights: as three products of two bfloat16 numbers each, which is faster than
float32 where a CPU has tiles (`kernels/parts.pxi`). No weight is stored in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..base.errors import InputError, shown


@dataclass(frozen=True)
class WeightFormat:
    """One row of the table: a precision, and the format of weights that are stored in it."""

    name: str
    dtype: np.dtype
    """The type of an entry of the array that stores weights. `STORED` finds the format by it, so each has its own."""
    computed: bool
    """Whether a plan can compute in it; a precision that is only stored is widened when a plan packs the weights."""
    aliases: tuple[str, ...] = ()
    """Other names that callers may use, in lower case."""
    cache: str = "float32"
    """The precision in which a decoder keeps its keys and values by default."""
    scales: int = 0
    """The number of float32 scales beside each row."""
    block: int = 1
    """How many weights of a row are stored together. A row, and each head of its inputs, ends with a whole block."""
    entries: int = 1
    """How many array entries store a block, such as 19 bytes for 32 weights in int4."""
    only_linear: bool = False
    """Whether only linear maps are stored in it, and not the tables of the embeddings."""
    rounds_blocks: bool = False
    """Whether the inputs of its linear maps are rounded in blocks, too: 32 numbers have a scale of their own."""
    rounded: bool = True
    """Whether weights can be converted to it; otherwise only the file of a model can have it."""
    beside: tuple[str, ...] = ()
    """The other formats of linear maps in a model of this precision, the finest first.

    A packed file tells them apart by their sizes, so no two of them have the same bytes of a row.
    """
    multiplies: str = ""
    """If it is only a way to multiply, the format of the weights that it multiplies; some kernels lack it."""

    @property
    def stored(self) -> str:
        """Return the format of the weights of linear maps in a model of this precision."""
        return self.multiplies or self.name

    @property
    def finer(self) -> str:
        """Return the format of tables, and of the weight of the logits, in a model of this precision."""
        return self.beside[0] if self.beside else self.stored

    def row_entries(self, K: int, heads: int = 1) -> int:
        """Return the number of entries of a stored row of K weights, whose inputs come from this number of heads."""
        return heads * -(-(K // heads) // self.block) * self.entries

    def row_bytes(self, K: int) -> int:
        """Return the number of bytes of a stored row of K weights."""
        return self.row_entries(K) * self.dtype.itemsize

    def shape(self, shape: tuple[int, ...], heads: int = 1) -> tuple[int, ...]:
        """Return the shape of the array that stores a matrix [N, K]. heads: as for `row_entries`."""
        return (shape[0], self.row_entries(shape[1], heads))

    def scale_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the scales of a matrix [N, K]: [N], or [N, scales] if a row has several."""
        return shape[:1] if self.scales == 1 else (shape[0], self.scales)


# Fields of the blocks of GGUF: a float16 scale, and 32 codes of 4 bits in 16 bytes.
_SCALED = ("scale", "<f2")
_NIBBLES = ("codes", "u1", 16)

# The order counts: a model whose linear maps have several formats of integers has the precision of the last row.
FORMATS = {
    row.name: row
    for row in (
        WeightFormat("float32", np.dtype(np.float32), computed=True, aliases=("fp32", "f32")),
        WeightFormat("bfloat16", np.dtype(np.uint16), computed=True, aliases=("bf16",), cache="bfloat16"),
        WeightFormat("int8", np.dtype(np.int8), computed=True, aliases=("i8",), scales=1, cache="bfloat16"),
        WeightFormat("q8_0", np.dtype([_SCALED, ("codes", "i1", 32)]), computed=True, block=32, cache="bfloat16"),
        WeightFormat("int4", np.dtype(np.uint8), computed=True, aliases=("i4",), scales=2, block=32, entries=19,
                     only_linear=True, rounds_blocks=True, cache="bfloat16", beside=("int8",)),
        WeightFormat("q4_0", np.dtype([_SCALED, _NIBBLES]), computed=True, block=32, only_linear=True,
                     rounds_blocks=True, cache="bfloat16", rounded=False, beside=("q8_0", "q4_1")),
        WeightFormat("q4_1", np.dtype([_SCALED, ("minimum", "<f2"), _NIBBLES]), computed=True, block=32,
                     only_linear=True, rounds_blocks=True, cache="bfloat16", rounded=False, beside=("q8_0", "q4_0")),
        WeightFormat("bfloat16x3", np.dtype(np.float32), computed=True, aliases=("bf16x3",), multiplies="float32"),
        WeightFormat("float16", np.dtype(np.float16), computed=False, aliases=("fp16", "f16", "half")),
    )
}

COMPUTED = tuple(row.name for row in FORMATS.values() if row.computed and not row.multiplies)
"""The formats of weights that plans compute in; a backend may refuse some."""

WAYS = tuple(row.name for row in FORMATS.values() if row.multiplies)
"""The precisions that are a way to multiply weights of a format; some kernels lack them."""

INTEGERS = tuple(name for name in reversed(COMPUTED) if name not in ("float32", "bfloat16"))
"""The precisions whose linear maps are integers and scales, the coarsest first."""

BLOCKS = tuple(name for name in INTEGERS if not FORMATS[name].scales)
"""The precisions of `INTEGERS` whose scales lie inside the rows."""

ROUNDED = tuple(name for name in COMPUTED if FORMATS[name].rounded)
"""The formats that any weights can be rounded to at load."""

LOADABLE = (*ROUNDED, *WAYS)
"""The precisions that any model can be asked to compute in."""

STORABLE = tuple(name for name, row in FORMATS.items() if row.rounded and not row.multiplies)
"""The precisions that any weights can be converted to, for a file."""

STORED = {row.dtype: row.name for row in FORMATS.values() if not row.multiplies}
"""The name of the precision that each dtype stores."""

_NAMES = {name: row.name for row in FORMATS.values() for name in (row.name, *row.aliases)}

CACHED = ("float32", "bfloat16", "int8")
"""The precisions in which a decoder can keep keys and values; int8 has a scale for each token and head."""


def cached_bytes(vectors: int, width: int, cache: str) -> int:
    """Return the bytes of this many keys or values of `width` numbers in a cache; int8 has a float32 scale for each."""
    return vectors * (width * FORMATS[cache].dtype.itemsize + (4 if cache == "int8" else 0))


def cache_name(asked: str | None) -> str | None:
    """Return the table's name of the precision of a cache, or None for None; raises `InputError` for any other name."""
    name = canonical_name(asked) if isinstance(asked, str) else asked
    if name is not None and name not in CACHED:
        raise InputError(f"cache must be None or one of {', '.join(CACHED)}, not {shown(asked)}")
    return name


def stored_format(precision: str) -> str:
    """Return the format of the weights of linear maps in a precision; a name that is not in the table is returned."""
    return FORMATS[precision].stored if precision in FORMATS else precision


def canonical_name(name: str) -> str:
    """Return the table's name of a precision by its name or alias, in any case; any other name is returned as it is."""
    return _NAMES.get(name.lower(), name)


def not_there(backend: str, names: Iterable[str], precision: str) -> str:
    """Return the message of a backend that lacks a precision. names: the precisions in which it computes."""
    why = {"auto": "; auto compares the vectors of an encoder of text, so leave it out here",
           "float16": "; bfloat16 has as many bits, and int8 fewer"}.get(precision, "")
    return f"the {backend} backend computes in {', '.join(names)} here; precision {precision!r} is not there{why}"
