"""umT5 (Chung et al. 2023, arXiv 2304.09151) and its encoder: mT5 with a table of biases by distance in every layer."""

from __future__ import annotations

from dataclasses import replace

from . import t5
from .names import Names
from .parts import Part, Parts, Values


def _biases_in_layers(names: Names) -> Names:
    """Return T5's names with a table of biases in every layer, in place of one for all of them."""
    return replace(
        names,
        embeddings={name: ours for name, ours in names.embeddings.items() if ours != "distance_bias.weight"},
        layer={**names.layer, "layer.0.SelfAttention.relative_attention_bias": "attention.distance_bias"},
    )


NAMES, DECODER = _biases_in_layers(t5.NAMES), _biases_in_layers(t5.DECODER)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    return Part(replace(t5.read_config(values), bias_in_layers=True), NAMES)


def read_generator(values: Values) -> Parts:
    """Return the encoder and the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    encoder = read_encoder(values)
    return Parts(Part(t5.decoder_config(values, encoder.config), DECODER, t5.untied_where_stored), encoder)
