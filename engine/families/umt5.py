"""umT5 (Chung et al. 2023, arXiv 2304.09151) and its encoder: mT5 with a table of biases by distance in every layer."""

from __future__ import annotations

from dataclasses import replace

from . import t5
from .parts import Part, Parts, Values

NAMES = replace(
    t5.NAMES,
    embeddings={name: ours for name, ours in t5.NAMES.embeddings.items() if ours != "distance_bias.weight"},
    layer={**t5.NAMES.layer, "layer.0.SelfAttention.relative_attention_bias": "attention.distance_bias"},
)
DECODER = replace(
    t5.DECODER,
    embeddings={name: ours for name, ours in t5.DECODER.embeddings.items() if ours != "distance_bias.weight"},
    layer={**t5.DECODER.layer, "layer.0.SelfAttention.relative_attention_bias": "attention.distance_bias"},
)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    return Part(replace(t5.read_config(values), bias_in_layers=True), NAMES)


def read_generator(values: Values) -> Parts:
    """Return the encoder and the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    encoder = read_encoder(values)
    return Parts(encoder, Part(t5.decoder_config(values, encoder.config), DECODER, t5.own_logits))
