"""Write golden language models as GGUF files, as llama.cpp's converter does it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.files.safetensors import read_safetensors
from engine.weights.bfloat16 import widened

from .gguf_files import gguf
from .golden_generating import GOLDEN

LLAMA = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
          "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
          "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
          "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
          "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip
SANDWICH = LLAMA | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                      "post_feedforward_layernorm": "post_ffw_norm"}  # fmt: skip
_GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
         "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
_BLOOM = {"word_embeddings": "token_embd", "word_embeddings_layernorm": "token_embd_norm", "ln_f": "output_norm",
          "input_layernorm": "attn_norm", "self_attention.query_key_value": "attn_qkv",
          "self_attention.dense": "attn_output", "post_attention_layernorm": "ffn_norm",
          "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}  # fmt: skip
_NEOX = {"embed_in": "token_embd", "final_layer_norm": "output_norm", "embed_out": "output",
         "input_layernorm": "attn_norm", "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
         "post_attention_layernorm": "ffn_norm", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
_MPT = {"wte": "token_embd", "norm_f": "output_norm", "norm_1": "attn_norm", "attn.Wqkv": "attn_qkv",
        "attn.out_proj": "attn_output", "norm_2": "ffn_norm", "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"}

Settings = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Written:
    """How a family is written."""

    name: str
    """general.architecture."""
    names: Mapping[str, str] = field(default_factory=lambda: LLAMA)
    settings: Settings = lambda values: {}
    """Settings beside the usual ones, from a config.json."""
    layers: str = "layers."
    rms: bool = True
    permuted: bool = False
    """Whether the rows of queries and keys change places."""
    by_head: bool = False
    """Whether the rows of queries, keys and values lie together for each head in the folder, and apart in the file."""
    change: Callable[[str, np.ndarray], np.ndarray] = lambda name, tensor: tensor
    """Changes a tensor; the first argument is its name in the file."""


def _windowed(values: Mapping[str, Any]) -> dict[str, Any]:
    types = np.array([name == "sliding_attention" for name in values["layer_types"]])
    return {"attention.sliding_window": values["sliding_window"], "attention.sliding_window_pattern": types}


def _capped(values: Mapping[str, Any]) -> dict[str, Any]:
    return _windowed(values) | {key: values[key] for key in ("attn_logit_softcapping", "final_logit_softcapping")}


def _gemma3(values: Mapping[str, Any]) -> dict[str, Any]:
    whole, local = (values["rope_parameters"][f"{kind}_attention"] for kind in ("full", "sliding"))
    return _windowed(values) | {"rope.freq_base": whole["rope_theta"], "rope.scaling.type": "linear",
                                "rope.scaling.factor": whole["factor"], "rope.freq_base_swa": local["rope_theta"]}


def _share(values: Mapping[str, Any]) -> dict[str, Any]:
    rope, width = values["rope_parameters"], values["hidden_size"] // values["num_attention_heads"]
    return {"rope.dimension_count": int(rope["partial_rotary_factor"] * width),
            **({"use_parallel_residual": values["use_parallel_residual"]} if "use_parallel_residual" in values else {})}


def _phi3(values: Mapping[str, Any]) -> dict[str, Any]:
    trained, longest = values["original_max_position_embeddings"], values["max_position_embeddings"]
    own = {"rope.scaling.original_context_length": trained, "attention.sliding_window": values["sliding_window"] or 0}
    own |= {"rope.dimension_count": int(values["rope_parameters"].get("partial_rotary_factor", 1.0)
                                        * values["hidden_size"]) // values["num_attention_heads"]}
    factor = float(np.sqrt(1 + np.log(longest / trained) / np.log(trained)))
    return own | ({"rope.scaling.attn_factor": factor} if values["rope_parameters"]["rope_type"] == "longrope" else {})


def _multiplied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"logit_scale": values["logits_scaling"], "residual_scale": values["residual_multiplier"],
            "embedding_scale": values["embedding_multiplier"], "attention.scale": values["attention_multiplier"]}


def _plus_one(name: str, tensor: np.ndarray) -> np.ndarray:
    return tensor + np.float32(1) if name.endswith("norm.weight") else tensor


def _transposed(name: str, tensor: np.ndarray) -> np.ndarray:
    return tensor.T if tensor.ndim == 2 and name.startswith("blk.") else tensor


WRITTEN = {
    "bloom": Written("bloom", _BLOOM, layers="h.", rms=False, by_head=True),
    "cohere2": Written("cohere2", settings=lambda values: _windowed(values) | {"logit_scale": values["logit_scale"]},
                       rms=False),
    "ernie4_5": Written("ernie4_5"),
    "falcon": Written("falcon", _BLOOM, layers="h.", rms=False, settings=lambda values: {"attention.head_count_kv": 1}),
    "gemma": Written("gemma", change=_plus_one),
    "gemma2": Written("gemma2", SANDWICH, _capped, change=_plus_one),
    "gemma3_text": Written("gemma3", SANDWICH, _gemma3, change=_plus_one),
    "gpt2": Written("gpt2", _GPT2, layers="h.", rms=False, change=_transposed),
    "gpt_bigcode": Written("starcoder", _GPT2, layers="h.", rms=False,
                           settings=lambda values: {"attention.head_count_kv": 1}),
    "gpt_neox": Written("gptneox", _NEOX, lambda values: _share(values) | {
        "attention.head_count_kv": values["num_attention_heads"]}, rms=False, by_head=True),
    "granite": Written("granite", settings=_multiplied, permuted=True),
    "llama": Written("llama", permuted=True),
    "mpt": Written("mpt", _MPT, lambda values: {"attention.max_alibi_bias": 8.0}, layers="blocks.", rms=False),
    "olmo": Written("olmo", settings=lambda values: {"attention.layer_norm_epsilon": 1e-5}, permuted=True),
    "olmo2": Written("olmo2", SANDWICH),
    "phi": Written("phi2", LLAMA | {"final_layernorm": "output_norm", "self_attn.dense": "attn_output",
                                     "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}, _share, rms=False),
    "phi3": Written("phi3", LLAMA | {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}, _phi3),
    "qwen2": Written("qwen2"),
    "qwen3": Written("qwen3"),
    "seed_oss": Written("seed_oss", LLAMA | {"post_attention_layernorm": "post_attention_norm"}),
    "smollm3": Written("smollm3", permuted=True),
    "stablelm": Written("stablelm", settings=_share, rms=False),
    "starcoder2": Written("starcoder2", LLAMA | {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}, rms=False),
}
"""The families that llama.cpp has, by their model_type."""

_PREFIXES = ("bert.", "nomic_bert.", "model.", "transformer.", "gpt_neox.")


def config_of(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))


def _one_of(values: Mapping[str, Any], *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)


def _usual(values: Mapping[str, Any], written: Written) -> dict[str, Any]:
    """Return the settings that all files have."""
    width, heads = _one_of(values, "hidden_size", "n_embd", "d_model"), _one_of(
        values, "num_attention_heads", "n_head", "n_heads")
    eps = _one_of(values, *(("rms_norm_eps",) if written.rms else (
        "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "layer_norm_epsilon")))
    rope = values.get("rope_parameters") or {}
    own = {"block_count": _one_of(values, "num_hidden_layers", "n_layer", "n_layers"),
           "context_length": _one_of(values, "max_position_embeddings", "n_positions", "max_seq_len") or 64,
           "embedding_length": width, "attention.head_count": heads,
           "feed_forward_length": _one_of(values, "intermediate_size", "n_inner") or 4 * width,
           "attention.head_count_kv": _one_of(values, "num_key_value_heads") or heads}
    own |= {f"attention.layer_norm_{'rms_' * written.rms}epsilon": float(eps)} if eps else {}
    own |= {"rope.freq_base": float(rope["rope_theta"])} if "rope_theta" in rope else {}
    head = values.get("head_dim")
    return own | ({"attention.key_length": head, "attention.value_length": head} if head else {})


def _apart(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Return rows [heads][3][d] as [3][heads][d]."""
    return tensor.reshape(heads, 3, -1, *tensor.shape[1:]).swapaxes(0, 1).reshape(tensor.shape)


def renamed(folder: Path, names: Mapping[str, str], layers: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of a folder that `names` has, under their names in a file. layers: the part before a layer."""
    for key, tensor in read_safetensors(folder / "model.safetensors").items():
        stem, _, end = key.rpartition(".")
        for prefix in _PREFIXES:
            stem = stem.removeprefix(prefix)
        layer, _, part = stem.removeprefix(layers).partition(".")
        in_layer = stem.startswith(layers)
        if (new := names.get(part if in_layer else stem)) is not None:
            yield f"blk.{layer}.{new}.{end}" if in_layer else f"{new}.{end}", widened(tensor)


def as_file(kind: str, own: Mapping[str, Any], settings: Mapping[str, Any], tensors: Mapping[str, np.ndarray],
            changes: Mapping[str, Any]) -> bytes:
    """Return a file. kind: the architecture. own: its settings. changes: of all settings, None for one to leave out."""
    found = {"general.architecture": kind, **{f"{kind}.{key}": value for key, value in own.items()},
             **{f"tokenizer.ggml.{key}": value for key, value in settings.items()},
             **{key.replace("ARCH", kind): value for key, value in changes.items()}}
    return gguf({key: value for key, value in found.items() if value is not None}, tensors)


def tensors_of(name: str) -> dict[str, np.ndarray]:
    """Return the tensors of a golden model under their names in a file."""
    values = config_of(name)
    written, heads = WRITTEN[values["model_type"]], _one_of(values, "num_attention_heads", "n_head", "n_heads")
    tensors = {}
    for new, tensor in renamed(GOLDEN / name, written.names, written.layers):
        count = {"attn_q": heads, "attn_k": values.get("num_key_value_heads")}.get(new.split(".")[-2], 0)
        if written.permuted and count:
            tensor = tensor.reshape(count, 2, -1, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)
        if written.by_head and "attn_qkv" in new:
            tensor = _apart(tensor, heads)
        tensors[new] = np.ascontiguousarray(written.change(new, tensor))
    rope = values.get("rope_parameters") or {}
    tensors |= {f"rope_factors_{table}.weight": np.array(rope[f"{table}_factor"], np.float32)
                for table in ("short", "long") if f"{table}_factor" in rope}
    return tensors


def gguf_of(name: str, more: dict[str, np.ndarray] | None = None, **changes: Any) -> bytes:
    """Return a golden model as a file; more: further tensors, by their names in it; changes: of settings."""
    values = config_of(name)
    written = WRITTEN[values["model_type"]]
    vocabulary = {"model": "gpt2", "pre": "gpt-2", "tokens": [chr(97 + i) for i in range(61)], "merges": [],
                  "bos_token_id": 1, "eos_token_id": 2}
    return as_file(written.name, _usual(values, written) | written.settings(values), vocabulary,
                   tensors_of(name) | (more or {}), changes)
