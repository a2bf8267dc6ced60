"""Classes of texts: labels with scores, as transformers' pipeline of text classification gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..model.head import FUNCTIONS as NAMES
from ..text.sentences import Sentence, slices
from ..text.tokenizer import Tokens
from .runner import FUNCTIONS, HeadRunner, check_choice, top

Tokenize: TypeAlias = Callable[[Sequence[Any], float], Tokens]
"""Turns texts into tokens until a deadline."""


def text_logits(runner: HeadRunner, texts: Sequence[Sentence], tokenize: Tokenize | None = None, *,
                batch_size: int | None = None, deadline: float = 0.0,
                advance: Callable[[int], None] = lambda count: None) -> np.ndarray:
    """Return the logits of each text or pair of texts: float32 [n, labels]; zeros for a text without tokens.

    tokenize: None for the tokenizer of the encoder. advance: called with the number of texts that are done.
    """
    found = np.zeros((len(texts), runner.config.outputs), np.float32)
    tokenize = tokenize or runner.encoder.tokenizer
    for part in slices(list(texts)):
        tokens = tokenize(texts[part.start : part.stop], deadline)
        for i, logits in runner.logits(tokens, batch_size=batch_size, deadline=deadline):
            found[part[i]] = logits[0]
            advance(1)
    return found


def classify(runner: HeadRunner, texts: Sequence[Sentence], *, top_k: int | None, function: str | None,
             **options: Any) -> list[Any]:
    """Return for each text its label with the largest score, or for another `top_k` than 1 the list of its labels.

    function: "softmax", "sigmoid" or "none" in place of the model's own. options: those of `text_logits`. The function
    of each text's logits is computed alone, in float32.
    """
    config = runner.config
    compute = FUNCTIONS[config.function if function is None else check_choice("function_to_apply", function, NAMES)]
    found = []
    for logits in text_logits(runner, texts, **options):
        scores = compute(logits).tolist()
        best = [{"label": config.labels[i], "score": scores[i]} for i in top(scores, top_k)]
        found.append(best[0] if top_k == 1 else best)
    return found
