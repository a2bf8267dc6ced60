"""Write golden encoders as GGUF files with a vocabulary of WordPiece, as llama.cpp's converter does it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .golden_gguf import LLAMA, SANDWICH, as_file, renamed
from .golden_models import GOLDEN

_BERT = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
_NOMIC = LLAMA | {
    "embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm", "post_attention_layernorm": "attn_output_norm",
    "post_mlp_layernorm": "layer_output_norm"}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "##s", "a", "##a", "b", "##b", "!",
         "##!", "é", "e", "##t", "t", "北", "mat", "##mat", "'", "##'"]
CONTROLS = 5
FILES: dict[str, tuple[str, Mapping[str, str], str, dict[str, Any]]] = {
    "bert": ("bert", _BERT, "encoder.layer.", {"pooling_type": 2, "attention.causal": False}),
    "nomic_new": ("nomic-bert", _NOMIC, "layers.", {"pooling_type": 1, "rope.freq_base": 70.0}),
    "qwen3_old": ("qwen3", LLAMA, "layers.", {
        "pooling_type": 3, "attention.key_length": 12, "attention.value_length": 12, "attention.head_count_kv": 2,
        "rope.freq_base": 1000000.0}),
    "gemma_new": ("gemma-embedding", SANDWICH, "layers.", {
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
    less_one = kind == "gemma-embedding"
    tensors = dict(more or {}) | {new: tensor + 1 if less_one and "norm" in new else tensor
                                  for new, tensor in renamed(GOLDEN / name, names, layers)}
    count = len(tensors["token_embd.weight"])
    words = [*words, *(f"[unused{i}]" for i in range(count - len(words)))]
    eps = "layer_norm_epsilon" if kind in ("bert", "nomic-bert") else "layer_norm_rms_epsilon"
    usual = {"block_count": values["num_hidden_layers"], "context_length": values["max_position_embeddings"],
             "embedding_length": values["hidden_size"], "feed_forward_length": values["intermediate_size"],
             "attention.head_count": values["num_attention_heads"],
             f"attention.{eps}": float(values.get("layer_norm_eps", values.get("rms_norm_eps")))}
    tokens = [word if i < CONTROLS else word[2:] if word.startswith("##") else f"▁{word}"
              for i, word in enumerate(words)]
    vocabulary = {"model": "bert", "tokens": tokens, "token_type": np.array(
        [3] * CONTROLS + [1] * (count - CONTROLS), np.int32), "bos_token_id": 2, "seperator_token_id": 3,
        "unknown_token_id": 1, "token_type_count": 2, "mask_token_id": 4, "padding_token_id": 0}
    return as_file(kind, usual | own, vocabulary, tensors, changes), words
