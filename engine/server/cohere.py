"""The routes /v2/embed and /rerank of Cohere, the second also in Jina's form: their fields, and bodies of answers."""

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
    """Images in base64, in place of texts."""
    embedding_types: list[Literal["float", "base64", "binary", "ubinary"]] = msgspec.field(
        default_factory=lambda: ["float"])
    output_dimension: int | None = None

    @property
    def dimensions(self) -> int | None:
        """`output_dimension` by its name in the other routes, which `forms.dimensions_of` reads."""
        return self.output_dimension


class CohereRerankForm(Form):
    """A request to rerank `documents`, by Cohere's names of the fields."""

    query: str
    documents: list[str | dict[str, str]]
    top_n: int | None = None
    return_documents: bool | None = None


def embed(form: CohereEmbedForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /v2/embed; raises `Refusal`.

    It removes the input_type "image" from the form, which the caller reads again to choose a prompt.
    """
    if form.texts is None and form.images is None:
        raise Refusal("wrong", "texts: the field is missing", "texts")
    if form.texts is not None and form.images is not None:
        raise Refusal("wrong", "texts and images: give one of them, and send a request for the others", "images")
    if form.images is not None and (form.input_type or "").lower() == "image":
        form.input_type = None      # Cohere's clients send it with each image; it names no prompt
    inputs: Any = form.texts
    if form.images is None:
        check_items("texts", form.texts or ())
    else:
        check_items("images", form.images, "image")
        inputs = sent_images("images", form.images, model)
    check_items("embedding_types", form.embedding_types, "type")

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer: one list of vectors for each type that was asked for."""
        vectors = finite(shortened(answer.value, form.dimensions))
        embeddings: dict[str, Any] = {}
        for kind in dict.fromkeys(form.embedding_types):        # each type once, however often a client repeats it
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
    """Return the work for a request to /rerank; its answer has the fields of Cohere and those of Jina."""
    check_items("documents", form.documents, "document")
    texts = [_text(i, document) for i, document in enumerate(form.documents)]
    options = {"return_documents": bool(form.return_documents)} | top_of(form.top_n)

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer: the best documents, the best first."""
        finite([rank["score"] for rank in answer.value])
        results = JsonRows({"index": rank["corpus_id"], "relevance_score": rank["score"]}
                           | ({"document": {"text": rank["text"]}} if form.return_documents else {})
                           for rank in answer.value)
        return {"id": asked.request, "object": "list", "model": asked.model, "results": results,
                "usage": usage(answer), "meta": _meta(answer)}

    return Wanted("rank", (form.query, texts), body, options=options)


def _text(i: int, document: str | dict[str, str]) -> str:
    """Return the text of document `i` of a request; raises `Refusal` for an object with other fields."""
    if isinstance(document, str):
        return document
    if document.keys() != {"text"}:
        raise Refusal("wrong", f"documents: item {i} must be a text, or an object with the field text alone",
                      "documents")
    return document["text"]


def _meta(answer: Answer) -> dict[str, Any]:
    """Return the field `meta`, which Cohere's clients read."""
    return {"api_version": {"version": "2"}, "tokens": {"input_tokens": sum(answer.tokens)}}


ROUTES = (Route("/v2/embed", Kind(COHERE, CohereEmbedForm, embed, ("embed",))),
          *(Route(path, Kind(COHERE, CohereRerankForm, rerank, ("rank",)), {"texts": RERANK})
            for path in ("/rerank", "/v1/rerank", "/v2/rerank")))
