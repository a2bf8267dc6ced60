"""Convert the quantized blocks of GGUF files to float32, with the arithmetic of llama.cpp's reference functions.

A block holds 32 or 256 consecutive numbers of a row, and scales for them; its layout is a C struct of ggml-common.h.
In types such as Q4_0, a number is scale * integer, or scale * integer + minimum. In types such as Q4_K, a block of 256
has one scale in float16 for the scales of its sub-blocks, which are small integers. All products are exact in float32
except those of Q6_K, which are formed in the order of llama.cpp, (scale * sub-scale) * integer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..model.precision import BLOCKS, FORMATS

KEPT = (*(name.upper() for name in BLOCKS), "Q5_0")
"""The types that kernels can multiply in the file's blocks, or as q8_0; see `keep`."""
_CHUNK = 2**18
"""How many numbers are converted at once, so that intermediate arrays stay in the cache."""


@dataclass(frozen=True)
class BlockType:
    """A type of numbers in a GGUF file: `nbytes` bytes hold `size` numbers."""

    name: str
    size: int
    nbytes: int
    dequantize: Callable[[np.ndarray], np.ndarray] | None = None
    """Returns float32 [n, size] for blocks of uint8 [n, nbytes]; None for a type that is not read by blocks."""


def dequantize(kind: BlockType, data: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 numbers of `shape` from the bytes of whole blocks, uint8 [n * nbytes].

    A scale that is infinite or NaN gives infinite numbers or NaN, which later checks report.
    """
    assert kind.dequantize is not None
    blocks = data.reshape(-1, kind.nbytes)
    numbers = np.empty((len(blocks), kind.size), np.float32)
    step = _CHUNK // kind.size
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, len(blocks), step):
            numbers[first:first + step] = kind.dequantize(blocks[first:first + step])
    return numbers.reshape(shape)


def keep(kind: BlockType, data: np.ndarray) -> np.ndarray:
    """Return blocks of one of the types `KEPT`, uint8 [n * nbytes], as n structs of `engine.model.precision`.

    It is a view, as the engine's formats have the same bytes. Q5_0 becomes a copy in q8_0: its numbers are scale *
    integer, too, and integers of 5 bits fit into 8.
    """
    if kind.name != "Q5_0":
        return data.view(FORMATS[kind.name.lower()].dtype)
    blocks = data.reshape(-1, kind.nbytes)
    q8_0 = np.empty(len(blocks), FORMATS["q8_0"].dtype)
    q8_0["scale"], q8_0["codes"] = np.ascontiguousarray(blocks[:, :2]).view("<f2")[:, 0], _integers_of_q5_0(blocks)
    return q8_0


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """Return the float16 at byte `at` of each block, uint8 [n, nbytes], as float32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at:at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """Return the low 4 bits of all bytes along the last axis, then the high 4 bits: uint8 [..., 2n] from [..., n]."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _bits(packed: np.ndarray) -> np.ndarray:
    """Return bit i % 8 of byte i // 8 as number i: uint8 [n, 8m] from [n, m]."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


# The docstrings of these functions list the fields of a block, uint8 [n, nbytes], with their numbers of bytes in order:
# scale and minimum are float16, "low" are the lower 4 bits of the integers, "high" the bits above these.


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 32] from blocks of Q8_0: the bytes of scale 2, int8 32."""
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 32] from blocks of Q4_0: the bytes of scale 2, low 16. Integers are stored plus 8."""
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).view(np.int8) - 8)


def _q4_1(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 32] from blocks of Q4_1: the bytes of scale 2, minimum 2, low 16."""
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 32] from blocks of Q5_0: the bytes of scale 2, high 4, low 16."""
    return _half(blocks, 0) * _integers_of_q5_0(blocks)


def _integers_of_q5_0(blocks: np.ndarray) -> np.ndarray:
    """Return the integers from -16 to 15 of blocks of Q5_0, which are stored plus 16: int8 [n, 32]."""
    return (_nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4).view(np.int8) - np.int8(16)


def _q5_1(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 32] from blocks of Q5_1: the bytes of scale 2, minimum 2, high bits 4, low bits 16."""
    numbers = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4
    return _half(blocks, 0) * numbers + _half(blocks, 2)


def _sub_scales(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales and the minima [n, 8, 1] of the sub-blocks of Q4_K and Q5_K.

    Bytes 4 to 16 hold eight scales and eight minima of 6 bits: the first four of each in bytes of their own, and the
    last four as 4 bits in a shared byte, with their upper 2 bits in the free bits of the first four.
    """
    scales, minima, shared = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = np.concatenate([scales & 63, shared & 15 | scales >> 6 << 4], axis=1)
    minimum = np.concatenate([minima & 63, shared >> 4 | minima >> 6 << 4], axis=1)
    return (_half(blocks, 0) * scale)[:, :, None], (_half(blocks, 2) * minimum)[:, :, None]


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 256] from blocks of Q4_K: the bytes of scale 2, minimum 2, sub-scales 12, low bits 128."""
    scale, minimum = _sub_scales(blocks)
    numbers = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (scale * numbers - minimum).reshape(-1, 256)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 256] from blocks of Q5_K: bytes of scale 2, minimum 2, sub-scales 12, high 32, low 128."""
    scale, minimum = _sub_scales(blocks)
    # Bit j of byte i is the upper bit of number i of sub-block j.
    upper = _bits(blocks[:, 16:48]).reshape(-1, 32, 8).transpose(0, 2, 1)
    numbers = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | upper << 4
    return (scale * numbers - minimum).reshape(-1, 256)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    """Return float32 [n, 256] from blocks of Q6_K: bytes of low 128, high 64, int8 sub-scales 16, scale 2.

    A sub-scale is for 16 numbers. The integers are stored plus 32.
    """
    lower = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    # A byte holds the upper 2 bits of the numbers i, i + 32, i + 64 and i + 96 of its half of the block.
    upper = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    numbers = (lower | upper << 4).view(np.int8) - 32
    scale = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return (scale[:, :, None] * numbers.reshape(-1, 16, 16)).reshape(-1, 256)


TYPES = {
    0: BlockType("F32", 1, 4), 1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18, _q4_0),
    3: BlockType("Q4_1", 32, 20, _q4_1),
    6: BlockType("Q5_0", 32, 22, _q5_0),
    7: BlockType("Q5_1", 32, 24, _q5_1),
    8: BlockType("Q8_0", 32, 34, _q8_0),
    9: BlockType("Q8_1", 32, 40), 10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144, _q4_k),
    13: BlockType("Q5_K", 256, 176, _q5_k),
    14: BlockType("Q6_K", 256, 210, _q6_k),
    15: BlockType("Q8_K", 256, 292), 16: BlockType("IQ2_XXS", 256, 66),
    17: BlockType("IQ2_XS", 256, 74), 18: BlockType("IQ3_XXS", 256, 98),
    19: BlockType("IQ1_S", 256, 50), 20: BlockType("IQ4_NL", 32, 18),
    21: BlockType("IQ3_S", 256, 110), 22: BlockType("IQ2_S", 256, 82),
    23: BlockType("IQ4_XS", 256, 136), 24: BlockType("I8", 1, 1),
    25: BlockType("I16", 1, 2), 26: BlockType("I32", 1, 4),
    27: BlockType("I64", 1, 8), 28: BlockType("F64", 1, 8),
    29: BlockType("IQ1_M", 256, 56), 30: BlockType("BF16", 1, 2),
    34: BlockType("TQ1_0", 256, 54), 35: BlockType("TQ2_0", 256, 66),
    39: BlockType("MXFP4", 32, 17), 40: BlockType("NVFP4", 64, 36),
    41: BlockType("Q1_0", 128, 18),
}
"""The types by their numbers in a file, as in ggml.h."""
