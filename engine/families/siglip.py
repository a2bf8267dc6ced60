"""The encoders of SigLIP (Zhai et al. 2023, arXiv 2303.15343) and SigLIP 2: of texts, with a map, and of images.

`encode` gives the text embeddings of transformers: each text is filled with the padding token up to the length limit,
64 tokens, and the model reads all of them; the vector of the last one goes through the map `head`. The vector of an
image is that of its head: attention from a learned query, and a feed-forward network. Images of SigLIP 2 in their own
shape (NaFlex, `siglip2`) are left out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..files.reading import naming, parse_object
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..weights.attention_pooling import AttentionPooling, make_pooling
from .clip import NAMES, image_tower, read_patches, text_part, text_tower, tower_values
from .fields import boolean, padding_id
from .names import Names
from .parts import Family, Part, Values, Weights


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    usual = {"ffn": 3072, "vocab": 32000, "positions": 64}
    return text_tower("siglip", tower_values(values, "text"), usual, act="gelu_pytorch_tanh", eps=1e-6, causal=False)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    quick = tower_values(values, "text").get("hidden_act") == "quick_gelu"
    return text_part(read_config(values), quick, partial(_pool_at_end, values))


def _pool_at_end(values: Values, text: TextConfig, settings: Values) -> TextConfig:
    """Return the text settings with SigLIP's pooling: the last token of a text that is filled with padding.

    settings: the contents of tokenizer_config.json. Raises `UnsupportedError` if texts are filled on their left.
    """
    if settings.get("padding_side", "right") != "right":
        raise UnsupportedError(f"padding_side {shown(settings['padding_side'])} is not supported; only 'right' is, "
                               "because SigLIP reads the padding")
    return replace(text, pooling=("lasttoken",), fill_id=_padding(text, values, settings))


def _padding(text: TextConfig, values: Values, settings: Values) -> int:
    """Return the id of the padding token by the tokenizer, because configs state another model's id, or none.

    values, settings: the contents of config.json and of tokenizer_config.json.
    """
    with naming(Path("tokenizer.json"), "copy the model's folder again from its source"):
        document = parse_object(text.tokenizer_json)
    token = settings.get("pad_token")
    token = token.get("content") if isinstance(token, dict) else token
    added = document.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict) and entry.get("content") == token and type(entry.get("id")) is int:
            return int(entry["id"])
    padding = document.get("padding")
    if isinstance(padding, dict) and type(padding.get("pad_id")) is int:
        return int(padding["pad_id"])
    return padding_id(tower_values(values, "text"), 1)


IMAGE_NAMES = Names(
    prefix="vision_model.",
    embeddings={
        "embeddings.patch_embedding.weight": "stem.weight", "embeddings.patch_embedding.bias": "stem.bias",
        "embeddings.position_embedding.weight": "stem.positions",
        "post_layernorm.weight": "final_norm.weight", "post_layernorm.bias": "final_norm.bias",
        "head.probe": "pooling.query",
        "head.attention.in_proj_weight": "pooling.joined", "head.attention.in_proj_bias": "pooling.joined_bias",
        "head.attention.out_proj.weight": "pooling.output", "head.attention.out_proj.bias": "pooling.output_bias",
        "head.layernorm.weight": "pooling.norm", "head.layernorm.bias": "pooling.norm_bias",
        "head.mlp.fc1.weight": "pooling.up", "head.mlp.fc1.bias": "pooling.up_bias",
        "head.mlp.fc2.weight": "pooling.down", "head.mlp.fc2.bias": "pooling.down_bias",
        "logit_scale": "contrast.scale", "logit_bias": "contrast.bias",
    },
    layers="encoder.layers.",
    layer=NAMES.layer,
    left_out=("text_model.", "embeddings.position_ids"),
)


def read_images(values: Values) -> Part:
    """Return the image encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    vision = tower_values(values, "vision")
    if boolean(vision, "vision_use_head", True) is not True:
        raise UnsupportedError("vision_use_head = false is not supported; only true is")
    config = image_tower("siglip", vision, act="gelu_pytorch_tanh", eps=1e-6, embedding_norm=False)
    return Part(config, IMAGE_NAMES, stem=partial(read_patches, vision, patch=16, first=0),
                pooling=partial(_read_pooling, config))


def _read_pooling(config: ModelConfig, arrays: Weights) -> AttentionPooling:
    """Return the head that pools an image's vectors by attention from one learned query, from its arrays in a file.

    The query does not depend on the image, so query times key map is one matrix `scores` [H, D]. The bias of the keys
    adds the same to the scores of all tokens, and so does not change their softmax; it is left out.
    """
    named, D, H = dict(arrays), config.hidden_size, config.num_heads
    shapes = {"query": (1, 1, D), "joined": (3 * D, D), "joined_bias": (3 * D,)}
    for name, shape in shapes.items():
        if name not in named or named[name].shape != shape:
            raise WeightsError(f"the head of a SigLIP image encoder must have head.probe [1, 1, {D}], and an in_proj "
                               f"of {3 * D} rows of {D} numbers with a bias")
    query, joined, bias = (named.pop(name).astype(np.float64) for name in shapes)
    query_of_head = (joined[:D] @ query.reshape(D) + bias[:D]).reshape(H, -1) / math.sqrt(D // H)
    scores = np.einsum("hd,hdk->hk", query_of_head, joined[D : 2 * D].reshape(H, D // H, D))
    named |= {"scores": scores, "value": joined[2 * D :], "value_bias": bias[2 * D :]}
    return make_pooling({"eps": config.norm_eps, "activation": config.activation},
                        {name: array.astype(np.float32) for name, array in named.items()})


FAMILIES = dict.fromkeys(("siglip2", "siglip2_text_model", "siglip_text_model"), Family(read_encoder)) | {
    "siglip": Family(read_encoder, read_images=read_images), "siglip_vision_model": Family(read_images)}
