"""The forward pass in float64 with the roundings of a precision, as the kernels define it."""

import numpy as np

from engine.backends.reference.encoder import ReferencePlan
from engine.groups import heads_of
from engine.quantize import quantize_linear
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16


def bfloat16(x):
    """The nearest bfloat16 to each number, as float64."""
    return from_bfloat16(to_bfloat16(x.astype(np.float32))).astype(np.float64)


class RoundedReference(ReferencePlan):
    """Linear maps as a subclass rounds them; attention's operands are rounded where the kernels attend in bfloat16."""

    def __init__(self, config, weights, kernels):
        super().__init__(config, weights, np.float64)
        self.kernels = kernels

    def self_attention(self, x, prefix):
        if not self.kernels.attention_bfloat16_scratch(8, 8):
            return super().self_attention(x, prefix)
        H, d = self.config.num_heads, self.config.head_width
        q, k, v = (self.linear(x, prefix + name).reshape(-1, H, d).transpose(1, 0, 2) for name in
                   ("query", "key", "value"))
        scores = bfloat16(q * (d**-0.5 * np.log2(np.e))) @ bfloat16(k).transpose(0, 2, 1)
        p = np.exp2(scores - scores.max(axis=2, keepdims=True))
        heads = bfloat16(p) @ bfloat16(v) / p.sum(axis=2, keepdims=True)
        return self.linear(heads.transpose(1, 0, 2).reshape(-1, H * d), prefix + "output")


class BFloat16Reference(RoundedReference):
    """Weights in bfloat16, and their rows too where the CPU multiplies such."""

    def linear(self, x, name):
        rows = bfloat16(x) if self.kernels.operand_bytes == 2 else x
        return rows @ bfloat16(self.weights[f"{name}.weight"]).T + self.weights[f"{name}.bias"]


class Int8Reference(RoundedReference):
    """Weights in int8 with a scale for each column, rows in codes over their own range."""

    def linear(self, x, name):
        stored = f"{name}.weight"
        weight, scale = quantize_linear(self.weights[stored].astype(np.float32), heads_of(self.config, stored))
        low = x.min(axis=1, keepdims=True)
        step = (x.max(axis=1, keepdims=True) - low) / 255
        rounded = low + step * np.rint((x - low) / np.where(step > 0, step, 1))
        return rounded @ (weight * scale[:, None].astype(np.float64)).T + self.weights[f"{name}.bias"]
