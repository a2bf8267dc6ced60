"""wav2vec 2.0 (Baevski et al. 2020, arXiv 2006.11477) and HuBERT (Hsu et al. 2021, 2106.07447): encoders of speech.

A class that ends in ForCTC has a head that gives each token, of 20 ms, the scores of letters; `Transcriber` runs it.
`Engine.forward(input_values=...)` gives the vectors of any of these models, as transformers computes them.

The two families differ in the names of keys and in what they leave out. `feat_extract_norm` is "group" in the base
models and "layer" in the large ones, whose layers are pre-norm (`do_stable_layer_norm`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.config import ModelConfig
from ..weights.waveform import Waveform, make_waveform
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number, refuse_variants, sizes
from .heads import CTC
from .names import Names
from .parts import Family, Part, Values, Weights

NAMES = Names(
    prefix=("wav2vec2.", "hubert."),
    embeddings={
        "feature_projection.layer_norm.weight": "stem.norm.weight",
        "feature_projection.layer_norm.bias": "stem.norm.bias",
        "feature_projection.projection.weight": "stem.projection.weight",
        "feature_projection.projection.bias": "stem.projection.bias",
        "encoder.pos_conv_embed.conv.weight": "stem.positions.weight",
        "encoder.pos_conv_embed.conv.weight_g": "stem.positions.scale",
        "encoder.pos_conv_embed.conv.weight_v": "stem.positions.direction",
        "encoder.pos_conv_embed.conv.parametrizations.weight.original0": "stem.positions.scale",
        "encoder.pos_conv_embed.conv.parametrizations.weight.original1": "stem.positions.direction",
        "encoder.pos_conv_embed.conv.bias": "stem.positions.bias",
    },
    layers="encoder.layers.",
    layer={
        "attention.q_proj": "attention.query", "attention.k_proj": "attention.key",
        "attention.v_proj": "attention.value", "attention.out_proj": "attention.output",
        "layer_norm": "attention.norm",
        "feed_forward.intermediate_dense": "ffn.up", "feed_forward.output_dense": "ffn.down",
        "final_layer_norm": "ffn.norm",
    },
    left_out=("masked_spec_embed", "quantizer.", "project_q.", "project_hid.", "projector.", "classifier.",
              "layer_weights"),
    heads=(CTC,),
)
_LISTS = {"conv_dim": (512,) * 7, "conv_stride": (5, 2, 2, 2, 2, 2, 2), "conv_kernel": (10, 3, 3, 3, 3, 2, 2)}
"""The keys of the convolutions, and their defaults in transformers."""


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, {"add_adapter": False, "adapter_attn_dim": None, "conv_pos_batch_norm": False})
    stable = boolean(values, "do_stable_layer_norm", False)
    config = ModelConfig(
        family=str(values.get("model_type")),
        **sizes(values, ffn=3072),
        embedding_norm=not stable,
        position_table=False,
        norm_place="pre" if stable else "post",
        norm_eps=number(values, "layer_norm_eps", 1e-5),
        activation=activation(values, "hidden_act", "gelu", GATE_ACTIVATIONS),
    )
    return Part(config, _names(stable, len(_list(values, "conv_dim"))), stem=partial(_read_stem, values))


@cache
def _names(stable: bool, convolutions: int) -> Names:
    """Return the names of the tensors of a model with this number of convolutions; stable: do_stable_layer_norm."""
    norm = "final_norm" if stable else "embeddings.norm"        # the same tensor stands after the layers, or before
    added = {f"encoder.layer_norm.{kind}": f"{norm}.{kind}" for kind in ("weight", "bias")}
    for i in range(convolutions):
        added |= {f"feature_extractor.conv_layers.{i}.{file}.{kind}": f"stem.{ours}_{i}.{kind}"
                  for file, ours in (("conv", "conv"), ("layer_norm", "conv_norm")) for kind in ("weight", "bias")}
    return replace(NAMES, embeddings=dict(NAMES.embeddings) | added)


def _list(values: Values, key: str) -> list[int]:
    """Return the numbers under a key of `_LISTS`, one for each convolution; raises `WeightsError`."""
    numbers: Any = values.get(key, list(_LISTS[key]))
    if not isinstance(numbers, list) or not numbers or not all(type(one) is int and one > 0 for one in numbers):
        raise WeightsError(f"{key} must list a positive number for each convolution, not {shown(numbers)}")
    return numbers


def _read_stem(values: Values, arrays: Weights) -> Waveform:
    """Return the input layer of speech (convolutions, a linear map and positions) from its arrays in a file.

    Raises `WeightsError` for other sizes than the config's.
    """
    dims, strides, kernels = (_list(values, key) for key in _LISTS)
    if not len(dims) == len(strides) == len(kernels):
        raise WeightsError(f"{', '.join(_LISTS)} must list as many numbers each, not {len(dims)}, {len(strides)} and "
                           f"{len(kernels)}")
    norm = values.get("feat_extract_norm", "group")
    if norm not in ("group", "layer"):
        raise UnsupportedError(f"feat_extract_norm {shown(norm)} is not supported; group and layer are")
    tensors = {name: array for name, array in arrays.items() if not name.startswith("positions.")}
    tensors |= {"positions.weight": _positions(arrays), "positions.bias": arrays.get("positions.bias", np.zeros(0))}
    if boolean(values, "feat_proj_layer_norm", True) != ("norm.weight" in tensors):
        raise WeightsError("feature_projection.layer_norm must be there unless feat_proj_layer_norm is false, and then "
                           "not")
    # Files have [out, channels, kernel]; here the kernel comes first, as the samples of a window lie in memory.
    tensors = {name: np.ascontiguousarray(array.transpose(0, 2, 1)) if array.ndim == 3 else array
             for name, array in tensors.items()}
    stem = make_waveform({"kind": "waveform", "strides": strides, "norm": norm,
                      "eps": number(values, "layer_norm_eps", 1e-5),
                      "activation": activation(values, "feat_extract_activation", "gelu", GATE_ACTIVATIONS)}, tensors)
    read = [(len(tensors[f"conv_{i}.weight"]), tensors[f"conv_{i}.weight"].shape[1]) for i in range(len(dims))]
    if read != [*zip(dims, kernels, strict=True)]:
        raise WeightsError(f"by config.json, the convolutions must have (channels, kernel) "
                           f"{[*zip(dims, kernels, strict=True)]}, not {read}")
    size, groups = integer(values, "num_conv_pos_embeddings", 128), integer(values, "num_conv_pos_embedding_groups", 16)
    width, kernel, of_group = tensors["positions.weight"].shape
    if (kernel, of_group * groups) != (size, width):
        raise WeightsError(f"by config.json, the positional convolution must have {groups} groups and a kernel of "
                           f"{size}, not {width / of_group:g} and {kernel}")
    return stem


def _positions(arrays: Weights) -> np.ndarray:
    """Return the weight [D, D / groups, K] of the positional convolution, from its weight norm if it has one.

    The weight at each place of the kernel is a direction, scaled to the length that another tensor states. Salimans and
    Kingma (arXiv 1602.07868).
    """
    if "positions.weight" in arrays:
        return arrays["positions.weight"]
    scale, direction = (arrays.get(f"positions.{name}", np.zeros(0)) for name in ("scale", "direction"))
    if direction.ndim != 3 or scale.size != direction.shape[2]:
        raise WeightsError("the positional convolution must have a weight, or weight_g [1, 1, K] and weight_v "
                           f"[D, D / groups, K], not {list(scale.shape)} and {list(direction.shape)}")
    wide = direction.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=(0, 1)))
    return (wide * (scale.reshape(-1).astype(np.float64) / lengths)).astype(np.float32)


FAMILIES = {name: Family(read_encoder) for name in ("wav2vec2", "hubert")}
