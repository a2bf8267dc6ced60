"""Falcon 7B (Almazrouei et al. 2023, arXiv 2311.16867): one key head, and attention and ffn from one norm."""

from __future__ import annotations

from ..base.errors import UnsupportedError
from ..model.attention import AttentionKind
from . import bloom
from .fields import activation, merge_dialects, number, optional_integer, refuse_variants, rotary, sizes
from .gguf import Architecture
from .parts import Family, Part, Parts, Values, decoder_config, with_one_norm

NAMES = bloom.NAMES.with_layer(
    {}, without=("post_attention_layernorm",),
    embeddings={name: ours for name, ours in bloom.NAMES.embeddings.items() if "layernorm" not in name},
    joined_by_head=(),
)
_SUPPORTED = {"alibi": False, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True,
              "bias": False, "tie_word_embeddings": True}
"""The only values of these keys that are supported."""


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, _SUPPORTED)
    values = merge_dialects(values, bloom.DIALECT)
    shape = sizes(values, hidden=4544, layers=32, heads=71, vocab=65024, positions=2048)
    if values.get("num_ln_in_parallel_attn") not in (None, 1):
        raise UnsupportedError("num_ln_in_parallel_attn is not 1; only one norm for both parts of a layer is supported")
    config = decoder_config(
        family="falcon",
        **shape,
        num_kv_heads=1,
        ffn_size=optional_integer(values, "ffn_hidden_size", 4 * shape["hidden_size"]),
        norm_place="parallel",
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        biases=(),
        activation=activation(values, "activation", "gelu"),
        attention_kinds=(AttentionKind(causal=True, **rotary(values, "rope_theta", 10000.0, shape["head_width"])),),
    )
    return Parts(Part(config, NAMES, with_one_norm))


FAMILIES = {"falcon": Family(read_generator=read_generator, remote_code=("FalconModel", "RWModel"))}
ARCHITECTURES = {"falcon": Architecture("falcon", eps="layer_norm_epsilon")}
