"""Prepare PyTorch's contenders: SDPA with each backend, linear layers with cuBLAS, an encoder eager and compiled.

The encoder is simple and fast: bfloat16 throughout, SDPA, sequences of one length without a mask. It uses the engine's
weights. When compiled, it is recorded as a CUDA graph, as the engine's passes are.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from engine.backends.numba_cuda.device import Device, upload
from engine.weights.bfloat16 import to_bfloat16

from . import cublaslt
from .cases import MODELS, Attention, Encoder, Linear
from .data import model_weights, normal, packed
from .timing import timed

Contenders = dict[str, Callable[[int], float]]


def attention(case: Attention) -> Contenders:
    """Return SDPA with FlashAttention and with cuDNN; [B,H,T,d] are views of the output of one GEMM."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    qkv = torch.from_numpy(normal(0, case.tokens, 3 * case.width)).to("cuda", torch.bfloat16)
    q, k, v = qkv.view(case.B, case.T, 3, case.H, case.d).permute(2, 0, 3, 1, 4)

    def contender(backend: Any) -> Callable[[int], float]:
        def work() -> None:
            with sdpa_kernel(backend):
                scaled_dot_product_attention(q, k, v)

        return timed(work, torch.cuda.synchronize)

    return {"torch SDPA flash": contender(SDPBackend.FLASH_ATTENTION),
            "torch SDPA cuDNN": contender(SDPBackend.CUDNN_ATTENTION)}


def linear_maps(case: Linear) -> Contenders:
    """Return torch.nn.functional.linear, which is cuBLAS, with the bias only: no activation, no residual."""
    import torch

    x, w, bias = (torch.from_numpy(a).to("cuda", torch.bfloat16)
                  for a in (normal(1, case.N, case.K), normal(2, case.M, case.K), normal(3, case.M)))
    return {"cuBLAS, bias alone": timed(lambda: torch.nn.functional.linear(x, w, bias), torch.cuda.synchronize)}


def cublaslt_maps(device: Device, case: Linear) -> Contenders:
    """Return cuBLASLt with the same epilogue, but with the tanh form of GELU."""
    library, residual = cublaslt.load(), case.epilogue == "residual"
    x, w = (upload(device, to_bfloat16(a)) for a in (normal(1, case.N, case.K), normal(2, case.M, case.K)))
    bias = upload(device, normal(3, case.M) if residual else to_bfloat16(normal(3, case.M)))
    out = device.allocate((case.N, case.M), np.float32 if residual else np.uint16)
    workspace = device.allocate((cublaslt.WORKSPACE,), np.uint8)
    product = cublaslt.Linear(library, case.N, case.M, case.K, _address(bias), gelu=case.epilogue == "gelu",
                              residual=residual)
    arrays = x, w, out, out, workspace

    def work() -> None:
        product(*(_address(array) for array in arrays), 0)

    return {"cuBLASLt": timed(work, lambda: device.mark()())}


def _address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def encoder(case: Encoder) -> Contenders:
    """Return the forward pass from token ids on the host to complete token vectors on the device."""
    import torch

    config = MODELS[case.model]
    batch = packed([case.T] * case.B, config)
    ids = (batch.input_ids, batch.position_ids, batch.token_type_ids)
    arrays = [np.ascontiguousarray(a, np.int64).reshape(case.B, case.T) for a in ids if a is not None]

    def contender(function: Callable[..., Any]) -> Callable[[int], float]:
        def work() -> None:
            with torch.inference_mode():
                function(weights(case.model), config.num_layers, config.num_heads,
                         *(torch.from_numpy(a).to("cuda", non_blocking=True) for a in arrays))
            torch.cuda.synchronize()

        return timed(work, torch.cuda.synchronize)

    found = {"torch eager": contender(forward)}
    if case.compiled:
        found["torch compiled"] = contender(torch.compile(forward, mode="reduce-overhead", dynamic=False))
    return found


@cache
def weights(model: str) -> dict[str, Any]:
    """Return the engine's weights in bfloat16 on the GPU."""
    import torch

    arrays = model_weights(MODELS[model])
    return {name: torch.from_numpy(array).to("cuda", torch.bfloat16) for name, array in arrays.items()}


def forward(weights: Mapping[str, Any], layers: int, heads: int, ids: Any, positions: Any, types: Any) -> Any:
    """Run a post-norm encoder on [B,T] ids: [B,T,D] in the weights' dtype."""
    from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

    def norm(x: Any, name: str) -> Any:
        return layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    def affine(x: Any, name: str) -> Any:
        return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    tables = {"word": ids, "position": positions, "token_type": types}
    x = norm(sum(weights[f"embeddings.{name}"][rows] for name, rows in tables.items()), "embeddings.norm")
    for i in range(layers):
        prefix = f"layers.{i}."
        q, k, v = (affine(x, f"{prefix}attention.{name}").unflatten(-1, (heads, -1)).transpose(1, 2)
                   for name in ("query", "key", "value"))
        context = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = norm(x + affine(context, f"{prefix}attention.output"), f"{prefix}attention.norm")
        up = gelu(affine(x, f"{prefix}ffn.up"))
        x = norm(x + affine(up, f"{prefix}ffn.down"), f"{prefix}ffn.norm")
    return x
