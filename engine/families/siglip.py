"""The text encoder of SigLIP (Zhai et al. 2023, arXiv 2303.15343) and SigLIP 2: a pre-norm encoder, and a map.

`encode` gives the text embeddings of transformers: each text is filled with the padding token up to the length limit,
64 tokens, and the model reads all of them; the vector of the last one goes through the map `head`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from ..base.errors import UnsupportedError, shown
from ..files.reading import naming, parse_object
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from .clip import text_part, text_tower, text_values
from .fields import padding_id
from .parts import Family, Part, Values


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    usual = {"ffn": 3072, "vocab": 32000, "positions": 64}
    return text_tower("siglip", text_values(values), usual, act="gelu_pytorch_tanh", eps=1e-6, causal=False)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    quick = text_values(values).get("hidden_act") == "quick_gelu"
    return text_part(read_config(values), quick, partial(_pool_at_end, values))


def _pool_at_end(values: Values, text: TextConfig, settings: Values) -> TextConfig:
    """Return the pooling of SigLIP; raises `UnsupportedError` for a tokenizer that fills texts on their left."""
    if settings.get("padding_side", "right") != "right":
        raise UnsupportedError(f"padding_side {shown(settings['padding_side'])} is not supported; only 'right' is, "
                               "because SigLIP reads the padding")
    return replace(text, pooling=("lasttoken",), fill_id=_padding(text, values, settings))


def _padding(text: TextConfig, values: Values, settings: Values) -> int:
    """Return the id of the tokenizer's padding token; configs state another model's, or none."""
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
    return padding_id(text_values(values), 1)


FAMILIES = dict.fromkeys(("siglip", "siglip2", "siglip2_text_model", "siglip_text_model"), Family(read_encoder))
