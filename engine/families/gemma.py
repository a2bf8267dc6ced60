"""Gemma 1 to 3 (arXiv 2403.08295, 2408.00118, 2503.19786) and EmbeddingGemma (arXiv 2509.20354), which looks both ways.

Gemma has the layers of Llama, with words times sqrt(D) and norms that files hold less 1. Gemma 2 adds norms, windows
and caps of scores and of logits. A folder of model_type gemma3 holds images too, and its text is a model of its own.
The tokens of EmbeddingGemma see those on both sides; other embedders, such as harrier, leave Gemma 3 as it is.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, ModelConfig
from . import fields, llama
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number
from .gguf import Architecture, Shapes, Stated, read_windows
from .parts import Family, Part, Parts, Values, decoder_config

_FIRST = llama.Variant({
    "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "max_position_embeddings": 8192,
    "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh",
}, llama.ATTENTION)  # fmt: skip
_SECOND = llama.Variant({
    "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
    "hidden_act": "gelu_pytorch_tanh", "sliding_window": 4096, "tie_word_embeddings": True,
}, llama.ATTENTION, every=2)  # fmt: skip
_IMAGES = ("vision_tower.", "multi_modal_projector.")
_OF_TEXT = ("language_model.model.", "language_model.")
"""Prefixes, by the version of transformers, of the names of the text's tensors in a folder with images."""

_FIRST_NAMES = replace(llama.TIED, norms_less_one=True)       # files hold weight - 1
_SANDWICH = _FIRST_NAMES.with_layer({"post_attention_layernorm": "attention.post_norm",
                                     "pre_feedforward_layernorm": "ffn.norm",
                                     "post_feedforward_layernorm": "ffn.post_norm"}, left_out=("score.",))
_ENCODER = replace(_SANDWICH, left_out=("lm_head.", "score."), copies={})
_SUPPORTED = {"attn_logit_softcapping": None, "use_bidirectional_attention": False}
"""The only values of these keys that are supported."""


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    kind, names = values.get("model_type"), _SANDWICH
    if kind == "gemma3":
        values = _text_of(values)       # the folder also has an image encoder, whose tensors are left out
        names = replace(names, prefix=_OF_TEXT, left_out=(*names.left_out, *_IMAGES))
    if not boolean(values, "tie_word_embeddings", True):
        raise UnsupportedError("tie_word_embeddings = False is not supported; only True is")
    if kind == "gemma":
        return Parts(Part(_read_first(values), _FIRST_NAMES))
    if kind == "gemma2":
        return Parts(Part(_read_second(values), names))
    if values.get("use_bidirectional_attention"):
        raise UnsupportedError("use_bidirectional_attention is true: the model is an encoder; load it with Engine")
    return Parts(Part(_read_third(values, causal=True, decodes=True), names))


def read_encoder(values: Values) -> Part:
    """Return the encoder of a config.json of Gemma 3; raises `WeightsError` or `UnsupportedError`."""
    causal = not boolean(values, "use_bidirectional_attention", False)
    # `_read_third` refuses other values of the key than null, which say nothing new beside `causal`.
    config = _read_third(values | {"use_bidirectional_attention": None}, causal=causal)
    return Part(config, _ENCODER)


def _read_first(values: Values) -> ModelConfig:
    """Return the architecture of the first Gemma."""
    values = _FIRST.defaults | values
    if values.get("hidden_activation") is not None:
        values["hidden_act"] = values["hidden_activation"]
    if values["hidden_act"] == "gelu":      # transformers reads it as the tanh form, which the published files mean
        values["hidden_act"] = "gelu_pytorch_tanh"
    config = llama.read_config(values, "gemma", _FIRST)
    return replace(config, embedding_scale=math.sqrt(config.hidden_size))


def _read_second(values: Values) -> ModelConfig:
    """Return the architecture of Gemma 2."""
    values = values | {"hidden_act": values.get("hidden_activation") or "gelu_pytorch_tanh"}
    config, scalar = llama.read_config(values, "gemma2", _SECOND), number(values, "query_pre_attn_scalar", 256)
    if not scalar > 0:
        raise WeightsError(f"query_pre_attn_scalar must be above 0, not {scalar}")
    return replace(config, norm_place="sandwich", embedding_scale=math.sqrt(config.hidden_size),
                   attention_scale=scalar**-0.5, attention_softcap=_cap(values, "attn_logit_softcapping", 50.0),
                   logits_softcap=_cap(values, "final_logit_softcapping", 30.0))


def _read_third(values: Values, *, causal: bool, decodes: bool = False) -> ModelConfig:
    """Return the architecture of Gemma 3 as an encoder, or with `decodes` as a decoder with tied logits.

    causal: whether a token sees no later token. Raises `WeightsError` or `UnsupportedError`.
    """
    only_decoders = {"is_causal": True, "final_logit_softcapping": None} if decodes else {}
    fields.refuse_variants(values, _SUPPORTED | only_decoders)
    hidden_size, num_layers = integer(values, "hidden_size", 2304), integer(values, "num_hidden_layers", 26)
    scalar, window = number(values, "query_pre_attn_scalar", 256), integer(values, "sliding_window", 4096)
    if not (scalar > 0 and window >= 0 and 1 <= hidden_size <= 2**24):
        raise WeightsError("query_pre_attn_scalar must be above 0, sliding_window at least 0 and hidden_size from 1 to "
                           f"16,777,216, not {scalar}, {shown(window)} and {shown(hidden_size)}")
    width, every = integer(values, "head_dim", 256), integer(values, "sliding_window_pattern", 6, least=1)
    local = values | {"rope_scaling": None}  # of layers with a window, to which the scaling does not apply
    # Tokens that a token sees on a side: a window of earlier tokens counts the token itself; else each side has half.
    reach = max(0, window - 1) if causal else window // 2
    return decoder_config(
        family="gemma3_text",
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=integer(values, "num_attention_heads", 8),
        num_kv_heads=integer(values, "num_key_value_heads", 4),
        head_width=width,
        head_norm=True,
        ffn_size=integer(values, "intermediate_size", 9216),
        vocab_size=integer(values, "vocab_size", 262208),
        max_positions=integer(values, "max_position_embeddings", 131072),
        embedding_scale=math.sqrt(hidden_size),
        attention_scale=scalar**-0.5,
        pad_token_id=fields.padding_id(values, 0),
        norm="rms",
        norm_place="sandwich",
        norm_eps=number(values, "rms_norm_eps", 1e-6),
        biases=ATTENTION_MAPS if boolean(values, "attention_bias", False) else (),
        activation=activation(values, "hidden_activation", "gelu_pytorch_tanh", GATE_ACTIVATIONS),
        gated=True,
        attention_kinds=(
            AttentionKind(causal=causal, **fields.rotary(values, "rope_theta", 1000000.0, width, fields.FULL)),
            AttentionKind(reach, causal=causal,
                          **fields.rotary(local, "rope_local_base_freq", 10000.0, width, fields.SLIDING)),
        ),
        logits="tied" if decodes else None,
        layer_kinds=fields.layer_types(values, num_layers, windowed=lambda i: (i + 1) % every != 0),
    )


def _cap(values: Values, key: str, usual: float) -> float:
    """Return a cap of scores or logits from `key`, `usual` without the key, and 0, which is no cap, for null."""
    return 0.0 if values.get(key, usual) is None else number(values, key, usual)


def _text_of(values: Values) -> Values:
    """Return the keys of the text model from the config.json of a folder that also has an image encoder."""
    text = values.get("text_config", {})
    if not isinstance(text, dict):
        raise WeightsError(f"text_config must be an object, not {shown(text)}")
    if text.get("model_type", "gemma3_text") != "gemma3_text":
        raise UnsupportedError(f"text_config has the model_type {shown(text['model_type'])}; only 'gemma3_text' is "
                               "supported")
    of_both = {key: values[key] for key in ("quantization", "quantization_config") if key in values}    # refused later
    return {"vocab_size": 262208} | text | of_both


_SCALED_BY_HIDDEN_SIZE = (46, 62)
"""The numbers of layers of Gemma 2 27B and Gemma 3 27B, by which `_with_scale` knows them."""


def _with_scale(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Add to `values` the windows of layers, and the scale of the scores, which GGUF files do not state.

    The scale is the width of a head ^ -0.5; the largest models take hidden size / heads for the width.
    """
    by_hidden_size = values["num_hidden_layers"] in _SCALED_BY_HIDDEN_SIZE
    width, heads, head_dim = (values.get(key) for key in ("hidden_size", "num_attention_heads", "head_dim"))
    if type(width) is int and type(heads) is int and heads > 0:
        values["query_pre_attn_scalar"] = width // heads if by_hidden_size or head_dim is None else head_dim
    read_windows(values, stated, shapes)


FAMILIES = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3"), Family(read_generator=read_generator)),
    # A model whose tokens see later ones encodes.
    "gemma3_text": Family(read_encoder, read_generator, kind_without_class=lambda values: (
        "encode" if values.get("use_bidirectional_attention") else "generate")),
}
_CAP = {"final_logit_softcapping": "final_logit_softcapping"}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_LOCAL_ROPE = _WINDOW | {"rope.freq_base_swa": "rope_local_base_freq"}
"""Settings of a GGUF file that only some versions have, and their keys in a config.json."""
ARCHITECTURES = {
    "gemma": Architecture("gemma"),
    "gemma-embedding": Architecture("gemma3_text", keys=_LOCAL_ROPE, values={"use_bidirectional_attention": True},
                                    change=_with_scale, encodes=True),
    "gemma2": Architecture("gemma2", keys=_WINDOW | _CAP | {"attn_logit_softcapping": "attn_logit_softcapping"},
                           change=_with_scale),
    "gemma3": Architecture("gemma3_text", keys=_LOCAL_ROPE | _CAP, change=_with_scale),
}
_EMBEDDING_GEMMA_2 = "EmbeddingGemma 2 adds a gated input to each layer; the first EmbeddingGemma is supported"
REFUSED = {"embedding_gemma2": _EMBEDDING_GEMMA_2, "embedding_gemma2_text": _EMBEDDING_GEMMA_2}
