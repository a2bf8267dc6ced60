"""Llama (Touvron et al. 2023) and language models with its layers, such as SmolLM2, Mistral, Qwen2 and Qwen3.

Pre-norm with RMSNorm, rotary positions, grouped key heads and a gated feed-forward network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, FEED_FORWARD_MAPS, LINEAR_MAPS, QKV_MAPS, ModelConfig
from . import eurobert, fields
from .fields import GATE_ACTIVATIONS, activation, boolean, head_width, integer, number, optional_integer
from .names import Names
from .parts import Part, Parts, Values

TIED = replace(
    eurobert.NAMES,
    layer={
        **eurobert.NAMES.layer,
        "self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm",
    },
    left_out=("score.", "qa_outputs."),
    heads=(),
    copies={"embeddings.word": ("lm_head.weight",)},
)


def names_of(config: ModelConfig, tied: Names = TIED) -> Names:
    """Return the names of the tensors of a language model. tied: those of one whose logits are by the word table."""
    if config.logits == "tied":
        return tied
    return replace(tied, embeddings={**tied.embeddings, "lm_head.weight": "logits.weight"}, copies={})


@dataclass(frozen=True)
class _Variant:
    """The differences between the models."""

    defaults: dict[str, Any]
    """transformers' defaults, where they are not Llama's."""
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The keys of the config that say whether maps have biases, each with its maps; other maps never have one."""
    query_bias: bool = False
    """Whether queries, keys and values have biases whatever the config says."""
    head_norm: bool = False
    """Whether each head of queries and keys has a norm."""
    windowed: bool = False
    """Whether a token sees only the last `sliding_window` tokens, itself among them."""
    theta: float = 10000.0
    """The theta of the rotary embedding where the config states none."""
    share: float | None = None
    """The share of the columns of a head that rotate where the config states none; None if all rotate."""
    interleaved: bool = False
    """Whether the columns 2i and 2i+1 of a head rotate together."""
    eps: str = "rms_norm_eps"
    """The key of the epsilon of the norms. They are RMSNorms with the default key, and LayerNorms with any other."""
    every: int | None = None
    """Of a model whose layers differ: without `layer_types`, each layer of this number sees all keys, and the others
    a window of `sliding_window` tokens; 0 for a window in all of them. None for a model whose layers are alike."""
    whole_rotates: bool = True
    """Whether layers that see all keys rotate queries and keys beside layers with a window."""
    own_ropes: bool = False
    """Whether `rope_parameters` has an object for each kind of layer; `rope_scaling` is about layers that see all."""


_Biases = dict[str, tuple[str, ...]]
_ATTENTION: _Biases = {"attention_bias": ATTENTION_MAPS}
_QKV: _Biases = {"attention_bias": QKV_MAPS}
_FFN: _Biases = {"mlp_bias": FEED_FORWARD_MAPS}
_QWEN = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32,
         "max_position_embeddings": 32768, "sliding_window": 4096}
_OLMO = {"vocab_size": 50304, "rms_norm_eps": 1e-5, "pad_token_id": 1}
_GEMMA2 = {"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
           "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
           "hidden_act": "gelu_pytorch_tanh", "sliding_window": 4096, "tie_word_embeddings": True}
_COHERE2 = {"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
            "num_attention_heads": 64, "max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "sliding_window": 4096}
_VARIANTS = {
    "llama": _Variant({}, _ATTENTION | _FFN),
    "mistral": _Variant({"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
                         "sliding_window": 4096}, windowed=True),
    "qwen2": _Variant(_QWEN, query_bias=True),
    "qwen3": _Variant(_QWEN | {"head_dim": 128}, _ATTENTION, head_norm=True),
    "ministral": _Variant({"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
                           "sliding_window": 4096}, every=0),
    "olmo": _Variant({"vocab_size": 50304, "pad_token_id": 1}, _ATTENTION),
    "olmo2": _Variant(_OLMO, _ATTENTION),
    "olmo3": _Variant(_OLMO | {"sliding_window": 4096}, _ATTENTION, theta=500000.0, every=4, own_ropes=True),
    "exaone4": _Variant({"vocab_size": 102400, "intermediate_size": 16384, "rms_norm_eps": 1e-5,
                         "sliding_window": 4096}, head_norm=True, every=4, whole_rotates=False),
    "smollm3": _Variant({}, _ATTENTION | _FFN, theta=2000000.0),
    "gemma": _Variant({"head_dim": 256}, _ATTENTION),
    "gemma2": _Variant(_GEMMA2, _ATTENTION, every=2),
    "cohere2": _Variant(_COHERE2, _ATTENTION, interleaved=True, eps="layer_norm_eps", every=4, whole_rotates=False),
    "granite": _Variant({}, _ATTENTION | _FFN),
    "granitemoehybrid": _Variant({}, _ATTENTION),
    "phi3": _Variant({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "pad_token_id": 32000,
                      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}, windowed=True, share=1.0),
    "stablelm": _Variant({"vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912,
                          "max_position_embeddings": 4096, "layer_norm_eps": 1e-5},
                         {"use_qkv_bias": QKV_MAPS}, share=0.25, eps="layer_norm_eps"),
    "starcoder2": _Variant({"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288,
                            "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
                            "max_position_embeddings": 4096, "norm_epsilon": 1e-5, "use_bias": True,
                            "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
                           {"use_bias": LINEAR_MAPS}, windowed=True, eps="norm_epsilon"),
    "seed_oss": _Variant({"vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64,
                          "num_attention_heads": 80, "num_key_value_heads": 8, "max_position_embeddings": 524288,
                          "head_dim": 128, "attention_bias": True, "pad_token_id": 1},
                         {"attention_out_bias": ("output",)} | _QKV | _FFN),
    "helium": _Variant({"vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040, "num_hidden_layers": 24,
                        "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8,
                        "max_position_embeddings": 4096, "pad_token_id": 3},
                       _QKV | _FFN, theta=100000.0, interleaved=True),
    "ernie4_5": _Variant({"vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
                          "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
                          "max_position_embeddings": 131072, "tie_word_embeddings": True},
                         {"use_bias": LINEAR_MAPS}, theta=500000.0, interleaved=True),
    "glm": _Variant({"vocab_size": 151552, "intermediate_size": 13696, "num_hidden_layers": 40,
                     "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 0.00000015625, "attention_bias": True,
                     "max_position_embeddings": 131072, "pad_token_id": 151329}, _QKV, share=0.5, interleaved=True),
    "internlm3": _Variant({"vocab_size": 128512, "intermediate_size": 10240, "num_hidden_layers": 48,
                           "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "pad_token_id": 2,
                           "max_position_embeddings": 32768}, _ATTENTION | _FFN),
}
_NULL_HEADS = ("seed_oss", "internlm3", "ernie4_5")
"""The models with a default of head_dim for which null under that key means hidden size / number of heads."""
_SUPPORTED = {"is_causal": True, "use_bidirectional_attention": False}
_LATE_WINDOWS = ("qwen2", "qwen3")
"""The models whose layers see a window from `max_window_layers` on, if `use_sliding_window` says so."""

_STATED_PATTERNS = ("cohere2", "exaone4")
"""The models with `_Variant.every` for which transformers reads another number from `sliding_window_pattern`."""


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    family = str(values.get("model_type"))
    if family == "internlm3":
        values = fields.merge_dialects(values, {"qkv_bias": "attention_bias", "bias": "mlp_bias"})
        if boolean(values, "attention_bias", False) != boolean(values, "mlp_bias", False):
            raise UnsupportedError("attention_bias and mlp_bias (qkv_bias and bias) must be equal")
    config = read_config(values, family)
    return Parts(Part(config, names_of(config)))


def read_config(values: dict[str, Any], family: str, *, decodes: bool = True) -> ModelConfig:
    """Return the architecture of a model of one of the families here; decodes: with the product that gives logits."""
    kind = _VARIANTS[family]
    may_be_late = family in _LATE_WINDOWS and values.get("use_sliding_window") is not None
    late = may_be_late and boolean(values, "use_sliding_window", False)     # windows from some layer on
    fields.refuse_variants(values, _SUPPORTED | ({} if late else {"use_sliding_window": False}))
    values = kind.defaults | values
    width, heads = integer(values, "hidden_size", 4096), integer(values, "num_attention_heads", 32)
    if "head_dim" in kind.defaults and family not in _NULL_HEADS:   # as in transformers, null is an error here
        head = integer(values, "head_dim", 0)
    else:
        head = optional_integer(values, "head_dim", 0) or head_width(width, heads)
    biases = {name for key, maps in kind.biases.items() if boolean(values, key, False) for name in maps}
    layers = integer(values, "num_hidden_layers", 32)
    if late:
        first = integer(values, "max_window_layers", 28)
        kinds, layer_kinds = _by_layer(values, kind, head, layers, windowed=lambda i: i >= first)
    elif kind.every is not None:
        every = kind.every  # the last of `every` layers sees all keys; 0: no layer does
        if family in _STATED_PATTERNS and values.get("layer_types") is None:
            every = integer(values, "sliding_window_pattern", every)
        kinds, layer_kinds = _by_layer(values, kind, head, layers, windowed=lambda i: not every or (i + 1) % every != 0)
    else:
        kinds, layer_kinds = _alike(values, kind, head), ()
    tied = decodes and boolean(values, "tie_word_embeddings", False)
    return ModelConfig(
        family=family,
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=optional_integer(values, "num_key_value_heads", 0),
        head_width=head,
        head_norm=kind.head_norm,
        ffn_size=integer(values, "intermediate_size", 11008),
        vocab_size=integer(values, "vocab_size", 32000),
        max_positions=fields.longest_of(values, 2048),
        position_table=False,
        embedding_norm=False,
        pad_token_id=optional_integer(values, "pad_token_id", 0),
        norm="rms" if kind.eps == "rms_norm_eps" else "layer",      # the key of the epsilon tells which
        norm_place="pre",
        norm_eps=number(values, kind.eps, 1e-6),
        biases=QKV_MAPS if kind.query_bias else tuple(name for name in LINEAR_MAPS if name in biases),
        activation=activation(values, "hidden_act", "silu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=kinds,
        layer_kinds=layer_kinds,
        logits=None if not decodes else "tied" if tied else "own",
    )


def _alike(values: Values, variant: _Variant, width: int) -> tuple[AttentionKind, ...]:
    """Return the attention of all layers of a model whose layers are alike; width: of a head."""
    names = values.get("layer_types") or []
    if not isinstance(names, list) or any(name != "full_attention" for name in names):
        raise UnsupportedError(f"layer_types {shown(names)} is not supported; only 'full_attention' is")
    window = optional_integer(values, "sliding_window", 0) if variant.windowed else 0       # counts the token itself
    rotary = (fields.rotary(values, "rope_theta", variant.theta, width) if variant.share is None else
              fields.partial_rotary(values, "rope_theta", variant.theta, width, share=variant.share))
    return (AttentionKind(window - 1 if window else None, causal=True, rotary_interleaved=variant.interleaved,
                          **rotary),)


def _by_layer(values: Values, variant: _Variant, width: int, layers: int,
              windowed: Callable[[int], bool]) -> tuple[tuple[AttentionKind, ...], tuple[int, ...]]:
    """Return the kinds of attention, and the index of each layer's kind.

    width: of a head. windowed: which layers see a window where the config has no `layer_types`.
    """
    window = optional_integer(values, "sliding_window", 0)
    layer_kinds = fields.layer_types(values, layers, windowed if window else lambda i: False)   # 1: with a window
    if any(layer_kinds) and window < 1:
        raise WeightsError(f"layer_types has layers with a window, so sliding_window must be at least 1, not "
                           f"{shown(values.get('sliding_window'))}")
    # Each kind of layer has rotary settings of its own, which are not scaled in a window; or all share the same.
    full, sliding = fields.LAYER_TYPES if variant.own_ropes else (None, None)
    in_window = values | {"rope_scaling": None} if variant.own_ropes else values
    full_rotary = fields.rotary(values, "rope_theta", variant.theta, width, full)
    sliding_rotary = fields.rotary(in_window, "rope_theta", variant.theta, width, sliding)
    full_kind = AttentionKind(causal=True, rotary_interleaved=variant.interleaved, **full_rotary)
    if not any(layer_kinds):
        return (full_kind,), ()
    # sliding_window counts the token itself, and a window of AttentionKind does not.
    sliding_kind = AttentionKind(window - 1, causal=True, rotary_interleaved=variant.interleaved, **sliding_rotary)
    return (full_kind if variant.whole_rotates else AttentionKind(causal=True), sliding_kind), layer_kinds
