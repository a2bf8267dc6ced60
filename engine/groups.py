"""Groups of inputs of a linear map in int8, and what their weights may come to.

A group is {0, 1, 4, 5} or {2, 3, 6, 7} of every eight inputs. The weights of one sign in a group come to `LIMIT` at
most: products with activations from 0 to 255 are then summed four at a time in 16 bits, with the only 8-bit product
that a CPU without VNNI has (`backends/cython_cpu/dot.h`), and nothing saturates. One rule for all CPUs: a file written
on one runs on any other, with the same integers.
"""

from __future__ import annotations

import numpy as np

from .config import ModelConfig

LIMIT = 128
"""255 * 128 < 2^15"""

_BYTES = np.uint64(0x00FF00FF00FF00FF)


def heads_of(config: ModelConfig, name: str) -> int:
    """How many heads the inputs of the linear map with this weight come from.

    Groups begin anew with each head, because kernels pad the inputs of each.
    """
    return config.num_heads if name.endswith("attention.output.weight") else 1


def to_groups(w: np.ndarray, heads: int) -> np.ndarray:
    """[n, G, 2, 2, 2] of weights [n, K]: of eight inputs halves, groups and neighbours; heads are padded with zeros."""
    n, width = len(w), w.shape[1] // heads
    if width % 8:
        padded = np.zeros((n, heads, -(-width // 8) * 8), w.dtype)
        padded[:, :, :width] = w.reshape(n, heads, width)
        w = padded
    return w.reshape(n, -1, 2, 2, 2)


def from_groups(groups: np.ndarray, K: int, heads: int) -> np.ndarray:
    """The weights [n, K] again."""
    return groups.reshape(len(groups), heads, -1)[:, :, : K // heads].reshape(-1, K)


def group_sums(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the positive weights of each group come to, and the negative ones without their sign: both [n, G, 2]."""
    positive = np.maximum(groups, 0)
    up, whole = (x[:, :, 0, :, 0] + x[:, :, 0, :, 1] + x[:, :, 1, :, 0] + x[:, :, 1, :, 1] for x in (positive, groups))
    return up, up - whole


def integer_sums(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of int8 groups from -127 on, as uint16: eight inputs at a time in a machine word, many times as fast."""
    sums = []
    for part in (np.maximum(groups, 0), -np.minimum(groups, 0)):
        eight = part.reshape(len(groups), -1).view("<u8")
        pairs = (eight & _BYTES) + (eight >> np.uint64(8) & _BYTES)
        sums.append((pairs + (pairs >> np.uint64(32))).view("<u2").reshape(*groups.shape[:2], 4)[:, :, :2])
    return sums[0], sums[1]
