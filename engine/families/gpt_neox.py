"""GPT-NeoX (Black et al. 2022, arXiv 2204.06745) and Pythia: attention and feed-forward side by side."""

from __future__ import annotations

from ..model.attention import AttentionKind
from ..model.config import FEED_FORWARD_MAPS, LINEAR_MAPS
from . import fields
from .fields import GATE_ACTIVATIONS, activation, boolean, number, partial_rotary
from .gguf import Architecture
from .names import JOINED_HEADS, Names
from .parts import Family, Part, Parts, Values, decoder_config

NAMES = Names(
    prefix="gpt_neox.",
    embeddings={
        "embed_in.weight": "embeddings.word",
        "final_layer_norm.weight": "final_norm.weight", "final_layer_norm.bias": "final_norm.bias",
        "embed_out.weight": "logits.weight",
    },
    layers="layers.",
    layer={
        "input_layernorm": "attention.norm",
        "attention.query_key_value": "attention.qkv",
        "attention.dense": "attention.output",
        "post_attention_layernorm": "ffn.norm",
        "mlp.dense_h_to_4h": "ffn.up", "mlp.dense_4h_to_h": "ffn.down",
    },
    left_out=("score.", "classifier.", "qa_outputs."),
    joined=JOINED_HEADS,
    joined_by_head=("attention.qkv",),
    buffers=(".attention.bias", ".attention.masked_bias"),
)


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, {"tie_word_embeddings": False})
    values = fields.merge_dialects(values, {"rotary_emb_base": "rope_theta"})
    shape = fields.sizes(values, hidden=6144, layers=44, heads=64, ffn=24576, vocab=50432, positions=2048)
    rotary = partial_rotary(values, "rope_theta", 10000.0, shape["head_width"], share=0.25, share_key="rotary_pct")
    config = decoder_config(
        family="gpt_neox",
        **shape,
        norm_place="parallel" if boolean(values, "use_parallel_residual", True) else "pre",
        norm_eps=number(values, "layer_norm_eps", 1e-5),
        biases=LINEAR_MAPS if boolean(values, "attention_bias", True) else FEED_FORWARD_MAPS,
        activation=activation(values, "hidden_act", "gelu", GATE_ACTIVATIONS),
        attention_kinds=(AttentionKind(causal=True, **rotary),),
        logits="own",
    )
    return Parts(Part(config, NAMES))


FAMILIES = {"gpt_neox": Family(read_generator=read_generator)}
ARCHITECTURES = {"gptneox": Architecture("gpt_neox", eps="layer_norm_eps", partial="rotary_pct",
                                         keys={"use_parallel_residual": "use_parallel_residual"})}
