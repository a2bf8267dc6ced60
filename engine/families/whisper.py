"""Whisper (Radford et al. 2022, arXiv 2212.04356): an encoder of audio, and a decoder of its transcript.

`Engine.forward(input_features=...)` runs the encoder alone: one vector for every two frames of a spectrogram.
`Transcriber` runs both.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..base.errors import UnsupportedError, WeightsError
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..weights.input_layers import Frames, make_stem
from . import bart
from .fields import GATE_ACTIVATIONS, activation, boolean, head_width, integer, padding_id, refuse_variants
from .names import Names
from .parts import Family, Part, Parts, Values, Weights

NAMES = Names(
    prefix="encoder.",
    embeddings={
        "conv1.weight": "stem.weight", "conv1.bias": "stem.bias",
        "conv2.weight": "stem.weight2", "conv2.bias": "stem.bias2",
        "embed_positions.weight": "stem.positions",
        "layer_norm.weight": "final_norm.weight", "layer_norm.bias": "final_norm.bias",
    },
    layers="layers.",
    layer=bart.LAYER,
    left_out=("decoder.", "proj_out.", "projector.", "classifier.", "layer_weights"),
)
DECODER = replace(
    bart.DECODER,
    embeddings={name: ours for name, ours in bart.DECODER.embeddings.items() if ours != "embeddings.word"},
    copies={"embeddings.word": ("decoder.embed_tokens.weight", "proj_out.weight")},
)
_BIASES = ("query", "value", "output", "up", "down")        # keys have none
_HANDLED = ("forced_decoder_ids", "lang_to_id", "prev_sot_token_id", "return_timestamps", "task_to_id")
"""Keys of generation_config.json that say which tokens a decoder of speech begins with."""


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values)
    return _encoder(values)


def _read_stem(values: Values, arrays: Weights) -> Frames:
    """Return the input layer of spectrograms (two convolutions, positions) from its arrays in a file.

    Raises `WeightsError` for other sizes than the config's.
    """
    stem = make_stem({"kind": Frames.kind}, arrays)
    assert isinstance(stem, Frames)
    bins, positions = integer(values, "num_mel_bins", 80), integer(values, "max_source_positions", 1500)
    if stem.weight.shape[1] != bins or len(stem.positions) != positions:
        raise WeightsError(f"by config.json, the stem must take {bins} frequencies and have {positions} positions, not "
                           f"{stem.weight.shape[1]} and {len(stem.positions)}")
    return stem


def read_generator(values: Values) -> Parts:
    """Return the encoder and the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`.

    The config has a key scale_embedding, which transformers reads and then uses nowhere.
    """
    refuse_variants(values, {"is_encoder_decoder": True, "tie_word_embeddings": True})
    encoder = _encoder(values)
    decoder = replace(
        _config(values, "decoder"), position_table=True, max_positions=integer(values, "max_target_positions", 448),
        vocab_size=integer(values, "vocab_size", 51865), memory_size=encoder.config.hidden_size, logits="tied",
        pad_token_id=padding_id(values, 50256), attention_kinds=(AttentionKind(causal=True),))
    return Parts(Part(decoder, DECODER), encoder, handled=_HANDLED)


def _encoder(values: Values) -> Part:
    """Return the encoder of audio, for which the caller has refused unsupported keys of config.json."""
    if boolean(values, "use_weighted_layer_sum", False):
        raise UnsupportedError("use_weighted_layer_sum = true is not supported; only false is")
    return Part(_config(values, "encoder"), NAMES, stem=partial(_read_stem, values))


def _config(values: Values, part: str) -> ModelConfig:
    """Return the architecture of a part, "encoder" or "decoder", without positions: the encoder's stem adds its own."""
    width, heads = integer(values, "d_model", 384), integer(values, f"{part}_attention_heads", 6)
    return ModelConfig(
        family="whisper",
        hidden_size=width,
        num_layers=integer(values, f"{part}_layers", 4),
        num_heads=heads,
        head_width=head_width(width, heads),
        ffn_size=integer(values, f"{part}_ffn_dim", 1536),
        embedding_norm=False,
        position_table=False,
        norm_place="pre",
        norm_eps=1e-5,
        biases=_BIASES,
        activation=activation(values, "activation_function", "gelu", GATE_ACTIVATIONS),
    )


FAMILIES = {"whisper": Family(read_encoder, read_generator, generates="transcribe")}
