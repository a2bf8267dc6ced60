"""Make the golden files of the families with rotary positions, beside ModernBERT: what they compute in float64.

    python -m tests.golden.make.rotary_encoders [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, each with config.json,
model.safetensors and expected.npz.

expected.py says what expected.npz holds. The sequences have the lengths of `LENGTHS`.

The computation, for one sequence of T tokens. D, H, G, d, F as in engine/model/config.py; x @ W^T + b is written W(x):

    x = word_embeddings[ids] + token_type_embeddings[types]                 a model without token types adds nothing
    x = norm(x)                                                             post-norm only
    for layer i = 0 .. L-1:
        a = x, or norm(x) in a pre-norm model
        q, k, v = q_proj(a), k_proj(a), v_proj(a) as [T, H or G, d]
        q, k = q_norm(q), k_norm(k)                                         Qwen3 only: RMS norm of each head
        for token t and pair c < d/2, with the angle m = t / scale * theta ** (-2c / d), in q and in k:
            (q[a], q[b]) = (q[a] cos m - q[b] sin m,  q[b] cos m + q[a] sin m)
                                                                            a, b = c, c + d/2, or 2c, 2c+1 interleaved
        p = softmax over s of (q_t . k_s) / sqrt(d)                         causal: only s <= t
        x = x + o_proj(heads of p v side by side)                           query head h reads key head h // (H/G)
        x = norm(x)                                                         post-norm
        a = x, or norm(x) in a pre-norm model
        x = x + down_proj(act(gate_proj(a)) * up_proj(a))                   without a gate: x + fc2(act(fc1(a)))
        x = norm(x)                                                         post-norm
    hidden = x, or norm(x) in a pre-norm model

transformers computes some steps in float32 whatever the model's dtype. `float64_throughout` replaces this float32 by
float64 while transformers' own code runs. The script computes everything a second time in NumPy, and stops unless the
two agree within 1e-10. It also stops unless each mistake of `mistakes` changes the stored rows of the sequence of 129
tokens by at least 1e-2. NeoBERT is not in transformers: `open_neobert` computes what its own code does.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from .expected import VOCAB, Golden, make_expected, sparse, write_models

LENGTHS = (1, 2, 63, 64, 65, 66, 129, 300)

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Plain:
    """What the NumPy computation needs beside the tensors, written out by hand rather than read by transformers."""

    heads: int
    theta: float
    eps: float
    key_heads: int = 0
    """G, where it is not H."""
    scale: float = 1.0
    """Positions are divided by this number."""
    activation: str = "silu"
    rms: bool = False
    pre: bool = False
    interleaved: bool = False
    causal: bool = False


SIZES = {"vocab_size": VOCAB, "num_hidden_layers": 3, "max_position_embeddings": 320, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip

NOMIC_OWN = {
    "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0, "bos_token_id": None,
    "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0, "eos_token_id": None, "fused_bias_fc": True,
    "fused_dropout_add_ln": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12, "max_trained_positions": 310,
    "mlp_fc1_bias": False, "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": 36, "n_head": 3, "n_inner": 29,
    "n_layer": 2, "n_positions": 320, "pad_vocab_size_multiple": 8, "parallel_block": False,
    "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": False, "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True, "summary_type": "cls_index", "torch_dtype": "float32",
    "transformers_version": "4.34.0", "type_vocab_size": 2, "use_cache": True, "use_flash_attn": True,
    "use_rms_norm": False, "use_xentropy": True, "vocab_size": VOCAB,
}  # fmt: skip

GTE_OWN = {
    "architectures": ["NewForMaskedLM"], "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 44, "initializer_range": 0.02,
    "intermediate_size": 27, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm", "logn_attention_clip1": False,
    "logn_attention_scale": False, "max_position_embeddings": 320, "model_type": "new", "num_attention_heads": 2,
    "num_hidden_layers": 2, "pack_qkv": True, "pad_token_id": 1, "position_embedding_type": "rope",
    "rope_scaling": {"factor": 8.0, "type": "ntk"}, "rope_theta": 20000, "torch_dtype": "float16",
    "transformers_version": "4.39.1", "type_vocab_size": 1, "unpad_inputs": True,
    "use_memory_efficient_attention": True, "vocab_size": VOCAB,
}  # fmt: skip

EUROBERT_OLD = {
    "architectures": ["EuroBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
    "classifier_pooling": "late", "eos_token_id": 2, "head_dim": 14, "hidden_act": "silu", "hidden_dropout": 0.0,
    "hidden_size": 42, "initializer_range": 0.02, "intermediate_size": 33, "mask_token_id": 3,
    "max_position_embeddings": 320, "mlp_bias": False, "model_type": "eurobert", "num_attention_heads": 3,
    "num_hidden_layers": 3, "num_key_value_heads": 3, "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "rope_theta": 250000, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0.dev0", "use_cache": False, "vocab_size": VOCAB,
}  # fmt: skip

NEOBERT_OWN = {
    "architectures": ["NeoBERTLMHead"], "classifier_init_range": 0.02, "decoder_init_range": 0.02, "dim_head": 14,
    "embedding_init_range": 0.02, "hidden_size": 42, "intermediate_size": 43, "kwargs": {"trust_remote_code": True},
    "max_length": 320, "model_type": "neobert", "norm_eps": 1e-05, "num_attention_heads": 3, "num_hidden_layers": 3,
    "pad_token_id": 0, "torch_dtype": "float32", "transformers_version": "4.48.2", "trust_remote_code": True,
    "vocab_size": VOCAB,
}  # fmt: skip
NEOBERT_SHORT = {
    "model_type": "neobert", "hidden_size": 36, "intermediate_size": 60, "max_length": 320, "norm_eps": 0.01,
    "num_attention_heads": 6, "num_hidden_layers": 2, "vocab_size": VOCAB, "rope": True, "rms_norm": True,
    "hidden_act": "SwiGLU",
}  # fmt: skip

NEOBERT_LONG = {
    "model_type": "neobert", "architectures": ["NeoBERT"], "hidden_size": 30, "intermediate_size": 64,
    "max_length": 300, "norm_eps": 1e-06, "num_attention_heads": 5, "num_hidden_layers": 2, "pad_token_id": 3,
    "torch_dtype": "float32", "vocab_size": VOCAB,
}  # fmt: skip

QWEN3_OLD = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "head_dim": 12, "hidden_act": "silu", "hidden_size": 34, "initializer_range": 0.02,
    "intermediate_size": 29, "max_position_embeddings": 320, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.3", "use_cache": True, "use_sliding_window": False,
    "vocab_size": VOCAB,
}  # fmt: skip

QWEN2_OWN = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "auto_map": {
        "AutoModel": "modeling_qwen.Qwen2Model", "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM",
        "AutoModelForSequenceClassification": "modeling_qwen.Qwen2ForSequenceClassification"},
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 40, "initializer_range": 0.02,
    "intermediate_size": 30, "is_causal": False, "max_position_embeddings": 320, "max_window_layers": 21,
    "model_type": "qwen2", "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 320, "tie_word_embeddings": False,
    "torch_dtype": "float32", "transformers_version": "4.41.2", "use_cache": True, "use_sliding_window": False,
    "vocab_size": VOCAB,
}  # fmt: skip

MODELS = {
    "nomic_own": Golden(
        "NomicBertModel",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 29},
        torch.float32, Plain(3, 1000.0, 1e-12), own_config=NOMIC_OWN),
    "nomic_new": Golden(
        "NomicBertForMaskedLM",
        SIZES | {"hidden_size": 42, "num_attention_heads": 3, "intermediate_size": 30, "layer_norm_eps": 0.01,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 70.0}},
        torch.bfloat16, Plain(3, 70.0, 0.01), new_names=True),
    "gte_own": Golden(
        "GteForMaskedLM",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 44, "num_attention_heads": 2, "intermediate_size": 27,
                 "type_vocab_size": 1, "rope_parameters": {"rope_type": "linear", "rope_theta": 20000.0 * 8,
                                                           "factor": 8 ** (2 / 22)}},
        torch.float16, Plain(2, 160000.0, 1e-12, scale=8 ** (1 / 11), activation="gelu"), own_config=GTE_OWN),
    "gte_new": Golden(
        "GteModel",
        SIZES | {"hidden_size": 30, "num_attention_heads": 5, "intermediate_size": 34, "layer_norm_eps": 0.01,
                 "type_vocab_size": 0, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}},
        torch.float32, Plain(5, 500.0, 0.01, scale=3.0, activation="gelu"), new_names=True),
    "eurobert_old": Golden(
        "EuroBertForMaskedLM",
        SIZES | {"hidden_size": 42, "num_attention_heads": 3, "intermediate_size": 33, "rope_theta": 250000.0,
                 "mask_token_id": 3},
        torch.bfloat16, Plain(3, 250000.0, 1e-5, rms=True, pre=True), own_config=EUROBERT_OLD),
    "eurobert_new": Golden(
        "EuroBertModel",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "head_dim": 10, "intermediate_size": 31, "rms_norm_eps": 0.01, "attention_bias": True,
                 "mlp_bias": True, "mask_token_id": 3},
        torch.float32, Plain(4, 10000.0, 0.01, key_heads=2, rms=True, pre=True)),
    "jina_v3": Golden(
        "JinaEmbeddingsV3Model",
        SIZES | {"hidden_size": 42, "num_attention_heads": 3, "intermediate_size": 61, "layer_norm_eps": 0.01,
                 "type_vocab_size": 1},
        torch.float16, Plain(3, 20000.0, 0.01, activation="gelu")),
    "jina_v3_new": Golden(
        "JinaEmbeddingsV3ForMaskedLM",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 6, "intermediate_size": 47,
                 "type_vocab_size": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
        torch.bfloat16, Plain(6, 300.0, 1e-5, activation="gelu"), new_names=True),
    "neobert_own": Golden(
        "NeoBERT", {}, torch.bfloat16, Plain(3, 10000.0, 1e-5, rms=True, pre=True, interleaved=True),
        own_config=NEOBERT_OWN),
    "neobert_short": Golden(
        "NeoBERT", {}, torch.float16, Plain(6, 10000.0, 0.01, rms=True, pre=True, interleaved=True),
        own_config=NEOBERT_SHORT),
    "neobert_long": Golden(
        "NeoBERT", {}, torch.float32, Plain(5, 10000.0, 1e-6, rms=True, pre=True, interleaved=True),
        own_config=NEOBERT_LONG),
    "qwen3_old": Golden(
        "Qwen3Model",
        SIZES | {"hidden_size": 34, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
                 "intermediate_size": 29, "rope_theta": 1000000.0},
        torch.bfloat16, Plain(4, 1000000.0, 1e-6, key_heads=2, rms=True, pre=True, causal=True), own_config=QWEN3_OLD),
    "qwen3_new": Golden(
        "Qwen3ForCausalLM",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 33, "num_attention_heads": 3, "num_key_value_heads": 1,
                 "head_dim": 14, "intermediate_size": 31, "rms_norm_eps": 0.01, "attention_bias": True,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
        torch.float32, Plain(3, 700.0, 0.01, key_heads=1, rms=True, pre=True, causal=True)),
    "llama_encoder": Golden(
        "LlamaModel",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 3, "num_key_value_heads": 3,
                 "intermediate_size": 31, "rms_norm_eps": 0.01, "mlp_bias": True,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
        torch.float16, Plain(3, 700.0, 0.01, rms=True, pre=True, causal=True)),
    "mistral_encoder": Golden(
        "MistralModel",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "intermediate_size": 29, "rms_norm_eps": 1e-5, "sliding_window": None,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        torch.bfloat16, Plain(4, 10000.0, 1e-5, key_heads=2, rms=True, pre=True, causal=True)),
    "qwen2_encoder": Golden(
        "Qwen2Model",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 6, "num_key_value_heads": 2,
                 "intermediate_size": 29, "rms_norm_eps": 0.01,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
        torch.float32, Plain(6, 300.0, 0.01, key_heads=2, rms=True, pre=True, causal=True)),
    "qwen2_both_ways": Golden(
        "Qwen2Model",
        SIZES | {"num_hidden_layers": 2, "hidden_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "intermediate_size": 30, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0},
        torch.bfloat16, Plain(4, 1000000.0, 1e-6, key_heads=2, rms=True, pre=True), own_config=QWEN2_OWN),
}  # fmt: skip


def main() -> None:
    write_models(MODELS, save_model, save_expected)


def save_model(folder: Path, golden: Golden) -> None:
    """Write a model of random numbers that are large enough for a mistake to show."""
    if golden.kind == "NeoBERT":
        folder.mkdir(exist_ok=True)
        save_file(neobert_tensors(golden), folder / "model.safetensors", {"format": "pt"})
        return
    kind = getattr(transformers, golden.kind)
    model = kind(kind.config_class(**golden.config))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = name.endswith(("norm.weight", "LayerNorm.weight"))
            parameter.normal_(1.0 if one else 0.0, 0.2)
    model.to(golden.dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if golden.new_names:
        tied = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "lm_head.decoder.weight",
                "lm_head.decoder.bias"}  # fmt: skip
        tensors = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def save_expected(folder: Path, golden: Golden) -> None:
    """Write expected.npz beside a model, from the weights as they are stored."""
    with float64_throughout(golden.kind):
        model, tensors = open_neobert(folder, golden) if golden.kind == "NeoBERT" else open_model(folder)
        both_ways = (golden.own_config or {}).get("is_causal") is False
        make_expected(folder, partial(run, model, both_ways=both_ways), LENGTHS, kinds=types_of(tensors), step=sparse,
                      second=partial(numpy_forward, tensors, golden.plain),
                      mistakes=((name, partial(numpy_forward, *wrong)) for name, *wrong in
                                mistakes(tensors, golden.plain)))  # fmt: skip


Model = Callable[..., Any]
"""Takes ids and perhaps token types, and returns an object with last_hidden_state."""


def open_model(folder: Path) -> tuple[Model, Tensors]:
    """Return a model in float64 and its tensors under the names of transformers 5."""
    model, loading = AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                               output_loading_info=True)  # fmt: skip
    missing = [name for name in loading["missing_keys"] if not name.startswith("pooler.")]
    if missing or loading["mismatched_keys"]:
        raise SystemExit(f"{folder}: transformers does not load the model as a whole: {loading}")
    return model, {name: tensor.numpy() for name, tensor in model.eval().state_dict().items()}


def neobert_tensors(golden: Golden) -> dict[str, torch.Tensor]:
    """Return random tensors under NeoBERT's own names."""
    config, generator = golden.own_config, torch.Generator().manual_seed(0)
    D, hidden = config["hidden_size"], (2 * config["intermediate_size"] // 3 + 7) // 8 * 8
    shapes: dict[str, tuple[int, ...]] = {"model.encoder.weight": (VOCAB, D), "model.layer_norm.weight": (D,),
                                          "decoder.bias": (VOCAB,)}  # fmt: skip
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"model.transformer_encoder.{i}.{name}.weight": shape for name, shape in {
            "qkv": (3 * D, D), "wo": (D, D), "ffn.w12": (2 * hidden, D), "ffn.w3": (D, hidden),
            "attention_norm": (D,), "ffn_norm": (D,)}.items()}  # fmt: skip
    return {name: (torch.randn(shape, generator=generator) * 0.2 + name.endswith("norm.weight")).to(golden.dtype)
            for name, shape in shapes.items()}  # fmt: skip


def open_neobert(folder: Path, golden: Golden) -> tuple[Model, Tensors]:
    """Return NeoBERT in float64, and its tensors under the names that numpy_forward knows."""
    stored = {name.removeprefix("model."): tensor.double()
              for name, tensor in load_file(folder / "model.safetensors").items()}  # fmt: skip
    H, layers = golden.plain.heads, golden.own_config["num_hidden_layers"]

    def forward(ids: torch.Tensor) -> SimpleNamespace:
        def norm(name: str, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.rms_norm(x, x.shape[-1:], stored[f"{name}.weight"], golden.plain.eps)

        x = stored["encoder.weight"][ids]
        B, T, D = x.shape
        frequencies = 10000.0 ** -(torch.arange(0, D // H, 2, dtype=torch.float64) / (D // H))
        turns = torch.polar(torch.ones(T, D // H // 2, dtype=torch.float64),
                            torch.arange(T, dtype=torch.float64)[:, None] * frequencies)  # fmt: skip

        def turn(y: torch.Tensor) -> torch.Tensor:
            pairs = torch.view_as_complex(y.reshape(B, T, H, -1, 2))
            return torch.view_as_real(pairs * turns[:, None]).flatten(3)

        for i in range(layers):
            layer = f"transformer_encoder.{i}"
            qkv = norm(f"{layer}.attention_norm", x) @ stored[f"{layer}.qkv.weight"].T
            q, k, v = qkv.view(B, T, H, -1).chunk(3, dim=-1)
            q, k, v = (y.transpose(1, 2) for y in (turn(q), turn(k), v))
            context = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + context.transpose(1, 2).reshape(B, T, D) @ stored[f"{layer}.wo.weight"].T
            gate, up = (norm(f"{layer}.ffn_norm", x) @ stored[f"{layer}.ffn.w12.weight"].T).chunk(2, dim=-1)
            x = x + torch.nn.functional.silu(gate) * up @ stored[f"{layer}.ffn.w3.weight"].T
        return SimpleNamespace(last_hidden_state=norm("layer_norm", x))

    tensors = {"embed_tokens.weight": stored["encoder.weight"], "norm.weight": stored["layer_norm.weight"]}
    for i in range(layers):
        here, there = f"transformer_encoder.{i}", f"layers.{i}"
        by_head = stored[f"{here}.qkv.weight"].view(H, 3, -1, stored["encoder.weight"].shape[1])
        for j, part in enumerate("qkv"):
            tensors[f"{there}.self_attn.{part}_proj.weight"] = by_head[:, j].flatten(0, 1)
        gate, up = stored[f"{here}.ffn.w12.weight"].chunk(2)
        tensors |= {f"{there}.mlp.gate_proj.weight": gate, f"{there}.mlp.up_proj.weight": up}
        names = {"wo": "self_attn.o_proj", "ffn.w3": "mlp.down_proj", "attention_norm": "input_layernorm",
                 "ffn_norm": "post_attention_layernorm"}  # fmt: skip
        tensors |= {f"{there}.{new}.weight": stored[f"{here}.{own}.weight"] for own, new in names.items()}
    return forward, {name: tensor.numpy() for name, tensor in tensors.items()}


def types_of(tensors: Tensors) -> int:
    """Return the number of token types."""
    return len(tensors.get("embeddings.token_type_embeddings.weight", ()))


def run(model: Model, ids: np.ndarray, types: np.ndarray | None, *, both_ways: bool = False) -> np.ndarray:
    given = {} if types is None else {"token_type_ids": torch.from_numpy(types)[None]}
    if both_ways:       # as the code of a folder has it; transformers computes with a mask that is given
        given["attention_mask"] = torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)
    with torch.inference_mode():
        hidden = model(torch.from_numpy(ids)[None], **given).last_hidden_state[0]
    if hidden.dtype != torch.float64:
        raise SystemExit(f"transformers computed in {hidden.dtype}")
    return hidden.numpy()


class Float64Torch:
    """The module torch, with float64 under the names of float32."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


@contextmanager
def float64_throughout(kind: str) -> Iterator[None]:
    """Let transformers' own code of a model compute in float64 where it asks for float32."""
    if kind == "NeoBERT":
        yield
        return
    modeling = importlib.import_module(getattr(transformers, kind).__module__)
    with ExitStack() as stack:
        for module in (modeling, transformers.modeling_rope_utils):
            stack.enter_context(patch.object(module, "torch", Float64Torch()))
        stack.enter_context(patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


def numpy_forward(tensors: Tensors, plain: Plain, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """Compute what the docstring above says, in float64: hidden [T, D]. Tensors have the names of transformers 5."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0.0)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        if f"{name}.weight" not in tensors:
            return x
        centred = x if plain.rms else x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + plain.eps)
        return scaled * tensors[f"{name}.weight"] + tensors.get(f"{name}.bias", 0.0)

    def heads(name: str, x: np.ndarray, count: int) -> np.ndarray:
        return linear(f"{name}_proj", x).reshape(len(x), count, -1).swapaxes(0, 1)

    T, H, G = len(ids), plain.heads, plain.key_heads or plain.heads
    act = {"silu": lambda x: x / (1.0 + np.exp(-x)), "gelu": gelu}[plain.activation]
    words = tensors.get("embeddings.word_embeddings.weight", tensors.get("embed_tokens.weight"))
    x = words[ids]
    if "embeddings.token_type_embeddings.weight" in tensors:
        x = x + tensors["embeddings.token_type_embeddings.weight"][np.zeros(T, int) if types is None else types]
    x = norm("embeddings.LayerNorm", x)
    for i in range(max(int(name.split(".")[1]) for name in tensors if name.startswith("layers.")) + 1):
        layer = f"layers.{i}"
        a = norm(f"{layer}.input_layernorm", x) if plain.pre else x
        q, k, v = (heads(f"{layer}.self_attn.{part}", a, n) for part, n in (("q", H), ("k", G), ("v", G)))
        q, k = (norm(f"{layer}.self_attn.{part}_norm", y) for part, y in (("q", q), ("k", k)))
        q, k = (rotate(y, plain) for y in (q, k))
        k, v = k.repeat(H // G, axis=0), v.repeat(H // G, axis=0)
        scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        if plain.causal:
            scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + linear(f"{layer}.self_attn.o_proj", (weights @ v).swapaxes(0, 1).reshape(T, -1))
        a = norm(f"{layer}.post_attention_layernorm", x)
        x = x if plain.pre else a
        if f"{layer}.mlp.gate_proj.weight" in tensors:
            x = x + linear(f"{layer}.mlp.down_proj", act(linear(f"{layer}.mlp.gate_proj", a))
                           * linear(f"{layer}.mlp.up_proj", a))  # fmt: skip
        else:
            x = x + linear(f"{layer}.mlp.fc2", act(linear(f"{layer}.mlp.fc1", a)))
        x = x if plain.pre else norm(f"{layer}.post_mlp_layernorm", x)
    return norm("norm", x)


def rotate(x: np.ndarray, plain: Plain) -> np.ndarray:
    """Turn [H, T, d] by the angles of positions 0..T-1."""
    T, d = x.shape[1:]
    angles = np.outer(np.arange(T) / plain.scale, [plain.theta ** (-2 * c / d) for c in range(d // 2)])
    first, second = (slice(0, d, 2), slice(1, d, 2)) if plain.interleaved else (slice(0, d // 2), slice(d // 2, d))
    turned = np.empty_like(x)
    turned[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    turned[..., second] = x[..., second] * np.cos(angles) + x[..., first] * np.sin(angles)
    return turned


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def mistakes(tensors: Tensors, plain: Plain) -> Iterator[tuple[str, Tensors, Plain]]:
    """Yield (name, tensors, plain) of each mistake that an implementation could make."""

    def changed(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Tensors:
        return {name: change(array) if part in name else array for name, array in tensors.items()}

    def swapped(a: str, b: str) -> Tensors:
        other = {a: b, b: a}
        return {name: tensors[name.replace(part, other[part])] if (part := next((p for p in other if p in name), ""))
                else array for name, array in tensors.items()}  # fmt: skip

    def read_as_three_per_head() -> Tensors:
        wrong = dict(tensors)
        for name in [name for name in tensors if "q_proj" in name]:
            names = [name.replace("q_proj", f"{part}_proj") for part in "qkv"]
            rows = np.stack([tensors[n].reshape(plain.heads, -1, *tensors[n].shape[1:]) for n in names])
            parts = rows.reshape(plain.heads, 3, *rows.shape[2:]).swapaxes(0, 1)
            wrong |= {n: part.reshape(tensors[n].shape) for n, part in zip(names, parts, strict=True)}
        return wrong

    if any("gate_proj" in name for name in tensors):
        yield "gate and up swapped", swapped("gate_proj", "up_proj"), plain
    if not plain.key_heads:
        yield "queries and keys swapped", swapped("q_proj", "k_proj"), plain
        yield "joined rows read as [H][3][d]", read_as_three_per_head(), plain
    yield "the other rotary layout", tensors, replace(plain, interleaved=not plain.interleaved)
    yield "twice the theta", tensors, replace(plain, theta=2 * plain.theta)
    yield "the other mask", tensors, replace(plain, causal=not plain.causal)
    yield "the other activation", tensors, replace(plain, activation="gelu" if plain.activation == "silu" else "silu")
    if plain.scale != 1.0:
        yield "positions not scaled", tensors, replace(plain, scale=1.0)
    if plain.eps >= 1e-3:
        yield "another epsilon", tensors, replace(plain, eps=1e-5)
    if any("q_norm" in name for name in tensors):
        yield "the norms of queries and keys swapped", swapped("q_norm", "k_norm"), plain
        yield "no norms of heads", changed("q_norm", np.ones_like), plain
    biases = {name for name in tensors if name.endswith("bias") and not name.startswith("pooler.")}
    for part in sorted({name.rpartition("layers.")[2].partition(".")[2] for name in biases}):
        if "k_proj" not in part:  # a bias of all keys moves all scores of a query alike, but for the rotation
            yield f"no {part}", changed(part, np.zeros_like), plain


if __name__ == "__main__":
    main()
