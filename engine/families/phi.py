"""Phi-1, Phi-1.5 and Phi-2 (Gunasekar et al. 2023, arXiv 2306.11644): attention and feed-forward from one norm."""

from __future__ import annotations

from ..model.attention import AttentionKind
from .fields import GATE_ACTIVATIONS, activation, number, optional_integer, partial_rotary, refuse_variants, sizes
from .gguf import Architecture
from .names import Names
from .parts import Family, Part, Parts, Values, decoder_config, with_one_norm

NAMES = Names(
    prefix="model.",
    embeddings={
        "embed_tokens.weight": "embeddings.word",
        "final_layernorm.weight": "final_norm.weight", "final_layernorm.bias": "final_norm.bias",
        "lm_head.weight": "logits.weight", "lm_head.bias": "logits.bias",
    },
    layers="layers.",
    layer={
        "input_layernorm": "attention.norm",
        "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value", "self_attn.dense": "attention.output",
        "mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down",
    },
    left_out=("score.", "classifier."),
)


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"qk_layernorm": False, "tie_word_embeddings": False})
    shape = sizes(values, hidden=2048, layers=24, heads=32, ffn=8192, vocab=51200, positions=2048)
    rotary = partial_rotary(values, "rope_theta", 10000.0, shape["head_width"], share=0.5)
    config = decoder_config(
        family="phi",
        **shape,
        num_kv_heads=optional_integer(values, "num_key_value_heads", 0),
        norm_place="parallel",
        norm_eps=number(values, "layer_norm_eps", 1e-5),
        activation=activation(values, "hidden_act", "gelu_new", GATE_ACTIVATIONS),
        attention_kinds=(AttentionKind(causal=True, **rotary),),
        logits="own",
        logits_bias=True,
    )
    return Parts(Part(config, NAMES, with_one_norm))


FAMILIES = {"phi": Family(read_generator=read_generator)}
ARCHITECTURES = {"phi2": Architecture("phi", eps="layer_norm_eps", partial="partial_rotary_factor")}
