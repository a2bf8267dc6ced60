"""How llama.cpp names the models of each family in a GGUF file: settings to the keys of a config.json, tensors to ours.

The keys are those of docs/gguf.md of ggml, with the name of the architecture in front. They become the keys of a
config.json, so that the families check them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..families.fields import LAYER_TYPES, number, yarn_factor
from ..families.names import JOINED_GATE, JOINED_HEADS, Names

Stated = Mapping[str, Any]
"""The settings of a file that begin with the name of the architecture, without that name."""
Shapes = Mapping[str, tuple[int, ...]]

DIVISORS = "rotary_divisors"
"""The tensor that divides the frequencies of the rotary embedding, as Llama 3.1 scales them; also the prefix of the
names of the two tables of LongRoPE."""

_NAMES = Names(
    prefix="",
    embeddings={
        "token_embd.weight": "embeddings.word", "position_embd.weight": "embeddings.position",
        "token_types.weight": "embeddings.token_type",
        "token_embd_norm.weight": "embeddings.norm.weight", "token_embd_norm.bias": "embeddings.norm.bias",
        "output_norm.weight": "final_norm.weight", "output_norm.bias": "final_norm.bias",
        "output.weight": "logits.weight", "output.bias": "logits.bias",
        "rope_freqs.weight": DIVISORS,
        "rope_factors_short.weight": f"{DIVISORS} short",
        "rope_factors_long.weight": f"{DIVISORS} long",
    },
    layers="blk.",
    layer={
        "attn_norm": "attention.norm",
        "attn_q": "attention.query", "attn_k": "attention.key",
        "attn_v": "attention.value",
        "attn_qkv": "attention.qkv",
        "attn_output": "attention.output",
        "attn_q_norm": "attention.query_norm", "attn_k_norm": "attention.key_norm",
        "ffn_norm": "ffn.norm",
        "ffn_gate": "ffn.gate", "ffn_up": "ffn.up",
        "ffn_down": "ffn.down",
        "post_attention_norm": "attention.post_norm",
        "post_ffw_norm": "ffn.post_norm",
    },
    left_out=(),
    joined=JOINED_HEADS,
)
_POST_NORM = replace(_NAMES, layer={
    **_NAMES.layer, "attn_output_norm": "attention.norm", "layer_output_norm": "ffn.norm"})
_PHI3 = replace(_NAMES, layer={**_NAMES.layer, "ffn_up": "ffn.gate_up"}, joined=JOINED_HEADS | JOINED_GATE)

KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
"""The settings that every file has, and their keys in a config.json."""
_OPTIONAL = {"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
             "rope.freq_base": "rope_theta"}
_YARN = {"rope.scaling.original_context_length": "original_max_position_embeddings",
         "rope.scaling.yarn_attn_factor": "attention_factor", "rope.scaling.yarn_beta_fast": "beta_fast",
         "rope.scaling.yarn_beta_slow": "beta_slow"}
"""The settings of YaRN, and their keys in the rope_scaling of a config.json."""
_SINGLE = ("attention.sliding_window", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.finetuned",
           "rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_log_multiplier",
           "rope.scale_linear", *_YARN, "attention.max_alibi_bias", "attention.clamp_kqv", "rope.dimension_count",
           "use_parallel_residual")
"""Further settings that are read; each has one value, and none for each layer."""
_RMS, _LAYER = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


@dataclass(frozen=True)
class Architecture:
    """A value of general.architecture that is supported."""

    model_type: str
    """The family, by its value of model_type in a config.json."""
    eps: tuple[str, str] | None = (_RMS, "rms_norm_eps")
    """The setting of the epsilon of the norms, and its key; None for a family in which it is fixed."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Further settings that a file may have, and their keys."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Keys whose values no file states."""
    change: Callable[[dict[str, Any], Stated, Shapes], None] | None = None
    """Adds keys that need more than a name."""
    names: Names = _NAMES
    neighbours: bool = False
    """Whether rows of queries and keys that rotate together are neighbours, and not half a head apart."""
    partial: str | None = None
    """The key of the share of a head that rotates; None for a family that rotates all."""
    finishes: bool = True
    """Whether the family's own `Part.finish` applies to the tensors of a file."""
    encodes: bool = False
    """Whether the model gives vectors of tokens."""
    rotates: bool = True
    """Whether queries and keys have a rotary embedding, whose positions a file may scale."""


def _layer(key: str) -> tuple[str, str]:
    """Return the epsilon of a family with LayerNorm, which has this key in its config.json."""
    return _LAYER, key


def _gemma(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    """Add the scale of the scores, which files do not state; the largest models have it from the hidden size."""
    by_hidden_size = values["num_hidden_layers"] in _OF_THE_HIDDEN_SIZE
    width, heads, head_dim = (values.get(key) for key in ("hidden_size", "num_attention_heads", "head_dim"))
    if type(width) is int and type(heads) is int and heads > 0:
        values["query_pre_attn_scalar"] = width // heads if by_hidden_size or head_dim is None else head_dim


_OF_THE_HIDDEN_SIZE = (46, 62)
"""The layers of Gemma 2 27B and Gemma 3 27B."""


def _windows(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    """Add which layers see a window, where the file says it."""
    pattern = stated.get("attention.sliding_window_pattern")
    if pattern is None:
        return
    if not isinstance(pattern, np.ndarray) or pattern.dtype != bool:
        raise UnsupportedError(f"attention.sliding_window_pattern = {shown(pattern)} is not supported; only true or "
                               "false for each layer is")
    values["layer_types"] = [LAYER_TYPES[int(one)] for one in pattern]


def _gemma2(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    _gemma(values, stated, shapes)
    _windows(values, stated, shapes)


def _granite(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    if stated.get("rope.scaling.finetuned", True) is not True:
        raise UnsupportedError("granite.rope.scaling.finetuned says that the model has no rotary embedding, which is "
                               "not supported in a GGUF file")


def _stablelm(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    values["qk_layernorm"] = "blk.0.attn_q_norm.weight" in shapes
    values.pop("head_dim", None)        # which the family does not have: heads are hidden_size / heads wide


def _olmo2(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    if stated.get("attention.sliding_window"):
        raise UnsupportedError("olmo2.attention.sliding_window is that of OLMo 3, which is not supported in a GGUF "
                               "file; load the folder of the model")


def _phi3(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    values["sliding_window"] = stated.get("attention.sliding_window") or None


def _bert(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    values["type_vocab_size"] = shapes.get("token_types.weight", (0,))[0]


def _nomic(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    _bert(values, stated, shapes)
    values["rotary_emb_base"] = values.pop("rope_theta", 10000.0)


def _mpt(values: dict[str, Any], stated: Stated, shapes: Shapes) -> None:
    values["attn_config"] = {"alibi_bias_max": stated.get("attention.max_alibi_bias", 8), "alibi": True,
                             "clip_qkv": stated.get("attention.clamp_kqv") or None}
    values["expansion_ratio"] = _ratio(values)


def _ratio(values: dict[str, Any]) -> int:
    """Take the feed-forward width out of the values, and return how many times the hidden size it is."""
    width, inner = values["hidden_size"], values.pop("intermediate_size")
    if not (type(width) is type(inner) is int and width > 0 and inner % width == 0):
        raise WeightsError(f"feed_forward_length {shown(inner)} must be a multiple of embedding_length {shown(width)}")
    return inner // width


_PARALLEL = {"use_parallel_residual": "use_parallel_residual"}
_OF_GEMMA3 = {"attention.sliding_window": "sliding_window", "rope.freq_base_swa": "rope_local_base_freq"}
ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture("bert", eps=_layer("layer_norm_eps"), change=_bert, names=_POST_NORM, encodes=True,
                         rotates=False),
    "bloom": Architecture("bloom", eps=_layer("layer_norm_epsilon"), rotates=False),
    "cohere2": Architecture("cohere2", eps=_layer("layer_norm_eps"), keys={
        "logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"}, change=_windows),
    "ernie4_5": Architecture("ernie4_5"),
    "falcon": Architecture("falcon", eps=_layer("layer_norm_epsilon")),
    "gemma": Architecture("gemma"),
    "gemma-embedding": Architecture(
        "gemma3_text", keys=_OF_GEMMA3, values={"use_bidirectional_attention": True}, change=_gemma2, encodes=True),
    "gemma2": Architecture("gemma2", keys={
        "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
        "attention.sliding_window": "sliding_window"}, change=_gemma2),
    "gemma3": Architecture("gemma3_text", keys=_OF_GEMMA3 | {"final_logit_softcapping": "final_logit_softcapping"},
                           change=_gemma2),
    "gpt2": Architecture("gpt2", eps=_layer("layer_norm_epsilon"), finishes=False, rotates=False),
    "gptneox": Architecture("gpt_neox", eps=_layer("layer_norm_eps"), keys=_PARALLEL, partial="rotary_pct"),
    "granite": Architecture("granite", keys={
        "logit_scale": "logits_scaling", "residual_scale": "residual_multiplier",
        "embedding_scale": "embedding_multiplier", "attention.scale": "attention_multiplier"},
        change=_granite, neighbours=True),
    "llama": Architecture("llama", neighbours=True),
    "mpt": Architecture("mpt", eps=_layer("layer_norm_epsilon"), change=_mpt, rotates=False),
    "nomic-bert": Architecture("nomic_bert", eps=_layer("layer_norm_eps"), change=_nomic, names=_POST_NORM,
                               encodes=True),
    "olmo": Architecture("olmo", eps=None, keys={"attention.clamp_kqv": "clip_qkv"}, neighbours=True),
    "olmo2": Architecture("olmo2", change=_olmo2),
    "phi2": Architecture("phi", eps=_layer("layer_norm_eps"), partial="partial_rotary_factor"),
    "phi3": Architecture("phi3", change=_phi3, names=_PHI3, partial="partial_rotary_factor"),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "seed_oss": Architecture("seed_oss", names=replace(_NAMES, layer={
        **_NAMES.layer, "post_attention_norm": "ffn.norm"})),
    "smollm3": Architecture("smollm3", neighbours=True),
    "stablelm": Architecture("stablelm", eps=_layer("layer_norm_eps"), keys=_PARALLEL,
                             change=_stablelm, partial="partial_rotary_factor"),
    "starcoder": Architecture("gpt_bigcode", eps=_layer("layer_norm_epsilon"), rotates=False),
    "starcoder2": Architecture("starcoder2", eps=_layer("norm_epsilon")),
}
"""The supported values of general.architecture."""

_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
"""The poolings of llama.cpp by their numbers, under the names of sentence-transformers."""


def pooled(settings: Stated) -> str:
    """Return the pooling of an embedder, by its name; "" for a language model.

    Raises `UnsupportedError` for an encoder without a pooling, and for a reranker.
    """
    name = settings.get("general.architecture")
    stated = settings.get(f"{name}.pooling_type", 0)
    if type(stated) is not int:
        stated = str(stated)        # which is then refused
    encodes = isinstance(name, str) and name in ARCHITECTURES and ARCHITECTURES[name].encodes
    if stated == 0 and not encodes:
        return ""
    if type(stated) is not int or stated not in _POOLINGS:
        raise UnsupportedError(f"{name}.pooling_type = {shown(stated)} is not supported; supported are "
                               f"{', '.join(f'{number} ({pooling})' for number, pooling in _POOLINGS.items())}")
    return _POOLINGS[stated]


def describe(settings: Stated, shapes: Shapes) -> tuple[Architecture, dict[str, Any], Stated]:
    """Return the architecture of a file, its contents as those of a config.json, and its own settings.

    Raises `WeightsError` or `UnsupportedError`.
    """
    name = settings.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedError(f"general.architecture {shown(name)} is not supported; supported are "
                               f"{', '.join(ARCHITECTURES)}")
    kind = ARCHITECTURES[name]
    stated = {key.removeprefix(f"{name}."): value for key, value in settings.items() if key.startswith(f"{name}.")}
    eps = {} if kind.eps is None else dict([kind.eps])      # the key of a config.json by the name of the setting
    if lists := [key for key, value in stated.items() if _is_list(value) and key in (*_SINGLE, *kind.keys)]:
        raise UnsupportedError(f"{name}.{lists[0]} = {shown(stated[lists[0]])} is not supported; only one value is")
    _refuse(name, kind, stated)
    if missing := [key for key in (*KEYS, *eps) if key not in stated]:
        raise WeightsError(f"the settings lack {name}.{missing[0]}")
    values = {"model_type": kind.model_type} | dict(kind.values)
    values |= {key: stated[old] for old, key in (KEYS | eps | _OPTIONAL | dict(kind.keys)).items() if old in stated}
    for key, value in values.items():
        if _is_list(value):
            raise UnsupportedError(f"{name} has another {key} in each layer, which is not supported")
    if scaling := _scaling(name, kind, stated, shapes):
        values["rope_scaling"] = scaling
    if kind.partial is not None and "rope.dimension_count" in stated:
        values[kind.partial] = _share(name, stated)
    words = shapes.get("token_embd.weight", ())
    if len(words) != 2:
        raise WeightsError("the file has no matrix token_embd.weight, the word table")
    values["vocab_size"] = words[0]
    if kind.change is not None:
        kind.change(values, stated, shapes)
    return kind, values, stated


def _scaling(name: str, kind: Architecture, stated: Stated, shapes: Shapes) -> dict[str, Any] | None:
    """Return the rope_scaling of the config.json that llama.cpp's converter made these settings of; None for none.

    Without a type, a factor scales linearly, as in llama.cpp. Raises `UnsupportedError`.
    """
    long_rope = any(tensor.startswith("rope_factors_") for tensor in shapes)        # `read_decoder` reads the tables
    factor = stated.get("rope.scaling.factor", stated.get("rope.scale_linear"))
    is_scaled = factor not in (None, 0.0, 1.0)
    scaling = stated.get("rope.scaling.type", "linear" if is_scaled else "none")
    rotates = kind.rotates and not long_rope and "rope_freqs.weight" not in shapes
    supported = ("none", "longrope") if long_rope else ("none", "linear", "yarn") if rotates else ("none",)
    plain = {"rope.scaling.yarn_ext_factor": 1.0, "rope.scaling.yarn_log_multiplier": 0.0}
    if not long_rope and scaling != "yarn":
        plain["rope.scaling.attn_factor"] = 1.0
    wrong = [key for key, usual in plain.items() if stated.get(key, usual) != usual]
    if scaling not in supported or wrong:
        key, value = (wrong[0], stated[wrong[0]]) if scaling in supported else ("rope.scaling.type", scaling)
        usual = plain[key] if key in plain else " or ".join(map(repr, supported))
        raise UnsupportedError(f"{name}.{key} = {shown(value)} is not supported here; only {usual} is. Load the folder "
                               "that the file was made from: its config.json may state what is supported")
    if scaling == "linear" and is_scaled:
        return {"rope_type": "linear", "factor": factor}
    if scaling != "yarn":
        return None
    yarn = {"rope_type": "yarn"} | ({} if factor is None else {"factor": factor}) | {
        ours: stated[key] for key, ours in _YARN.items() if key in stated}
    if (share := number(dict(stated), "rope.scaling.attn_factor", 1.0)) != 1.0:
        yarn["attention_factor"] = share * number(yarn, "attention_factor", yarn_factor(yarn))
    return yarn


def _share(name: str, stated: Stated) -> float:
    """Return a share of the columns of a head that gives the number of columns that rotate.

    Families compute int(width * share); a quarter of a column more keeps rounding from making it one less.
    """
    width, columns = _width(stated), stated["rope.dimension_count"]
    if type(columns) is not int or width is None or not 0 < columns <= width:
        raise UnsupportedError(f"{name}.rope.dimension_count = {shown(columns)} is not supported; only a number of the "
                               f"{shown(width)} columns of a head is")
    return 1.0 if columns == width else (columns + 0.25) / width


def _width(stated: Stated) -> int | None:
    """Return the width of a head; None if the settings state no possible one."""
    width, heads = stated.get("embedding_length"), stated.get("attention.head_count")
    if type(width) is not int or type(heads) is not int or heads <= 0:
        return None
    columns = stated.get("attention.key_length", width // heads)
    return columns if type(columns) is int else None


def _refuse(name: str, kind: Architecture, stated: Stated) -> None:
    """Raise `UnsupportedError` for settings that change the computation in a way that the engine does not support."""
    # The value with which each setting changes nothing, unless the family reads it.
    plain = {"expert_count": 0, "attention.sliding_window": 0, "use_parallel_residual": 0,
             "attention.clamp_kqv": 0, "attention.causal": not kind.encodes,
             "rope.freq_base_swa": stated.get("rope.freq_base", 10000.0)}
    allowed = {"attention.sliding_window"} if kind.change in (_phi3, _olmo2) else set()
    for key, expected in plain.items():
        if key in stated and key not in kind.keys and key not in allowed and _differs(stated[key], expected):
            raise UnsupportedError(f"{name}.{key} = {shown(stated[key])} is not supported; only {expected!r} is")
    columns = _width(stated)
    for key in ("rope.dimension_count", "attention.value_length"):
        exempt = kind.partial is not None and key == "rope.dimension_count"     # it says how many columns rotate
        if not exempt and columns is not None and key in stated and _differs(stated[key], columns):
            raise UnsupportedError(f"{name}.{key} = {shown(stated[key])} is not supported; only the width of a head, "
                                   f"{shown(columns)}, is")


def _differs(value: Any, expected: Any) -> bool:
    """Return whether a setting has another value than the expected one; a list has, even of equal values."""
    return _is_list(value) or value != expected


def _is_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)
