"""Write golden encoders as GGUF files with a vocabulary of WordPiece, as llama.cpp's converter does it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.files.safetensors import read_safetensors
from engine.weights.bfloat16 import widened

from .gguf_files import gguf
from .golden_models import GOLDEN

_BERT = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
_LLAMA = {
    "embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm"}
_NOMIC = _LLAMA | {
    "embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm", "post_attention_layernorm": "attn_output_norm",
    "post_mlp_layernorm": "layer_output_norm"}
_GEMMA = _LLAMA | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                   "post_feedforward_layernorm": "post_ffw_norm"}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "##s", "a", "##a", "b", "##b", "!",
         "##!", "é", "e", "##t", "t", "北", "mat", "##mat", "'", "##'"]
CONTROLS = 5
FILES: dict[str, tuple[str, Mapping[str, str], str, dict[str, Any]]] = {
    "bert": ("bert", _BERT, "encoder.layer.", {"pooling_type": 2, "attention.causal": False}),
    "nomic_new": ("nomic-bert", _NOMIC, "layers.", {"pooling_type": 1, "rope.freq_base": 70.0}),
    "qwen3_old": ("qwen3", _LLAMA, "layers.", {
        "pooling_type": 3, "attention.key_length": 12, "attention.value_length": 12, "attention.head_count_kv": 2,
        "rope.freq_base": 1000000.0}),
    "gemma_new": ("gemma-embedding", _GEMMA, "layers.", {
        "pooling_type": 1, "attention.key_length": 16, "attention.value_length": 16,
        "attention.head_count_kv": 1, "rope.freq_base": 1000000.0,
        "attention.sliding_window": 128, "rope.freq_base_swa": 10000.0,
        "attention.sliding_window_pattern": np.array([True] * 5 + [False, True])}),
}
"""The architecture of each golden encoder, the names, the part of a name before a layer, and settings."""


def config_of(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))


def file_of(name: str, words: Sequence[str] = WORDS, more: Mapping[str, np.ndarray] | None = None,
            **changes: Any) -> tuple[bytes, list[str]]:
    """Return a golden encoder as a file, and its words, filled up to the word table; changes: of settings."""
    kind, names, layers, own = FILES[name]
    values = config_of(name)
    tensors = dict(more or {})
    for key, tensor in read_safetensors(GOLDEN / name / "model.safetensors").items():
        stem, _, end = key.rpartition(".")
        for prefix in ("bert.", "nomic_bert.", "model."):
            stem = stem.removeprefix(prefix)
        layer, _, part = stem.removeprefix(layers).partition(".")
        part = (names.get(part) if stem.startswith(layers) else names.get(stem))
        if part is not None:
            tensor = widened(tensor)
            tensor = tensor + 1 if kind == "gemma-embedding" and "norm" in part else tensor
            tensors[f"blk.{layer}.{part}.{end}" if stem.startswith(layers) else f"{part}.{end}"] = tensor
    count = len(tensors["token_embd.weight"])
    words = [*words, *(f"[unused{i}]" for i in range(count - len(words)))]
    eps = "layer_norm_epsilon" if kind in ("bert", "nomic-bert") else "layer_norm_rms_epsilon"
    usual = {"block_count": values["num_hidden_layers"], "context_length": values["max_position_embeddings"],
             "embedding_length": values["hidden_size"], "feed_forward_length": values["intermediate_size"],
             "attention.head_count": values["num_attention_heads"],
             f"attention.{eps}": float(values.get("layer_norm_eps", values.get("rms_norm_eps")))}
    settings = {"general.architecture": kind} | {f"{kind}.{key}": value for key, value in (usual | own).items()}
    tokens = [word if i < CONTROLS else word[2:] if word.startswith("##") else f"▁{word}"
              for i, word in enumerate(words)]
    settings |= {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type":
                 np.array([3] * CONTROLS + [1] * (count - CONTROLS), np.int32), "tokenizer.ggml.bos_token_id": 2,
                 "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.unknown_token_id": 1,
                 "tokenizer.ggml.token_type_count": 2, "tokenizer.ggml.mask_token_id": 4,
                 "tokenizer.ggml.padding_token_id": 0}
    settings |= {key.replace("ARCH", kind): value for key, value in changes.items()}
    return gguf({key: value for key, value in settings.items() if value is not None}, tensors), words
