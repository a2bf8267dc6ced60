"""The compiled kernels that Numba's kernels must equal to the last bit on this CPU."""

import pytest

from engine.backends.cpu.native.layout import capsule_of, table_in
from engine.backends.cpu.native.native import Kernels
from engine.backends.cython_cpu import isa

WITHOUT = "needs numba: pip install '.[numba]'"
target = pytest.importorskip("engine.backends.numba_cpu.target", reason=WITHOUT)

COPIES = []

PEERS = {
    (16, "vpdpbusd"): "avx512vnni", (16, "vpmaddubsw"): "avx512", (8, "vpdpbusd"): "avxvnni", (8, "vpmaddubsw"): "avx2",
    (4, "lanes"): "neon" if target.ARM else "baseline"}  # fmt: skip
PEER = PEERS[target.VL, target.INTEGERS]
"""The compiled kernels that have the same vector length, tile shapes and integer instructions as Numba's."""

BFLOAT16_PEER = "avx512bf16" if target.PAIRS else PEER
"""The compiled kernels that have the same instructions for bfloat16."""


def attending_in_float32(name):
    """Return a copy of the compiled kernels of this name, with the attention of float32 in every precision.

    It also lacks what Numba's kernels do not have: results that are written as operands, and approximate activations.
    """
    copy = type(table := table_in(isa.load(name).capsule)).from_buffer_copy(table)
    for row in copy.products:
        row.attention_scratch, row.attention = copy.products[0].attention_scratch, copy.products[0].attention
        row.attend_rows = row.operands_depth = row.approximates = row.hidden_columns = 0
    COPIES.append(copy)     # kernels do not keep their memory alive
    return Kernels(capsule_of(copy))
