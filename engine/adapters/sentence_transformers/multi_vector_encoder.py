"""`MultiVectorEncoder`: a vector for each token of a text, compared by MaxSim."""

from __future__ import annotations

from typing import Any

from ...base.arguments import flag
from ...base.errors import UnsupportedError, shown
from .model import Encoder, accept_earlier, check_call, check_device, refuse_options
from .tensors import import_torch, like, to_array


class MultiVectorEncoder(Encoder):
    """sentence-transformers' class of this name, for ColBERT models."""

    _default_similarity = "maxsim"

    def __init__(self, model_name_or_path: Any = None, *, similarity_fn_name: Any = None, **options: Any):
        """Load a model; the arguments are those of sentence-transformers, as `Model` reads them."""
        super().__init__(model_name_or_path, **options)
        if similarity_fn_name is not None:
            self.similarity_fn_name = similarity_fn_name

    def _check_kind(self) -> None:
        if "encode_tokens" not in self.engine.heads:
            raise UnsupportedError("this model has one vector for each text; SentenceTransformer encodes with it")

    @accept_earlier(sentences="inputs")
    def encode(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None,
               batch_size: int | None = None, show_progress_bar: bool | None = None,
               output_value: str | None = "token_embeddings", convert_to_numpy: bool | None = None, device: Any = None,
               normalize_embeddings: bool = False, pool: Any = None, chunk_size: int | None = None,
               token_pooling: None = None, task: str | None = None, **options: Any) -> Any:
        """Return the token vectors of texts: a list of n arrays, float32 [T_i,D], or one array for a string.

        The arguments are those of `Engine.encode_tokens`, and of sentence-transformers. batch_size: the most texts that
        are computed at a time. convert_to_numpy: False, and not None, asks for tensors, which need torch.
        """
        check_call(device, pool, chunk_size)
        refuse_options("encode", options)
        if output_value != "token_embeddings":
            raise UnsupportedError(f'output_value={shown(output_value)}: a MultiVectorEncoder returns '
                                   '"token_embeddings" alone')
        if token_pooling is not None:
            raise UnsupportedError("token_pooling: the engine does not pool the vectors of tokens; leave it out")
        as_arrays = convert_to_numpy is None or flag("convert_to_numpy", convert_to_numpy)
        torch = None if as_arrays else import_torch("convert_to_numpy=False")
        rows = self.engine.encode_tokens(
            inputs, task=task, prompt=self._prompt(prompt, prompt_name), batch_size=batch_size,
            show_progress_bar=show_progress_bar, normalize_embeddings=normalize_embeddings, truncation=True)
        if torch is None:
            return rows
        return torch.tensor(rows) if isinstance(inputs, str) else [torch.tensor(row) for row in rows]

    def similarity(self, embeddings1: Any, embeddings2: Any, device: Any = None) -> Any:
        """Return the score of each query with each document: float32 [n,m], a tensor if one argument has tensors.

        An argument is a list of [T_i,D], an array or tensor [n,T,D], or one [T,D].
        """
        check_device(device)
        return like(self.engine.similarity(to_array(embeddings1), to_array(embeddings2)), embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any, device: Any = None) -> Any:
        """Return the score of query i with document i: float32 [n], a tensor if one argument has tensors."""
        check_device(device)
        return like(self.engine.similarity_pairwise(to_array(embeddings1), to_array(embeddings2)), embeddings1,
                    embeddings2)
