"""CodeGen (Nijkamp et al. 2022, arXiv 2203.13474) and GPT-J (Wang and Komatsuzaki 2021).

Attention and feed-forward read one norm, and the first columns of a head rotate, neighbours together. CodeGen holds
queries, values and keys in one tensor, in four parts, one for each core of the machine that trained it.
"""

from __future__ import annotations

import numpy as np

from ..base.errors import WeightsError
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from . import fields, gpt2
from .fields import GATE_ACTIVATIONS, activation, integer, number, optional_integer
from .names import Names
from .parts import Family, Part, Parts, Values, Weights, decoder_config, with_one_norm

_CORES = 4
"""The parts of the tensor of queries, values and keys, one for each core of the machine that trained the model."""
_ORDER = ("query", "value", "key")
"""The order of the rows in each part."""

GPTJ = Names(
    prefix="transformer.",
    embeddings={
        "wte.weight": "embeddings.word",
        "ln_f.weight": "final_norm.weight", "ln_f.bias": "final_norm.bias",
        "lm_head.weight": "logits.weight", "lm_head.bias": "logits.bias",
    },
    layers="h.",
    layer={
        "ln_1": "attention.norm",
        "attn.q_proj": "attention.query", "attn.k_proj": "attention.key",
        "attn.v_proj": "attention.value", "attn.out_proj": "attention.output",
        "mlp.fc_in": "ffn.up", "mlp.fc_out": "ffn.down",
    },
    left_out=("score.", "qa_outputs."),
    buffers=(".attn.bias", ".attn.masked_bias", ".attn.embed_positions", ".attn.causal_mask"),
)
CODEGEN = GPTJ.with_layer({"attn.qkv_proj": "attention.qkv"}, without=("attn.q", "attn.k", "attn.v"))


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values, {"tie_word_embeddings": False})
    family = str(values.get("model_type"))
    values = fields.merge_dialects(values, gpt2.DIALECT)
    shape = fields.sizes(values, hidden=4096, layers=28, heads=16, vocab=50400, positions=2048)
    columns = integer(values, "rotary_dim", 64)
    if family == "codegen" and shape["num_heads"] % _CORES:
        raise WeightsError(f"n_head must be a multiple of {_CORES}, the parts of a tensor, not {shape['num_heads']}")
    config = decoder_config(
        family=family,
        **shape,
        ffn_size=optional_integer(values, "intermediate_size", 4 * shape["hidden_size"]),
        norm_place="parallel",
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        biases=("up", "down"),
        activation=activation(values, "activation_function", "gelu_new", GATE_ACTIVATIONS),
        attention_kinds=(AttentionKind(causal=True, rotary_theta=10000.0, rotary_interleaved=True,
                                       rotary_width=columns),),
        logits="own",
        logits_bias=True,
    )
    return Parts(Part(config, CODEGEN, _split_qkv) if family == "codegen" else Part(config, GPTJ, with_one_norm))


def _split_qkv(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the weights with queries, keys and values cut out of the parts of their tensor, [4, 3, D / 4, D].

    The one norm of a layer also gets the names of two (`with_one_norm`).
    """
    cut: Weights = {}
    for name, array in with_one_norm(config, weights)[1].items():
        if ".attention.qkv." in name and array.shape[:1] == (3 * config.num_heads * config.head_width,):
            parts = array.reshape(_CORES, len(_ORDER), -1, *array.shape[1:])
            cut |= {name.replace("qkv", map): np.ascontiguousarray(parts[:, i]).reshape(-1, *array.shape[1:])
                    for i, map in enumerate(_ORDER)}
        else:
            cut[name] = array
    return config, cut


FAMILIES = {"codegen": Family(read_generator=read_generator), "gptj": Family(read_generator=read_generator)}
