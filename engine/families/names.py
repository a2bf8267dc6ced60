"""Rename and split the tensors of a checkpoint by tables, `Names`, of which each family has its own.

The tables from Hugging Face's names to the engine's that several families share stand here as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..base.errors import WeightsError, listed
from ..base.lazy import lazy
from ..model.config import ModelConfig
from ..weights.bfloat16 import widened
from ..weights.parameters import expected_shapes
from .heads import HEAD_PREFIX, HeadNames

EMBEDDINGS = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type",
    "embeddings.LayerNorm.weight": "embeddings.norm.weight", "embeddings.LayerNorm.bias": "embeddings.norm.bias",
}
"""The embeddings of a BERT whose positions have no table."""

POST_NORM_LAYER = {
    "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value", "self_attn.o_proj": "attention.output",
    "post_attention_layernorm": "attention.norm",
    "mlp.up_proj": "ffn.up", "mlp.gate_proj": "ffn.gate",
    "mlp.down_proj": "ffn.down",
    "post_mlp_layernorm": "ffn.norm",
}
"""The names of a post-norm layer as transformers 5 writes them; the models' own code has others."""

FLASH_LAYER = {
    "mixer.Wqkv": "attention.qkv",
    "mixer.out_proj": "attention.output",
    "norm1": "attention.norm",
    "mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down",
    "norm2": "ffn.norm",
}
"""The names of a post-norm layer in Jina's code, which joins queries, keys and values for flash attention."""

JOINED_HEADS: dict[str, tuple[str, ...]] = {"attention.qkv": ("attention.query", "attention.key", "attention.value")}
"""A tensor with the rows of queries, then of keys, then of values."""

JOINED_GATE: dict[str, tuple[str, ...]] = {"ffn.gate_up": ("ffn.gate", "ffn.up")}
"""A tensor with the rows of gate, then of up."""

_WRAPPERS = ("module.", "model.")
"""Prefixes that training with several devices or inside another module puts in front of all names."""

_FREQUENCIES = ("rotary_emb.inv_freq", "rotary_embeddings.inv_freq")
"""Ends of the names of the frequencies of a rotary embedding, which are left out: the engine computes them."""

_ADAPTED = r"(.+)\.parametrizations\.weight\.(original|0\.(lora_[AB]))"
"""Matches the names, from torch's parametrizations, of a weight with an adapter and of the adapter's two matrices."""


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
    """Canonical form of the part of a tensor name between the layer's number and the final `.weight`, `.bias` or
    `.lambda1` (a scale of DINOv2's layers), or of a whole tensor whose name has no such end."""
    left_out: tuple[str, ...]
    """Prefixes of the names of buffers, and of task heads that the engine does not run."""
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Linear maps whose rows lie in one tensor, in this order, by the name that `layer` gives to the tensor."""
    norms_less_one: bool = False
    """Whether tensors hold the weights of norms less 1."""
    joined_by_head: tuple[str, ...] = ()
    """The joined tensors that hold the rows of each head for all maps, [heads][maps][d], not all heads of each map."""
    unread: tuple[str, ...] = ()
    """Canonical names of tensors that checkpoints may hold although the model, by its config, does not read them."""
    adapters: bool = False
    """Whether tensors may have adapters beside them, as torch's parametrizations name them."""
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names under which some files hold an embedding tensor a second time, or instead, by its canonical name."""
    heads: tuple[HeadNames, ...] = ()
    """The task heads that the engine runs."""
    buffers: tuple[str, ...] = ()
    """Ends of the names of tensors that are no weights, such as the causal masks in old files, which are left out."""

    def with_layer(self, layer: Mapping[str, str], without: tuple[str, ...] = (), **others: Any) -> Names:
        """Return a table with further names of a layer. without: prefixes of the names of a layer to drop first.

        others: fields that change besides.
        """
        names = {name: ours for name, ours in self.layer.items() if not (without and name.startswith(without))}
        return replace(self, layer=names | dict(layer), **others)

    @lazy
    def _of_heads(self) -> frozenset[str]:
        """The names in files of all tensors of the heads."""
        return frozenset(name for head in self.heads for layer in head.layers for name in layer.names)

    def split(self, weights: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
        """Return the tensors of a model, with each joined tensor cut into its linear maps, as views where possible.

        weights: by the names of `rename`. A joined tensor that has not as many rows as its maps stays whole, and the
        caller then reports it as unexpected. The first copy of an absent tensor stands in for it.
        """
        shapes, split, tensors = expected_shapes(config), {}, dict(weights)
        # All copies are removed; one only becomes the tensor if the tensor itself is absent.
        for canonical, copies in self.copies.items():
            for name in copies:
                if (copy := tensors.pop(_name_of_copy(canonical, name), None)) is not None:
                    tensors.setdefault(canonical, copy)
        if self.norms_less_one:
            tensors |= {name: _plus_one(array) for name, array in tensors.items() if name.endswith("norm.weight")}
        for name, array in tensors.items():
            maps = self.maps_in(name)
            rows = [shapes.get(part, (0,))[0] for part in maps]     # how many rows of the tensor each map has
            if name in self.unread and name not in shapes:
                continue
            if both := [part for part in maps if part in tensors]:
                raise WeightsError(f"the weights hold {name}, which joins {listed(maps)}, and also {listed(both)}; "
                                   "remove the joined tensor or its parts")
            if not maps or array.shape[:1] != (sum(rows),):
                split[name] = array
            elif name.rpartition(".")[0].endswith(tuple(f".{joined}" for joined in self.joined_by_head)):
                # The rows are those of head 0 in all maps, then those of head 1, and so on.
                by_head = array.reshape(config.num_heads, len(maps), -1, *array.shape[1:])
                split |= {part: by_head[:, i].reshape(-1, *array.shape[1:]) for i, part in enumerate(maps)}
            else:
                split.update(zip(maps, np.split(array, np.cumsum(rows)[:-1]), strict=True))
        return split

    def maps_in(self, name: str) -> list[str]:
        """Return the canonical names of the linear maps in a joined tensor; [] for a tensor that is not joined."""
        layer, _, kind = name.rpartition(".")
        joined = next((joined for joined in self.joined if layer.endswith(f".{joined}")), "")
        return [f"{layer.removesuffix(joined)}{part}.{kind}" for part in self.joined.get(joined, ())]

    def rename(self, name: str) -> str | None:
        """Return the canonical name of a tensor; None for a tensor that is not used; an unknown name unchanged.

        name: in the file. The matrices of an adapter get the name of its weight, a space, and lora_A or lora_B. A
        tensor of a head gets `HEAD_PREFIX` before its name in the file.
        """
        if self.adapters and (match := re.fullmatch(_ADAPTED, name)):
            weight = self.rename(f"{match[1]}.weight")
            return weight if weight is None or match[2] == "original" else f"{weight} {match[3]}"
        bare = name
        for prefix in _WRAPPERS:
            bare = bare.removeprefix(prefix)
        bare = next((bare.removeprefix(prefix) for prefix in _as_tuple(self.prefix) if bare.startswith(prefix)), bare)
        if canonical := next((ours for ours, copies in self.copies.items() if bare in copies), None):
            return _name_of_copy(canonical, bare)
        # Checkpoints converted from TensorFlow keep its names for the scale and the shift of a norm.
        bare = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", bare))
        if bare in self._of_heads:
            return HEAD_PREFIX + bare
        if bare.startswith(self.left_out) or bare.endswith((*self.buffers, *_FREQUENCIES)):
            return None
        if bare in self.embeddings:
            return self.embeddings[bare]
        before = "|".join(map(re.escape, _as_tuple(self.layers)))
        match = re.fullmatch(rf"(?:{before})([0-9]+)\.(.+?)(\.weight|\.bias|\.lambda1)?", bare)
        if match and match[2] in self.layer:
            return f"layers.{match[1]}.{self.layer[match[2]]}{match[3] or ''}"
        return name


def _name_of_copy(canonical: str, name: str) -> str:
    """Return the name that `rename` gives to a copy of the tensor `canonical`; `split` drops it or puts it in place."""
    return f"{canonical} as {name}"


def _plus_one(array: np.ndarray) -> np.ndarray:
    """Return the array plus 1 in float32."""
    with np.errstate(invalid="ignore"):  # a later check reports NaN
        return widened(array) + np.float32(1)


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
