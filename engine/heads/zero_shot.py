"""Classify texts by labels of the caller, with a classifier that says whether a text entails a sentence about a label.

The scores are those of transformers' pipeline for zero-shot classification. Each label gets a hypothesis, such as "This
example is sports."; a text and a hypothesis are a pair, whose logit of "entailment" is the logit of the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, located, shown
from ..text.sentences import check_text, check_texts
from ..text.tokens import SecondTexts
from .classify import best_labels
from .runner import FUNCTIONS, HeadRunner

TEMPLATE = "This example is {}."
"""The default template of hypotheses."""
_PLACE = "{}"
_SHOWN = 5
"""How many labels of a model a message shows."""


def check_labels(name: str, value: Any) -> list[str] | None:
    """Return the labels of a caller, different and not empty, or None for None; raises `InputError`.

    A string is split at its commas. name: the argument, for messages.
    """
    if value is None:
        return None
    if isinstance(value, str):
        labels = [label.strip() for label in check_text(name, value).split(",") if label.strip()]
    else:
        labels = check_texts(value, name)
    if not labels:
        raise InputError(f"{name} must have one label or more, such as ['sports', 'politics'], not {shown(value)}")
    seen: set[str] = set()
    for i, label in enumerate(labels):
        if not label.strip():
            raise InputError(f"{name} must have no empty label, and number {i} is {shown(label)}; leave it out")
        if label in seen:
            raise InputError(f"{name} must have each label once, and {shown(label)} is there twice")
        seen.add(label)
    return labels


def check_template(name: str, value: Any) -> str | None:
    """Return a template of hypotheses, or None for None; raises `InputError` unless it has one place for a label."""
    if value is None:
        return None
    template = check_text(name, value)
    around = template.split(_PLACE)
    if len(around) != 2 or any(brace in part for part in around for brace in "{}"):
        raise InputError(f"{name} must have {_PLACE} once, where a label is put, and no other braces, such as "
                         f"{TEMPLATE!r}, not {shown(template)}")
    return template


def entailment_of(runner: HeadRunner) -> tuple[int, int]:
    """Return (number of the label of contradiction, number of the label of entailment) by the pipeline's rule.

    The entailment is the first label whose name begins with "entail", in any case. The contradiction is the first
    label, or the last one if the entailment is the first. Raises `UnsupportedError` for any other classifier.
    """
    labels = runner.config.labels
    entailment = next((i for i, label in enumerate(labels) if label.lower().startswith("entail")), None)
    if entailment is None or len(labels) == 1:
        some = ", ".join(labels[:_SHOWN]) + ", ..." * (len(labels) > _SHOWN)
        raise UnsupportedError("candidate_labels are for a classifier of natural language inference, which has the "
                               f"label 'entailment' beside others, and this one has {some}; without them, classify "
                               "chooses among the labels of the model")
    return (0 if entailment else len(labels) - 1), entailment


def sentences_about(labels: Sequence[str], template: str) -> list[str]:
    """Return a sentence about each label: the template with the label in the place of its braces."""
    return [template.replace(_PLACE, label) for label in labels]


def hypotheses_of(runner: HeadRunner, labels: Sequence[str], template: str | None) -> SecondTexts:
    """Return the hypotheses of labels with their tokens; raises `InputError` if one leaves no room for a text."""
    with located("the hypotheses of candidate_labels"):
        return runner.encoder.tokenizer.second_texts(sentences_about(labels, template or TEMPLATE))


def zero_shot_labels(runner: HeadRunner, logits: np.ndarray, labels: Sequence[str], multi_label: bool,
                     top_k: int | None) -> Any:
    """Return the `best_labels` of one text by the logits of its pairs, float32 [labels, outputs]: the last step.

    multi_label: whether each label has a probability of its own, as a single label always has; otherwise they sum to 1.
    A calibration of the head is for its own labels, so it does not apply: then results have "calibrated" False.
    """
    contradiction, entailment = entailment_of(runner)
    if multi_label or len(labels) == 1:
        scores = FUNCTIONS["softmax"](logits[:, [contradiction, entailment]])[:, 1]
    else:
        scores = FUNCTIONS["softmax"](logits[:, entailment])
    return best_labels(labels, scores.tolist(), top_k, more={} if runner.calibration is None else {"calibrated": False})
