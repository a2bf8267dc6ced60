"""`SimilarityMethods`: the methods of an `Engine` that compare vectors: `similarity` and `similarity_pairwise`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.arguments import renamed_arguments
from ..encoding.maxsim import are_of_tokens, maxsim, pairwise_maxsim
from ..encoding.similarity import packed_pairwise, packed_precision, packed_similarity, pairwise_similarity, similarity
from ..heads.sparse import SparseVectors, check_sparse
from ..model.text_config import LATE_SIMILARITIES
from .engine_base import EngineBase


class SimilarityMethods(EngineBase):
    """The part of `Engine` that compares vectors of texts, sparse vectors and vectors of tokens."""

    @renamed_arguments
    def similarity(self, a: Any, b: Any, *, precision: str | None = None) -> np.ndarray:
        """Return the similarity of each vector of a, [n,D] or [D], and each of b, [m,D] or [D]: float32 [n,m].

        The function is `similarity_fn_name`: the cosine, the dot product, or a distance with a minus sign. For a model
        with a vector for each token, a are queries and b documents, each a list of arrays [T_i,D] as `encode_tokens`
        returns it, or an array [n,T,D], or one array [T,D]; a document without vectors has the score -1e9. A model with
        vectors of texts and of tokens compares both: for lists of arrays [T_i,D] and arrays [n,T,D], of which one of a
        and b is enough, the function is "meanmaxsim".

        Vectors of `encode(..., precision="binary")` and "ubinary" have the similarity 1 - 2 h / n, for h of n bits that
        differ. precision: what the vectors are, one of the precisions of `encode`; None tells int8 and uint8 arrays by
        their width: as many numbers as `get_embedding_dimension()` are numbers, and an eighth of it are bits, so say
        "int8" for vectors that truncate_dim made as short.

        a and b may be the sparse vectors of `encode_sparse`. A model that has dense vectors beside them, such as
        BGE-M3, compares them by dot products. A cosine may be 1.0000004 by rounding, as in sentence-transformers: clip
        it where a function such as arccos needs a number up to 1.
        Raises `InputError`, also for another width, and for vectors in two precisions.
        """
        if (name := self._sparse_similarity(a, b)) is not None:
            return a.dot(b) if name == "dot" else similarity(name, a.to_dense(), b.to_dense(), self._ops)
        if (name := self._late_similarity(a, b)) is not None:
            return maxsim(self._ops, a, b, mean=name == "meanmaxsim")
        if (packed := packed_precision(lambda: self._width, a, b, precision)) is not None:
            return packed_similarity(packed, a, b)
        return similarity(self.similarity_fn_name, a, b, self._ops)

    @renamed_arguments
    def similarity_pairwise(self, a: Any, b: Any, *, precision: str | None = None) -> np.ndarray:
        """Return the similarity of each vector of a, [n,D] or [D], and its partner in b: float32 [n].

        precision, and sparse vectors and vectors of tokens, are as for `similarity`.
        """
        if (name := self._sparse_similarity(a, b)) is not None:
            return pairwise_similarity(name, a.to_dense(), b.to_dense())
        if (name := self._late_similarity(a, b)) is not None:
            return pairwise_maxsim(self._ops, a, b, mean=name == "meanmaxsim")
        if (packed := packed_precision(lambda: self._width, a, b, precision)) is not None:
            return packed_pairwise(packed, a, b)
        return pairwise_similarity(self.similarity_fn_name, a, b)

    @property
    def _width(self) -> int:
        """The number of dimensions of a vector of `encode`, or of a token's vector for a model that reads no texts."""
        return self.config.hidden_size if self.text is None else self.text_encoder.width

    def _sparse_similarity(self, a: Any, b: Any) -> str | None:
        """Return the similarity function for sparse vectors a and b; None if neither is sparse. Raises `InputError`."""
        if not isinstance(a, SparseVectors) and not isinstance(b, SparseVectors):
            return None
        check_sparse(a, b)
        head = self.heads.get("encode_sparse")
        # A model with dense vectors, too, has a similarity function for these; its sparse ones need dot products.
        return self.similarity_fn_name if head is None or head.reads_numbers else "dot"

    def _late_similarity(self, a: Any, b: Any) -> str | None:
        """Return the similarity function for vectors of tokens, one of `LATE_SIMILARITIES`; None for other vectors."""
        if self.similarity_fn_name in LATE_SIMILARITIES:
            return self.similarity_fn_name
        return "meanmaxsim" if "encode_tokens" in self.heads and (are_of_tokens(a) or are_of_tokens(b)) else None
