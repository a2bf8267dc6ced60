"""Compute what depends on positions: angles of rotary embeddings, biases of scores by distance, tables of positions.

All is computed in float64 and rounded once. A distance is the position of a key minus that of a query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..base.functions import cos_sin, log, power


def rotary_angles(positions: np.ndarray, theta: float, width: int, dtype: np.dtype | type = np.float32,
                  scale: float = 1.0, frequencies: Sequence[float] = (), factor: float = 1.0
                  ) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of position / scale * theta^(-2i/width) for i below width/2: two arrays [..., width/2].

    Su et al., "RoFormer" (arXiv 2104.09864), equation 15. positions: numbers of any shape. width: the number of columns
    that are rotated. scale: Chen et al., "Extending Context Window of Large Language Models via Positional
    Interpolation" (arXiv 2306.15595), equation 4. frequencies: width/2 numbers, the angle of each pair at position 1,
    in place of the angles of theta and scale. factor: by which cosines and sines are multiplied.
    """
    if len(frequencies):
        angles = positions[..., None] * np.array(frequencies)
    else:
        angles = positions[..., None] / scale * _plain_frequencies(theta, width)
    cosine, sine = cos_sin(angles)
    return (factor * cosine).astype(dtype), (factor * sine).astype(dtype)


def _plain_frequencies(theta: float, width: int) -> np.ndarray:
    """Return theta^(-2i/width) for i below width/2."""
    return power(theta, -np.arange(0, width, 2) / width)


def yarn_frequencies(theta: float, width: int, factor: float, trained: float, fast: float = 32.0, slow: float = 1.0,
                     whole: bool = True) -> tuple[float, ...]:  # fmt: skip
    """Return the width/2 frequencies of YaRN: slow ones are divided by `factor`, fast ones stay, a ramp lies between.

    trained: the longest sequence of the training. A pair that turns `fast` times or more in it is fast, and one that
    turns `slow` times or less is slow. whole: whether the ends of the ramp are rounded outwards to whole pairs. Peng et
    al., "YaRN" (arXiv 2309.00071), section 3.2.
    """
    def pair(turns: float) -> float:
        """Return the number (from 0, not whole) of the pair that makes this number of turns in `trained` positions."""
        return width * float(log(trained / (turns * 2 * math.pi))) / (2 * float(log(theta)))

    first, last = pair(fast), pair(slow)
    if whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    plain = _plain_frequencies(theta, width)
    ramp = np.clip((np.arange(width // 2) - first) / (last - first or 0.001), 0.0, 1.0)      # equal ends: a step
    return tuple((plain * (1.0 - ramp) + plain / factor * ramp).tolist())


def llama3_frequencies(theta: float, width: int, factor: float, trained: float, fast: float,
                       slow: float) -> tuple[float, ...]:  # fmt: skip
    """Return the width/2 frequencies of Llama 3.1: slow ones are divided by `factor`, fast ones stay, a blend between.

    trained: the longest sequence of the training. A pair that turns `fast` times or more in it is fast, and one that
    turns `slow` times or less is slow. Grattafiori et al., "The Llama 3 Herd of Models" (arXiv 2407.21783).
    """
    plain = _plain_frequencies(theta, width)
    share = np.clip((trained * plain / (2 * math.pi) - slow) / (fast - slow), 0.0, 1.0)
    return tuple((plain * share + plain / factor * (1.0 - share)).tolist())


def static_ntk(theta: float, factor: float, width: int) -> tuple[float, float]:
    """Return (theta, scale) of a rotary embedding whose longest wave is `factor` times as long as with this theta.

    The frequencies are (theta * factor)^(-2i/width) / factor^(2/width) for i below width/2. The last of them is
    theta^(2/width - 1) / factor. Su Jianlin, kexue.fm/archives/9706.
    """
    return theta * factor, float(power(factor, 2 / width))


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Return ALiBi's slope of each head: float64 [H]. Press et al. (arXiv 2108.12409), section 3.

    If H is a power of two, the slopes are 2^(-8/H), 2^(-16/H) ... 2^-8. Otherwise they are the slopes of the next lower
    power of two, followed by every second slope of the next higher one, as in the authors' code.
    """
    lower = 2 ** (num_heads.bit_length() - 1)
    exponents = [-8 * i / lower for i in range(1, lower + 1)]
    exponents += [-4 * i / lower for i in range(1, 2 * (num_heads - lower), 2)]
    return power(2.0, exponents)


def buckets_of(distances: np.ndarray, buckets: int, max_distance: int, bidirectional: bool = True) -> np.ndarray:
    """Return the number of T5's bucket of each distance, in its shape. Raffel et al. (arXiv 1910.10683), section 2.1.

    buckets: the number of all of them. bidirectional: True if half of the buckets are for keys at or before the query
    and half for keys after it; False if keys after the query are in bucket 0. In each direction, half of the buckets
    hold one distance each; the others are spaced logarithmically up to max_distance, and the last one holds all longer
    distances.
    """
    if bidirectional:
        buckets //= 2
    away = np.abs(distances) if bidirectional else np.maximum(-distances, 0)
    exact = buckets // 2        # buckets that hold one distance each
    # The logarithm is in float32, as in T5's training: in float64 some distances fall into another bucket.
    ratio = log(np.maximum(away, exact).astype(np.float32) / np.float32(exact)) / np.float32(log(max_distance / exact))
    far = np.minimum(exact + (ratio * np.float32(buckets - exact)).astype(np.int64), buckets - 1)
    buckets_away = np.where(away < exact, away, far)
    return buckets_away + buckets * (distances > 0) if bidirectional else buckets_away


def distance_bias(longest: int, num_heads: int, table: np.ndarray | None, max_distance: int,
                  one_sided: bool = False) -> np.ndarray:
    """Return the bias of each head for all distances between `longest` tokens: [H, 2 * longest - 1].

    Column longest - 1 + j belongs to the distance -j: a query at position t finds its bias for the key at position s in
    column longest - 1 + t - s, so that the biases of successive queries lie side by side. table: [buckets, H]: the
    biases of T5's buckets, whose dtype the result has; None for ALiBi in both directions, -slope * |distance|, in
    float64. max_distance: that of `buckets_of`. one_sided: whether all buckets are for keys at or before the query.
    """
    distances = np.arange(longest - 1, -longest, -1)
    if table is None:
        return -alibi_slopes(num_heads)[:, None] * np.abs(distances)
    return np.ascontiguousarray(table[buckets_of(distances, len(table), max_distance, not one_sided)].T)


def relative_rows(distances: np.ndarray, limit: int, buckets: int) -> np.ndarray:
    """Return the row of a table of relative positions for each distance, here t - s of a query t and a key s: int32.

    limit, buckets: those of `RelativePositions`. Without buckets (0) the table has 2 * limit rows, and the row is
    distance + limit. With buckets it has 2 * buckets rows: distances up to buckets // 2 have the row distance +
    buckets, and larger ones share rows by their logarithm, up to the distance limit - 1. Distances beyond the table
    have its first or last row. He et al., "DeBERTa" (arXiv 2006.03654), equation 3, with the buckets of its second
    version, as `make_log_bucket_position` of transformers defines them.
    """
    span, exact, row = buckets or limit, buckets // 2, distances
    if buckets:
        size = np.abs(distances)
        # Call log once for all numbers, so that a distance of limit - 1 has a quotient of exactly 1.
        logs = log(np.append(np.maximum(size, exact), limit - 1) / exact)
        far = np.ceil(logs[:-1].reshape(size.shape) / logs[-1] * (exact - 1)) + exact
        row = np.where(size <= exact, distances, np.sign(distances) * far)
    return np.clip(row + span, 0, 2 * span - 1).astype(np.int32)


def sinusoids(positions: int, width: int) -> np.ndarray:
    """Return the table of positions of the original Transformer: float32 [positions, width].

    Columns 2i and 2i+1 are the sine and the cosine of position * 10000^(-2i/width). Vaswani et al., "Attention Is All
    You Need" (arXiv 1706.03762), section 3.5.
    """
    cosine, sine = cos_sin(np.arange(positions)[:, None] * _plain_frequencies(10000.0, width))
    table = np.stack([sine, cosine], axis=2).reshape(positions, -1)
    return table[:, :width].astype(np.float32)


def resize_matrix(size: int, new: int, antialias: bool) -> np.ndarray:
    """Return the weights [new, size] of cubic interpolation from `size` points to `new` points between the same ends.

    Keys, "Cubic Convolution Interpolation" (1981), with a = -0.75 and repeated end points. antialias: whether to use
    a = -0.5 and, for fewer new points, a kernel that is wider by size / new. PyTorch's interpolate computes both.
    """
    step = size / new       # the distance of two new points, if that of two old ones is 1
    centres = (np.arange(new)[:, None] + 0.5) * step
    if not antialias:
        near = np.floor(centres - 0.5).astype(int) + np.arange(-1, 3)      # the four points around each new one
        matrix = np.zeros((new, size))
        np.add.at(matrix, (np.arange(new)[:, None], near.clip(0, size - 1)), _cubic(near + 0.5 - centres, -0.75))
        return matrix
    stretch = max(step, 1.0)
    places = np.arange(size)        # point i lies at i + 0.5; points at most 2 stretches from a new one count for it
    reached = (places >= np.floor(centres - 2 * stretch + 0.5)) & (places < np.floor(centres + 2 * stretch + 0.5))
    weights = np.where(reached, _cubic((places + 0.5 - centres) / stretch, -0.5), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Return the weight of a point at the distance x, which is 1 at 0 and 0 from 2 on: Keys, equation 4."""
    x = np.abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def halved_sinusoids(positions: int, width: int, last: bool = False) -> np.ndarray:
    """Return a table of sinusoids with all sines before all cosines: float32 [positions, width].

    Column i and column width/2 + i are the sine and the cosine of position * f^i. By default f = 10000^(-2/width), the
    frequencies of `sinusoids`, as in Marian; with last=True f = 10000^(-1/(width/2 - 1)), so that the last frequency is
    1/10000, as in fairseq and in M2M100. With an odd width, Marian has one sine more, and fairseq a last column of 0.
    """
    half = width // 2 if last else (width + 1) // 2
    exponents = -np.arange(half) / (half - 1) if last else -np.arange(half) * 2 / width
    cosine, sine = cos_sin(np.arange(positions)[:, None] * power(10000.0, exponents))
    table = np.zeros((positions, width), np.float32)
    table[:, :half], table[:, half:2 * half] = sine, cosine[:, :width - half]
    return table
