"""The names and sizes of each row of the kernel table; see Product in table.pxd."""

from __future__ import annotations

from typing import Any

from .target import DOT, FUSED, INTEGERS, LINE_BYTES, OPERAND_BYTES, PAIR_STEPS, TILE_ROWS, TILES, VL

_FLOATS = b"fused multiply-add" if FUSED else b"multiply and add"
_VECTORS = {"strip": 1, "block": 64, "shared": 64, "bundle": 192}      # rows
_PAIRS = {"name": b"bfloat16", "instruction": b"vdpbf16ps"}
_WIDENED = {"name": b"bfloat16_weights", "instruction": _FLOATS + b" of widened weights"}

_FLOAT32 = {"name": b"float32", "instruction": _FLOATS, "depth_step": 1, "operand_bytes": 4, **_VECTORS}
_INT16 = {"name": b"int16", "instruction": b"vpmaddwd" if VL > 4 else b"lanes", "depth_step": 32, "operand_bytes": 2,
          **_VECTORS}

ROWS: dict[str, dict[str, Any]] = {
    "float32": _FLOAT32,
    "bfloat16": {**(_PAIRS if PAIR_STEPS == 1 else _WIDENED), "depth_step": 2, "operand_bytes": OPERAND_BYTES,
                 **_VECTORS},
    "int8": {"name": b"int8", "instruction": INTEGERS.encode(), "depth_step": DOT, "operand_bytes": 1,
             "bounded": INTEGERS == "vpmaddubsw", **_VECTORS},
    "int16": _INT16,
    "codes": {"name": b"codes", "instruction": INTEGERS.encode(), "depth_step": 32, "operand_bytes": 2, "beside": 44,
              **_VECTORS},      # beside: 32 codes, a float step, an int32 sum, two int16 sums
    "fma": _FLOAT32,
    "int16_vectors": _INT16,
    "bfloat16x3": {**_FLOAT32, "name": b"bfloat16x3", "instruction": b""},
    "bfloat16_weights": {**_FLOAT32, **_WIDENED, "depth_step": 2},
}
"""The fields of each product's row that are no functions, for each name in PRODUCT_PLACES. The table points to the
texts, which must not be released. A product without an instruction is not there."""

if TILES:
    # Fewer rows than those of the compiled kernels: results between products are float32 here.
    _STRIPS = {"strip": TILE_ROWS, "block": 128, "shared": 128, "bundle": 512}
    ROWS["float32"] = {"name": b"float32", "instruction": b"six tdpbf16ps", "depth_step": 32,
                       "operand_bytes": 6, "fresh_depth": 768, **_STRIPS}
    ROWS["bfloat16x3"] = {**ROWS["float32"], "name": b"bfloat16x3", "instruction": b"three tdpbf16ps",
                          "operand_bytes": 4}
    ROWS["bfloat16"] |= {"instruction": b"tdpbf16ps", "depth_step": LINE_BYTES // OPERAND_BYTES, **_STRIPS}
    ROWS["int8"] |= {"instruction": b"tdpbusd", "depth_step": LINE_BYTES, **_STRIPS}
    ROWS["int16"] = {**_INT16, "instruction": b"tdpbssd and tdpbusd", "depth_step": LINE_BYTES, **_STRIPS}
