"""The routes /v1/embeddings of OpenAI, /score of vLLM, and our own /tag: fields of requests, and bodies of answers."""

from __future__ import annotations

import base64
import time
from typing import Any, Literal

import msgspec

from ..interface.engine import Engine
from ..methods.tag import TagOptions
from ..weights.modules import shortened
from .forms import (
    AnyModel,
    Asked,
    Form,
    Kind,
    Route,
    Wanted,
    check_items,
    dimensions_of,
    finite,
    scored_rows,
)
from .images import Inputs, inputs_of
from .json_steps import JsonRows
from .refusals import OPENAI, Refusal
from .requests import Answer


class EmbeddingsForm(Form):
    """A request to /v1/embeddings."""

    input: Inputs
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    """The client's name for its user, which is ignored."""


class ScoreForm(Form):
    """A request to /score. vLLM has two names for each of its fields: text_1 or queries, text_2 or documents."""

    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    user: str | None = None


class TagForm(Form):
    """A request to /tag."""

    inputs: str | list[str]
    aggregation_strategy: str = "simple"
    """The argument of `Engine.tag`; its default there gives tags of tokens, and here entities, which clients want."""
    ignore_labels: list[str] = msgspec.field(default_factory=lambda: [*TagOptions.ignore_labels])
    stride: int | None = TagOptions.stride
    words: str = TagOptions.words


def embeddings(form: EmbeddingsForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /v1/embeddings; raises `Refusal`."""
    inputs, single = inputs_of("input", form.input, model)

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer: one vector for each input, as numbers or float32 in base64."""
        vectors = finite(shortened(answer.value, form.dimensions))
        rows: Any = vectors
        if form.encoding_format == "base64":
            rows = (base64.b64encode(row).decode() for row in vectors.astype("<f4", copy=False))
        return {"object": "list", "model": asked.model, "usage": usage(answer),
                "data": JsonRows({"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows))}

    return Wanted("embed", inputs, body, options=dimensions_of(form, model), single=single)


def usage(answer: Answer) -> dict[str, int]:
    """Return OpenAI's field `usage`: how many tokens the model read."""
    tokens = sum(answer.tokens)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def score(form: ScoreForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /score: one text_1 against each text_2, or as many of both; raises `Refusal`."""
    first, second = _one_of(form, "text_1", "queries"), _one_of(form, "text_2", "documents")
    single = isinstance(first, str) and isinstance(second, str)
    firsts, seconds = ([texts] if isinstance(texts, str) else texts for texts in (first, second))
    check_items("text_1", firsts)
    check_items("text_2", seconds)
    if isinstance(first, str) or len(firsts) == 1:      # one text is compared with each of the others
        firsts = firsts * len(seconds)
    if len(firsts) != len(seconds):
        raise Refusal("wrong", f"text_1 has {len(firsts):,} texts and text_2 has {len(seconds):,}; give as many of "
                      "both, or one text_1", "text_2")
    pairs = list(zip(firsts, seconds, strict=True))

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer: a score for each pair."""
        if answer.value.ndim > 1:       # [pairs, labels]
            raise Refusal("unsupported", f"this model has {answer.value.shape[1]} labels, and a score is one number; "
                          "/predict gives all")
        return {"id": asked.request, "object": "list", "created": int(time.time()), "model": asked.model,
                "data": JsonRows({"index": i, "object": "score", "score": score}
                                 for i, score in enumerate(finite(answer.value))),
                "usage": usage(answer) | {"completion_tokens": 0}}

    return Wanted("score", pairs, body, single=single)


def tag(form: TagForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /tag; raises `Refusal`."""
    single = isinstance(form.inputs, str)
    texts = [form.inputs] if isinstance(form.inputs, str) else form.inputs
    check_items("inputs", texts)
    options = {"aggregation_strategy": form.aggregation_strategy, "ignore_labels": _labels_of(form, model),
               "words": form.words} | ({} if form.stride is None else {"stride": form.stride})

    return Wanted("tag", texts, lambda answer, asked: scored_rows(answer.value, single), options=options,
                  single=single)


def _labels_of(form: TagForm, model: AnyModel) -> list[str]:
    """Return the labels to ignore, each once, without those that the model lacks: a body may name a million labels."""
    head = model.heads.get("tag") if isinstance(model, Engine) else None
    # A label may be named with its B- or I-, or without.
    known = {name for label in (head.labels if head is not None else ()) for name in (label, label.split("-", 1)[-1])}
    return [label for label in dict.fromkeys(form.ignore_labels) if label in known]


def _one_of(form: ScoreForm, name: str, other: str) -> str | list[str]:
    """Return the value of a field that has two names, of which the request must have exactly one; raises `Refusal`."""
    values = [value for value in (getattr(form, name), getattr(form, other)) if value is not None]
    if len(values) != 1:
        raise Refusal("wrong", f"{name}: give {name}, which may also be called {other}, once", name)
    return values[0]


ROUTES = tuple(Route(path, kind) for paths, kind in (
    (("/v1/embeddings", "/embeddings"), Kind(OPENAI, EmbeddingsForm, embeddings, ("embed",))),
    (("/score", "/v1/score"), Kind(OPENAI, ScoreForm, score, ("score",))),
    (("/tag",), Kind(OPENAI, TagForm, tag, ("tag",)))) for path in paths)
