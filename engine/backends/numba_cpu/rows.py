"""Define the fields of the kernel table's rows, one row a product, that are no functions; see Product in table.pxd."""

from __future__ import annotations

from typing import Any

from .target import DOT, FUSED, INTEGERS, VL

_FLOATS = b"fused multiply-add" if FUSED else b"multiply and add"
SIZES = {"strip": 1, "block": 64, "shared": 64, "bundle": 192}
"""How many rows the kernels work on at a time: fields of Product in table.pxd."""
_FLOAT32 = {"name": b"float32", "instruction": _FLOATS, "depth_step": 1, "operand_bytes": 4, **SIZES}
_WIDENED = {**_FLOAT32, "name": b"bfloat16_weights", "instruction": _FLOATS + b" of widened weights", "depth_step": 2}

ROWS: dict[str, dict[str, Any]] = {
    "float32": _FLOAT32,
    "bfloat16": _WIDENED,
    "int8": {"name": b"int8", "instruction": INTEGERS.encode(), "depth_step": DOT, "operand_bytes": 1,
             "bounded": INTEGERS == "vpmaddubsw", **SIZES},
    "int16": {"name": b"int16", "instruction": b"vpmaddwd" if VL > 4 else b"lanes", "depth_step": 32,
              "operand_bytes": 2, **SIZES},
    "fma": _FLOAT32,
    "bfloat16_weights": _WIDENED,
}
"""The fields of each product of Numba's kernels, by its name in PRODUCT_PLACES. The table points to the texts, which
must not be released. Other products exist in compiled kernels alone."""

ABSENT: dict[str, Any] = {"name": b"", "instruction": b"", **SIZES}
"""The fields of a product that this process has no kernels for."""

OF_COMPILED: dict[str, Any] = {"attend_rows": None, "attend_rows_scratch": None, "operands_depth": 0,
                               "hidden_columns": 0, "approximates": 0}
"""The fields that replace those of a row of compiled kernels: attention is Numba's, and results between products are
exact floats, so that a model has the same bits on every table with these products."""

ON_TILES: dict[str, Any] = {**OF_COMPILED, "block": 128, "shared": 128, "bundle": 512}
"""The fields that replace those of a row whose compiled kernels use AMX's tiles. It has fewer rows at a time, because
results between products are floats here, which fill the L2 cache sooner than operands."""
