"""Language models with the layers of Llama as encoders, such as Qwen3-Embedding, gte-Qwen2 and e5-mistral.

A token sees no later token, unless config.json says `is_causal: false`, which code of such models reads.
"""

from __future__ import annotations

from dataclasses import replace

from . import heads, llama
from .fields import boolean, refuse_variants
from .parts import Part, Values

_SCORE = heads.Layer("classifier", "score")

NAMES = replace(
    llama.TIED,
    prefix=("model.", "transformer."),      # Qwen3ForQuestionAnswering has the second one
    left_out=("lm_head.", "score.", "qa_outputs."),
    copies={},
    heads=(heads.named("classify", _SCORE, rows="last"), heads.named("tag", _SCORE), heads.ANSWERS),
)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    both_ways = values.get("is_causal") is False or boolean(values, "use_bidirectional_attention", False)
    if both_ways:       # whether a window has both sides then, no published model says
        refuse_variants(values, {"use_sliding_window": False})
    # `llama.read_config` takes causal models alone.
    read = values if not both_ways else values | {"is_causal": True, "use_bidirectional_attention": False}
    config = llama.read_config(read, str(values.get("model_type")), decodes=False)
    if both_ways:
        kinds = tuple(replace(kind, causal=False) for kind in config.attention_kinds)
        config = replace(config, attention_kinds=kinds)
    return Part(config, NAMES)
