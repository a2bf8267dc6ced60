"""Make the golden files of the families with rotary positions, beside ModernBERT: what they compute in float64.

    python -m tests.golden.make.rotary_encoders [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.

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

NeoBERT is not in transformers: `neobert` computes what its own code does. The script stops unless EuroBERT of
transformers gives the same within 1e-10, with the rows of queries and keys in the order of its rotation.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers import EuroBertConfig, EuroBertModel

from .scaffold import (
    VOCAB,
    Forward,
    Golden,
    float64_throughout,
    make_expected,
    run,
    save_expected,
    save_model,
    sizes,
    write_models,
    wrong_settings,
)

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
    "nomic_own": Golden("NomicBertModel", sizes(36, 3, 29, 2), torch.float32, own_config=NOMIC_OWN),
    "nomic_new": Golden("NomicBertForMaskedLM", sizes(42, 3, 30, layer_norm_eps=0.01,
        rope_parameters={"rope_type": "default", "rope_theta": 70.0}), torch.bfloat16, new_names=True),
    "gte_own": Golden("GteForMaskedLM", sizes(44, 2, 27, 2, type_vocab_size=1, rope_parameters={"rope_type": "linear",
        "rope_theta": 20000.0 * 8, "factor": 8 ** (2 / 22)}), torch.float16, own_config=GTE_OWN),
    "gte_new": Golden("GteModel", sizes(30, 5, 34, layer_norm_eps=0.01, type_vocab_size=0,
        rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}), torch.float32, new_names=True),
    "eurobert_old": Golden("EuroBertForMaskedLM", sizes(42, 3, 33, rope_theta=250000.0, mask_token_id=3),
        torch.bfloat16, own_config=EUROBERT_OLD),
    "eurobert_new": Golden("EuroBertModel", sizes(36, 4, 31, 2, num_key_value_heads=2, head_dim=10, rms_norm_eps=0.01,
        attention_bias=True, mlp_bias=True, mask_token_id=3), torch.float32),
    "jina_v3": Golden("JinaEmbeddingsV3Model", sizes(42, 3, 61, layer_norm_eps=0.01, type_vocab_size=1), torch.float16),
    "jina_v3_new": Golden("JinaEmbeddingsV3ForMaskedLM", sizes(36, 6, 47, 2, type_vocab_size=2,
        rope_parameters={"rope_type": "default", "rope_theta": 300.0}), torch.bfloat16, new_names=True),
    "neobert_own": Golden("NeoBERT", {}, torch.bfloat16, own_config=NEOBERT_OWN),
    "neobert_short": Golden("NeoBERT", {}, torch.float16, own_config=NEOBERT_SHORT),
    "neobert_long": Golden("NeoBERT", {}, torch.float32, own_config=NEOBERT_LONG),
    "qwen3_old": Golden("Qwen3Model", sizes(34, 4, 29, num_key_value_heads=2, head_dim=12, rope_theta=1000000.0),
        torch.bfloat16, own_config=QWEN3_OLD),
    "qwen3_new": Golden("Qwen3ForCausalLM", sizes(33, 3, 31, 2, num_key_value_heads=1, head_dim=14, rms_norm_eps=0.01,
        attention_bias=True, rope_parameters={"rope_type": "default", "rope_theta": 700.0}), torch.float32),
    "llama_encoder": Golden("LlamaModel", sizes(36, 3, 31, 2, num_key_value_heads=3, rms_norm_eps=0.01, mlp_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0}), torch.float16),
    "mistral_encoder": Golden("MistralModel", sizes(40, 4, 29, 2, num_key_value_heads=2, rms_norm_eps=1e-05,
        sliding_window=None, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}), torch.bfloat16),
    "qwen2_encoder": Golden("Qwen2Model", sizes(36, 6, 29, 2, num_key_value_heads=2, rms_norm_eps=0.01,
        rope_parameters={"rope_type": "default", "rope_theta": 300.0}), torch.float32),
    "qwen2_both_ways": Golden("Qwen2Model", sizes(40, 4, 30, 2, num_key_value_heads=2, rms_norm_eps=1e-06,
        rope_theta=1000000.0), torch.bfloat16, own_config=QWEN2_OWN),
}  # fmt: skip


def main() -> None:
    write_models(MODELS, expect, save)


def save(folder: Path, golden: Golden) -> None:
    """Write a model; NeoBERT's tensors have its own names."""
    if golden.kind == "NeoBERT":
        save_file(neobert_tensors(golden), folder / "model.safetensors", {"format": "pt"})
    else:
        save_model(folder, golden)


def expect(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of a model."""
    if golden.kind == "NeoBERT":
        expect_neobert(folder, golden)
        return
    # The code of a folder attends both ways, which transformers does with a mask that is given.
    both_ways = golden.own_config.get("is_causal") is False
    bias = torch.zeros(1, 1, 300, 300, dtype=torch.float64) if both_ways else None
    save_expected(folder, golden, given={"bias": bias})


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


def neobert(stored: Mapping[str, torch.Tensor], golden: Golden) -> Forward:
    """Return the computation of NeoBERT's own code, in float64."""
    H, layers = golden.own_config["num_attention_heads"], golden.own_config["num_hidden_layers"]
    eps = golden.own_config["norm_eps"]

    def forward(ids: torch.Tensor) -> SimpleNamespace:
        def norm(name: str, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.rms_norm(x, x.shape[-1:], stored[f"{name}.weight"], eps)

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

    return partial(run, forward)


def eurobert_of(stored: Mapping[str, torch.Tensor], golden: Golden) -> dict[str, torch.Tensor]:
    """Return NeoBERT's tensors under the names of EuroBERT, which rotates columns c and c + d/2, not 2c and 2c + 1."""
    H, tensors = golden.own_config["num_attention_heads"], {"embed_tokens.weight": stored["encoder.weight"],
                                                            "norm.weight": stored["layer_norm.weight"]}  # fmt: skip
    for i in range(golden.own_config["num_hidden_layers"]):
        here, there = f"transformer_encoder.{i}", f"layers.{i}"
        qkv = stored[f"{here}.qkv.weight"].unflatten(0, (H, 3, -1, 2))      # the two columns of a pair are neighbours
        for part, rows in zip("qkv", qkv.unbind(1), strict=True):
            rows = rows if part == "v" else rows.transpose(1, 2)
            tensors[f"{there}.self_attn.{part}_proj.weight"] = rows.flatten(0, 2)
        gate, up = stored[f"{here}.ffn.w12.weight"].chunk(2)
        tensors |= {f"{there}.mlp.gate_proj.weight": gate, f"{there}.mlp.up_proj.weight": up}
        names = {"wo": "self_attn.o_proj", "ffn.w3": "mlp.down_proj", "attention_norm": "input_layernorm",
                 "ffn_norm": "post_attention_layernorm"}  # fmt: skip
        tensors |= {f"{there}.{new}.weight": stored[f"{here}.{own}.weight"] for own, new in names.items()}
    return tensors


def expect_neobert(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of NeoBERT; its mistakes are those of EuroBERT with other settings."""
    stored = {name.removeprefix("model."): tensor.double()
              for name, tensor in load_file(folder / "model.safetensors").items() if name != "decoder.bias"}
    tensors, own = eurobert_of(stored, golden), golden.own_config
    config = EuroBertConfig(
        **sizes(own["hidden_size"], own["num_attention_heads"], len(tensors["layers.0.mlp.up_proj.weight"]),
                own["num_hidden_layers"]), rms_norm_eps=own["norm_eps"], attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})

    def in_eurobert(config: EuroBertConfig) -> Forward:
        model = EuroBertModel(config).double().eval()
        model.load_state_dict(tensors)
        return partial(run, model)

    with float64_throughout(EuroBertModel):
        wrong = ((name, in_eurobert(other)) for name, other in wrong_settings(golden, config))
        make_expected(folder, neobert(stored, golden), stored, second=in_eurobert(config), wrong=wrong)


if __name__ == "__main__":
    main()
