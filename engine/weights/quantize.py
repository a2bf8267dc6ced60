"""Convert matrices to fewer bits: bfloat16, float16, int8 with one quantization scale for each row, q8_0 or int4.

In int8, w is approximately weight * scale[:, None], where weight is w / scale rounded half to even. The affine map is
equation 1 of Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (arXiv 1712.05877), without a zero point. ZeroQuant (arXiv 2206.01861) has one scale for each row of a
transformer's weights, and one for each token's activations. A row is an output channel of a linear map, or a token of a
table. Kernels that add products in 16 bits need coarser weights of linear maps, within the bound of
`engine.weights.int8_bound`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown
from ..model.precision import BLOCKS, FORMATS, STORABLE, STORED, canonical_name
from .bfloat16 import from_bfloat16, to_bfloat16
from .blocks import quantize_q8_0, to_q8_0, widen_blocks
from .int4 import quantize_int4, widen_int4
from .int8_bound import LIMIT, from_groups, group_sums, integer_sums, to_groups
from .model import Model, Transformer, share_weights
from .parameters import kept_finer, matrices, parameters_of, row_slabs

if TYPE_CHECKING:
    from ..programs.operations import Parameter

BALANCING_STEPS = 2
"""Newton steps to find the offset of `quantize_balanced`: an offset of 1/K changes the sum of K errors by about 1."""
MOST_OFFSET = np.float32(0.49)
"""Largest offset: zeros stay zeros, and the largest weight, 127, does not become 128."""


def quantize_rows(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize w [N, K], finite and float32: return int8 [N, K] in -127..127 and float32 scales [N].

    A row's scale is its largest |w| / 127. A row whose |w| are all at most 1e-30 becomes zeros with the scale 1.
    Raises `InputError` for anything but a finite float32 matrix.
    """
    return _quantize(w, np.rint)


def quantize_linear(w: np.ndarray, heads: int, bounded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Quantize the weight [N, K] of a linear map: return int8 [N, K] and float32 scales [N].

    bounded: whether to keep the bound of `engine.weights.int8_bound`; otherwise all 8 bits are used. heads: the number
    of heads that the K inputs come from, see `engine.weights.parameters.input_heads`.
    """
    return quantize_bounded(w, heads) if bounded else quantize_balanced(w)


def quantize_balanced(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a linear weight [N,K] to int8 with a scale for each row, whose rounding errors cancel.

    The inputs of a linear map are not independent of each other: after GELU, for example, most of them are positive.
    Errors that have the same sign then add up in the result. So a row is rounded as rint(w / scale - offset), with the
    offset, at most half a step, that takes the sum of its errors nearly to 0. No error exceeds a step, and zeros stay.
    """
    return _quantize(w, _round_balanced)


def _quantize(w: np.ndarray, round_rows: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 [N, K] with all 8 bits, and scales [N]. round_rows: rounds rows [n, K], already divided by scales."""
    weight, scale = _check_and_allocate(w)
    for rows in row_slabs(w):
        scale[rows] = _scale(_largest(w[rows]))
        weight[rows] = round_rows(w[rows] / scale[rows, None])
    return weight, scale


def _round_balanced(ratio: np.ndarray) -> np.ndarray:
    """Round each row of numbers [n, K] so that the sum of its errors is nearly 0, and no larger than with `np.rint`."""
    best = np.rint(ratio)
    least = excess = (best - ratio).sum(axis=1)     # of each row: the smallest sum of errors so far, and the last one
    offset = np.zeros_like(excess)
    for _ in range(BALANCING_STEPS):
        offset = np.clip(offset + excess / ratio.shape[1], -MOST_OFFSET, MOST_OFFSET)
        rounded = np.rint(ratio - offset[:, None])
        excess = (rounded - ratio).sum(axis=1)
        better = np.abs(excess) < np.abs(least)
        best[better], least = rounded[better], np.where(better, excess, least)
    return best


def quantize_bounded(w: np.ndarray, heads: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a linear weight [N,K] to int8 with a scale for each row, within the bound of `weights/int8_bound.py`.

    The bound often makes the scale larger. If rounding to nearest would take an int8 group beyond the bound, its
    weights are rounded towards zero. heads: the number of heads that the K inputs come from, see
    `engine.weights.parameters.input_heads`.
    """
    weight, scale = _check_and_allocate(w)
    for rows in row_slabs(w):
        largest = _largest(w[rows])
        # `least` is the scale with which the largest unrounded sum of one sign, positive or negative, is LIMIT.
        sums = group_sums(to_groups(w[rows] / np.float32(LIMIT), heads))
        scale[rows] = _scale(largest, least=np.max([of_sign.max(axis=(1, 2)) for of_sign in sums], axis=0))
        ratio = w[rows] / scale[rows, None]
        groups, exact = to_groups(np.rint(ratio).astype(np.int8), heads), to_groups(ratio, heads)
        # The groups that rounding took beyond the bound.
        row, eight, group = np.nonzero(np.maximum(*integer_sums(groups)) > LIMIT)
        groups[row, eight, :, group] = np.trunc(exact[row, eight, :, group])
        weight[rows] = from_groups(groups, w.shape[1], heads)
    return weight, scale


def is_bounded(weight: np.ndarray, heads: int = 1) -> bool:
    """Return whether int8 weights [N, K] of a linear map are within the bound of `engine.weights.int8_bound`."""
    return all(np.max(integer_sums(to_groups(weight[rows], heads))) <= LIMIT for rows in row_slabs(weight))


def _check_and_allocate(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Check a matrix, and return empty arrays for its int8 weights [N, K] and its scales [N]."""
    if w.ndim != 2 or w.dtype != np.float32 or w.size == 0:
        raise InputError(f"only a float32 matrix [N, K] can be quantized, not {w.dtype} of shape {list(w.shape)}")
    return np.empty(w.shape, np.int8), np.empty(len(w), np.float32)


def _largest(block: np.ndarray) -> np.ndarray:
    """Return the largest |w| of each row; raises `InputError` for NaN and infinity."""
    largest = np.maximum(block.max(axis=1), -block.min(axis=1))
    if not np.isfinite(largest).all():
        raise InputError("only finite numbers can be quantized, and the matrix holds NaN or infinity")
    return largest


def _scale(largest: np.ndarray, least: np.ndarray | float = 0.0) -> np.ndarray:
    """Return the scale of each row, from its largest |w| [n]: at least `least`, and 1 for a row of nearly zeros."""
    # The threshold keeps scales far from subnormal numbers, which have few digits. Without it, the largest ratio of a
    # row could be more than an ulp away from 127.
    return np.where(largest > 1e-30, np.maximum(largest / np.float32(127), least), 1)


def widen(weights: Mapping[str, np.ndarray], name: str, parameter: Parameter | None = None) -> np.ndarray:
    """Return the matrix of this name in float32: the stored array, or a widened copy if it has fewer bits.

    parameter: its shape and heads, which stored blocks do not tell; None for a matrix without blocks.
    """
    array = weights[name]
    match STORED.get(array.dtype):      # None for a reference in float64
        case "int8":
            return array * weights[f"{name}_scale"][:, None]
        case "int4":
            assert parameter is not None
            return widen_int4(array, weights[f"{name}_scale"], parameter.shape[1], parameter.heads)
        case stored if stored in BLOCKS:
            assert parameter is not None
            return widen_blocks(array, parameter.shape[1], parameter.heads)
        case "bfloat16":
            return from_bfloat16(array)
    return array.astype(np.float32, copy=False)


def convert_model(model: Model, precision: str, bounded: bool = False,
                  importance: Mapping[str, np.ndarray] | None = None) -> Model:
    """Return the model with all matrices (linear weights and tables) in this precision, and the rest unchanged.

    precision: a name of `engine.model.precision`, or an alias. bfloat16 and float16 are rounded half to even. A matrix
    that has the precision already is not copied. bounded: whether int8 weights of linear maps are within the bound of
    `engine.weights.int8_bound`; CPUs without VNNI run such a model as it is, and round any other int8 model a second
    time. importance: for int4, how much an error of each column of each linear weight counts, as
    `engine.measure_importance` returns it; a weight that it does not name is rounded as without it.

    Raises `UnsupportedError` for linear weights in int8 or int4 that are to become another precision, for a
    packed model and for an unknown precision, and `WeightsError` for numbers that the precision cannot hold.
    """
    if not isinstance(model, Model):
        raise InputError(f"convert_model takes a Model, not {shown(model)}; load_model returns one, and of an encoder "
                         "alone, Model(encoder=...) makes one")
    if importance is not None:
        _check_importance(model, precision, importance)
    done: list[tuple[Transformer, Transformer]] = []        # pairs of a part and its converted form

    def convert(part: Transformer) -> Transformer:
        """Return a part in the precision; parts that share weights share the converted ones, too."""
        same = next((new for old, new in done if share_weights(old, part)), None)
        known = {} if importance is None or part is model.images else importance
        converted = (_convert(part, precision, bounded, known) if same is None
                     else replace(part, weights=same.weights))
        done.append((part, converted))
        return converted

    return model.map(convert)


def _check_importance(model: Model, precision: str, importance: Mapping[str, np.ndarray]) -> None:
    """Raise an error unless `importance` can be for this model: for int4, and with names of this model alone."""
    if canonical_name(precision) != "int4":
        raise InputError(f"importance is for int4 weights; precision {shown(precision)} rounds without it")
    # Importance is measured on texts, which say nothing of an encoder of images.
    parts = [part for part in model.parts.values() if part is not model.images]
    if len(parts) != 1:
        raise UnsupportedError("importance is for a language model or an encoder, and this model has the parts "
                               + listed([*model.parts]))
    [part] = parts
    if unknown := sorted(importance.keys() - parameters_of(part.config).keys()):
        raise InputError(f"importance names {unknown[0]!r}, which this model does not have; measure the importance of "
                         "the model that is converted")


def _convert(part: Transformer, precision: str, bounded: bool, importance: Mapping[str, np.ndarray]) -> Transformer:
    """Return an encoder or a decoder with its matrices in a precision. importance: by name; {} for none."""
    if part.layout is not None:
        raise UnsupportedError("the model is packed for kernels and cannot be converted; convert the original model")
    precision = part.precision_for(precision)
    if precision not in FORMATS:
        raise UnsupportedError(f"there is no precision {precision!r}; choose {', '.join(STORABLE)}")
    if stored := FORMATS[precision].multiplies:
        raise UnsupportedError(f"no weight is stored in {precision}, which is a way to multiply {stored} weights; "
                               f"convert to {stored}, and load with precision={precision!r}")
    weights = dict(part.weights)
    for name in matrices(part.config):
        parameter = parameters_of(part.config)[name]
        form = FORMATS[precision]
        formats = (form.finer,) if name in kept_finer(part.config) else (form.name, *form.beside)
        weights[name], scale = in_format(part.weights, name, parameter, formats, bounded, importance.get(name))
        if scale is None:
            weights.pop(f"{name}_scale", None)
        else:
            weights[f"{name}_scale"] = scale
    return replace(part, weights=weights)


def in_format(weights: Mapping[str, np.ndarray], name: str, parameter: Parameter, formats: Sequence[str],
              bounded: bool = False, importance: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the matrix of this name in one of these formats, and its scales; None for formats without, such as q8_0.

    A matrix that is stored in one of the formats is returned unchanged. Another one is rounded to the first of the
    formats to which any numbers can be rounded. parameter: its shape, kind and heads. bounded: whether int8 keeps the
    bound of `int8_bound`. importance [K]: how much an error of each column counts in int4.
    """
    array = weights[name]
    stored = STORED[array.dtype]
    if stored in formats:
        return array, weights[f"{name}_scale"] if FORMATS[stored].scales else None
    target = next(name for name in formats if FORMATS[name].rounded)
    if target == "q8_0" and stored in BLOCKS:
        return to_q8_0(array), None
    return _narrow(widen(weights, name, parameter), target, parameter, bounded, importance)


def _narrow(wide: np.ndarray, precision: str, parameter: Parameter, bounded: bool, importance: np.ndarray | None
            ) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a float32 matrix rounded to a format, and for int8 and int4 the scales of each row, otherwise None."""
    match precision:
        case "int8" if parameter.kind == "linear":
            return quantize_linear(wide, parameter.heads, bounded)
        case "int8":
            return quantize_rows(wide)
        case "int4":
            return quantize_int4(wide, parameter.heads, importance)
        case "q8_0":
            return quantize_q8_0(wide, parameter.heads), None
        case "bfloat16":
            return to_bfloat16(wide), None
        case "float16":
            if np.abs(wide).max() > np.finfo(np.float16).max:
                raise WeightsError("float16 holds finite numbers up to 65504, and an array has larger ones")
            return wide.astype(np.float16), None
    return wide, None
