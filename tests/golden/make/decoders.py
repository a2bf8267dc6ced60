"""Make the golden files of decoders: logits of small random models of transformers, in float64.

    python -m tests.golden.make.decoders

The script writes decoder_{name}.npz in tests/golden. Each holds `config`, the JSON of an engine's ModelConfig; the
tensors under the engine's names, which this script states independently of the engine's readers; and for sequence i of
`LENGTHS` the arrays ids_{i} [T] and logits_{i} [T,V], and memory_{i} [S,M] for a model with cross-attention: the
vectors that its decoder reads in place of an encoder's.

transformers computes norms, softmaxes and angles in float32 whatever the model's dtype. `float64_throughout` replaces
this float32 by float64 while transformers' own code runs.
"""

import json

import numpy as np
import torch
import transformers as hf

from tests.tools.paths import DECODERS

from .scaffold import float64_throughout

LENGTHS = ((1, 1), (2, 5), (17, 3), (40, 23))
"""The tokens of a sequence, and those of its source."""
VOCAB = 61

ATTENTION = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output", "o_proj": "output"}
BART_LAYER = {
    **{f"self_attn.{own}": f"attention.{name}" for own, name in ATTENTION.items()},
    "self_attn_layer_norm": "attention.norm",
    **{f"encoder_attn.{own}": f"cross.{name}" for own, name in ATTENTION.items()},
    "encoder_attn_layer_norm": "cross.norm",
    "fc1": "ffn.up", "fc2": "ffn.down", "final_layer_norm": "ffn.norm",
}
T5_LAYER = {
    **{f"layer.{i}.{block}.{own}": f"{name}.{full}" for i, block, name in
       ((0, "SelfAttention", "attention"), (1, "EncDecAttention", "cross"))
       for own, full in (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"))},
    "layer.0.layer_norm": "attention.norm", "layer.1.layer_norm": "cross.norm", "layer.2.layer_norm": "ffn.norm",
    "layer.2.DenseReluDense.wi": "ffn.up", "layer.2.DenseReluDense.wi_0": "ffn.gate",
    "layer.2.DenseReluDense.wi_1": "ffn.up", "layer.2.DenseReluDense.wo": "ffn.down",
}
LLAMA_LAYER = {
    **{f"self_attn.{own}": f"attention.{name}" for own, name in ATTENTION.items()},
    "self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm",
    "input_layernorm": "attention.norm", "post_attention_layernorm": "ffn.norm",
    "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down",
}
BART_TABLES = {"embed_tokens": "embeddings.word", "embed_positions": "embeddings.position",
               "layernorm_embedding": "embeddings.norm", "layer_norm": "final_norm"}
CAUSAL = [{"causal": True}]
TIED = {"logits": "tied", "attention_kinds": CAUSAL, "embedding_norm": False}
BARE = {"norm": "rms", "norm_place": "pre", "biases": [], "position_table": False}


def bart_like(cls, config_class, family, own, **options):
    """Return a model with BART's names, the start of its decoder's tensors, its tables and layers, and its config."""
    config = config_class(
        vocab_size=VOCAB, d_model=42, decoder_layers=2, encoder_layers=1, decoder_attention_heads=3,
        encoder_attention_heads=3, decoder_ffn_dim=50, encoder_ffn_dim=20, max_position_embeddings=64, **options)
    own = {"family": family, "hidden_size": 42, "num_layers": 2, "num_heads": 3, "head_width": 14, "ffn_size": 50,
           "norm_eps": 1e-5, "memory_size": 42, **TIED, **own}
    return cls(config), "model.decoder.", BART_TABLES, ("layers.", BART_LAYER), own


def t5(family, feed_forward, tied, **own):
    """Return as `bart_like`, for T5."""
    config = hf.T5Config(vocab_size=VOCAB, d_model=39, d_kv=13, d_ff=44, num_layers=1, num_decoder_layers=3,
                         num_heads=2, relative_attention_num_buckets=8, relative_attention_max_distance=20,
                         feed_forward_proj=feed_forward, tie_word_embeddings=tied)
    own = {"family": family, "hidden_size": 39, "num_layers": 3, "num_heads": 2, "head_width": 13, "ffn_size": 44,
           "norm_eps": 1e-6, "memory_size": 39, **TIED, **BARE, "attention_scale": 1.0, "attention_bias": "buckets",
           "bias_buckets": 8, "bias_max_distance": 20, "bias_one_sided": True, **own}
    tables = {"embed_tokens": "embeddings.word", "final_layer_norm": "final_norm",
              "block.0.layer.0.SelfAttention.relative_attention_bias": "distance_bias"}
    return hf.T5ForConditionalGeneration(config), "decoder.", tables, ("block.", T5_LAYER), own


def llama_like(cls, config_class, family, own, **options):
    """Return as `bart_like`, for a decoder without an encoder."""
    config = config_class(vocab_size=VOCAB, hidden_size=42, intermediate_size=52, num_hidden_layers=2,
                          num_attention_heads=6, num_key_value_heads=2, head_dim=10, max_position_embeddings=70,
                          rms_norm_eps=1e-5, **options)
    theta = config.rope_parameters["rope_theta"]
    own = {"family": family, "hidden_size": 42, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2, "head_width": 10,
           "ffn_size": 52, "norm_eps": 1e-5, "max_positions": 70, **TIED, **BARE, "gated": True, "activation": "silu",
           "attention_kinds": [{"causal": True, "rotary_theta": float(theta)}], **own}
    tables = {"embed_tokens": "embeddings.word", "norm": "final_norm"}
    return cls(config), "model.", tables, ("layers.", LLAMA_LAYER), own


MODELS = {
    "marian": lambda: bart_like(
        hf.MarianMTModel, hf.MarianConfig, "marian",
        {"max_positions": 64, "activation": "silu", "embedding_scale": 42**0.5, "logits_bias": True},
        activation_function="swish", scale_embedding=True, pad_token_id=VOCAB - 1,
        decoder_start_token_id=VOCAB - 1),
    "bart": lambda: bart_like(
        hf.BartForConditionalGeneration, hf.BartConfig, "bart",
        {"max_positions": 66, "position_offset": 2, "activation": "gelu", "embedding_norm": True,
         "logits_bias": True}),
    "m2m_100": lambda: bart_like(
        hf.M2M100ForConditionalGeneration, hf.M2M100Config, "m2m_100",
        {"max_positions": 66, "position_offset": 2, "activation": "relu", "norm_place": "pre",
         "embedding_scale": 42**0.5}),
    "t5": lambda: t5("t5", "relu", True, activation="relu", logits_scale=39**-0.5),
    "t5_own": lambda: t5("t5", "gated-gelu", False, activation="gelu_tanh", gated=True, logits="own"),
    "llama": lambda: llama_like(hf.LlamaForCausalLM, hf.LlamaConfig, "llama", {}, tie_word_embeddings=True),
    "qwen3": lambda: llama_like(hf.Qwen3ForCausalLM, hf.Qwen3Config, "qwen3", {"head_norm": True, "logits": "own"},
                                tie_word_embeddings=False),
}


def randomize(model) -> None:
    """Give every parameter numbers that matter, in steps of 1/64 to keep files small; those of norms lie around 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            weight_of_norm = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if weight_of_norm else 0.0, 0.25).mul_(64).round_().div_(64)
        for name, buffer in model.named_buffers():
            if name.endswith("final_logits_bias"):
                buffer.normal_(0.0, 0.5)


def canonical(model, start: str, tables: dict[str, str], layers: tuple[str, dict[str, str]], own: dict) -> dict:
    """Return the decoder's tensors under the engine's names, float32."""
    found, (run, names) = {}, layers
    state = model.state_dict()
    for key, tensor in state.items():
        stem, _, kind = key.removeprefix(start).rpartition(".")
        if not key.startswith(start):
            continue
        if stem in tables:
            name = tables[stem]
            found[name if name.startswith("embeddings.") and "norm" not in name else f"{name}.{kind}"] = tensor
        else:
            number, _, rest = stem.removeprefix(run).partition(".")
            found[f"layers.{number}.{names[rest]}.{kind}"] = tensor
    if own.get("position_table", True) and "embeddings.position" not in found:
        found["embeddings.position"] = model.model.decoder.embed_positions.weights
    if own["logits"] == "own":
        found["logits.weight"] = state["lm_head.weight"]
    if own.get("logits_bias"):
        found["logits.bias"] = state["final_logits_bias"][0]
    return {name: tensor.detach().numpy().astype(np.float32) for name, tensor in found.items()}


def main() -> None:
    for name, make in MODELS.items():
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        model, start, tables, layers, own = make()
        randomize(model)
        arrays = canonical(model, start, tables, layers, own)
        model = model.double().eval()
        for i, (T, S) in enumerate(LENGTHS):
            ids = rng.integers(0, VOCAB - 1, T)
            inputs = {"input_ids": torch.from_numpy(ids)[None]}
            if own.get("memory_size"):
                memory = rng.standard_normal((S, own["memory_size"]), np.float32)
                arrays[f"memory_{i}"] = memory
                inputs = {"decoder_input_ids": inputs["input_ids"],
                          "encoder_outputs": (torch.from_numpy(memory).double()[None],)}
            with torch.inference_mode(), float64_throughout(type(model), angles=False):
                logits = model(**inputs, use_cache=False).logits[0].numpy()
            arrays |= {f"ids_{i}": ids.astype(np.uint8), f"logits_{i}": logits.astype(np.float32)}
        arrays["config"] = np.frombuffer(json.dumps(own | {"vocab_size": VOCAB}).encode(), np.uint8)
        np.savez_compressed(DECODERS / f"decoder_{name}.npz", **arrays)


if __name__ == "__main__":
    main()
