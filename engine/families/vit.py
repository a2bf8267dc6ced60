"""The vision transformers ViT (Dosovitskiy et al. 2020, arXiv 2010.11929), DeiT (2012.12877) and DINOv2 (2304.07193).

DeiT has a second token beside the class token, which learned from another model. DINOv2 multiplies the result of
attention and of the feed-forward network by a vector (LayerScale), which `_fold_scales` moves into the last linear map
of each. `Engine.forward(pixel_values=...)` gives the vectors of the class token, of DeiT's second token or of DINOv2's
registers, and of the patches.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ..base.errors import UnsupportedError, WeightsError
from ..model.config import FEED_FORWARD_MAPS, LINEAR_MAPS, ModelConfig
from ..weights.bfloat16 import widened
from ..weights.input_layers import Patches, make_stem
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number, refuse_variants, sizes
from .heads import CLASSIFIER, HeadNames, Layer, named
from .names import JOINED_GATE, Names
from .parts import Family, Part, Values, Weights

NAMES = Names(
    prefix=("vit.", "deit.", "dinov2.", "dinov2_with_registers."),
    embeddings={
        "embeddings.cls_token": "stem.first", "embeddings.register_tokens": "stem.registers",
        "embeddings.distillation_token": "stem.second",
        "embeddings.position_embeddings": "stem.positions",
        "embeddings.patch_embeddings.projection.weight": "stem.weight",
        "embeddings.patch_embeddings.projection.bias": "stem.bias",
        "layernorm.weight": "final_norm.weight", "layernorm.bias": "final_norm.bias",
    },
    layers=("encoder.layer.", "layers."),
    layer={
        "attention.attention.query": "attention.query", "attention.attention.key": "attention.key",
        "attention.attention.value": "attention.value", "attention.output.dense": "attention.output",
        "layernorm_before": "attention.norm",
        "intermediate.dense": "ffn.up", "output.dense": "ffn.down",
        "layernorm_after": "ffn.norm",
        # DINOv2
        "norm1": "attention.norm",
        "layer_scale1": "attention.output.scale",
        "norm2": "ffn.norm",
        "mlp.weights_in": "ffn.gate_up", "mlp.weights_out": "ffn.down",
        "layer_scale2": "ffn.down.scale",
        # transformers 5
        "attention.q_proj": "attention.query", "attention.k_proj": "attention.key",
        "attention.v_proj": "attention.value", "attention.o_proj": "attention.output",
        "mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down",
        "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up",
        "mlp.down_proj": "ffn.down",
    },
    left_out=("pooler.", "decoder.", "embeddings.mask_token"),
    joined=JOINED_GATE,
)
_HEADS: dict[str, tuple[HeadNames, ...]] = {
    "vit": (named("classify", CLASSIFIER),),
    "deit": (named("classify", CLASSIFIER),
             named("classify", Layer("classifier", "cls_classifier", averaged="distillation_classifier"),
                   rows="first_two")),
    "dinov2": (named("classify", CLASSIFIER, rows="first_mean"),),
    "dinov2_with_registers": (replace(
        named("classify", CLASSIFIER, rows="first_mean"),
        passed_rows=lambda values: integer(dict(values), "num_register_tokens", 4)),),
}

_NAMES = {name: replace(NAMES, heads=heads) for name, heads in _HEADS.items()}
"""The names of each model_type, which differ in the heads."""

RESIZES = {"vit": "none", "deit": "none", "dinov2": "bicubic", "dinov2_with_registers": "antialias"}
"""How a model's positions are made to fit an image of another size, by model_type."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values)
    plain = values.get("model_type") in ("vit", "deit")     # otherwise the model is a DINOv2
    shape = sizes(values)
    gated = not plain and boolean(values, "use_swiglu_ffn", False)
    if not plain and boolean(values, "apply_layernorm", True) is not True:
        raise UnsupportedError("apply_layernorm = false is not supported; only true is")
    ffn_size = integer(values, "intermediate_size", 3072) if plain else _ffn_size(values, shape["hidden_size"], gated)
    biases = LINEAR_MAPS if boolean(values, "qkv_bias", True) else ("output", *FEED_FORWARD_MAPS)
    return ModelConfig(
        family=str(values.get("model_type")),
        **shape,
        ffn_size=ffn_size,
        embedding_norm=False,
        position_table=False,
        norm_place="pre",
        norm_eps=number(values, "layer_norm_eps", 1e-12 if plain else 1e-6),
        biases=biases,
        gated=gated,
        activation="silu" if gated else activation(values, "hidden_act", "gelu", GATE_ACTIVATIONS),
    )


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    return Part(read_config(values), _NAMES[str(values["model_type"])], finish=_fold_scales,
                stem=partial(_read_stem, values))


def _ffn_size(values: Values, hidden_size: int, gated: bool) -> int:
    """Return the feed-forward width of DINOv2: with a gate, 2/3 of the usual one, rounded up to a multiple of 8."""
    ratio = number(values, "mlp_ratio", 4.0)
    if not 0.0 < ratio <= 1e4:
        raise WeightsError(f"mlp_ratio must be above 0 and at most 10,000, not {ratio}")
    wide = int(hidden_size * ratio)
    return (int(wide * 2 / 3) + 7) // 8 * 8 if gated else wide


def _fold_scales(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the weights with each LayerScale moved into the linear map before it, whose rows it multiplies."""
    folded = {name: array for name, array in weights.items() if not name.endswith(".lambda1")}
    for name in weights.keys() - folded.keys():
        scale, linear = widened(weights[name]), name.removesuffix(".scale.lambda1")
        for part in ("weight", "bias"):
            array = weights.get(f"{linear}.{part}")
            if array is None or array.ndim not in (1, 2) or array.shape[:1] != scale.shape:
                raise WeightsError(f"{name} {list(scale.shape)} has no {linear}.{part} with as many rows beside it")
            folded[f"{linear}.{part}"] = widened(array) * (scale[:, None] if array.ndim == 2 else scale)
    return config, folded


def _read_stem(values: Values, arrays: Weights) -> Patches:
    """Return the input layer of images, from its arrays; raises `WeightsError` for other sizes than the config's."""
    # These tables have a first axis of length 1 in files.
    tables = {name: array[0] if name in ("first", "second", "positions", "registers") and array.ndim == 3 else array
              for name, array in arrays.items()}
    if (second := tables.pop("second", None)) is not None and "first" in tables:
        tables["first"] = np.concatenate([tables["first"], second])
    model_type = str(values["model_type"])
    return make_patches(values, tables, resize=RESIZES[model_type], patch=16, first=2 if model_type == "deit" else 1)


def make_patches(values: Values, arrays: Weights, *, resize: str, patch: int, first: int) -> Patches:
    """Return the input layer of images, which maps patches and adds positions, from its arrays.

    resize: how the positions are made to fit an image of another size, one of `weights.input_layers.RESIZES`. patch:
    the default of patch_size. first: the number of tokens before the registers and the patches. Raises `WeightsError`
    for other sizes than the config's.
    """
    stem = make_stem({"kind": Patches.kind, "resize": resize}, arrays)
    assert isinstance(stem, Patches)
    patch, channels = integer(values, "patch_size", patch), integer(values, "num_channels", 3)
    count = first + (integer(values, "image_size", 224) // max(1, patch)) ** 2
    if stem.weight.shape[1:] != (channels, patch, patch) or (stem.first_count, len(stem.positions)) != (first, count):
        raise WeightsError(f"by config.json, patches must be [{channels}, {patch}, {patch}] with {count} positions and "
                           f"{first} tokens before them, not {list(stem.weight.shape[1:])} with {len(stem.positions)} "
                           f"and {stem.first_count}")
    return stem


FAMILIES = {name: Family(read_encoder) for name in RESIZES}
