"""Classes of texts: labels with scores, as transformers' pipeline of text classification gives them.

A calibrated head gives calibrated probabilities, with their margin and entropy, and sets of labels for a coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..base.stop import Stop
from ..encoding.call import PLAIN, Call
from ..model.head import FUNCTIONS as NAMES
from ..text.sentences import Sentence, slices
from ..text.tokenizer import Tokens
from ..uncertainty.conformal import SCORES, class_thresholds, threshold
from ..uncertainty.measures import entropy, margin
from .runner import FUNCTIONS, HeadRunner, check_choice, top

Tokenize: TypeAlias = Callable[[Sequence[Any], Stop], Tokens]
"""Turns texts into tokens, unless a `Stop` comes before."""


def text_logits(runner: HeadRunner, texts: Sequence[Sentence], call: Call = PLAIN, tokenize: Tokenize | None = None
                ) -> np.ndarray:
    """Return the logits of each text or pair of texts: float32 [n, labels]; zeros for a text without tokens.

    tokenize: None for the tokenizer of the encoder.
    """
    result = np.zeros((len(texts), runner.config.outputs), np.float32)
    tokenize = tokenize or runner.encoder.tokenizer
    for part in slices(list(texts)):
        tokens = tokenize(texts[part.start : part.stop], call.stop)
        for i, logits in runner.logits(tokens, call):
            result[part[i]] = logits[0]
            call.advance(1)
    return result


def classify(runner: HeadRunner, texts: Sequence[Sentence], call: Call, *, top_k: int | None, function: str | None
             ) -> list[Any]:
    """Return for each text its label with the largest score, or for another `top_k` than 1 the list of its labels.

    top_k, function: as in `labels_of`.
    """
    check_function(function)
    return labels_of(runner, text_logits(runner, texts, call), top_k, function)


def check_function(function: Any) -> None:
    """Raise `InputError` unless a function of logits is None or one of the names that `labels_of` takes."""
    if function is not None:
        check_choice("function_to_apply", function, NAMES)


def labels_of(runner: HeadRunner, logits_of_texts: np.ndarray, top_k: int | None, function: str | None) -> list[Any]:
    """Return the labels of texts by their logits, float32 [n, labels]: the last of three steps of `classify`.

    The steps before it are `TextEncoder.tokens` and `HeadRunner.logits`.

    function: "softmax", "sigmoid" or "none" in place of the model's own, of the logits without calibration. The
    function of each text's logits is computed alone, in float32.
    """
    config = runner.config
    if function is None and runner.calibration is not None:
        calibrated = runner.probabilities(logits_of_texts)
        labelled = [_labelled(config.labels, row, doubt, top_k)
                    for row, doubt in zip(calibrated, doubts(calibrated), strict=True)]
        return [best[0] for best in labelled] if top_k == 1 else labelled
    compute = FUNCTIONS[config.function if function is None else function]
    results: list[Any] = []
    for logits in logits_of_texts:
        scores = compute(logits).tolist()
        best = [{"label": config.labels[i], "score": scores[i]} for i in top(scores, top_k)]
        results.append(best[0] if top_k == 1 else best)
    return results


def doubts(probabilities: np.ndarray) -> list[dict[str, float]]:
    """Return the margin and the entropy of each row of probabilities [n, K], as results have them."""
    return [{"margin": float(m), "entropy": float(e)}
            for m, e in zip(margin(probabilities), entropy(probabilities), strict=True)]


def _labelled(labels: Sequence[str], row: np.ndarray, doubt: dict[str, float], top_k: int | None
              ) -> list[dict[str, Any]]:
    """Return the labels with the largest probabilities; one label alone has the probabilities [2] of "no" and "yes"."""
    scores = row[-len(labels):].tolist()
    return [{"label": labels[i], "score": scores[i], **doubt} for i in top(scores, top_k)]


@dataclass(frozen=True)
class Sets:
    """Which labels are in the set of a text."""

    coverage: float
    score: str = "lac"
    """One of `engine.uncertainty.SCORES`."""
    by_class: bool = False
    """Whether the coverage holds for the texts of each class, and not only for all texts together."""


def label_sets(runner: HeadRunner, texts: Sequence[Sentence], sets: Sets, call: Call
               ) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return the best label of each text with the set of labels for a coverage, and the confidences, float32 [n].

    Raises `InputError`, before anything is computed, if the calibration has too few texts for the coverage.
    """
    config, calibration = runner.config, runner.calibration
    assert calibration is not None
    scores = calibration.arrays[sets.score]
    limits: Any = (class_thresholds(scores, calibration.arrays["classes"], sets.coverage, config.labels)
                   if sets.by_class else threshold(scores, sets.coverage))
    calibrated = runner.probabilities(text_logits(runner, texts, call))
    inside = SCORES[sets.score](calibrated) <= limits
    results = []
    for row, doubt, kept in zip(calibrated, doubts(calibrated), inside, strict=True):
        order = top(row.tolist(), k=None)
        results.append({"label": config.labels[order[0]], "score": float(row[order[0]]), **doubt,
                      "labels": [{"label": config.labels[i], "score": float(row[i])} for i in order if kept[i]]})
    return results, calibrated.max(axis=1).astype(np.float32)
