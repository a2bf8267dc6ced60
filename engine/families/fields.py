"""Read values from config.json, checked and typed, for the modules of all families; `values` are its contents.

All functions raise `WeightsError` for impossible values, and `UnsupportedError` for ones that the engine lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..base.errors import UnsupportedError, WeightsError, shown
from ..base.functions import log
from ..model.positions import llama3_frequencies, yarn_frequencies

Choice = TypeVar("Choice")

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""The engine's name for each activation of transformers. All tanh forms compute one formula; only rounding differs."""

GATE_ACTIVATIONS = ACTIVATIONS | {"silu": "silu", "swish": "silu"}
"""The same for the families whose feed-forward network has a gate."""


def integer(values: dict[str, Any], key: str, default: int, least: int | None = None) -> int:
    """Return the integer under `key`, or `default` if the config lacks the key; raises an error if below `least`."""
    value = values.get(key, default)
    if type(value) is not int:
        raise WeightsError(f"{key} must be an integer, not {shown(value)}")
    if abs(value) >= 2**63:     # a larger one is no size, and has no float
        raise WeightsError(f"{key} must be an integer of 64 bits, not {shown(value)}")
    if least is not None and value < least:
        raise WeightsError(f"{key} must be at least {least}, not {shown(value)}")
    return value


def optional_integer(values: dict[str, Any], key: str, default: int) -> int:
    """Return the integer under `key`, or `default` if the config lacks the key or has null under it."""
    return default if values.get(key) is None else integer(values, key, default)


def class_name(values: Mapping[str, Any]) -> str:
    """Return the class of transformers that a config.json names first; "" if it names none."""
    names = values.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


FULL, SLIDING = LAYER_TYPES = ("full_attention", "sliding_attention")
"""The names in `layer_types` of the two kinds of layers: a token sees all tokens, or a window of them."""


def layer_types(values: dict[str, Any], layers: int, windowed: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the index in `LAYER_TYPES` of each of the `layers` layers: 0 for full attention, 1 for a window.

    windowed: says of a layer's number whether it sees a window, for a config without `layer_types`.
    """
    types = values.get("layer_types")
    if types is None:
        # A config with an absurd number of layers is refused later, without a tuple that fills the memory here.
        return tuple(int(windowed(i)) for i in range(min(layers, 10_000)))
    if not isinstance(types, list) or len(types) != layers or not all(name in LAYER_TYPES for name in types):
        raise WeightsError(f"layer_types must be a list of {shown(layers)} names, {' or '.join(LAYER_TYPES)}, not "
                           f"{shown(types)}")
    return tuple(LAYER_TYPES.index(name) for name in types)


def padding_id(values: dict[str, Any], default: int) -> int:
    """Return the padding token's id, and 0 if the config states with null or -1 that the model has none.

    The id changes no result, because padding is removed, except where a family counts positions from it.
    """
    return 0 if values.get("pad_token_id", default) in (None, -1) else integer(values, "pad_token_id", default)


def number(values: dict[str, Any], key: str, default: float) -> float:
    """Return the number under `key` as a float, or transformers' own default if the config lacks the key."""
    value = values.get(key, default)
    if type(value) not in (int, float):
        raise WeightsError(f"{key} must be a number, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise WeightsError(f"{key} must be a number that a float can hold, not {shown(value)}") from None


def boolean(values: dict[str, Any], key: str, default: bool) -> bool:
    """Return the boolean under `key`, or transformers' own default if the config lacks the key."""
    value = values.get(key, default)
    if type(value) is not bool:
        raise WeightsError(f"{key} must be true or false, not {shown(value)}")
    return value


def merge_dialects(values: dict[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    """Return the config with each old key of `new_names` renamed to its new name.

    Raises `WeightsError` where a config has both keys with different values.
    """
    merged = {key: value for key, value in values.items() if key not in new_names}
    for old, new in new_names.items():
        if old in values and merged.setdefault(new, values[old]) != values[old]:
            raise WeightsError(f"{old} {str(values[old])[:80]} and {new} {str(merged[new])[:80]} disagree; remove the "
                               "wrong one")
    return merged


def _rope_of(values: dict[str, Any], kind: str | None) -> Any:
    """Return the object in `rope_parameters` of one kind of layer, or the whole of it where `kind` is None."""
    ropes = values.get("rope_parameters")
    if kind is None or not isinstance(ropes, dict):
        return ropes
    if others := ropes.keys() - set(LAYER_TYPES):
        raise UnsupportedError(f"rope_parameters has {shown(min(others))}; only an object for each of "
                               f"{', '.join(LAYER_TYPES)} is supported")
    return ropes.get(kind)


def rotary_theta(values: dict[str, Any], key: str, default: float, kind: str | None = None) -> float:
    """Return theta, the base of the rotary embedding, of a kind of layer in `LAYER_TYPES`, from either dialect.

    New configs have `rope_parameters[kind]["rope_theta"]`, or `rope_parameters["rope_theta"]` where `kind` is None
    because all layers are alike. Old configs have it under `key`. `default` stands in for an absent number.
    Raises `UnsupportedError` for scaled positions, and `WeightsError` where the dialects disagree.
    """
    if values.get("rope_scaling") is not None:
        raise UnsupportedError(f"rope_scaling {shown(values['rope_scaling'])} is not supported; only null is")
    rope, layers = _rope_of(values, kind), kind or "all layers"
    if not isinstance(rope, dict | None):
        raise WeightsError(f"rope_parameters of {layers} must be an object, not {shown(rope)}")
    rope = rope or {}
    if rope.get("rope_type", "default") != "default" or rope.keys() - {"rope_type", "rope_theta"}:
        raise UnsupportedError(f"rope_parameters of {layers} are {shown(rope)}; only rope_type 'default' with a "
                               "rope_theta is supported")
    theta = number(rope, "rope_theta", number(values, key, default))
    if not theta > 0.0:
        raise WeightsError(f"{key} must be above 0, not {theta}")
    if values.get(key, theta) != theta:
        raise WeightsError(f"{key} {values[key]} and the rope_theta {theta} in rope_parameters of {layers} disagree")
    return theta


def rotary(values: dict[str, Any], key: str, default: float, width: int, kind: str | None = None) -> dict[str, Any]:
    """Return the options of an `AttentionKind` for the rotary embedding of one kind of layer.

    key: of theta in old configs. default: theta where none is stated. kind: one of `LAYER_TYPES`, or None for all
    layers. width: the columns of a head. The scaling is `rope_scaling` in old configs, and further keys of
    `rope_parameters` in new ones: linear, dynamic, yarn or llama3. "dynamic" changes no text of up to
    `max_position_embeddings` tokens, the longest text here. Raises `UnsupportedError` for another scaling.
    """
    new, old = _rope_of(values, kind), values.get("rope_scaling")
    if not isinstance(new, dict | None) or not isinstance(old, dict | None):
        raise WeightsError(f"rope_parameters and rope_scaling must be objects, not {shown(new)} and {shown(old)}")
    scaled = [rope for rope in (new, old) if rope and rope.get("rope_type", rope.get("type", "default")) != "default"]
    if not scaled:
        if not old or old.keys() <= {"rope_type", "type"}:      # it states nothing but the type, "default"
            values = values | {"rope_scaling": None}
        return {"rotary_theta": rotary_theta(values, key, default, kind)}
    scaling = {name: value for name, value in scaled[0].items() if value is not None and name not in _UNREAD}
    rope_type = scaling.pop("rope_type", scaling.get("type"))
    scaling.pop("type", None)
    stated = {} if "rope_theta" not in scaling else {"rope_theta": scaling.pop("rope_theta")}
    disagree = len(scaled) == 2 and new != old      # both dialects state a scaling
    if not isinstance(rope_type, str) or scaling.keys() - _SCALINGS.get(rope_type, ()) or disagree:
        raise UnsupportedError(f"rope_scaling or rope_parameters {shown(scaled[0])} of {kind or 'all layers'} is not "
                               f"supported; supported are {', '.join(_SCALINGS)}, each with its own keys")
    theta = rotary_theta(values | {"rope_parameters": stated, "rope_scaling": None}, key, default)
    longest = number(values, "max_position_embeddings", 0)
    trained = number(values, "original_max_position_embeddings",
                     number(scaling, "original_max_position_embeddings", longest))
    factor = number(scaling, "factor", 0.0)
    if not (1.0 <= factor <= 1e6 and 1.0 <= trained <= 1e9 and 1.0 < theta < 1e15 and 2 <= width <= 2**16):
        raise WeightsError(f"{shown(scaled[0])} needs a factor and an original length of at least 1, a theta above 1 "
                           f"and heads of 2 columns or more; they are {factor}, {trained}, {theta} and {shown(width)}")
    if rope_type in ("linear", "dynamic"):
        return {"rotary_theta": theta, "rotary_scale": factor if rope_type == "linear" else 1.0}
    if width % 2:
        raise WeightsError(f"a rotary embedding needs heads of an even width, not {shown(width)}")
    names = (("beta_fast", 32.0), ("beta_slow", 1.0)) if rope_type == "yarn" else (
        ("high_freq_factor", 4.0), ("low_freq_factor", 1.0))  # fmt: skip
    fast, slow = (number(scaling, name, usual) for name, usual in names)
    if not 1e-6 < slow < fast < 1e6:
        raise WeightsError(f"{names[0][0]} must be above {names[1][0]}, and both above 0, in {shown(scaled[0])}")
    if rope_type == "llama3":
        return {"rotary_theta": theta,
                "rotary_frequencies": llama3_frequencies(theta, width, factor, trained, fast, slow)}  # fmt: skip
    whole = boolean(scaling, "truncate", True)
    return {"rotary_theta": theta, "rotary_factor": yarn_factor(scaling),
            "rotary_frequencies": yarn_frequencies(theta, width, factor, trained, fast, slow, whole)}  # fmt: skip


def partial_rotary(values: dict[str, Any], key: str, default: float, width: int, share: float,
                   share_key: str = "partial_rotary_factor") -> dict[str, Any]:  # fmt: skip
    """Return the options of an `AttentionKind` for a rotary embedding that rotates a share of the columns of a head.

    key, default: of theta in old configs, and theta where none is stated. width: the columns of a head. share: the
    default of the share, which old configs state under `share_key` and new ones in `rope_parameters`.
    """
    values, columns = rotated_columns(values, width, share, share_key)
    options = rotary(values, key, default, columns)
    return options if columns == width else options | {"rotary_width": columns}


def rotated_columns(values: dict[str, Any], width: int, share: float,
                    share_key: str = "partial_rotary_factor") -> tuple[dict[str, Any], int]:  # fmt: skip
    """Return the config without the key of the share of a head that rotates, and how many columns rotate.

    width: the columns of a head. share: the default of the share, which old configs state under `share_key`. Raises
    `WeightsError` for two different shares, and for an odd number of columns.
    """
    ropes = {name: values[name] for name in ("rope_parameters", "rope_scaling") if isinstance(values.get(name), dict)}
    stated = [number(rope, "partial_rotary_factor", 1.0) for rope in ropes.values() if "partial_rotary_factor" in rope]
    stated += [number(values, share_key, share)] if share_key in values else []
    if len(set(stated)) > 1:
        raise WeightsError(f"{share_key} is {' and also '.join(map(str, stated))}; remove the wrong one")
    share = stated[0] if stated else share
    columns = int(width * share) if 0.0 < share <= 1.0 else 0
    if columns < 2 or columns % 2:
        raise WeightsError(f"{share_key} {share} rotates {columns} of the {shown(width)} columns of a head; expected a "
                           "share from 0 to 1 that gives an even number, 2 at least")
    return values | {name: {key: value for key, value in rope.items() if key != "partial_rotary_factor"}
                     for name, rope in ropes.items()}, columns


_SCALINGS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
             "mscale_all_dim", "truncate"),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
}
"""The keys of each scaling of rotary positions, beside rope_type and rope_theta."""

_UNREAD = ("attn_factor", "finetuned")
"""Keys of a scaling that other programs write, such as llama.cpp, and that transformers never reads."""


def longest_of(values: dict[str, Any], default: int) -> int:
    """Return the longest sequence of a model whose layers are alike, in tokens: with YaRN, if that is longer.

    YaRN that somebody adds to a config.json lengthens sequences to `factor` times those of the training, and leaves
    `max_position_embeddings` as it is. default: of that key in transformers. `rotary` has checked the scaling before.
    """
    longest = integer(values, "max_position_embeddings", default)
    for rope in (values.get("rope_parameters"), values.get("rope_scaling")):
        if isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) == "yarn":
            trained = number(rope, "original_max_position_embeddings", longest)
            return max(longest, int(min(number(rope, "factor", 1.0) * trained, 2.0**62)))
    return longest


def yarn_factor(scaling: dict[str, Any]) -> float:
    """Return the factor of YaRN's cosines and sines. Peng et al. (arXiv 2309.00071), equation 22.

    scaling: the contents of rope_scaling, or of the object for it in rope_parameters.
    """
    if "attention_factor" in scaling:
        return number(scaling, "attention_factor", 1.0)
    both = [scaling.get(name) for name in ("mscale", "mscale_all_dim")]
    # (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1) if both are given, otherwise 0.1 ln(factor) + 1.
    above, below = (number(scaling, "mscale", 1.0), number(scaling, "mscale_all_dim", 1.0)) if all(both) else (1.0, 0.0)
    log_factor = float(log(number(scaling, "factor", 1.0)))
    return (0.1 * above * log_factor + 1.0) / (0.1 * below * log_factor + 1.0)


def activation(values: dict[str, Any], key: str, default: str = "gelu",
               supported: Mapping[str, str] = ACTIVATIONS) -> str:
    """Return the engine's name for the activation under `key`; raises `UnsupportedError` for an unknown activation."""
    return choice(values, key, default, supported)


def choice(values: Mapping[str, Any], key: str, default: str | None, supported: Mapping[str, Choice]) -> Choice:
    """Return the value in `supported` for the name under `key`; raises `UnsupportedError` for a name without one."""
    value = values.get(key, default)
    if not isinstance(value, str) or value not in supported:
        raise UnsupportedError(f"{key} {shown(value)} is not supported; supported are {', '.join(supported)}")
    return supported[value]


def head_width(hidden_size: int, num_heads: int) -> int:
    """Return the width of one of `num_heads` equal heads; raises `WeightsError` if the hidden size is no multiple."""
    if num_heads < 1 or hidden_size < 1 or hidden_size % num_heads:
        raise WeightsError(f"hidden size {shown(hidden_size)} cannot be split into {shown(num_heads)} attention heads")
    return hidden_size // num_heads


def sizes(values: dict[str, Any], hidden: int = 768, layers: int = 12, heads: int = 12, *, ffn: int | None = None,
          vocab: int | None = None, positions: int | None = None, head_dim: bool = False) -> dict[str, Any]:
    """Return the options of a `ModelConfig` for the sizes that most families have under the same keys.

    hidden, layers, heads, ffn, vocab, positions: the defaults of transformers for a config without the key; None leaves
    the option out. head_dim: whether that key may state another width of a head than hidden size / heads.
    """
    width, count = integer(values, "hidden_size", hidden), integer(values, "num_attention_heads", heads)
    stated = head_dim and optional_integer(values, "head_dim", 0)
    further = (("ffn_size", "intermediate_size", ffn), ("vocab_size", "vocab_size", vocab),
               ("max_positions", "max_position_embeddings", positions))
    return {"hidden_size": width, "num_layers": integer(values, "num_hidden_layers", layers), "num_heads": count,
            "head_width": stated or head_width(width, count),
            **{option: integer(values, key, usual) for option, key, usual in further if usual is not None}}


def refuse_variants(values: dict[str, Any], supported: Mapping[str, Any] | None = None) -> None:
    """Raise `UnsupportedError` for a setting, of any family, that changes the computation as the engine cannot do it.

    supported: further keys, of one family, with the only supported value of each. An absent key and null are always
    accepted.
    """
    plain: dict[str, Any] = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False,
                             "pruned_heads": {}, "quantization_config": None, **(supported or {})}
    if values.get("quantization") is not None:
        raise UnsupportedError(f"quantization = {shown(values['quantization'])} is not supported: the weights are "
                               "quantized as MLX does it. Load the folder that they were made from, and choose a "
                               "precision here")
    refuse_others(values, plain)


def refuse_others(values: Mapping[str, Any], supported: Mapping[str, Any], place: str = "") -> None:
    """Raise `UnsupportedError` for a key with another value than the only supported one; null and no key are supported.

    place: the beginning of the message, such as the name of the file and ": ".
    """
    for key, expected in supported.items():
        value = values.get(key)
        if value != expected and value is not None:
            raise UnsupportedError(f"{place}{key} = {shown(value)} is not supported; only {expected!r} is")


def refuse_remote_code(values: dict[str, Any], known: tuple[str, ...]) -> None:
    """Raise `UnsupportedError` for a model whose encoder is remote code, unless its class is one of the known ones."""
    remote = values.get("auto_map")
    code = remote.get("AutoModel") if isinstance(remote, dict) else None
    if code is not None and str(code).rpartition(".")[2] not in known:
        raise UnsupportedError(f"auto_map names remote code, {shown(code)}, as the model. The engine runs no code from "
                               "a folder, and this code may compute something else than a plain "
                               f"{shown(values.get('model_type'))} model does. If it computes the same, remove "
                               "auto_map from config.json")
