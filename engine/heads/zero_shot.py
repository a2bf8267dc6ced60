"""Classes that the caller names, by a classifier that says whether a text entails a sentence about a class.

It gives the scores of transformers' pipeline for zero-shot classification. Each label makes a hypothesis, such as "This
example is sports."; a text and a hypothesis are a pair, whose logit of the label "entailment" is that of the class.
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
"""What a text is asked about a label by default."""
_PLACE = "{}"
_SHOWN = 5
"""How many labels of a model a message shows."""


def check_labels(name: str, value: Any) -> list[str] | None:
    """Return the labels of a caller, or None for None; a string is split at its commas. Raises `InputError`."""
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
    """Return the numbers of the labels against which and for which a text entails a hypothesis, as the pipeline does.

    An entailment is the first label whose name begins so, in any case; against it stands the first label, or the last
    one where the entailment is the first. Raises `UnsupportedError` for a classifier of something else.
    """
    labels = runner.config.labels
    found = next((i for i, label in enumerate(labels) if label.lower().startswith("entail")), None)
    if found is None or len(labels) == 1:
        some = ", ".join(labels[:_SHOWN]) + ", ..." * (len(labels) > _SHOWN)
        raise UnsupportedError("candidate_labels are for a classifier of natural language inference, which has the "
                               f"label 'entailment' beside others, and this one has {some}; without them, classify "
                               "chooses among the labels of the model")
    return (0 if found else len(labels) - 1), found


def sentences_about(labels: Sequence[str], template: str) -> list[str]:
    """Return the sentence that a template makes of each label."""
    return [template.replace(_PLACE, label) for label in labels]


def hypotheses_of(runner: HeadRunner, labels: Sequence[str], template: str | None) -> SecondTexts:
    """Return the hypotheses of labels with their tokens; raises `InputError` for one that leaves no room for a text."""
    with located("the hypotheses of candidate_labels"):
        return runner.encoder.tokenizer.second_texts(sentences_about(labels, template or TEMPLATE))


def zero_shot_labels(runner: HeadRunner, logits: np.ndarray, labels: Sequence[str], multi_label: bool,
                     top_k: int | None) -> Any:
    """Return the labels of one text by the logits of its pairs, float32 [labels, outputs]; the last step.

    multi_label: whether each label has a probability of its own, as a label alone always has. A calibration of the
    head is one of its own labels, so that it does not apply; the results of such a head have "calibrated" False.
    """
    against, entailment = entailment_of(runner)
    if multi_label or len(labels) == 1:
        scores = FUNCTIONS["softmax"](logits[:, [against, entailment]])[:, 1]
    else:
        scores = FUNCTIONS["softmax"](logits[:, entailment])
    return best_labels(labels, scores.tolist(), top_k, {} if runner.calibration is None else {"calibrated": False})
