"""The routes of OpenAI and of vLLM, and our own: forms of requests, and bodies of answers."""

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
    """Who the client's user is; nothing depends on it."""


class ScoreForm(Form):
    """A request to /score, with the two names that vLLM has for each field."""

    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    user: str | None = None


class TagForm(Form):
    """A request to /tag."""

    inputs: str | list[str]
    aggregation_strategy: str = "simple"
    """As in `Engine.tag`, whose default gives the tags of tokens; clients want entities."""
    ignore_labels: list[str] = msgspec.field(default_factory=lambda: [*TagOptions.ignore_labels])
    stride: int | None = TagOptions.stride
    words: str = TagOptions.words


def embeddings(form: EmbeddingsForm, model: AnyModel) -> Wanted:
    """Return the work for vectors in OpenAI's form."""
    inputs, single = inputs_of("input", form.input, model)

    def body(answer: Answer, asked: Asked) -> Any:
        vectors = finite(shortened(answer.value, form.dimensions))
        rows: Any = vectors
        if form.encoding_format == "base64":
            rows = (base64.b64encode(row).decode() for row in vectors.astype("<f4", copy=False))
        return {"object": "list", "model": asked.model, "usage": usage(answer),
                "data": JsonRows({"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows))}

    return Wanted("embed", inputs, body, options=dimensions_of(form, model), single=single)


def usage(answer: Answer) -> dict[str, int]:
    """Return how many tokens the model read, in OpenAI's form."""
    tokens = sum(answer.tokens)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def score(form: ScoreForm, model: AnyModel) -> Wanted:
    """Return the work for the scores of pairs in vLLM's form."""
    first, second = _one_of(form, "text_1", "queries"), _one_of(form, "text_2", "documents")
    single = isinstance(first, str) and isinstance(second, str)
    firsts, seconds = ([one] if isinstance(one, str) else one for one in (first, second))
    check_items("text_1", firsts)
    check_items("text_2", seconds)
    if isinstance(first, str) or len(firsts) == 1:      # one text is compared with each of the others
        firsts = firsts * len(seconds)
    if len(firsts) != len(seconds):
        raise Refusal("wrong", f"text_1 has {len(firsts):,} texts and text_2 has {len(seconds):,}; give as many of "
                      "both, or one text_1", "text_2")
    pairs = list(zip(firsts, seconds, strict=True))

    def body(answer: Answer, asked: Asked) -> Any:
        if answer.value.ndim > 1:
            raise Refusal("unsupported", f"this model has {answer.value.shape[1]} labels, and a score is one number; "
                          "/predict gives all")
        return {"id": asked.request, "object": "list", "created": int(time.time()), "model": asked.model,
                "data": JsonRows({"index": i, "object": "score", "score": one}
                             for i, one in enumerate(finite(answer.value))),
                "usage": usage(answer) | {"completion_tokens": 0}}

    return Wanted("score", pairs, body, single=single)


def tag(form: TagForm, model: AnyModel) -> Wanted:
    """Return the work for the tags of texts."""
    single = isinstance(form.inputs, str)
    texts = [form.inputs] if isinstance(form.inputs, str) else form.inputs
    check_items("inputs", texts)
    options = {"aggregation_strategy": form.aggregation_strategy, "ignore_labels": _labels_of(form, model),
               "words": form.words} | ({} if form.stride is None else {"stride": form.stride})

    return Wanted("tag", texts, lambda answer, asked: scored_rows(answer.value, single), options=options,
                  single=single)


def _labels_of(form: TagForm, model: AnyModel) -> list[str]:
    """Return the labels to ignore that the model has, with B- or I- before them or without: a body may name a million.
    """
    head = model.heads.get("tag") if isinstance(model, Engine) else None
    known = {name for label in (head.labels if head is not None else ()) for name in (label, label.split("-", 1)[-1])}
    return [label for label in dict.fromkeys(form.ignore_labels) if label in known]


def _one_of(form: ScoreForm, name: str, other: str) -> str | list[str]:
    """Return the field of a form that has one of two names; raises `Refusal`."""
    given = [one for one in (getattr(form, name), getattr(form, other)) if one is not None]
    if len(given) != 1:
        raise Refusal("wrong", f"{name}: give {name}, which may also be called {other}, once", name)
    return given[0]


ROUTES = tuple(Route(path, kind) for paths, kind in (
    (("/v1/embeddings", "/embeddings"), Kind(OPENAI, EmbeddingsForm, embeddings, ("embed",))),
    (("/score", "/v1/score"), Kind(OPENAI, ScoreForm, score, ("score",))),
    (("/tag",), Kind(OPENAI, TagForm, tag, ("tag",)))) for path in paths)
