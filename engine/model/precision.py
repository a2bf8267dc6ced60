"""The table of precisions: the name of each, the dtype that stores its numbers, and whether linear maps compute in it.

NumPy has no bfloat16, so uint16 holds the upper 16 bits of a float32 (`engine.weights.bfloat16`). int8 has a scale for
each row beside it (`engine.weights.quantize`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Precision:
    """One row of the table."""

    name: str
    dtype: np.dtype
    computed: bool
    """Whether a plan can compute in it; a precision that is only stored is widened when a plan packs the weights."""
    aliases: tuple[str, ...] = ()
    """Other names that callers may use, in lower case."""


PRECISIONS = {
    row.name: row
    for row in (
        Precision("float32", np.dtype(np.float32), computed=True, aliases=("fp32", "f32")),
        Precision("bfloat16", np.dtype(np.uint16), computed=True, aliases=("bf16",)),
        Precision("int8", np.dtype(np.int8), computed=True, aliases=("i8",)),
        Precision("float16", np.dtype(np.float16), computed=False, aliases=("fp16", "f16", "half")),
    )
}

COMPUTED = tuple(row.name for row in PRECISIONS.values() if row.computed)
"""The precisions that `Engine.load(precision=...)` takes; a backend may refuse some."""

STORED = {row.dtype: row.name for row in PRECISIONS.values()}
"""The name of the precision that each dtype stores."""

_NAMES = {name: row.name for row in PRECISIONS.values() for name in (row.name, *row.aliases)}


def canonical_name(name: str) -> str:
    """Return the table's name of a precision, given in upper or lower case or by an alias; any other name unchanged."""
    return _NAMES.get(name.lower(), name)
