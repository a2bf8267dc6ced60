"""Describe the CPU that Numba compiles for, and choose the vector and tile sizes that simd.h gives to such a CPU."""

from __future__ import annotations

from numba.core.registry import cpu_target

TRIPLE, CPU, FEATURES = cpu_target.target_context.codegen().magic_tuple()


def _shape() -> tuple[int, int, int, int]:
    """Return (VL, NV, MR, KC) for the CPU that Numba compiles for, as in simd.h."""
    if all(f"+{name}" in FEATURES for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
        return 16, 4, 6, 1024
    if "+avx2" in FEATURES and "+fma" in FEATURES:
        return 8, 2, 6, 768
    return 4, 2, 6, 1024


def _integers() -> str:
    """Return the instruction for products of 8-bit integers that dot.h chooses, or "lanes" if the CPU has none."""
    if "+avx512vnni" in FEATURES if VL == 16 else "+avxvnni" in FEATURES:
        return "vpdpbusd"
    return "vpmaddubsw" if VL > 4 else "lanes"


VL, NV, MR, KC = _shape()
INTEGERS = _integers()
DOT, DOT_MR = (8, MR if VL == 16 else 5) if INTEGERS == "vpmaddubsw" else (4, MR)
HALVES = 1 if VL == 16 and "+avx512bf16" in FEATURES and CPU.startswith("znver") else 2
"""1 if one instruction multiplies pairs of bfloat16 numbers; 2 if their halves are converted and multiplied in turn.

LLVM calls AMD's CPUs znver. On others the instruction is slower: `isa.fastest_first` explains."""

OPERAND_BYTES = 2 * HALVES
NR = NV * VL
STEPS = 4
"""Number of steps of depth that a tile's loop is unrolled by."""

LINE, AHEAD = 16, 512
"""LINE: floats in a cache line. AHEAD: prefetch distance in floats."""

FUSED = "+fma" in FEATURES or TRIPLE.startswith(("aarch64", "arm64"))
"""Whether the CPU has fused multiply-adds. If not, v_fma rounds twice, because LLVM would call a slow function."""
