"""BLOOM (Scao et al. 2022, arXiv 2211.05100): pre-norm layers with ALiBi, and a norm of the embeddings."""

from __future__ import annotations

from .fields import merge_dialects, number, refuse_variants, sizes
from .gguf import Architecture
from .names import JOINED_HEADS, Names
from .parts import Family, Part, Parts, Values, decoder_config

NAMES = Names(
    prefix="transformer.",
    embeddings={
        "word_embeddings.weight": "embeddings.word",
        "word_embeddings_layernorm.weight": "embeddings.norm.weight",
        "word_embeddings_layernorm.bias": "embeddings.norm.bias",
        "ln_f.weight": "final_norm.weight", "ln_f.bias": "final_norm.bias",
    },
    layers="h.",
    layer={
        "input_layernorm": "attention.norm",
        "self_attention.query_key_value": "attention.qkv",
        "self_attention.dense": "attention.output",
        "post_attention_layernorm": "ffn.norm",
        "mlp.dense_h_to_4h": "ffn.up", "mlp.dense_4h_to_h": "ffn.down",
    },
    left_out=("score.", "classifier.", "qa_outputs."),
    joined=JOINED_HEADS,
    joined_by_head=("attention.qkv",),
    copies={"embeddings.word": ("lm_head.weight",)},
)
# The engine reads the second key of each pair, and files of BLOOM may state the first one.
DIALECT = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_embed": "hidden_size"}


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True})
    values = merge_dialects(values, DIALECT)
    shape = sizes(values, hidden=64, layers=2, heads=8, vocab=250880)
    config = decoder_config(
        family="bloom",
        **shape,
        ffn_size=4 * shape["hidden_size"],
        embedding_norm=True,
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        activation="gelu_tanh",
        attention_bias="alibi",
    )
    return Parts(Part(config, NAMES))


FAMILIES = {"bloom": Family(read_generator=read_generator)}
ARCHITECTURES = {"bloom": Architecture("bloom", eps="layer_norm_epsilon", rotates=False)}
