"""The options of a model's last product, which gives scores of the next token, and of a decoder around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .errors import shown

LOGITS = (None, "tied", "own")
"""The weights of the product with the vocabulary: none, the word table, or a matrix of its own."""


def impossible_decoder(config: Any) -> Iterator[str]:
    """Describe what is impossible in a `ModelConfig` that is a decoder's, once all options have the right types."""
    if config.logits not in LOGITS:
        yield f"logits must be one of {', '.join(map(str, LOGITS))}, not {shown(config.logits)}"
    if not 1e-6 < config.logits_scale < 1e6:
        yield f"logits_scale must be a float between 1e-6 and 1e6, not {shown(config.logits_scale)}"
    if config.logits is None:
        if config.logits_bias or config.logits_scale != 1.0 or config.memory_size:
            yield "logits_bias, logits_scale and memory_size need logits"
        return
    if not config.vocab_size:
        yield "logits need a vocab_size of at least 1"
    if config.logits == "tied" and config.embedding_width not in (0, config.hidden_size):
        yield f"tied logits need embeddings of width {config.hidden_size}, not {config.embedding_width}"
    if not all(getattr(kind, "causal", True) for kind in config.attention_kinds):
        yield "all attention_kinds of a model with logits must be causal"
    if config.relative is not None:
        yield "a model with logits cannot have the option relative"
    if config.memory_size and config.norm_place == "sandwich":
        yield "memory_size needs norm_place 'post' or 'pre'"
