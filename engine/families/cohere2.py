"""Command R7B (Cohere 2024): Llama's maps in parallel layers, LayerNorm, and rotation inside of windows alone."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import UnsupportedError
from . import llama
from .fields import number, refuse_variants
from .parts import Part, Parts, Values, with_one_norm


def read_generator(values: Values) -> Parts:
    """Return the decoder of a config.json; raises `WeightsError` or `UnsupportedError`."""
    if values.get("position_embedding_type") == "rope_gptj":     # neighbours rotate together, as transformers has it
        values = values | {"position_embedding_type": None}
    refuse_variants(values, {"use_qk_norm": False, "tie_word_embeddings": True, "rotary_pct": 1.0,
                             "use_parallel_block": True})
    config = llama.read_config(values | {"tie_word_embeddings": True}, "cohere2")
    if not config.layer_kinds:
        raise UnsupportedError("layer_types has no layer with a window; models without one are not supported")
    config = replace(config, norm_bias=False, norm_place="parallel", logits_scale=number(values, "logit_scale", 0.0625))
    return Parts(Part(config, llama.TIED, with_one_norm))
