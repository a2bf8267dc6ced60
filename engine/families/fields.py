"""Read typed values from config.json and rename tensors by a table, for all families."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..config import ModelConfig
from ..errors import UnsupportedError, WeightsError, shown
from ..parameters import expected_shapes

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
"""The engine's name for each activation of transformers.

All the tanh forms compute one formula; they differ only in rounding.
"""

GATE_ACTIVATIONS = ACTIVATIONS | {"silu": "silu", "swish": "silu"}
"""The same for the families whose feed-forward network has a gate."""


def integer(values: dict[str, Any], key: str, default: int) -> int:
    """Return the integer under `key`, or transformers' own default if the config lacks the key."""
    value = values.get(key, default)
    if type(value) is not int:
        raise WeightsError(f"{key} must be an integer, not {shown(value)}")
    return value


def optional_integer(values: dict[str, Any], key: str, default: int) -> int:
    """Return the integer under `key`, or `default` if the config lacks the key or has null under it."""
    return default if values.get(key) is None else integer(values, key, default)


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


def rotary_theta(values: dict[str, Any], kind: str | None, key: str, default: float) -> float:
    """Return the base of the rotary embedding of one kind of layer, from either dialect of config.json.

    New configs have `rope_parameters[kind]["rope_theta"]`, or `rope_parameters["rope_theta"]` where `kind` is None
    because all layers are alike. Old configs have it under `key`. An absent number is `default`.
    Raises `UnsupportedError` for scaled positions, and `WeightsError` where the dialects disagree.
    """
    if values.get("rope_scaling") is not None:
        raise UnsupportedError(f"rope_scaling {shown(values['rope_scaling'])} is not supported; only null is")
    ropes = values.get("rope_parameters")
    rope = ropes.get(kind) if isinstance(ropes, dict) and kind is not None else ropes
    layers = kind or "all layers"
    if not isinstance(rope, dict | None):
        raise WeightsError(f"rope_parameters of {layers} must be an object, not {shown(rope)}")
    rope = rope or {}
    if rope.get("rope_type", "default") != "default" or rope.keys() - {"rope_type", "rope_theta"}:
        raise UnsupportedError(f"rope_parameters of {layers} are {shown(rope)}; only rope_type 'default' with a "
                               "rope_theta is supported")
    theta = number(rope, "rope_theta", number(values, key, default))
    if values.get(key, theta) != theta:
        raise WeightsError(f"{key} {values[key]} and the rope_theta {theta} in rope_parameters of {layers} disagree")
    if not theta > 0.0:
        raise WeightsError(f"{key} must be above 0, not {theta}")
    return theta


def activation(values: dict[str, Any], key: str, default: str = "gelu",
               supported: Mapping[str, str] = ACTIVATIONS) -> str:
    """Return the engine's name for the activation under `key`; raises `UnsupportedError` for an unknown activation."""
    value = values.get(key, default)
    if not isinstance(value, str) or value not in supported:
        raise UnsupportedError(f"{key} {shown(value)} is not supported; supported are {', '.join(supported)}")
    return supported[value]


def head_width(hidden_size: int, num_heads: int) -> int:
    """Return the width of one of `num_heads` equal heads."""
    if num_heads < 1 or hidden_size < 1 or hidden_size % num_heads:
        raise WeightsError(f"hidden size {shown(hidden_size)} cannot be split into {shown(num_heads)} attention heads")
    return hidden_size // num_heads


def refuse_variants(values: dict[str, Any], supported: Mapping[str, Any] | None = None) -> None:
    """Raise `UnsupportedError` for a setting that changes the computation in a way that the engine does not support.

    supported: the only supported value of each further key of a family. An absent key and null are supported, too.
    """
    plain: dict[str, Any] = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False,
                             "pruned_heads": {}, "quantization_config": None, **(supported or {})}
    for key, expected in plain.items():
        value = values.get(key, expected)
        if value != expected and value is not None:
            raise UnsupportedError(f"{key} = {shown(value)} is not supported; only {expected!r} is")


def refuse_remote_code(values: dict[str, Any], known: tuple[str, ...]) -> None:
    """Raise `UnsupportedError` for a model whose encoder is remote code, unless its class is one of the known ones."""
    remote = values.get("auto_map")
    code = remote.get("AutoModel") if isinstance(remote, dict) else None
    if code is not None and str(code).rpartition(".")[2] not in known:
        raise UnsupportedError(
            f"auto_map names remote code, {shown(code)}, as the model. The engine runs no code from a folder, "
            f"and this code may compute something else than a plain {shown(values.get('model_type'))} model does. If "
            "it computes the same, remove auto_map from config.json"
        )


@dataclass(frozen=True)
class Names:
    """The tensor names of a family and the canonical names they are converted to."""

    prefix: str | tuple[str, ...]
    """Prefix of the encoder's tensor names in a model that has a task head; several for several dialects."""
    embeddings: Mapping[str, str]
    """Canonical name of each embedding tensor, by its full name."""
    layers: str | tuple[str, ...]
    """The part of a tensor name before the layer's number; several for several dialects."""
    layer: Mapping[str, str]
    """Canonical form of the part of a tensor name between the layer's number and the final `.weight` or `.bias`."""
    left_out: tuple[str, ...]
    """Prefixes of the names of task heads and buffers, which the encoder does not use."""
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Linear maps whose rows lie in one tensor, in this order, by the name that `layer` gives to the tensor."""
    joined_by_head: tuple[str, ...] = ()
    """The joined tensors that hold the rows of each head for all maps, [heads][maps][d], not all heads of each map."""

    def split(self, weights: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
        """Return renamed tensors with the joined ones cut into their linear maps, as views where rows are in order.

        A tensor whose rows are not those of its maps stays whole, and is then reported as unexpected.
        """
        shapes, split = expected_shapes(config), {}
        for name, array in weights.items():
            layer, _, kind = name.rpartition(".")
            prefix = next((layer.removesuffix(joined) for joined in self.joined if layer.endswith(f".{joined}")), layer)
            maps = [f"{prefix}{part}.{kind}" for part in self.joined.get(layer.removeprefix(prefix), ())]
            rows = [shapes.get(part, (0,))[0] for part in maps]
            if not maps or sum(rows) != len(array):
                split[name] = array
            elif layer.removeprefix(prefix) in self.joined_by_head:
                by_head = array.reshape(config.num_heads, len(maps), -1, *array.shape[1:])
                split |= {part: by_head[:, i].reshape(-1, *array.shape[1:]) for i, part in enumerate(maps)}
            else:
                split.update(zip(maps, np.split(array, np.cumsum(rows)[:-1]), strict=True))
        return split

    def rename(self, name: str) -> str | None:
        """Return the canonical name of a tensor, None for a tensor that is not used, or an unknown name unchanged."""
        bare = next((name.removeprefix(prefix) for prefix in _each(self.prefix) if name.startswith(prefix)), name)
        # Some checkpoints hold the frequencies of a rotary embedding, which the engine computes itself.
        if bare.startswith(self.left_out) or bare.endswith("rotary_emb.inv_freq"):
            return None
        # Checkpoints converted from TensorFlow keep its names, gamma and beta, for the scale and the shift of a norm.
        bare = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", bare)
        bare = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", bare)
        if bare in self.embeddings:
            return self.embeddings[bare]
        before = "|".join(map(re.escape, _each(self.layers)))
        match = re.fullmatch(rf"(?:{before})([0-9]+)\.(.+)\.(weight|bias)", bare)
        if match and match[2] in self.layer:
            return f"layers.{match[1]}.{self.layer[match[2]]}.{match[3]}"
        return name


def _each(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
