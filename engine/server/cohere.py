"""The routes of Cohere, whose ranks Jina has, too: forms of requests, and bodies of answers."""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec

from ..encoding.vector_precision import quantize_vectors
from ..weights.modules import shortened
from .forms import AnyModel, Asked, Form, Kind, Route, Wanted, check_items, dimensions_of, finite, top_of
from .images import sent_images
from .json_steps import JsonRows
from .openai import usage
from .refusals import COHERE, Refusal
from .requests import Answer
from .tei import RERANK


class CohereEmbedForm(Form):
    """A request to /v2/embed."""

    texts: list[str] | None = None
    images: list[str] | None = None
    """In base64, in place of texts."""
    embedding_types: list[Literal["float", "base64", "binary", "ubinary"]] = msgspec.field(
        default_factory=lambda: ["float"])
    output_dimension: int | None = None

    @property
    def dimensions(self) -> int | None:
        """The number of dimensions by the name of the other routes."""
        return self.output_dimension


class CohereRerankForm(Form):
    """A request for ranks with `documents`."""

    query: str
    documents: list[str | dict[str, str]]
    top_n: int | None = None
    return_documents: bool | None = None


def embed(form: CohereEmbedForm, model: AnyModel) -> Wanted:
    """Return the work for vectors in Cohere's form."""
    if form.texts is None and form.images is None:
        raise Refusal("wrong", "texts: the field is missing", "texts")
    if form.texts is not None and form.images is not None:
        raise Refusal("wrong", "texts and images: give one of them, and send a request for the others", "images")
    if form.images is not None and (form.input_type or "").lower() == "image":
        form.input_type = None      # all that Cohere's clients say of images
    inputs: Any = form.texts
    if form.images is None:
        check_items("texts", form.texts or ())
    else:
        check_items("images", form.images, "image")
        inputs = sent_images("images", form.images, model)
    check_items("embedding_types", form.embedding_types, "type")

    def body(answer: Answer, asked: Asked) -> Any:
        vectors = finite(shortened(answer.value, form.dimensions))
        embeddings: dict[str, Any] = {}
        for kind in dict.fromkeys(form.embedding_types):        # a type that comes a million times is made once
            if kind == "float":
                embeddings[kind] = JsonRows(vectors)
            elif kind == "base64":
                embeddings[kind] = JsonRows(base64.b64encode(row).decode() for row in vectors.astype("<f4", copy=False))
            else:
                embeddings[kind] = JsonRows(quantize_vectors(vectors, kind, ranges=None))
        return {"id": asked.request, "response_type": "embeddings_by_type", "embeddings": embeddings,
                "meta": _meta(answer)}

    return Wanted("embed", inputs, body, options=dimensions_of(form, model))


def rerank(form: CohereRerankForm, model: AnyModel) -> Wanted:
    """Return the work for ranks in the form of Cohere and Jina, which is a superset of both."""
    check_items("documents", form.documents, "document")
    texts = [_text(i, one) for i, one in enumerate(form.documents)]
    options = {"return_documents": bool(form.return_documents)} | top_of(form.top_n)

    def body(answer: Answer, asked: Asked) -> Any:
        finite([one["score"] for one in answer.value])
        results = JsonRows({"index": one["corpus_id"], "relevance_score": one["score"]}
                       | ({"document": {"text": one["text"]}} if form.return_documents else {})
                       for one in answer.value)
        return {"id": asked.request, "object": "list", "model": asked.model, "results": results,
                "usage": usage(answer), "meta": _meta(answer)}

    return Wanted("rank", (form.query, texts), body, options=options)


def _text(i: int, document: str | dict[str, str]) -> str:
    """Return the text of a document; raises `Refusal` for an object with other fields."""
    if isinstance(document, str):
        return document
    if document.keys() != {"text"}:
        raise Refusal("wrong", f"documents: item {i} must be a text, or an object with the field text alone",
                      "documents")
    return document["text"]


def _meta(answer: Answer) -> dict[str, Any]:
    return {"api_version": {"version": "2"}, "tokens": {"input_tokens": sum(answer.tokens)}}


ROUTES = (Route("/v2/embed", Kind(COHERE, CohereEmbedForm, embed, ("embed",))),
          *(Route(path, Kind(COHERE, CohereRerankForm, rerank, ("rank",)), {"texts": RERANK})
            for path in ("/rerank", "/v1/rerank", "/v2/rerank")))
