"""Gemma (arXiv 2403.08295), Gemma 2 (arXiv 2408.00118) and the text of Gemma 3 (arXiv 2503.19786).

Gemma has the layers of Llama, with words times sqrt(D) and norms that files hold less 1. Gemma 2 adds norms, windows
and caps of scores and of logits. Gemma 3 has the layers of EmbeddingGemma. A folder of model_type gemma3 holds images
too, and its text is a model of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.config import ModelConfig
from . import embedding_gemma, fields, llama
from .gguf import Architecture, Shapes, Stated, read_windows
from .names import Names
from .parts import Family, Part, Parts, Values

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
"""What stands before the names of the text's tensors in a folder with images, by the version of transformers."""

NAMES = replace(llama.TIED, norms_less_one=True)
_SANDWICH = replace(embedding_gemma.NAMES, left_out=("score.",), copies=llama.TIED.copies)


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    kind, names = values.get("model_type"), _SANDWICH
    if kind == "gemma3":
        values, names = _text_of(values), _with_images(names)
    if not fields.boolean(values, "tie_word_embeddings", True):
        raise UnsupportedError("tie_word_embeddings = False is not supported; only True is")
    if kind == "gemma":
        return Parts(Part(_read_first(values), NAMES))
    if kind == "gemma2":
        return Parts(Part(_read_second(values), names))
    if values.get("use_bidirectional_attention"):
        raise UnsupportedError("use_bidirectional_attention is true: the model is an encoder; load it with Engine")
    return Parts(Part(embedding_gemma.read_layers(values, causal=True, decodes=True), names))


def _read_first(values: Values) -> ModelConfig:
    """Return the architecture of the first Gemma."""
    values = _FIRST.defaults | values
    if values.get("hidden_activation") is not None:
        values["hidden_act"] = values["hidden_activation"]
    if values["hidden_act"] == "gelu":      # as transformers reads it: the published files mean the tanh form
        values["hidden_act"] = "gelu_pytorch_tanh"
    config = llama.read_config(values, "gemma", _FIRST)
    return replace(config, embedding_scale=math.sqrt(config.hidden_size))


def _read_second(values: Values) -> ModelConfig:
    """Return the architecture of Gemma 2."""
    values = values | {"hidden_act": values.get("hidden_activation") or "gelu_pytorch_tanh"}
    config, scalar = llama.read_config(values, "gemma2", _SECOND), fields.number(values, "query_pre_attn_scalar", 256)
    if not scalar > 0:
        raise WeightsError(f"query_pre_attn_scalar must be above 0, not {scalar}")
    return replace(config, norm_place="sandwich", embedding_scale=math.sqrt(config.hidden_size),
                   attention_scale=scalar**-0.5, attention_softcap=_cap(values, "attn_logit_softcapping", 50.0),
                   logits_softcap=_cap(values, "final_logit_softcapping", 30.0))


def _cap(values: Values, key: str, usual: float) -> float:
    """Return a cap, and 0 for null, which means none."""
    return 0.0 if values.get(key, usual) is None else fields.number(values, key, usual)


def _text_of(values: Values) -> Values:
    """Return the contents of config.json of the text in a folder with images."""
    text = values.get("text_config", {})
    if not isinstance(text, dict):
        raise WeightsError(f"text_config must be an object, not {shown(text)}")
    if text.get("model_type", "gemma3_text") != "gemma3_text":
        raise UnsupportedError(f"text_config has the model_type {shown(text['model_type'])}; only 'gemma3_text' is "
                               "supported")
    of_both = {key: values[key] for key in ("quantization", "quantization_config") if key in values}    # refused later
    return {"vocab_size": 262208} | text | of_both


def _with_images(names: Names) -> Names:
    """Return the names of the text in a folder that holds images, too, whose tensors are left out."""
    return replace(names, prefix=_OF_TEXT, left_out=(*names.left_out, *_IMAGES))


_OF_THE_HIDDEN_SIZE = (46, 62)
"""The layers of Gemma 2 27B and Gemma 3 27B."""


def _with_scale(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Add the windows, and the scale of the scores, which files do not state, as `Architecture.change`.

    The largest models have the scale from the hidden size.
    """
    by_hidden_size = values["num_hidden_layers"] in _OF_THE_HIDDEN_SIZE
    width, heads, head_dim = (values.get(key) for key in ("hidden_size", "num_attention_heads", "head_dim"))
    if type(width) is int and type(heads) is int and heads > 0:
        values["query_pre_attn_scalar"] = width // heads if by_hidden_size or head_dim is None else head_dim
    read_windows(values, stated, shapes)


FAMILIES = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3"), Family(read_generator=read_generator)),
    "gemma3_text": Family(embedding_gemma.read_encoder, read_generator, usual=embedding_gemma.usual),
}
_CAP = {"final_logit_softcapping": "final_logit_softcapping"}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_LOCAL_ROPE = _WINDOW | {"rope.freq_base_swa": "rope_local_base_freq"}
ARCHITECTURES = {
    "gemma": Architecture("gemma"),
    "gemma-embedding": Architecture("gemma3_text", keys=_LOCAL_ROPE, values={"use_bidirectional_attention": True},
                                    change=_with_scale, encodes=True),
    "gemma2": Architecture("gemma2", keys=_WINDOW | _CAP | {"attn_logit_softcapping": "attn_logit_softcapping"},
                           change=_with_scale),
    "gemma3": Architecture("gemma3_text", keys=_LOCAL_ROPE | _CAP, change=_with_scale),
}
