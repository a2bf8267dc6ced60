"""Write golden language models as GGUF files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from engine.files.safetensors import read_safetensors

from .gguf_files import gguf
from .golden_generating import GOLDEN

GGUF_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
              "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
              "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip


def config_of(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))


def gguf_of(name: str, more: dict[str, np.ndarray] | None = None, **changes: Any) -> bytes:
    """Return a golden model as llama.cpp's converter writes it; the rows of queries and keys change places in Llama.

    more: further tensors, by their names in the file.
    """
    values = config_of(name)
    kind, heads = values["model_type"], values["num_attention_heads"]
    tensors = dict(more or {})
    for key, tensor in read_safetensors(GOLDEN / name / "model.safetensors").items():
        stem, _, end = key.removeprefix("model.").rpartition(".")
        layer, _, part = stem.removeprefix("layers.").partition(".")
        new = f"blk.{layer}.{GGUF_NAMES[part]}.{end}" if stem.startswith("layers.") else f"{GGUF_NAMES[stem]}.{end}"
        count = {"attn_q": heads, "attn_k": values["num_key_value_heads"]}.get(new.split(".")[-2], 0)
        if kind == "llama" and count:
            tensor = tensor.reshape(count, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)
        tensors[new] = np.ascontiguousarray(tensor)
    rope = values["rope_parameters"]
    own = {"block_count": values["num_hidden_layers"], "context_length": values["max_position_embeddings"],
           "embedding_length": values["hidden_size"], "feed_forward_length": values["intermediate_size"],
           "attention.head_count": heads, "attention.head_count_kv": values["num_key_value_heads"],
           "attention.layer_norm_rms_epsilon": float(values["rms_norm_eps"]),
           "rope.freq_base": float(rope["rope_theta"]),
           **({"attention.key_length": values["head_dim"]} if values.get("head_dim") else {})}  # fmt: skip
    settings: dict[str, Any] = {"general.architecture": kind} | {f"{kind}.{key}": value for key, value in own.items()}
    settings |= {f"tokenizer.ggml.{key}": value for key, value in {
        "model": "gpt2", "pre": "gpt-2", "tokens": [chr(97 + i) for i in range(61)], "merges": ["a b"] * 0,
        "bos_token_id": 1, "eos_token_id": 2}.items()}  # fmt: skip
    settings |= {key.replace("ARCH", kind): value for key, value in changes.items()}
    return gguf({key: value for key, value in settings.items() if value is not None}, tensors)
