"""The CPU that Numba compiles for, and the shapes that simd.h gives to one like it."""

from __future__ import annotations

from numba.core.registry import cpu_target

TRIPLE, CPU, FEATURES = cpu_target.target_context.codegen().magic_tuple()


def _shape() -> tuple[int, int, int, int]:
    """(VL, NV, MR, KC) of the CPU that Numba compiles for, as in simd.h."""
    if all(f"+{name}" in FEATURES for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
        return 16, 4, 6, 1024
    if "+avx2" in FEATURES and "+fma" in FEATURES:
        return 8, 2, 6, 768
    return 4, 2, 6, 1024


def _integers() -> str:
    """The instruction for products of 8-bit integers, as dot.h chooses it; "lanes" where there is none."""
    if "+avx512vnni" in FEATURES if VL == 16 else "+avxvnni" in FEATURES:
        return "vpdpbusd"
    return "vpmaddubsw" if VL > 4 else "lanes"


VL, NV, MR, KC = _shape()
INTEGERS = _integers()
DOT, DOT_MR = (8, MR if VL == 16 else 5) if INTEGERS == "vpmaddubsw" else (4, MR)
HALVES = 1 if VL == 16 and "+avx512bf16" in FEATURES else 2
"""1 where one instruction multiplies pairs of bfloat16; 2 where their halves are widened one after the other."""

OPERAND_BYTES = 2 * HALVES
NR = NV * VL
STEPS = 4
"""Of depth, written out in a tile's loop."""

LINE, AHEAD = 16, 512
"""Floats in a cache line; floats that reading runs ahead of itself."""

FUSED = "+fma" in FEATURES or TRIPLE.startswith(("aarch64", "arm64"))
"""Without fused multiply-adds in hardware, two roundings: LLVM would call a slow function."""
