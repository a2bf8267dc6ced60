"""The text and image encoders of CLIP (Radford et al. 2021, arXiv 2103.00020): pre-norm, and a map of their vectors.

`encode` gives the embeddings of transformers, not scaled to unit length. That of a text is the vector of the first
token <|endoftext|>, times text_projection if the folder has it; that of an image is the vector of the class token,
times visual_projection. A folder of both gives its text encoder, or with the task "image" its image encoder.

quick_gelu(x) = x * sigmoid(1.702 x) is silu(1.702 x) / 1.702, so that the factors are folded into the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..base.errors import WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..weights.bfloat16 import widened
from ..weights.input_layers import Patches
from .fields import ACTIVATIONS, activation, integer, number, padding_id, refuse_variants, sizes
from .names import Names
from .parts import Family, Part, Values, Weights
from .vit import make_patches

NAMES = Names(
    prefix="text_model.",
    embeddings={
        "embeddings.token_embedding.weight": "embeddings.word",
        "embeddings.position_embedding.weight": "embeddings.position",
        "final_layer_norm.weight": "final_norm.weight", "final_layer_norm.bias": "final_norm.bias",
        "text_projection.weight": "dense.0.weight",
        "head.weight": "dense.0.weight", "head.bias": "dense.0.bias",       # of SigLIP
    },
    layers="encoder.layers.",
    layer={
        "self_attn.q_proj": "attention.query", "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value", "self_attn.out_proj": "attention.output",
        "layer_norm1": "attention.norm",
        "mlp.fc1": "ffn.up", "mlp.fc2": "ffn.down",
        "layer_norm2": "ffn.norm",
    },
    left_out=("vision_model.", "visual_projection.", "logit_scale", "logit_bias", "embeddings.position_ids"),
)

IMAGE_NAMES = Names(
    prefix="vision_model.",
    embeddings={
        "embeddings.class_embedding": "stem.first", "embeddings.patch_embedding.weight": "stem.weight",
        "embeddings.position_embedding.weight": "stem.positions",
        "pre_layrnorm.weight": "embeddings.norm.weight", "pre_layrnorm.bias": "embeddings.norm.bias",
        "post_layernorm.weight": "final_norm.weight", "post_layernorm.bias": "final_norm.bias",
        "visual_projection.weight": "dense.0.weight",
        "logit_scale": "contrast.scale",
    },
    layers="encoder.layers.",
    layer=NAMES.layer,
    left_out=("text_model.", "text_projection.", "embeddings.position_ids"),
)

QUICK_GELU = {"quick_gelu": "silu"}
"""The activation that computes quick_gelu with the weights of `_fold_quick_gelu`."""


def tower_values(values: Values, tower: str) -> Values:
    """Return the keys of one encoder: those in text_config or vision_config, or all if config.json describes only it.

    tower: "text" or "vision". Raises `WeightsError` where the older key, such as text_config_dict, says otherwise.
    """
    name = f"{tower}_config"
    inner = values.get(name)
    if inner is None and str(values.get("model_type")).endswith(f"{tower}_model"):
        return values
    older = values.get(f"{name}_dict")
    inner = {} if inner is None else inner
    if not isinstance(inner, dict) or not isinstance(older, dict | None):
        raise WeightsError(f"{name} must be an object, not {shown(inner)}, and {name}_dict an object or null")
    for key, value in (older or {}).items():
        if inner.get(key, value) != value:
            raise WeightsError(f"{name} and {name}_dict disagree on {shown(key)}; remove the wrong one")
    return inner | (older or {})


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    usual = {"hidden": 512, "heads": 8, "ffn": 2048, "vocab": 49408, "positions": 77}
    return text_tower("clip", tower_values(values, "text"), usual, act="quick_gelu", eps=1e-5, causal=True)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    quick = tower_values(values, "text").get("hidden_act", "quick_gelu") == "quick_gelu"
    return text_part(read_config(values), quick, partial(_pool_at_end, values))


def text_part(config: ModelConfig, quick_gelu: bool, text: Callable[[TextConfig, Values], TextConfig]) -> Part:
    """Return the text encoder of CLIP or SigLIP.

    quick_gelu: whether that is the activation, for which the weights are changed. text: the hook `Part.text`.
    """
    if not quick_gelu:
        return Part(config, NAMES, text=text)
    return Part(config, NAMES, lambda config, weights: (config, _fold_quick_gelu(weights)), text=text)


def text_tower(family: str, values: Values, usual: Values, act: str, eps: float, *,
               causal: bool) -> ModelConfig:
    """Return the architecture of the text encoder of CLIP or SigLIP from its own keys, `values`.

    usual: the defaults for `sizes`. act, eps: the defaults of hidden_act and layer_norm_eps.
    """
    refuse_variants(values)
    return ModelConfig(
        family=family,
        **sizes(values, **usual),
        embedding_norm=False,
        pad_token_id=padding_id(values, 1),
        norm_eps=number(values, "layer_norm_eps", eps),
        norm_place="pre",
        activation=activation(values, "hidden_act", act, ACTIVATIONS | QUICK_GELU),
        attention_kinds=(AttentionKind(causal=causal),),
    )


def _fold_quick_gelu(weights: Weights) -> Weights:
    """Return the weights with ffn.up times 1.702, and ffn.down's matrix divided by it, in float32.

    silu then computes quick_gelu, as the file's docstring says. weights: by canonical names.
    """
    factors = {"ffn.up.weight": 1.702, "ffn.up.bias": 1.702, "ffn.down.weight": 1 / 1.702}
    folded = dict(weights)
    for name, array in weights.items():
        after_layer = name.partition(".")[2].partition(".")[2]          # without the "layers.3."
        if (factor := factors.get(after_layer)) is not None:
            folded[name] = widened(array) * np.float32(factor)
    return folded


def _pool_at_end(config: Values, text: TextConfig, _settings: Values) -> TextConfig:
    """Return the text settings with CLIP's pooling: the vector of the first end token.

    An eos_token_id of 2, in configs before 2023, is wrong: the end token is then the last word of the vocabulary.
    """
    values = tower_values(config, "text")
    end, words = integer(values, "eos_token_id", 49407), integer(values, "vocab_size", 49408)
    return replace(text, pooling=("lasttoken",), end_id=words - 1 if end == 2 else end)


def read_images(values: Values) -> Part:
    """Return the image encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    vision = tower_values(values, "vision")
    config = image_tower("clip", vision, act="quick_gelu", eps=1e-5, embedding_norm=True)
    quick = vision.get("hidden_act", "quick_gelu") == "quick_gelu"
    return Part(config, IMAGE_NAMES, lambda config, weights: (config, _fold_quick_gelu(weights) if quick else weights),
                stem=partial(read_patches, vision, patch=32, first=1))


def image_tower(family: str, values: Values, act: str, eps: float, *, embedding_norm: bool) -> ModelConfig:
    """Return the architecture of the image encoder of CLIP or SigLIP from its own keys, `values`.

    act, eps: the defaults of hidden_act and layer_norm_eps.
    """
    refuse_variants(values)
    known = ACTIVATIONS | (QUICK_GELU if act == "quick_gelu" else {})
    return ModelConfig(
        family=family,
        **sizes(values, ffn=3072),
        embedding_norm=embedding_norm,
        position_table=False,
        norm_eps=number(values, "layer_norm_eps", eps),
        norm_place="pre",
        activation=activation(values, "hidden_act", act, known),
    )


def read_patches(values: Values, arrays: Weights, *, patch: int, first: int) -> Patches:
    """Return the input layer of images, which maps patches and adds positions, from its arrays in a file.

    patch: the default of patch_size. first: the number of class tokens, 1 or 0. Raises `WeightsError` for other sizes
    than the config's.
    """
    tables = dict(arrays)
    if "first" in tables:       # the class token, [D] in files
        tables["first"] = tables["first"].reshape(1, -1)
    if "weight" in tables:      # the map of CLIP has no bias
        tables.setdefault("bias", np.zeros(tables["weight"].shape[:1], np.float32))
    return make_patches(values, tables, resize="none", patch=patch, first=first)


FAMILIES = {"clip": Family(read_encoder, read_images=read_images), "clip_text_model": Family(read_encoder),
            "clip_vision_model": Family(read_images)}
