"""BART (Lewis et al. 2019), mBART (Liu et al. 2020), Marian (Junczys-Dowmunt et al. 2018), M2M100 (Fan et al. 2020)
with NLLB (2022), Pegasus (Zhang et al. 2020) and Blenderbot (Roller et al. 2020): translation, summarisation and talk
by an encoder and a decoder whose layers have the same names.

They differ in the place of the norms, in the positions and in the scale of the embeddings; `_VARIANTS` says how.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from ..model.positions import halved_sinusoids
from ..weights.bfloat16 import widened
from . import fields, heads
from .fields import GATE_ACTIVATIONS, activation, boolean, head_width, integer, optional_integer, padding_id
from .names import Names
from .parts import Family, Part, Parts, Values, Weights

_ATTENTION = {"k_proj": "key", "v_proj": "value", "q_proj": "query", "out_proj": "output"}
LAYER = {
    **{f"self_attn.{name}": f"attention.{ours}" for name, ours in _ATTENTION.items()},
    "self_attn_layer_norm": "attention.norm",
    "fc1": "ffn.up", "fc2": "ffn.down",
    "final_layer_norm": "ffn.norm",
}
"""The names of a layer without cross-attention."""
_CROSS = {      # the names of a layer's cross-attention
    **{f"encoder_attn.{name}": f"cross.{ours}" for name, ours in _ATTENTION.items()},
    "encoder_attn_layer_norm": "cross.norm",
}


def _names(part: str, other: str, layer: dict[str, str], embeddings: dict[str, str], copies: tuple[str, ...] = (),
           left_out: tuple[str, ...] = ()) -> Names:
    """Return the tensor names of a part of the model, "encoder" or "decoder"; other: the part that is left out."""
    return Names(
        prefix="",
        embeddings={
            "shared.weight": "embeddings.word",
            f"{part}.embed_positions.weight": "embeddings.position",
            f"{part}.layernorm_embedding.weight": "embeddings.norm.weight",
            f"{part}.layernorm_embedding.bias": "embeddings.norm.bias",
            f"{part}.layer_norm.weight": "final_norm.weight",
            f"{part}.layer_norm.bias": "final_norm.bias",
            **embeddings,
        },
        layers=f"{part}.layers.",
        layer=layer,
        left_out=(f"{other}.", f"{part}.version", "classification_head.", "qa_outputs.", *left_out),
        copies={"embeddings.word": (f"{part}.embed_tokens.weight", *copies)},
    )


HEADS = (
    heads.named("classify", heads.Layer("dense", "classification_head.dense", activation="tanh"),
                heads.Layer("classifier", "classification_head.out_proj"), rows="last"),
    heads.ANSWERS,
)
"""The heads of models whose decoder reads the text a second time."""
ENCODER = _names("encoder", "decoder", LAYER, embeddings={}, left_out=("lm_head.", "final_logits_bias"))
_BIAS = {"final_logits_bias": "logits.bias"}
DECODER = _names("decoder", "encoder", LAYER | _CROSS, _BIAS, copies=("lm_head.weight",))
_OWN_LOGITS = _names("decoder", "encoder", LAYER | _CROSS, _BIAS | {"lm_head.weight": "logits.weight"})
"""The names of a decoder whose logits have a matrix of their own, and are not by the word table."""


@dataclass(frozen=True)
class _Variant:
    """The differences between the models; the defaults are BART's."""

    defaults: Values
    norm_place: str = "post"
    embedding_norm: bool = True
    logits_bias: bool = True
    offset: int = 2
    """The row of the first token in the table of positions."""
    sinusoids: Callable[[int, int], np.ndarray] | None = None
    """Computes the table of positions [rows, D], which a file's own must equal; None for a learned table."""


def _old_norm_keys(before: bool, embedding: bool, final: bool, **more: Any) -> Values:
    """Return the keys of old configs that say where norms are, with the only values that are supported for a model."""
    return {"normalize_before": before, "normalize_embedding": embedding, "add_final_layer_norm": final, **more}


_BLENDERBOT = {"vocab_size": 8008, "d_model": 2560, "encoder_layers": 2, "decoder_layers": 24,
               "encoder_attention_heads": 32, "decoder_attention_heads": 32, "encoder_ffn_dim": 10240,
               "decoder_ffn_dim": 10240, "max_position_embeddings": 128}
_VARIANTS = {
    "bart": _Variant(_old_norm_keys(before=False, embedding=True, final=False)),
    "blenderbot": _Variant(_old_norm_keys(before=True, embedding=False, final=True, **_BLENDERBOT), norm_place="pre",
                           embedding_norm=False, offset=0),
    "m2m_100": _Variant({"vocab_size": 128112, "scale_embedding": True, "activation_function": "relu"},
                        norm_place="pre", embedding_norm=False, logits_bias=False,
                        sinusoids=partial(halved_sinusoids, last=True)),
    "marian": _Variant(_old_norm_keys(before=False, embedding=False, final=False, vocab_size=58101,
                            static_position_embeddings=True),
                       embedding_norm=False, offset=0, sinusoids=halved_sinusoids),
    "mbart": _Variant(_old_norm_keys(before=True, embedding=True, final=True), norm_place="pre"),
    "pegasus": _Variant(_old_norm_keys(before=True, embedding=False, final=True, static_position_embeddings=True),
                        norm_place="pre", embedding_norm=False, offset=0, sinusoids=halved_sinusoids),
}  # fmt: skip
_CHECKED = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "static_position_embeddings")
"""Keys whose only supported value is that of `_Variant.defaults`."""
_BUFFERS = ("encoder.embed_positions.weights", "decoder.embed_positions.weights")
"""Tables in old files of M2M100, which are left out: transformers and the engine compute them."""


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    family = str(values.get("model_type"))
    kind = _VARIANTS[family]
    checked = {key: kind.defaults[key] for key in _CHECKED if key in kind.defaults}
    fields.refuse_variants(values, checked | {"is_encoder_decoder": True, "add_bias_logits": False})
    values = kind.defaults | values
    if not boolean(values, "share_encoder_decoder_embeddings", True) and family != "marian":
        raise UnsupportedError("share_encoder_decoder_embeddings = False is supported for Marian only")
    return Part(_config(values, kind, "encoder", family), _without_buffers(ENCODER, kind),
                partial(_finish, kind, "encoder"))


def read_generator(values: Values) -> Parts:
    """Return the encoder and the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    part = read_encoder(values)
    encoder, family = part.config, part.config.family
    kind = _VARIANTS[family]
    values = kind.defaults | values
    tied = boolean(values, "tie_word_embeddings", True)
    words = optional_integer(values, "decoder_vocab_size", encoder.vocab_size) if family == "marian" else 0
    decoder = _config(values, kind, "decoder", family, vocab_size=words or encoder.vocab_size,
                      memory_size=encoder.hidden_size, attention_kinds=(AttentionKind(causal=True),),
                      logits="tied" if tied else "own", logits_bias=kind.logits_bias)
    names = _without_buffers(DECODER if tied else _OWN_LOGITS, kind)
    return Parts(Part(decoder, names, partial(_finish, kind, "decoder")), encoder=part)


def read_headed_decoder(values: Values) -> Parts | None:
    """Return the parts of a model with classes or answers, whose decoder reads the text a second time, one token later.

    Its head reads the vectors of the decoder, so the decoder's logits are replaced by these vectors: its map to logits
    becomes an identity. None for a model without such a head. Raises `WeightsError` or `UnsupportedError`.
    """
    if not fields.class_name(values).endswith(("ForSequenceClassification", "ForQuestionAnswering")):
        return None
    parts = read_generator(values)
    assert parts.encoder is not None
    width = parts.encoder.config.hidden_size
    config = replace(parts.decoder.config, logits="own", logits_bias=False, logits_size=width)
    encoder = replace(parts.encoder, names=replace(parts.encoder.names, heads=HEADS))
    decoder = replace(parts.decoder, config=config, finish=partial(_finish_reader, parts.decoder.finish))
    return Parts(decoder, encoder, start_id=integer(values, "decoder_start_token_id", 2))


def _finish_reader(finish: Callable[[ModelConfig, Weights], tuple[ModelConfig, Weights]], config: ModelConfig,
                   weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the decoder's weights with an identity [D, D] as its map to logits, so that it returns its vectors.

    finish: the usual hook of the decoder, which runs first.
    """
    config, weights = finish(config, {name: array for name, array in weights.items()
                                      if name not in ("logits.bias", "logits.weight")})
    return config, weights | {"logits.weight": np.eye(config.logits_size, dtype=np.float32)}


def _config(values: Values, kind: _Variant, part: str, family: str, **options: Any) -> ModelConfig:
    """Return the architecture of a part, "encoder" or "decoder"; options: of `ModelConfig`, where a decoder differs."""
    width, count = integer(values, "d_model", 1024), integer(values, f"{part}_attention_heads", 16)
    return ModelConfig(**{
        "family": family,
        "hidden_size": width,
        "num_layers": integer(values, f"{part}_layers", 12),
        "num_heads": count,
        "head_width": head_width(width, count),
        "ffn_size": integer(values, f"{part}_ffn_dim", 4096),
        "vocab_size": integer(values, "vocab_size", 50265),
        "max_positions": integer(values, "max_position_embeddings", 1024) + kind.offset,
        "position_offset": kind.offset,
        "pad_token_id": padding_id(values, 1),
        "embedding_norm": kind.embedding_norm,
        "embedding_scale": math.sqrt(width) if boolean(values, "scale_embedding", False) else 1.0,
        "norm_place": kind.norm_place,
        "norm_eps": 1e-5,
        "activation": activation(values, "activation_function", "gelu", GATE_ACTIVATIONS),
        **options,
    })


def _without_buffers(names: Names, kind: _Variant) -> Names:
    """Return the names without the buffers of position tables, if this kind of model computes the tables."""
    return names if kind.sinusoids is None else replace(names, left_out=(*names.left_out, *_BUFFERS))


def _finish(kind: _Variant, part: str, config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Add the table of sinusoids, which a file's own must equal, and the bias of the logits."""
    if kind.sinusoids is not None:
        table = kind.sinusoids(config.max_positions, config.hidden_size)
        if (stored := weights.get("embeddings.position")) is not None:
            _compare(f"{part}.embed_positions.weight", stored, table, config.family)
        weights["embeddings.position"] = table
    if config.logits_bias:
        # Some files lack the bias, which then is zero in transformers, too.
        bias = weights.get("logits.bias", np.zeros((1, config.vocab_size), np.float32))
        weights["logits.bias"] = bias.reshape(-1)
    return config, weights


def _compare(name: str, stored: np.ndarray, table: np.ndarray, family: str) -> None:
    """Raise `UnsupportedError` if the table of positions `stored` in a file is not the one that the engine computes.

    name: of the tensor, for messages.
    """
    rounding = 1e-4 if stored.dtype == np.float32 else 5e-3     # of angles in float32, or of values in bfloat16
    if stored.shape != table.shape:
        other = f"has the shape {list(stored.shape)} in place of {list(table.shape)}"
    elif not (distance := float(np.abs(widened(stored) - table).max())) <= rounding:
        other = f"differs from it by up to {distance:.2g}"
    else:
        return
    raise UnsupportedError(f"the engine computes the table of positions of {family} models, which are sinusoids, and "
                           f"{name} {other}; it does not run a model with a table of its own")


FAMILIES = {name: Family(read_encoder, read_generator, read_headed_decoder if name == "bart" else None, translates=True)
            for name in _VARIANTS}
