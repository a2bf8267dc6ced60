"""A transformer of scikit-learn from texts to vectors, for pipelines, grid searches and column transformers.

    from engine.adapters.sklearn import EngineEncoder

    model = make_pipeline(EngineEncoder("sentence-transformers/all-MiniLM-L6-v2"), LogisticRegression())
    model.fit(texts, labels)
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.arguments import is_one_of
from ..base.errors import InputError, shown
from ..base.install import needs_package
from ..interface.engine import Engine
from ..text.sentences import check_sentences

with needs_package("scikit-learn", __name__):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

_METHODS = {None: "encode", "query": "encode_query", "document": "encode_document"}


class EngineEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turns texts into the vectors of `Engine.encode`. It learns nothing, and needs no fit.

    Objects with equal model, precision and threads share one engine, and a process keeps the engine that was used last.
    A pickle holds the parameters alone.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, *, task: str | None = None,
                 prompt_name: str | None = None, prompt: str | None = None, normalize_embeddings: bool = False,
                 truncate_dim: int | None = None, precision: str | None = None, threads: int | None = None):
        """Keep the parameters; `fit` and `transform` check them.

        model: a path that `Engine.load` reads. precision, threads: options of `Engine.load`; use threads=1 where joblib
            starts a process for each CPU.
        task: "query" or "document" for `encode_query` or `encode_document`, None for `encode`.
        prompt_name, prompt, normalize_embeddings, truncate_dim: options of `Engine.encode`.
        """
        self.model = model
        self.task = task
        self.prompt_name = prompt_name
        self.prompt = prompt
        self.normalize_embeddings = normalize_embeddings
        self.truncate_dim = truncate_dim
        self.precision = precision
        self.threads = threads

    def fit(self, X: Any, y: Any = None) -> EngineEncoder:
        """Check the parameters and the texts, and return this object; nothing is learned."""
        self._engine()
        _check_texts(X)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the vectors of texts: float32 [n, D]. X: a list, an array or a column of strings."""
        encode = getattr(self._engine(), _METHODS[self.task])
        return encode(_check_texts(X), prompt_name=self.prompt_name, prompt=self.prompt,
                      normalize_embeddings=self.normalize_embeddings, truncate_dim=self.truncate_dim,
                      truncation=True)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks of an estimator: it reads texts, and needs no fit."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []      # texts have no dtype, and vectors are float32
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def _n_features_out(self) -> int:
        """The dimensions of a vector, which `get_feature_names_out` of scikit-learn reads."""
        width = self._engine().get_embedding_dimension()
        return width if self.truncate_dim is None else min(width, self.truncate_dim)

    def _engine(self) -> Engine:
        """Return the engine for the parameters, loaded if necessary; raises `InputError` for wrong parameters."""
        if not is_one_of(self.task, _METHODS):
            raise InputError(f'task must be None, "query" or "document", not {shown(self.task)}')
        if self.model is None:
            raise InputError("EngineEncoder needs the path of a model: EngineEncoder(model=...)")
        return _load(os.fspath(self.model), self.precision, self.threads)


@lru_cache(maxsize=1)
def _load(model: str, precision: str | None, threads: int | None) -> Engine:
    """Return an engine, kept for the next call with equal arguments, such as that of another clone of a grid search."""
    return Engine.load(model, precision=precision, threads=threads)


def _check_texts(X: Any) -> list[Any]:
    """Return the texts as a list; raises `InputError` for one text, and for anything but texts."""
    if isinstance(X, str):
        raise InputError("X must be a list of texts, not one text; write [text]")
    return check_sentences(X)
