"""`SentenceTransformer`: one vector for each text."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...base.arguments import positive_int_or_none
from ...encoding.similarity import packed_precision
from ...loading.hub import ALONE
from .model import Encoder, accept_earlier, check_call, refuse_options
from .tensors import imported_torch, like, read_form, to_array, to_tensors


def _full_name(name: Any) -> Any:
    """Return the full name on the hub of a short name, such as all-MiniLM-L6-v2; return other values unchanged."""
    is_short = isinstance(name, str) and name.strip(".") and not {"/", "\\"} & {*name} and not name.endswith(ALONE)
    return f"sentence-transformers/{name}" if is_short and not os.path.exists(name) else name


class SentenceTransformer(Encoder):
    """sentence-transformers' class of this name: `encode` returns one vector for each text."""

    def __init__(self, model_name_or_path: Any = None, *, similarity_fn_name: Any = None,
                 truncate_dim: int | None = None, **options: Any):
        """Load a model; the arguments are those of sentence-transformers, as `Model` reads them."""
        super().__init__(_full_name(model_name_or_path), **options)
        stated = self.engine.text.truncate_dim if self.engine.text else None
        self.truncate_dim = positive_int_or_none("truncate_dim", truncate_dim) or stated
        if stated is not None:
            self.engine = self.engine.with_text(truncate_dim=None)      # the attribute holds it, and each call gets it
        if similarity_fn_name is not None:
            self.similarity_fn_name = similarity_fn_name

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"truncate_dim": self.truncate_dim}

    @accept_earlier(sentences="inputs")
    def encode(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None,
               output_value: str | None = "sentence_embedding", precision: str = "float32",
               convert_to_numpy: bool = True, convert_to_tensor: bool = False, device: Any = None,
               normalize_embeddings: bool = False, truncate_dim: int | None = None, pool: Any = None,
               chunk_size: int | None = None, **options: Any) -> Any:
        """Return the vectors of texts: float32 [n,D], or [D] for a string.

        The arguments are those of `Engine.encode`, and of sentence-transformers. batch_size: the most texts that are
        computed at a time; None leaves it to the engine. It changes no vector. convert_to_tensor=True returns one
        tensor, and convert_to_numpy=False a list of tensors; both need torch. Token embeddings and the dictionaries of
        output_value=None hold tensors also where torch has been imported, and arrays elsewhere. A pool has no
        processes, and chunk_size has no effect. ranges, which only the engine has, are for precision="int8" and
        "uint8".
        """
        check_call(device, pool, chunk_size)
        task, ranges = options.pop("task", None), options.pop("ranges", None)
        refuse_options("encode", options)
        torch, as_tensor = read_form(convert_to_numpy, convert_to_tensor)
        rows = self.engine.encode(
            inputs, prompt=self._prompt(prompt, prompt_name), batch_size=batch_size,
            show_progress_bar=show_progress_bar, output_value=output_value, precision=precision,
            normalize_embeddings=normalize_embeddings, ranges=ranges, truncation=True,
            truncate_dim=self.truncate_dim if truncate_dim is None else truncate_dim, **self._route(task))
        if output_value != "sentence_embedding":
            torch = torch or imported_torch()
            return rows if torch is None else to_tensors(torch, rows)
        if torch is None:
            return rows
        tensor = torch.from_numpy(rows)
        return tensor if as_tensor or isinstance(inputs, str) else list(tensor)

    def encode_multi_process(self, sentences: Any, pool: Any, *more: Any, **options: Any) -> Any:
        """Return `encode(sentences, pool=pool)`, which has this name in earlier versions."""
        return self.encode(sentences, *more, pool=pool, **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of n embeddings [n,D] or [D] with m others, [m,D] or [D]: float32 [n,m].

        It is a tensor if one argument is, else an array. Embeddings of precision="binary" and "ubinary" are recognized
        by their width, as `Engine.similarity` says.
        """
        return self._compare_arrays(self.engine.similarity, embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of embedding i with the other embedding i: float32 [n], a tensor if one argument is."""
        return self._compare_arrays(self.engine.similarity_pairwise, embeddings1, embeddings2)

    def _compare_arrays(self, compare: Any, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the result of a method of the engine that compares arrays, a tensor if one argument is."""
        a, b = to_array(embeddings1), to_array(embeddings2)
        # The engine does not know `truncate_dim`, so the width of packed embeddings is compared with this object's.
        packed = packed_precision(self.get_embedding_dimension, a, b)
        return like(compare(a, b, precision=packed or "float32"), embeddings1, embeddings2)

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of the vectors that `encode` returns."""
        width = self.engine.get_embedding_dimension()
        return width if self.truncate_dim is None else min(width, self.truncate_dim)

    @contextmanager
    def truncate_embeddings(self, truncate_dim: int | None) -> Iterator[None]:
        """Let `encode` return only the first `truncate_dim` dimensions while the block runs; None for all."""
        before, self.truncate_dim = self.truncate_dim, positive_int_or_none("truncate_dim", truncate_dim)
        try:
            yield
        finally:
            self.truncate_dim = before

    truncate_sentence_embeddings = truncate_embeddings

    @staticmethod
    def load(input_path: str) -> SentenceTransformer:
        """Return `SentenceTransformer(input_path)`."""
        return SentenceTransformer(input_path)
