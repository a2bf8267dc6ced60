"""Llama (Touvron et al. 2023) and language models with its layers, also as encoders, such as Qwen3-Embedding.

Pre-norm with RMSNorm, rotary positions, grouped key heads and a gated feed-forward network. `_VARIANTS` says what
differs in the other models: Mistral, Qwen2, Qwen3, SmolLM2, Ministral, OLMo 2 and 3 (OLMo Team 2025, arXiv 2501.00656)
and EXAONE 4, StarCoder2 (Lozhkov et al. 2024, arXiv 2402.19173), Seed-OSS, Helium, ERNIE 4.5, GLM-4 9B (GLM Team 2024,
arXiv 2406.12793) and InternLM3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, FEED_FORWARD_MAPS, LINEAR_MAPS, QKV_MAPS, ModelConfig
from . import eurobert, fields, heads
from .fields import GATE_ACTIVATIONS, activation, boolean, head_width, integer, number, optional_integer
from .gguf import NAMES as GGUF_NAMES
from .gguf import Architecture, Shapes, Stated
from .names import JOINED_GATE, Names
from .parts import Family, Part, Parts, Values, decoder_config

TIED = eurobert.NAMES.with_layer(
    {"self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm"},
    left_out=("score.", "qa_outputs."),
    heads=(),
    copies={"embeddings.word": ("lm_head.weight",)},
)
"""The names of the tensors of a language model whose logits are by the word table."""
_SCORE = heads.Layer("classifier", "score")
_ENCODER = replace(
    TIED,
    prefix=("model.", "transformer."),      # Qwen3ForQuestionAnswering has the second one
    left_out=("lm_head.", "score.", "qa_outputs."),
    copies={},
    heads=(heads.named("classify", _SCORE, rows="last"), heads.named("tag", _SCORE), heads.ANSWERS),
)
"""The names of the tensors of an encoder, and of its heads."""


def with_norm_bias(names: Names) -> dict[str, str]:
    """Return the names of the embeddings of a model whose last norm is a LayerNorm with a bias."""
    return {**names.embeddings, "norm.bias": "final_norm.bias"}


def names_of(config: ModelConfig, tied: Names = TIED) -> Names:
    """Return the names of a language model's tensors. tied: the names of a model whose logits read the word table."""
    if config.logits == "tied":
        return tied
    return replace(tied, embeddings={**tied.embeddings, "lm_head.weight": "logits.weight"}, copies={})


@dataclass(frozen=True)
class Variant:
    """How a model differs from Llama; the defaults are Llama's."""

    defaults: Values
    """The defaults of keys of config.json in transformers, where they are not Llama's."""
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Keys of config.json that say whether linear maps have biases, each with its maps; other maps never have one."""
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
    """For a model whose layers differ, without `layer_types`: layers whose number, from 1, is a multiple of this see
    all keys, and the others a window of `sliding_window` tokens; 0 for a window in each. None if layers are alike.
    """
    whole_rotates: bool = True
    """Whether layers that see all keys rotate queries and keys, as layers with a window always do."""
    own_ropes: bool = False
    """Whether `rope_parameters` has an object for each kind of layer; `rope_scaling` is about layers that see all."""
    stated_every: bool = False
    """Whether `sliding_window_pattern` of config.json may replace `every`."""
    late_windows: bool = False
    """Whether layers see a window from `max_window_layers` on, if `use_sliding_window` says so."""
    null_head: bool = False
    """Whether head_dim = null means hidden size / heads although `defaults` has the key; otherwise it is an error."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the `ModelConfig` that are not Llama's."""
    names: Names = TIED
    """The names of the tensors of a model whose logits are by the word table."""


_Biases = dict[str, tuple[str, ...]]
ATTENTION: _Biases = {"attention_bias": ATTENTION_MAPS}
_QKV: _Biases = {"attention_bias": QKV_MAPS}
_FFN: _Biases = {"mlp_bias": FEED_FORWARD_MAPS}
"""Keys of a config.json, and the linear maps that have biases where the key is true."""
_QWEN = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32,
         "max_position_embeddings": 32768, "sliding_window": 4096}
LLAMA = Variant({}, ATTENTION | _FFN)
_OLMO = {"vocab_size": 50304, "rms_norm_eps": 1e-5, "pad_token_id": 1}
_NORMS_BEHIND = TIED.with_layer({"post_attention_layernorm": "attention.post_norm",
                                 "post_feedforward_layernorm": "ffn.post_norm"}, without=("input_layernorm",))
_JOINT_NORM = {"norm_place": "reordered", "joint_norm": True}
"""Options of OLMo, which norms all queries of a token together, and all its keys; EXAONE norms each head instead."""
_MINISTRAL = {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
              "sliding_window": 4096}
_VARIANTS = {
    "ernie4_5": Variant({"vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
                         "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
                         "max_position_embeddings": 131072, "tie_word_embeddings": True},
                        {"use_bias": LINEAR_MAPS}, theta=500000.0, interleaved=True, null_head=True),
    "exaone4": Variant({"vocab_size": 102400, "intermediate_size": 16384, "rms_norm_eps": 1e-5, "sliding_window": 4096},
                       head_norm=True, every=4, stated_every=True, whole_rotates=False,
                       options={"norm_place": "reordered"}, names=_NORMS_BEHIND),
    "glm": Variant({"vocab_size": 151552, "intermediate_size": 13696, "num_hidden_layers": 40,
                    "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 0.00000015625, "attention_bias": True,
                    "max_position_embeddings": 131072, "pad_token_id": 151329}, _QKV, share=0.5, interleaved=True,
                   names=TIED.with_layer({"mlp.gate_up_proj": "ffn.gate_up"}, without=("mlp.gate", "mlp.up"),
                                         joined=JOINED_GATE)),
    "helium": Variant({"vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040, "num_hidden_layers": 24,
                       "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8,
                       "max_position_embeddings": 4096, "pad_token_id": 3},
                      _QKV | _FFN, theta=100000.0, interleaved=True),
    "internlm3": Variant({"vocab_size": 128512, "intermediate_size": 10240, "num_hidden_layers": 48,
                          "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5, "pad_token_id": 2,
                          "max_position_embeddings": 32768}, ATTENTION | _FFN, null_head=True),
    "llama": LLAMA,
    "ministral": Variant(_MINISTRAL, every=0),
    "mistral": Variant(_MINISTRAL, windowed=True),
    "olmo2": Variant(_OLMO, ATTENTION, options=_JOINT_NORM, names=_NORMS_BEHIND),
    "olmo3": Variant(_OLMO | {"sliding_window": 4096}, ATTENTION, theta=500000.0, every=4, own_ropes=True,
                     options=_JOINT_NORM, names=_NORMS_BEHIND),
    "qwen2": Variant(_QWEN, query_bias=True, late_windows=True),
    "qwen3": Variant(_QWEN | {"head_dim": 128}, ATTENTION, head_norm=True, late_windows=True),
    "seed_oss": Variant({"vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64,
                         "num_attention_heads": 80, "num_key_value_heads": 8, "max_position_embeddings": 524288,
                         "head_dim": 128, "attention_bias": True, "pad_token_id": 1},
                        {"attention_out_bias": ("output",)} | _QKV | _FFN, null_head=True),
    "starcoder2": Variant({"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288,
                           "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
                           "max_position_embeddings": 4096, "norm_epsilon": 1e-5, "use_bias": True,
                           "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
                          {"use_bias": LINEAR_MAPS}, windowed=True, eps="norm_epsilon", options={"gated": False},
                          names=TIED.with_layer({"mlp.c_fc": "ffn.up", "mlp.c_proj": "ffn.down"}, without=("mlp.",),
                                                embeddings=with_norm_bias(TIED))),
}
_SUPPORTED = {"is_causal": True, "use_bidirectional_attention": False}
"""The only values of these keys that are supported."""


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    family = str(values.get("model_type"))
    if family == "internlm3":
        values = fields.merge_dialects(values, {"qkv_bias": "attention_bias", "bias": "mlp_bias"})
        if boolean(values, "attention_bias", False) != boolean(values, "mlp_bias", False):
            raise UnsupportedError("attention_bias and mlp_bias (qkv_bias and bias) must be equal")
    config = read_config(values, family, _VARIANTS[family])
    return Parts(Part(config, names_of(config, _VARIANTS[family].names)))


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`.

    A token sees no later token, unless the config says `is_causal: false` or `use_bidirectional_attention: true`.
    """
    both_ways = values.get("is_causal") is False or boolean(values, "use_bidirectional_attention", False)
    if both_ways:       # no published model shows whether a window reaches to both sides then
        fields.refuse_variants(values, {"use_sliding_window": False})
    # `read_config` takes causal models alone.
    read = values if not both_ways else values | {"is_causal": True, "use_bidirectional_attention": False}
    family = str(values.get("model_type"))
    config = read_config(read, family, _VARIANTS[family], decodes=False)
    if both_ways:
        kinds = tuple(replace(kind, causal=False) for kind in config.attention_kinds)
        config = replace(config, attention_kinds=kinds)
    return Part(config, _ENCODER)


def read_config(values: Values, family: str, kind: Variant, *, decodes: bool = True) -> ModelConfig:
    """Return the architecture of a model with the layers of Llama, which may be of another family.

    kind: how the model differs from Llama. decodes: whether it ends with logits; False for an encoder. Raises
    `WeightsError` or `UnsupportedError`.
    """
    may_be_late = kind.late_windows and values.get("use_sliding_window") is not None
    late = may_be_late and boolean(values, "use_sliding_window", False)     # whether later layers see a window
    fields.refuse_variants(values, _SUPPORTED | ({} if late else {"use_sliding_window": False}))
    values = kind.defaults | values
    width, heads = integer(values, "hidden_size", 4096), integer(values, "num_attention_heads", 32)
    if "head_dim" in kind.defaults and not kind.null_head:   # null is an error for such a model, as in transformers
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
        if kind.stated_every and values.get("layer_types") is None:
            every = integer(values, "sliding_window_pattern", every)
        kinds, layer_kinds = _by_layer(values, kind, head, layers, windowed=lambda i: not every or (i + 1) % every != 0)
    else:
        kinds, layer_kinds = _attention_of_all_layers(values, kind, head), ()
    tied = decodes and boolean(values, "tie_word_embeddings", False)
    config = decoder_config(
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
        pad_token_id=optional_integer(values, "pad_token_id", 0),
        norm="rms" if kind.eps == "rms_norm_eps" else "layer",      # the key of the epsilon tells which
        norm_eps=number(values, kind.eps, 1e-6),
        biases=QKV_MAPS if kind.query_bias else tuple(name for name in LINEAR_MAPS if name in biases),
        activation=activation(values, "hidden_act", "silu", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=kinds,
        layer_kinds=layer_kinds,
        logits=None if not decodes else "tied" if tied else "own",
    )
    return replace(config, **kind.options)


def _attention_of_all_layers(values: Values, variant: Variant, width: int) -> tuple[AttentionKind, ...]:
    """Return the one kind of attention of a model whose layers are alike; width: the columns of a head."""
    names = values.get("layer_types") or []
    if not isinstance(names, list) or any(name != "full_attention" for name in names):
        raise UnsupportedError(f"layer_types {shown(names)} is not supported; only 'full_attention' is")
    window = optional_integer(values, "sliding_window", 0) if variant.windowed else 0       # counts the token itself
    rotary = (fields.rotary(values, "rope_theta", variant.theta, width) if variant.share is None else
              fields.partial_rotary(values, "rope_theta", variant.theta, width, share=variant.share))
    return (AttentionKind(window - 1 if window else None, causal=True, rotary_interleaved=variant.interleaved,
                          **rotary),)


def _by_layer(values: Values, variant: Variant, width: int, layers: int,
              windowed: Callable[[int], bool]) -> tuple[tuple[AttentionKind, ...], tuple[int, ...]]:
    """Return the kinds of attention of a model whose layers may differ, and the index of each layer's kind.

    width: the columns of a head. windowed: says of a layer's number whether it sees a window, for a config without
    `layer_types`. If no layer sees a window, there is one kind, and () in place of the indices.
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


def _olmo2_of_gguf(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Raise `UnsupportedError` for a GGUF file of OLMo 3, which has OLMo 2's architecture and a window."""
    if stated.get("attention.sliding_window"):
        raise UnsupportedError("olmo2.attention.sliding_window is that of OLMo 3, which is not supported in a GGUF "
                               "file; load the folder of the model")


FAMILIES = {
    **{name: Family(read_generator=read_generator) for name in _VARIANTS},
    "internlm3": Family(read_generator=read_generator, remote_code=("InternLM3Model",)),
    "llama": Family(read_encoder, read_generator, kind_without_class="generate"),
    "mistral": Family(read_encoder, read_generator, kind_without_class="generate"),
    "qwen2": Family(read_encoder, read_generator, kind_without_class="generate", remote_code=("Qwen2Model",),
                    code_decides="is_causal"),
    "qwen3": Family(read_encoder, read_generator),
}
ARCHITECTURES = {
    "ernie4_5": Architecture("ernie4_5"),
    "llama": Architecture("llama", neighbours=True),
    "olmo2": Architecture("olmo2", change=_olmo2_of_gguf, reads=("attention.sliding_window",)),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "seed_oss": Architecture("seed_oss", names=GGUF_NAMES.with_layer({"post_attention_norm": "ffn.norm"})),
    "starcoder2": Architecture("starcoder2", eps="norm_epsilon"),
}
