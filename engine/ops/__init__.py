"""Single operations of transformers on NumPy arrays: attention of every kind, and what stands around it.

    import engine, numpy as np

    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 12, 512, 64), np.float32)      # [B,H,T,d]
    out = engine.ops.attention(q, k, v, causal=True, window=(128, None))

Arrays are float32, with any strides; so is the result, which is always a new array. Linear weights are stored as in
PyTorch, [out, in]. Nothing is broadcast unless a description says so, no argument is changed, and no backend stands in
for another. Letters as in `engine.config`, and S keys, G key heads, e width of a value.

    attention.py   attention                          linear.py      linear, ffn
    rowwise.py     norms, softmax, activations        positions.py   rotary, ALiBi, T5's relative positions
    layers.py      multi-head attention and a layer   arguments.py   the checks they share

All of them raise `InputError` for a wrong type, shape or value. Those that compute on a backend take
    backend    a name that `engine info` lists; None for the fastest that works here
    threads    at most so many; None for as many CPUs as the process may use, which is also the most it gets (both are
               found out at the first call, and remembered)
and raise `BackendUnavailable` for one that cannot run here. With backend="reference" they work in float64 too, all
arrays alike; elsewhere that is an `UnsupportedError`.
"""

from .attention import attention
from .layers import encoder_layer, multi_head_attention
from .linear import ffn, linear
from .positions import alibi_slopes, relative_position_bias, rotary
from .rowwise import gelu, layer_norm, relu, rms_norm, silu, softmax

__all__ = [
    "alibi_slopes",
    "attention",
    "encoder_layer",
    "ffn",
    "gelu",
    "layer_norm",
    "linear",
    "multi_head_attention",
    "relative_position_bias",
    "relu",
    "rms_norm",
    "rotary",
    "silu",
    "softmax",
]
