"""GPT-Neo (Black et al. 2021): GPT-2's layers with local windows in every second layer, and scores without a scale."""

from __future__ import annotations

from ..base.errors import WeightsError, shown
from ..model.attention import AttentionKind
from . import gpt2
from .fields import activation, integer, merge_dialects, number, optional_integer, refuse_variants, sizes
from .parts import Family, Part, Parts, Values, decoder_config

NAMES = gpt2.NAMES.with_layer(
    {
        "attn.attention.q_proj": "attention.query", "attn.attention.k_proj": "attention.key",
        "attn.attention.v_proj": "attention.value", "attn.attention.out_proj": "attention.output",
    },
    without=("attn.",),
    left_out=("score.", "classifier.", "qa_outputs."),
    joined={},
    buffers=(".attn.attention.bias", ".attn.attention.masked_bias"),
)
_DIALECT = {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"}
_TYPES = ("global", "local")


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"tie_word_embeddings": True})
    values = merge_dialects(values, _DIALECT)
    shape = sizes(values, hidden=2048, layers=24, heads=16, vocab=50257, positions=2048)
    window = integer(values, "window_size", 256, least=1)
    config = decoder_config(
        family="gpt_neo",
        **shape,
        ffn_size=optional_integer(values, "intermediate_size", 4 * shape["hidden_size"]),
        position_table=True,
        norm_eps=number(values, "layer_norm_epsilon", 1e-5),
        biases=("output", "up", "down"),
        activation=activation(values, "activation_function", "gelu_new"),
        attention_scale=1.0,
        # window_size counts the token itself.
        attention_kinds=(AttentionKind(causal=True), AttentionKind(window - 1, causal=True)),
        layer_kinds=_layer_kinds(values, shape["num_layers"]),
    )
    return Parts(Part(config, NAMES))


def _layer_kinds(values: Values, layers: int) -> tuple[int, ...]:
    """Return for each layer 0 for global attention, or 1 for a local window.

    `attention_types` lists pairs (names of consecutive layers, how many times they repeat): [[["global", "local"], 12]]
    has 24 layers.
    """
    stated = values.get("attention_types")
    pairs = [[list(_TYPES), 12]] if stated is None else stated
    kinds: list[int] = []
    if isinstance(pairs, list):
        for pair in pairs:
            names, times = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
            if (not isinstance(names, list) or type(times) is not int or not all(name in _TYPES for name in names)
                    or not 0 <= times * len(names) <= layers - len(kinds)):
                break
            kinds += [_TYPES.index(name) for name in names] * times
        else:
            if len(kinds) == layers:
                return tuple(kinds)
    raise WeightsError(f"attention_types must be pairs of a list of names, 'global' or 'local', and a number of times, "
                       f"{shown(layers)} layers in all, not {shown(stated)}")


FAMILIES = {"gpt_neo": Family(read_generator=read_generator)}
