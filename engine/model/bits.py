"""The option `bits`: whether results have the bits of the fastest arithmetic of a CPU, or the same ones on all CPUs."""

from __future__ import annotations

from typing import Any

from ..base.errors import InputError, shown

FASTEST = "fastest"
"""The fastest arithmetic of the CPU; docs/precision.md says which instruction sets have the same bits then."""
PORTABLE = "portable"
"""Arithmetic that gives the same bits on every CPU with fused multiply-adds, at the speed that it has there.

float32 is multiplied by fused multiply-adds alone. Weights in bfloat16 are widened, and their inputs stay float32.
Encoders in int8 have weights that every CPU can multiply, and heads that are padded to 16 numbers. Attention is in
float32, and no function is approximated. Integers of decoders are exact on every CPU. Powers of logits, and the
Fourier transforms of speech, are those of `engine.base.functions`, and not NumPy's.
"""
BITS = (FASTEST, PORTABLE)

DEFINITION = 1
"""The version of portable arithmetic; it grows when its bits change, so that records say which one they have."""


def check_bits(bits: Any) -> str:
    """Return `bits` after checking that it is one of `BITS`; raises `InputError`."""
    if not isinstance(bits, str) or bits not in BITS:
        raise InputError(f"bits must be {' or '.join(map(repr, BITS))}, not {shown(bits)}")
    return bits
