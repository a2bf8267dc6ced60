"""The compiled kernels that Numba's kernels must equal to the last bit on this CPU."""

import pytest

WITHOUT = "needs numba: pip install '.[numba]'"
target = pytest.importorskip("engine.backends.numba_cpu.target", reason=WITHOUT)

PEERS = {
    (16, "vpdpbusd"): "avx512vnni", (16, "vpmaddubsw"): "avx512", (8, "vpdpbusd"): "avxvnni", (8, "vpmaddubsw"): "avx2",
    (4, "lanes"): "portable"}  # fmt: skip
PEER = PEERS[target.VL, target.INTEGERS]
"""The compiled kernels that have the same vector length, tile shapes and integer instructions as Numba's."""

BFLOAT16_PEER = "avx512bf16" if target.HALVES == 1 else PEER
"""The compiled kernels that have the same bfloat16 instructions. Their attention is bfloat16; Numba's is float32."""
