"""LangChain's embeddings and document compressor over the engine.

    from engine.adapters.langchain import EngineEmbeddings, EngineReranker

    store = InMemoryVectorStore(EngineEmbeddings("sentence-transformers/all-MiniLM-L6-v2"))
    best = EngineReranker(model="bge-reranker-base", top_n=3).compress_documents(store.similarity_search(query), query)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar

from ..base.arguments import positive_int_or_none
from ..base.errors import InputError, listed, shown
from ..base.install import needs_package
from ..interface.engine import Engine
from ..interface.reranker import Reranker

with needs_package("langchain-core", __name__):
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import Embeddings
    from pydantic import ConfigDict


Model = TypeVar("Model", Engine, Reranker)


class EngineEmbeddings(Embeddings):
    """Embeddings of an `Engine`. Documents and queries have the prompts and the routes that the model has for them.

    The asynchronous methods run the others in a thread, and any number of them may run at once.
    """

    def __init__(self, model: str | os.PathLike[str] | Engine | None = None, *,
                 encode_options: dict[str, Any] | None = None, **load_options: Any):
        """Load a model.

        model: a path that `Engine.load` reads, which gets load_options such as threads and precision, or an engine.
        encode_options: options of `Engine.encode` for queries and documents, such as normalize_embeddings=True. Texts
            that are too long are cut without a word, as by other embeddings; truncation=False refuses them.
        model_name, model_kwargs, encode_kwargs: the names that `HuggingFaceEmbeddings` has for model, load_options and
            encode_options, which are accepted, too.
        """
        if model is None:
            model = load_options.pop("model_name", None)
        if model is None:
            raise InputError('EngineEmbeddings needs a model: EngineEmbeddings("path"), or model_name="path"')
        encode_options = {**(encode_options or {}), **(load_options.pop("encode_kwargs", None) or {})}
        load_options |= load_options.pop("model_kwargs", None) or {}
        self.engine = _load_unless_loaded(Engine, model, load_options)
        self.encode_options = {"truncation": True, **encode_options}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vector of each text as a list of floats."""
        if _is_text(texts):
            raise InputError("texts must be a list of texts, not one text; write [text], or call embed_query")
        return self.engine.encode_document(texts, **self.encode_options).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query as a list of floats."""
        if not _is_text(text):      # a list of two texts would be taken for a pair
            raise InputError(f"the query must be one text, not {shown(text)}")
        [vector] = self.engine.encode_query([text], **self.encode_options).tolist()
        return vector


class EngineReranker(BaseDocumentCompressor):
    """A compressor of documents that keeps the best for a query, by the scores of a `Reranker`."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: Any
    """A path that `Reranker.load` reads: of a cross-encoder or of a language model such as Qwen3-Reranker; or a
    `Reranker`."""
    top_n: int | None = 3
    """How many documents to keep; None for all."""
    load_options: dict[str, Any] | None = None
    """Options of `Reranker.load`, such as threads or max_length."""

    def __init__(self, model: Any = None, **options: Any):
        """Take the model as the first argument, too, or by the name model_name."""
        if model is None:
            model = options.pop("model_name", None)
        if "model_kwargs" in options:
            options["load_options"] = {**(options.get("load_options") or {}), **(options.pop("model_kwargs") or {})}
        if model is None:
            raise InputError('EngineReranker needs a model: EngineReranker("path"), or model="path"')
        super().__init__(model=model, **options)

    def model_post_init(self, context: Any) -> None:
        """Check the options, and load the model; pydantic calls it after the fields are set."""
        positive_int_or_none("top_n", self.top_n)
        _ = self.reranker       # the property loads the model now, so that its errors come from the constructor

    @cached_property
    def reranker(self) -> Reranker:
        """The loaded model."""
        return _load_unless_loaded(Reranker, self.model, self.load_options or {})

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:
        """Return copies of the best documents, the best first, with the score as metadata["relevance_score"].

        callbacks: accepted for LangChain, and not called, as one call computes all scores.
        """
        if not documents:
            return []
        ranked = self.reranker.rank(query, [document.page_content for document in documents], top_k=self.top_n,
                                    truncation=True)
        scored = [(documents[one["corpus_id"]], float(one["score"])) for one in ranked]
        return [document.model_copy(update={"metadata": {**document.metadata, "relevance_score": score}})
                for document, score in scored]


def _is_text(value: Any) -> bool:
    """Return whether an argument is a string, whatever its type is declared to be."""
    return isinstance(value, str)


def _load_unless_loaded(kind: type[Model], model: Any, options: dict[str, Any]) -> Model:
    """Return `model` if it is an object of the class `kind`, otherwise load it from its path with `options`."""
    if not isinstance(model, kind):
        return kind.load(model, **options)
    if options:
        raise InputError(f"the model is loaded already, and {listed(options)} would change nothing; give it to "
                         f"{kind.__name__}.load")
    return model
