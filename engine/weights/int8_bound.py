"""Limit the sum of same-sign int8 weights in each group of four inputs, so that AVX2 cannot saturate.

An int8 group is {0, 1, 4, 5} or {2, 3, 6, 7} of every eight inputs of a linear map. The weights of one sign in a group
add up to `LIMIT` at most. Products with activations from 0 to 255 can then be summed four at a time in 16 bits, by the
only 8-bit product of a CPU without VNNI (`backends/cython_cpu/simd/x86.h`). CPUs with VNNI need no bound and use all 8
bits, which halves the error of a model's vectors. So files hold all 8 bits, and kernels that need the bound apply it.
"""

from __future__ import annotations

import numpy as np

LIMIT = 128
"""The largest sum of the weights of one sign in a group: times activations up to 255, it stays below 2^15."""

_EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
"""A mask for every other byte of eight."""


def to_groups(w: np.ndarray, heads: int) -> np.ndarray:
    """Reshape weights [n, K] to [n, K/8, 2, 2, 2]: eight inputs as halves, groups and neighbours.

    heads: how many heads the K inputs come from; those of each are padded with zeros to a multiple of eight.
    """
    n, width = len(w), w.shape[1] // heads
    if width % 8:
        padded = np.zeros((n, heads, -(-width // 8) * 8), w.dtype)
        padded[:, :, :width] = w.reshape(n, heads, width)
        w = padded
    return w.reshape(n, -1, 2, 2, 2)


def from_groups(groups: np.ndarray, K: int, heads: int) -> np.ndarray:
    """Return the weights [n, K] of which `to_groups` has made these groups."""
    return groups.reshape(len(groups), heads, -1)[:, :, : K // heads].reshape(-1, K)


def group_sums(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums [n, K/8, 2] of the positive weights of each group, and of the negative ones without sign."""
    positive, total = (x[:, :, 0, :, 0] + x[:, :, 0, :, 1] + x[:, :, 1, :, 0] + x[:, :, 1, :, 1]
                       for x in (np.maximum(groups, 0), groups))
    return positive, positive - total


def integer_sums(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of `group_sums` for int8 weights of at least -127, as uint16 [n, K/8, 2].

    It adds eight inputs at a time in one machine word, and is far faster.
    """
    sums = []
    for part in (np.maximum(groups, 0), -np.minimum(groups, 0)):
        eight = part.reshape(len(groups), -1).view("<u8")       # eight weights of a byte each in a word
        pairs = (eight & _EVEN_BYTES) + (eight >> np.uint64(8) & _EVEN_BYTES)   # four sums of neighbours, 16 bits each
        both_halves = pairs + (pairs >> np.uint64(32))      # its lower 32 bits are the sums of the two groups
        sums.append(both_halves.view("<u2").reshape(*groups.shape[:2], 4)[:, :, :2])
    return sums[0], sums[1]
