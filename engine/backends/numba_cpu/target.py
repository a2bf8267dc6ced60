"""Describe the CPU that Numba compiles for, and choose the vector and tile sizes that simd.h gives to such a CPU."""

from __future__ import annotations

from numba.core.registry import cpu_target

TRIPLE, CPU, FEATURES = cpu_target.target_context.codegen().magic_tuple()
ARM = TRIPLE.startswith(("aarch64", "arm64"))


def _shape() -> tuple[int, int, int]:
    """Return (VL, NV, MR) for the CPU that Numba compiles for, as in simd.h."""
    if all(f"+{name}" in FEATURES for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl")):
        return 16, 4, 6
    if "+avx2" in FEATURES and "+fma" in FEATURES:
        return 8, 2, 6
    return (4, 4, 6) if ARM else (4, 2, 6)


def _integers() -> str:
    """Return the instruction for products of 8-bit integers that simd/ chooses, or "lanes" if the CPU has none."""
    if ("+avx512vnni" if VL == 16 else "+avxvnni") in FEATURES:
        return "vpdpbusd"
    return "vpmaddubsw" if VL > 4 else "lanes"


VL, NV, MR = _shape()
KC = 1024
"""The largest K block of a product, as in simd/common.h."""
INTEGERS = _integers()
DOT, DOT_MR = (8, MR if VL == 16 else 5) if INTEGERS == "vpmaddubsw" else (4, MR)     # why 5: simd/x86.h

PAIRS = VL == 16 and "+avx512bf16" in FEATURES and CPU.startswith("znver")
"""Whether an instruction multiplies pairs of bfloat16 numbers, which compiled kernels use.

LLVM calls AMD's CPUs znver. On others the instruction for vectors is slower: `isa.fastest_first` explains."""

NR = NV * VL
STEPS = 4
"""Number of steps of depth that a tile's loop is unrolled by."""

LINE = 16
"""Floats in a cache line."""

FUSED = "+fma" in FEATURES or ARM
"""Whether the CPU has fused multiply-adds. If not, v_fma rounds twice, because LLVM would call a slow function."""
