"""GPT-2 (Radford et al. 2019): pre-norm layers, learned positions, and one tensor for queries, keys and values.

Files hold the linear maps as [inputs, outputs], the transpose of what other models hold. Those of StarCoder and
SantaCoder (Li et al. 2023, arXiv 2305.06161) do not; these models have one key head for all queries.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from ..model.config import ModelConfig
from .fields import activation, boolean, merge_dialects, number, optional_integer, refuse_variants, sizes
from .gguf import Architecture
from .names import JOINED_HEADS, Names
from .parts import Family, Part, Parts, Values, Weights, decoder_config

_TRANSPOSED = re.compile(r"layers\.[0-9]+\.(attention\.(qkv|output)|ffn\.(up|down))\.weight")

NAMES = Names(
    prefix="transformer.",
    embeddings={
        "wte.weight": "embeddings.word", "wpe.weight": "embeddings.position",
        "ln_f.weight": "final_norm.weight", "ln_f.bias": "final_norm.bias",
    },
    layers="h.",
    layer={
        "ln_1": "attention.norm",
        "attn.c_attn": "attention.qkv",
        "attn.c_proj": "attention.output",
        "ln_2": "ffn.norm",
        "mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down",
    },
    left_out=("score.", "multiple_choice_head.", "classifier."),
    joined=JOINED_HEADS,
    copies={"embeddings.word": ("lm_head.weight",)},
    buffers=(".attn.bias", ".attn.masked_bias"),
)

DIALECT = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings", "n_inner": "intermediate_size"}  # fmt: skip


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"scale_attn_by_inverse_layer_idx": False, "tie_word_embeddings": True})
    return Parts(Part(read_config(values, "gpt2", "gelu_new"), NAMES, _transposed))


def _read_bigcode(values: Values) -> Parts:
    """Return the decoder of StarCoder's config.json; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"tie_word_embeddings": True})
    one_key_head = boolean(values, "multi_query", True)
    config = replace(read_config(values, "gpt_bigcode", "gelu_pytorch_tanh"), num_kv_heads=int(one_key_head))
    return Parts(Part(config, NAMES if one_key_head else replace(NAMES, joined_by_head=("attention.qkv",))))


def read_config(values: Values, family: str, usual_activation: str) -> ModelConfig:
    """Return the architecture of a model with GPT-2's keys in its config.json.

    usual_activation: the default of activation_function. Raises `WeightsError` or `UnsupportedError`.
    """
    values = merge_dialects(values, DIALECT)
    shape = sizes(values, vocab=50257, positions=1024)
    return decoder_config(
        family=family,
        **shape,
        ffn_size=optional_integer(values, "intermediate_size", 4 * shape["hidden_size"]),
        position_table=True,
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        activation=activation(values, "activation_function", usual_activation),
        attention_scale=None if boolean(values, "scale_attn_weights", True) else 1.0,
    )


def _transposed(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the weights with those of linear maps transposed to [out, in]; files have them as [in, out]."""
    return config, {name: np.ascontiguousarray(array.T) if _TRANSPOSED.fullmatch(name) and array.ndim == 2 else array
                    for name, array in weights.items()}  # fmt: skip


FAMILIES = {
    "gpt2": Family(read_generator=read_generator, classes="GPT2"),
    "gpt_bigcode": Family(read_generator=_read_bigcode),
}
ARCHITECTURES = {
    "gpt2": Architecture("gpt2", eps="layer_norm_epsilon", finishes=False, rotates=False),
    "starcoder": Architecture("gpt_bigcode", eps="layer_norm_epsilon", rotates=False),
}
