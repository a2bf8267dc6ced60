"""`SparseEncoder`: a sparse vector over the vocabulary for each text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ...base.arguments import flag, positive_int_or_none
from ...base.errors import InputError, shown
from ...heads.sparse import SparseVectors
from ...interface.engine import Engine
from ...loading.module_list import PROMPTS
from .model import Encoder, accept_earlier, check_call, refuse_options
from .saving import source_of
from .tensors import import_torch, is_tensor, like, sparse_tensor, to_sparse


class SparseEncoder(Encoder):
    """sentence-transformers' class of this name, for SPLADE models and tables for queries.

    `encode` returns sparse tensors of torch, as there; `encode(..., convert_to_tensor=False)` returns `SparseVectors`,
    which need no torch, and all methods take both.
    """

    _default_similarity = "dot"

    def __init__(self, model_name_or_path: Any = None, *, similarity_fn_name: Any = None,
                 max_active_dims: int | None = None, **options: Any):
        """Load a model; the arguments are those of sentence-transformers, as `Model` reads them."""
        super().__init__(model_name_or_path, **options)
        self.max_active_dims = positive_int_or_none("max_active_dims", max_active_dims) or self._head.max_active_dims
        # A "cosine" that the files do not state is the engine's default; None sets this class's, "dot".
        if self.similarity_fn_name == "cosine" and not _states_similarity(self.engine):
            self.similarity_fn_name = None
            self._stated["similarity_fn_name"] = self.similarity_fn_name
        if similarity_fn_name is not None:
            self.similarity_fn_name = similarity_fn_name

    def _check_kind(self) -> None:
        if self._head is None:
            self.engine.runner_of("fill_mask", "encode sparsely")       # raises, and says which heads the model has

    @property
    def _head(self) -> Any:
        """The `HeadConfig` of the head that gives each word its number; None for a model without such a head."""
        engines = [self.engine, *self.engine.routes.values()]
        return next((engine.heads[name] for engine in engines for name in ("encode_sparse", "fill_mask")
                     if name in engine.heads), None)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"max_active_dims": self.max_active_dims}

    @accept_earlier(sentences="inputs")
    def encode(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None, convert_to_tensor: bool = True,
               convert_to_sparse_tensor: bool = True, save_to_cpu: bool = False, device: Any = None,
               max_active_dims: int | None = None, pool: Any = None, chunk_size: int | None = None, **options: Any
               ) -> Any:
        """Return the sparse vectors of texts: a sparse tensor [n,V], or [V] for a string.

        The arguments are those of `Engine.encode_sparse`, and of sentence-transformers. batch_size: the most texts that
        are computed at a time. convert_to_sparse_tensor=False gives dense numbers. convert_to_tensor=False needs no
        torch: it gives `SparseVectors` of n rows, one for a string, or dense arrays, and [] for an empty list.
        """
        check_call(device, pool, chunk_size)
        flag("save_to_cpu", save_to_cpu)        # everything is on the CPU
        as_tensor, sparse = (flag("convert_to_tensor", convert_to_tensor),
                             flag("convert_to_sparse_tensor", convert_to_sparse_tensor))
        task = options.pop("task", None)
        refuse_options("encode", options)
        torch = import_torch("convert_to_tensor=True, the default of SparseEncoder,") if as_tensor else None
        vectors = self.engine.encode_sparse(
            inputs, prompt=self._prompt(prompt, prompt_name), batch_size=batch_size,
            show_progress_bar=show_progress_bar, truncation=True,
            max_active_dims=self.max_active_dims if max_active_dims is None else max_active_dims, **self._route(task))
        single = isinstance(inputs, str)
        if torch is None and not len(vectors):
            return []
        if sparse and torch is None:
            return vectors
        if not sparse:
            rows = vectors.to_dense() if torch is None else torch.from_numpy(vectors.to_dense())
            return rows[0] if single else rows
        tensor = sparse_tensor(torch, vectors)
        return tensor[0].coalesce() if single else tensor

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of n embeddings with m others: float32 [n,m], a tensor if one argument is."""
        a, b = to_sparse(embeddings1), to_sparse(embeddings2)
        scores = a.dot(b) if self.similarity_fn_name == "dot" else self.engine.similarity(a.to_dense(), b.to_dense())
        return like(scores, embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of embedding i with the other embedding i: float32 [n], a tensor if one argument is."""
        a, b = to_sparse(embeddings1), to_sparse(embeddings2)
        return like(self.engine.similarity_pairwise(a.to_dense(), b.to_dense()), embeddings1, embeddings2)

    def decode(self, embeddings: Any, top_k: int | None = None) -> Any:
        """Return the tokens of embeddings with their numbers, the largest first: a list of pairs, or n such lists."""
        rows = to_sparse(embeddings)
        words = SparseVectors(rows.indices, rows.values, rows.indptr, rows.shape, self._token).decode(top_k)
        return words[0] if getattr(embeddings, "ndim", 2) == 1 else words

    @staticmethod
    def sparsity(embeddings: Any) -> dict[str, float]:
        """Return "active_dims", the mean number of entries that are not 0, and "sparsity_ratio", the share of zeros."""
        rows = to_sparse(embeddings)
        if not all(rows.shape):
            return {"active_dims": 0.0, "sparsity_ratio": 1.0}
        active = float(np.count_nonzero(rows.values) / len(rows))
        return {"active_dims": active, "sparsity_ratio": 1.0 - active / rows.shape[1]}

    @staticmethod
    def intersection(embeddings_1: Any, embeddings_2: Any) -> Any:
        """Return the products, word by word, of one embedding with one or several, without those of 0 or less.

        The result is sparse, and has the form and the number of rows of the second argument.
        """
        one, rows = to_sparse(embeddings_1), to_sparse(embeddings_2)
        if len(one) != 1 or one.shape[1] != rows.shape[1]:
            raise InputError(f"intersection takes one embedding and one or several over as many words, not "
                             f"{shown(one.shape)} and {shown(rows.shape)}")
        products = rows.values * one.to_dense()[0][rows.indices]
        positive = products > 0
        # How many positive products stand before each row, and in all rows.
        indptr = np.concatenate([[0], np.cumsum(positive)])[rows.indptr].astype(np.int64)
        vectors = SparseVectors(rows.indices[positive], products[positive], indptr, rows.shape, rows.tokens)
        if not is_tensor(embeddings_1) and not is_tensor(embeddings_2):
            return vectors
        tensor = sparse_tensor(import_torch("a tensor"), vectors)
        return tensor[0].coalesce() if getattr(embeddings_2, "ndim", 2) == 1 else tensor

    def get_embedding_dimension(self) -> int:
        """Return the number of words of the vocabulary."""
        return int(self._head.outputs)

    def _token(self, number: int) -> str:
        return self.engine.tokenizer.token(number)


def _states_similarity(engine: Engine) -> bool:
    """Return whether the folder of a model states the similarity of its vectors.

    A plain model of masked words does not, nor does an .npz; both are compared by dot products.
    """
    settings = source_of(engine).path / PROMPTS
    return settings.is_file() and json.loads(settings.read_text(encoding="utf-8")).get("similarity_fn_name") is not None
