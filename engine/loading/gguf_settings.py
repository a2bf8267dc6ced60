"""Turn the settings of a GGUF file into the contents of a config.json, so that the families check them: `describe`.

docs/gguf.md of ggml lists the settings, whose names have the architecture in front; `families/gguf.py` has the type in
which the families state their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..families import ARCHITECTURES
from ..families.fields import choice, number, yarn_factor
from ..families.gguf import Architecture, Shapes, Stated

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
"""Settings that a file may lack, and their keys in a config.json."""
_YARN = {"rope.scaling.original_context_length": "original_max_position_embeddings",
         "rope.scaling.yarn_attn_factor": "attention_factor", "rope.scaling.yarn_beta_fast": "beta_fast",
         "rope.scaling.yarn_beta_slow": "beta_slow"}
"""The settings of YaRN, and their keys in the rope_scaling of a config.json."""
_SINGLE = ("attention.sliding_window", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.finetuned",
           "rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_log_multiplier",
           "rope.scale_linear", *_YARN, "attention.max_alibi_bias", "attention.clamp_kqv", "rope.dimension_count",
           "use_parallel_residual")
"""Further settings that are read, and that must have one value, and not a list with a value for each layer."""

_POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
"""The poolings of llama.cpp by their numbers, under the names of sentence-transformers."""


def pooled(settings: Stated) -> str:
    """Return the name of the pooling that a file states; "" for a language model, which has none.

    Raises `UnsupportedError` for an encoder without a pooling, and for a reranker.
    """
    name = settings.get("general.architecture")
    stated = settings.get(f"{name}.pooling_type", 0)
    if type(stated) is not int:
        stated = str(stated)        # not an int, so that it is refused below
    encodes = isinstance(name, str) and name in ARCHITECTURES and ARCHITECTURES[name].encodes
    if stated == 0 and not encodes:
        return ""
    if type(stated) is not int or stated not in _POOLINGS:
        raise UnsupportedError(f"{name}.pooling_type = {shown(stated)} is not supported; supported are "
                               f"{', '.join(f'{number} ({pooling})' for number, pooling in _POOLINGS.items())}")
    return _POOLINGS[stated]


def describe(settings: Stated, shapes: Shapes) -> tuple[Architecture, dict[str, Any], Stated]:
    """Return (architecture, contents of a config.json, settings without the architecture's name) of a file.

    settings: all settings of the file. shapes: of its tensors. Raises `WeightsError` or `UnsupportedError`.
    """
    kind, name = choice(settings, "general.architecture", None, ARCHITECTURES), settings["general.architecture"]
    stated = {key.removeprefix(f"{name}."): value for key, value in settings.items() if key.startswith(f"{name}.")}
    norm = "layer_norm_rms_epsilon" if kind.eps == "rms_norm_eps" else "layer_norm_epsilon"
    eps = {} if kind.eps is None else {f"attention.{norm}": kind.eps}
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
    """Return rope_scaling of the config.json from which llama.cpp's converter made these settings; None for none.

    Without a type, a factor scales linearly, as in llama.cpp. Raises `UnsupportedError`.
    """
    long_rope = any(tensor.startswith("rope_factors_") for tensor in shapes)        # LongRoPE, whose tables are tensors
    factor = stated.get("rope.scaling.factor", stated.get("rope.scale_linear"))
    is_scaled = factor not in (None, 0.0, 1.0)
    scaling = stated.get("rope.scaling.type", "linear" if is_scaled else "none")
    scalable = kind.rotates and not long_rope and "rope_freqs.weight" not in shapes
    supported = ("none", "longrope") if long_rope else ("none", "linear", "yarn") if scalable else ("none",)
    # Settings of YaRN, with the only values that a config.json can express.
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
    # llama.cpp multiplies its factor of the cosines with YaRN's; a config.json has one for both.
    if (share := number(dict(stated), "rope.scaling.attn_factor", 1.0)) != 1.0:
        yarn["attention_factor"] = share * number(yarn, "attention_factor", yarn_factor(yarn))
    return yarn


def _share(name: str, stated: Stated) -> float:
    """Return the share of the columns of a head that rotate, for the number of these columns in the file.

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
    for key, expected in plain.items():
        if key in stated and key not in kind.keys and key not in kind.reads and _differs(stated[key], expected):
            raise UnsupportedError(f"{name}.{key} = {shown(stated[key])} is not supported; only {expected!r} is")
    columns = _width(stated)
    for key in ("rope.dimension_count", "attention.value_length"):
        exempt = kind.partial is not None and key == "rope.dimension_count"     # it says how many columns rotate
        if not exempt and columns is not None and key in stated and _differs(stated[key], columns):
            raise UnsupportedError(f"{name}.{key} = {shown(stated[key])} is not supported; only the width of a head, "
                                   f"{shown(columns)}, is")


def _differs(value: Any, expected: Any) -> bool:
    """Return whether a setting has another value than the expected one; a list always counts as another value."""
    return _is_list(value) or value != expected


def _is_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)
