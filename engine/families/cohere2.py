"""Command R7B (Cohere 2024): Llama's maps in parallel layers, LayerNorm, and rotation inside of windows alone."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import UnsupportedError
from . import llama
from .fields import number, refuse_variants
from .gguf import Architecture, read_windows
from .parts import Family, Part, Parts, Values, with_one_norm

_VARIANT = llama.Variant(
    {"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40,
     "num_attention_heads": 64, "max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "sliding_window": 4096},
    llama.ATTENTION, interleaved=True, eps="layer_norm_eps", every=4, stated_every=True, whole_rotates=False)


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    # rope_gptj means that neighbours rotate together, the only rotation that transformers has for this model. So the
    # key says nothing new, and `refuse_variants` would refuse it.
    if values.get("position_embedding_type") == "rope_gptj":
        values = values | {"position_embedding_type": None}
    refuse_variants(values, {"use_qk_norm": False, "tie_word_embeddings": True, "rotary_pct": 1.0,
                             "use_parallel_block": True})
    config = llama.read_config(values | {"tie_word_embeddings": True}, "cohere2", _VARIANT)
    if not config.layer_kinds:
        raise UnsupportedError("layer_types has no layer with a window; models without one are not supported")
    config = replace(config, norm_bias=False, norm_place="parallel", logits_scale=number(values, "logit_scale", 0.0625))
    return Parts(Part(config, llama.TIED, with_one_norm))


FAMILIES = {"cohere2": Family(read_generator=read_generator)}
ARCHITECTURES = {"cohere2": Architecture("cohere2", eps="layer_norm_eps", change=read_windows, keys={
    "logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"})}
