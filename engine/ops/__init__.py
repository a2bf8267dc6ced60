"""Run single operations of transformers on arrays: attention of every kind, linear maps, norms and others.

    import engine, numpy as np

    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 12, 512, 64), np.float32)      # [B,H,T,d]
    out = engine.ops.attention(q, k, v, causal=True, window=(128, None))

Arguments are float32 arrays with any strides, and the result is always a new float32 array. Linear weights are stored
as in PyTorch, [out, in]. An array is broadcast only where a docstring says so, no argument is changed, and no backend
replaces another. Dimension letters are those of `engine.model.config`, and S keys, G key heads, e width of a value
vector.

    attention.py   attention                          linear.py      linear, ffn
    rowwise.py     norms, softmax, activations        positions.py   rotary, ALiBi, T5's relative positions
    layers.py      multi-head attention and a layer   arguments.py   argument checks that all of them use

All operations raise `InputError` for a wrong type, shape or value. The operations that run on a backend have three more
arguments:
    backend    a name that `engine info` lists; None for the fastest backend that works here
    threads    maximum number of threads; None for all CPUs that the process may use, which is also the upper limit
    bits       "fastest", or "portable" for results with the same bits on every CPU with fused multiply-adds
The choice of backend and the number of CPUs are determined at the first call and kept. These operations raise
`BackendUnavailable` for a backend that cannot run here. With backend="reference" they also compute in float64, if all
arrays are float64; other backends raise `UnsupportedError` for float64.

With backend="cuda" the arrays of a call may all lie on the GPU, in float32 or bfloat16, as arrays of any library with
DLPack or the CUDA array interface. They are contiguous and have elements; the result, of the same dtype, is a
`engine.backends.numba_cuda.shared_array.SharedArray` on the GPU. Arrays there and NumPy arrays are never mixed.
"""

from .attention import attention
from .layers import encoder_layer, multi_head_attention
from .linear import ffn, linear
from .positions import alibi_slopes, relative_position_bias, rotary
from .rowwise import gelu, layer_norm, relu, rms_norm, silu, softmax

__all__ = [
    "alibi_slopes", "attention", "encoder_layer", "ffn", "gelu", "layer_norm", "linear", "multi_head_attention",
    "relative_position_bias", "relu", "rms_norm", "rotary", "silu", "softmax",
]
