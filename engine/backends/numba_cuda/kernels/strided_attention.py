"""Compute attention of every kind in float32 on arrays of any strides, for `engine.ops.attention`.

A warp for each query and head iterates over the keys that the query may see; the softmax statistics and the weighted
sum of values stay in registers, as in `float32.attention_kernel` (Milakov and Gimelshein, arXiv 1805.02867). No tensor
cores: `engine.ops` promises float32, and a score function of the caller is compiled into the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..toolchain import cuda, device_function, types
from .norm import warp_sum
from .operations import ROWS

_ZERO, _LOWEST = np.float32(0.0), np.float32(-math.inf)
SIZES = 8
"""Numbers at the start of `layout`: H, G, T, d, e, and whether there are a bias, a mask and a soft cap.

Four strides each of q, k, v, bias and mask follow.
"""
_Q, _K, _V, _BIAS, _MASK = range(SIZES, SIZES + 20, 4)
_PARAMETERS = "q, k, v, bias, mask, bands, layout, scale, softcap, out"


def per_lane(width: int) -> int:
    """Return how many numbers of a head a lane keeps: a power of two, so that there are few kernels."""
    return 1 << (-(-max(width, 1) // 32) - 1).bit_length()


def strided_attention_kernel(numbers: int, score: Callable[..., Any] | None = None, further: Sequence[Any] = ()
                             ) -> Kernel:
    """Make the kernel softmax(scores) v; the grid is `operations.row_grid` for B H T rows.

    numbers: `per_lane` of the larger one of d and e. score: the score function, a `device_function` of (score, b, h, t,
    s, *further); further: the types of its further arguments.

    Arguments: (q, k, v, bias f32 [n], mask u8 [n], bands i64 [3,B], layout i64 [28], scale, softcap f32, out f32 [n],
    *further). Query t of sequence b sees the keys max(0, t + bands[0, b]) <= s < min(bands[2, b], t + bands[1, b]).
    layout: `SIZES`. Of what a call has not, the argument is a dummy. A query that sees no key gets zeros.
    """
    modify = None if score is None else _with_tuple(score, len(further))

    def attend(q: Any, k: Any, v: Any, bias_numbers: Any, mask_bytes: Any, bands: Any, layout: Any, scale: Any,
               cap: Any, out: Any, extra: Any) -> None:
        lane = cuda.threadIdx.x % 32
        row = types.int64(cuda.blockIdx.x) * ROWS + cuda.threadIdx.x // 32
        H, T, d, e = layout[0], layout[2], layout[3], layout[4]
        biased, masked, capped = layout[5] != 0, layout[6] != 0, layout[7] != 0
        if row * e >= out.shape[0]:
            return
        b, h, t = row // (H * T), row // T % H, row % T
        group = h // (H // layout[1])
        q_row = b * layout[_Q] + h * layout[_Q + 1] + t * layout[_Q + 2] + lane * layout[_Q + 3]
        k_row = b * layout[_K] + group * layout[_K + 1] + lane * layout[_K + 3]
        v_row = b * layout[_V] + group * layout[_V + 1] + lane * layout[_V + 3]
        bias_row = b * layout[_BIAS] + h * layout[_BIAS + 1] + t * layout[_BIAS + 2]
        mask_row = b * layout[_MASK] + h * layout[_MASK + 1] + t * layout[_MASK + 2]
        query, total = cuda.local.array(numbers, np.float32), cuda.local.array(numbers, np.float32)
        for i in range(numbers):
            query[i] = q[q_row + 32 * i * layout[_Q + 3]] if lane + 32 * i < d else _ZERO
        for i in range(numbers):
            total[i] = _ZERO
        largest, normalizer = _LOWEST, _ZERO
        for s in range(max(types.int64(0), t + bands[0, b]), min(bands[2, b], t + bands[1, b])):
            if masked and mask_bytes[mask_row + s * layout[_MASK + 3]] == 0:
                continue
            product = _ZERO
            for i in range(numbers):
                if lane + 32 * i < d:
                    product += query[i] * k[k_row + s * layout[_K + 2] + 32 * i * layout[_K + 3]]
            seen = warp_sum(product) * scale
            if capped:
                seen = cap * np.float32(math.tanh(seen / cap))
            if biased:
                seen += bias_numbers[bias_row + s * layout[_BIAS + 3]]
            if modify is not None:
                seen = np.float32(modify(seen, b, h, t, s, extra))
            if seen == _LOWEST:         # a hidden key: its value may be NaN
                continue
            previous = largest
            if seen > largest:
                largest = seen
            shrink = np.float32(math.exp(previous - largest))
            weight = np.float32(math.exp(seen - largest))
            normalizer = normalizer * shrink + weight
            for i in range(numbers):
                if lane + 32 * i < e:
                    total[i] = total[i] * shrink + weight * v[v_row + s * layout[_V + 2] + 32 * i * layout[_V + 3]]
        for i in range(numbers):
            if lane + 32 * i < e:
                out[row * e + lane + 32 * i] = _ZERO if normalizer == _ZERO else total[i] / normalizer

    f32, i64 = types.float32[::1], types.int64
    signature = (f32, f32, f32, f32, types.uint8[::1], i64[:, ::1], i64[::1], types.float32, types.float32, f32)
    return Kernel(f"strided attention {numbers}{' score function' if score else ''}",
                  _with_further(device_function(attend), len(further)), (*signature, *further), threads=32 * ROWS,
                  registers=112 + 4 * numbers, stored=score is None)


def _with_tuple(score: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the score function with its further arguments as one tuple: Numba unpacks none of unequal types."""
    given = "".join(f", extra[{i}]" for i in range(count))
    source = f"def modify(seen, b, h, t, s, extra):\n    return score(seen, b, h, t, s{given})\n"
    return device_function(_defined("modify", source, {"score": score}))


def _with_further(attend: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the body of the kernel with `count` more parameters, which it hands on as a tuple."""
    names = "".join(f", further{i}" for i in range(count))
    extra = ", ".join(f"further{i}" for i in range(count)) + "," * (count == 1) or "0"
    source = f"def strided_attention({_PARAMETERS}{names}):\n    attend({_PARAMETERS}, ({extra}))\n"
    return _defined("strided_attention", source, {"attend": attend})


def _defined(name: str, source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return the function `name` that a source text defines; names: its globals."""
    names["__name__"] = __name__
    exec(source, names)     # the number of parameters is known only at run time, and Numba compiles no *arguments
    made: Callable[..., Any] = names[name]
    return made


def variants() -> Iterator[Kernel]:
    """Yield the kernels for heads of up to 512 columns, without a score function."""
    yield from map(strided_attention_kernel, (1, 2, 4, 8, 16))
