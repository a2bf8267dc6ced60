"""The forward pass with the roundings of bfloat16, bfloat16x3, int8, q8_0 or int4: it defines what kernels compute.

Weights are rounded once. Which other operands are rounded depends on the instructions of a CPU, so the caller states
it. Everything else is float64.
"""

import math
from collections.abc import Mapping

import numpy as np

from engine.backends.ops_interface import AttentionCall
from engine.backends.reference.attention import visible_keys
from engine.backends.reference.ops import ReferenceOps
from engine.backends.reference.plan import ReferencePlan
from engine.model.config import ModelConfig
from engine.model.precision import FORMATS
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16
from engine.weights.blocks import quantize_q8_0, widen_blocks
from engine.weights.int4 import BLOCK, BYTES, GROUP, quantize_int4, widen_int4
from engine.weights.parameters import parameters_of
from engine.weights.quantize import quantize_linear, widen


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Return the nearest bfloat16 to each number, as float64."""
    return from_bfloat16(to_bfloat16(x.astype(np.float32))).astype(np.float64)


def two_parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the two bfloat16 numbers, as float64, that stand for each number in bfloat16x3."""
    first = bfloat16(x)
    return first, bfloat16(x - first)


def codes(x: np.ndarray) -> np.ndarray:
    """Round x [M,K] to the numbers that the int8 codes of each row stand for: 0 to 255 over the row's own range."""
    low = x.min(axis=1, keepdims=True)
    step = (x.max(axis=1, keepdims=True) - low) / 255
    return low + step * np.rint((x - low) / np.where(step > 0, step, 1))


def integers(x: np.ndarray) -> np.ndarray:
    """Round x [M,K] to the numbers that integers of 12 bits stand for: -2047 to 2047 up to the row's own magnitude."""
    step = np.abs(x).max(axis=1, keepdims=True) / 2047
    return step * np.rint(x / np.where(step > 0, step, 1))


def _padded(x: np.ndarray, heads: int) -> np.ndarray:
    """Return x [M,K] as rows of the heads that it comes from, each filled with zeros to whole blocks: [M, heads, k]."""
    rows = x.reshape(len(x), heads, -1)
    return np.pad(rows, ((0, 0), (0, 0), (0, -rows.shape[2] % 32)))


def codes_of_blocks(x: np.ndarray, heads: int) -> np.ndarray:
    """Round x [M,K] to the numbers that codes of blocks stand for: -127 to 127 up to the magnitude of every 32 numbers.

    Each of the heads that x comes from ends a block.
    """
    blocks = _padded(x, heads).reshape(len(x), heads, -1, 32)
    step = np.abs(blocks).max(axis=3, keepdims=True) / 127
    rounded = step * np.rint(blocks / np.where(step > 0, step, 1))
    return rounded.reshape(len(x), heads, -1)[:, :, : x.shape[1] // heads].reshape(x.shape)


def rounding_of_sums(x: np.ndarray, steps: np.ndarray, heads: int) -> np.ndarray:
    """Return by how much the sums of every 16 numbers of x [M,K] change [M,G] when they are rounded.

    steps [M,1]: they are rounded to multiples of it. Each of the heads that x comes from ends a block of 32.
    """
    sums = _padded(x, heads).reshape(len(x), -1, GROUP).sum(axis=2)
    return np.where(steps > 0, steps * np.rint(sums / np.where(steps > 0, steps, 1)), 0) - sums


ROWS = {"int8": codes, "q8_0": integers}
"""How the input rows of a GEMM of an encoder are rounded, for each precision that always rounds whole rows."""


def rounded_plan(config: ModelConfig, weights: Mapping[str, np.ndarray], precision: str, *, rows: bool,
                 attention: bool, bounded: bool = False, queries: bool = False) -> ReferencePlan:
    """Return a plan in float64 that rounds as "bfloat16", "bfloat16x3", "int8", "q8_0" or "int4" does.

    rows: whether the input rows of a bfloat16 GEMM are rounded too; those of the others always are, in int4 in blocks,
    in the others as `ROWS` says.
    attention: whether attention rounds its operands to bfloat16. bounded: whether int8 weights are within the bound of
    `engine.weights.int8_bound`. queries: whether the product that makes queries rounds them, before they are scaled.
    """
    parameters = parameters_of(config)
    rounded = {name: _rounded(widen(weights, name, parameter), parameter.heads, precision, bounded)
               for name, parameter in parameters.items() if parameter.kind == "linear"}
    ops = _RoundedOps(precision, rows, attention, queries)
    weights = dict(weights) | {name: weight for name, (weight, _) in rounded.items()}
    plan = ReferencePlan(config, weights, np.float64, ops)
    ops.blocks = {id(plan.weights[name]): (parameters[name].heads, offsets) for name, (_, offsets) in rounded.items()}
    return plan


def _rounded(weight: np.ndarray, heads: int, precision: str, bounded: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the weight as it is rounded, and in int4 the offsets of its groups."""
    if precision == "bfloat16":
        return bfloat16(weight), None
    if precision == "bfloat16x3":   # products split it
        return weight, None
    if precision == "int4":
        blocks, scales = quantize_int4(weight, heads)
        exact = scales.astype(np.float64)
        offsets = widen_int4(blocks, exact * [0, 1], blocks.shape[1] // BYTES * BLOCK)[:, ::GROUP]
        return widen_int4(blocks, exact, weight.shape[1], heads), offsets
    if precision == "q8_0":
        return widen_blocks(quantize_q8_0(weight, heads), weight.shape[1], heads), None
    stored, scale = quantize_linear(weight, heads, bounded)
    return stored * scale[:, None].astype(np.float64), None


class _RoundedOps(ReferenceOps):
    blocks: Mapping[int, tuple[int, np.ndarray | None]]
    """The heads that the inputs of each weight come from, and the offsets of its groups, by the array's identity."""

    def __init__(self, precision: str, rows: bool, attention: bool, queries: bool):
        self._precision, self._rows, self._attention, self._queries = precision, rows, attention, queries

    def linear(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str | None,
               residual: np.ndarray | None) -> np.ndarray:
        if FORMATS[self._precision].rounds_blocks:
            heads, offsets = self.blocks[id(weight)]
            steps, x = np.abs(x).max(axis=1, keepdims=True) / 2047, codes_of_blocks(x, heads)
            if offsets is not None:     # offsets are multiplied by sums of inputs, which are rounded once more
                change = rounding_of_sums(x, steps, heads) @ offsets.T
                bias = change if bias is None else bias + change
        elif self._precision == "bfloat16x3":
            (x, x_rest), (weight, rest) = two_parts(x), two_parts(weight)
            x, weight = np.concatenate([x_rest, x, x], axis=1), np.concatenate([weight, weight, rest], axis=1)
        elif self._precision in ROWS:
            x = ROWS[self._precision](x)
        elif self._rows:
            x = bfloat16(x)
        return super().linear(x, weight, bias, activation, residual)

    def attention(self, call: AttentionCall) -> np.ndarray:
        if not self._attention:
            return super().attention(call)
        sharing = call.q.shape[1] // call.k.shape[1]    # query heads that share a key head
        k, v = (bfloat16(x).repeat(sharing, axis=1) for x in (call.k, call.v))
        if self._queries:
            scores = bfloat16(call.q) @ k.swapaxes(2, 3) * (call.scale * math.log2(math.e))
        elif call.bias is None and not call.softcap:
            # The factor log2 e is part of the rounded queries, unless the scores are changed.
            scores = bfloat16(call.q * (call.scale * math.log2(math.e))) @ k.swapaxes(2, 3)
        else:
            scores = bfloat16(call.q * call.scale) @ k.swapaxes(2, 3)
            scores = call.softcap * np.tanh(scores / call.softcap) if call.softcap else scores
            scores = (scores + (0 if call.bias is None else call.bias)) * math.log2(math.e)
        for b, h in np.ndindex(scores.shape[:2]):
            scores[b, h][~visible_keys(call, b, h)] = -np.inf
        p = np.exp2(scores - scores.max(axis=3, keepdims=True))
        return bfloat16(p) @ v / p.sum(axis=3, keepdims=True)
