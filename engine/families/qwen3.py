"""Qwen3 (Yang et al. 2025, arXiv 2505.09388) as an encoder, such as Qwen3-Embedding: a token sees no later token."""

from __future__ import annotations

from dataclasses import replace

from . import heads, llama
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
    return Part(llama.read_config(values, "qwen3", decodes=False), NAMES)
