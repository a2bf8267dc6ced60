"""Prepare PyTorch's contenders: SDPA with each backend, linear layers with cuBLAS, an encoder eager and compiled.

The encoders are simple and fast (`torch_models.py`): bfloat16 throughout, SDPA, and FlexAttention where a mask limits a
compiled one. When compiled, an encoder is recorded as a CUDA graph, as the engine's passes are.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from engine.backends.numba_cuda.device import Device
from engine.weights.bfloat16 import to_bfloat16

from . import cublaslt
from .cases import MODELS, Attention, Call, Encoder, Linear
from .data import model_weights, normal, packed
from .timing import timed

Contenders = dict[str, Callable[[int], float]]


def attention(case: Attention) -> Contenders:
    """Return SDPA with FlashAttention and with cuDNN; [B,H,T,d] are views of the output of one GEMM, but for a call."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    qkv = torch.from_numpy(normal(0, case.tokens, 3 * case.width)).to("cuda", torch.bfloat16)
    q, k, v = qkv.view(case.B, case.T, 3, case.H, case.d).permute(2, 0, 3, 1, 4)
    causal = isinstance(case, Call) and case.causal
    if isinstance(case, Call):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()

    def contender(backend: Any) -> Callable[[int], float]:
        def work() -> None:
            with sdpa_kernel(backend):
                scaled_dot_product_attention(q, k, v, is_causal=causal)

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
    x, w = (device.upload(to_bfloat16(a)) for a in (normal(1, case.N, case.K), normal(2, case.M, case.K)))
    bias = device.upload(normal(3, case.M) if residual else to_bfloat16(normal(3, case.M)))
    out = device.allocate((case.N, case.M), np.float32 if residual else np.uint16)
    workspace = device.allocate((cublaslt.WORKSPACE,), np.uint8)
    product = cublaslt.Linear(library, case.N, case.M, case.K, _address(bias), gelu=case.epilogue == "gelu",
                              residual=residual)
    arrays = x, w, out, out, workspace

    def work() -> None:
        product(*(_address(array) for array in arrays), 0)

    return {"cuBLASLt": timed(work, device.wait)}


def _address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def encoder(case: Encoder) -> Contenders:
    """Return the forward pass from token ids on the host to complete token vectors on the device.

    Sequences of mixed lengths lie in one row, whose attention FlexAttention limits; that is compiled alone.
    """
    import torch

    from .torch_models import FORWARD, prepared

    config = MODELS[case.model]
    batch = packed(case.lengths, config)
    ids, forward = (batch.input_ids, batch.position_ids, batch.token_type_ids), FORWARD[config.family]
    shape = (1, -1) if case.mixed else (case.B, case.T)
    arrays = [np.ascontiguousarray(a, np.int64).reshape(shape) for a in ids if a is not None]

    def contender(function: Callable[..., Any], flexible: bool) -> Callable[[int], float]:
        made = prepared(config, case.lengths, case.mixed, flexible, torch.bfloat16, "cuda")

        def work() -> None:
            with torch.inference_mode():
                function(weights(case.model), config,
                         *(torch.from_numpy(a).to("cuda", non_blocking=True) for a in arrays), made)
            torch.cuda.synchronize()

        return timed(work, torch.cuda.synchronize)

    found = {} if case.mixed else {"torch eager": contender(forward, False)}
    if case.compiled:
        found["torch compiled"] = contender(torch.compile(forward, mode="reduce-overhead", dynamic=False), True)
    return found


@cache
def weights(model: str) -> dict[str, Any]:
    """Return the engine's weights in bfloat16 on the GPU."""
    import torch

    arrays = model_weights(MODELS[model])
    return {name: torch.from_numpy(array).to("cuda", torch.bfloat16) for name, array in arrays.items()}
