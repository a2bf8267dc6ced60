"""`Engine`: a model made ready to run. The one object with state, and the one that most users meet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends import PoolingPlan, get_backend
from .batch import Batch
from .checks import positive_int, positive_int_or_none
from .config import RunConfig, TextConfig
from .cpus import choose_threads
from .errors import InputError, UnsupportedError
from .packing import Layout, pack
from .parameters import expected_shapes
from .pooling import cosine_similarity, normalize, pool
from .text import Sentence, Tokenizer, add_prompt, batches, check_sentences, choose_prompt, progress, slices

if TYPE_CHECKING:
    from .model import Model


class Engine:
    """A transformer encoder on one backend: `forward` for token ids, `encode` for sentences.

        engine = Engine.load("all-MiniLM-L6-v2")
        vectors = engine.encode(["a first sentence", "a second one"])        # float32 [2, 384]

    A sequence's result does not depend, to the last bit, on what else is in its batch (`backend="reference"` excepted).
    Any number of Python threads may call one engine. It survives a fork, needs no closing, and when pickled is loaded
    again from the same path.
    """

    def __init__(
        self,
        model: Model,
        *,
        backend: str = "auto",
        threads: int | None = None,
        max_tokens: int = 8192,
        precision: str | None = None,
    ):
        """As `load`, for a model that is in memory already."""
        from .weights.files import release_pages  # here, as `load_model` below: `import engine` shall stay light

        max_tokens = positive_int("max_tokens", max_tokens)
        run = RunConfig(choose_threads(threads), model.precision_for(precision), max_tokens)
        chosen = get_backend(backend)
        self.config = model.config
        self.text = model.text
        self.backend = chosen.name
        self.threads = run.threads
        self.max_tokens = max_tokens
        self.precision = run.precision
        self._plan = chosen.prepare(model.config, model.weights, run)
        release_pages(model.weights.values())
        self._reload: partial[Engine] | None = None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        backend: str = "auto",
        threads: int | None = None,
        max_tokens: int = 8192,
        precision: str | None = None,
    ) -> Engine:
        """Load a model from a .npz file, a Hugging Face folder or a sentence-transformers folder.

        backend: "auto" for the fastest that runs here, or a name that `engine info` lists.
        threads: of one forward pass; None for as many as the process may use, which is also the most it gets.
        max_tokens: most tokens worked on at a time; bounds the memory of a call, and the length of one sequence.
        precision: of linear weights and products: "float32", "bfloat16" or "int8", to which float32 weights are then
            rounded; None for "int8" when the file's are in int8, else "float32".

        Raises `WeightsError` for a damaged or incomplete model, `UnsupportedError` for one with features that are not
        there, `BackendUnavailable` and `InputError`.
        """
        from .model import load_model  # here, because it alone takes as long to import as all the rest

        options: dict[str, Any] = {
            "backend": backend,
            "threads": threads,
            "max_tokens": max_tokens,
            "precision": precision,
        }
        engine = cls(load_model(path), **options)
        engine._reload = partial(cls.load, os.path.abspath(path), **options)
        return engine

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        if self._reload is None:
            raise UnsupportedError(
                "an engine is pickled as the path of its model, and this one was made from a model in memory; "
                "save_model it and Engine.load the file"
            )
        return self._reload, ()

    def __repr__(self) -> str:
        c = self.config
        parameters = sum(np.prod(shape, dtype=np.int64) for shape in expected_shapes(c).values())
        return (
            f"<Engine: {c.family}, {c.num_layers} layers of width {c.hidden_size}, {parameters / 1e6:.1f}M parameters; "
            f"{self.backend} backend, {self.precision}, {self.threads} thread{'s' * (self.threads > 1)}>"
        )

    def forward(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        token_type_ids: Any = None,
        position_ids: Any = None,
        *,
        inputs_embeds: Any = None,
    ) -> np.ndarray | list[np.ndarray]:
        """The vectors of all tokens, after the last layer.

        Arrays give an array. B sequences, T tokens, D model width:
            input_ids       integers [B,T]
            attention_mask  0/1 or bool [B,T], 1 for a real token, in any pattern; None when all are real
            token_type_ids  integers [B,T]; None for zeros
            position_ids    integers [B,T]; None to count as the model's family does
            inputs_embeds   floats [B,T,D], instead of input_ids: rows that stand in for those of the word table
            returns         float32 [B,T,D], zeros at padding
        Padding costs nothing.

        A list of sequences of any lengths gives a list: input_ids, and token_type_ids and position_ids if given, are
        lists of [T_i], or inputs_embeds is a list of [T_i,D]; attention_mask is None; returns a list of float32
        [T_i,D], views of one array.

        Raises `InputError` for a wrong shape, type or range.
        """
        batch, layout = pack(
            self.config, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds=inputs_embeds
        )
        return layout.unpack(self._plan.forward(batch))

    def encode(
        self,
        sentences: Any,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: str = "sentence_embedding",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Vectors of sentences, as `SentenceTransformer.encode` gives them.

        sentences: a string, or a collection of n strings; a pair of strings, in a collection, is read as one input.
        prompt_name, prompt: a prompt of the model by its name, or a text, to put in front of every sentence.
        batch_size: most sentences worked on at a time, beside the engine's `max_tokens`; it does not change the result.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG.
        output_value: "sentence_embedding", or "token_embeddings" for the vectors of all tokens.
        convert_to_numpy: False gives a list of n vectors in place of one array.
        normalize_embeddings: scale to length 1, even when the model does not.
        truncate_dim: keep this many of the first dimensions.

        Returns float32 [n, D'], or [D'] for a single string; D' is the model's width for each of its pooling modes.
        Token embeddings are a list of n arrays [T_i, D], or one. Raises `InputError`, and `UnsupportedError` for a
        model without a tokenizer.
        """
        _check_options(output_value, convert_to_tensor)
        batch_size = positive_int_or_none("batch_size", batch_size)
        truncate_dim = positive_int_or_none("truncate_dim", truncate_dim)
        single = isinstance(sentences, str)
        texts = check_sentences([sentences] if single else sentences)
        text = self._text
        prompt = choose_prompt(text, prompt, prompt_name)
        skip = self._tokenizer.prompt_length(prompt) if prompt and not text.include_prompt else 0
        width = len(text.pooling) * self.config.hidden_size
        vectors = np.empty((len(texts), min(width, truncate_dim or width)), np.float32)
        token_vectors: list[np.ndarray] = [np.empty(0, np.float32)] * len(texts)
        with progress(len(texts), show_progress_bar) as advance:
            for members, batch, layout in self._pack(add_prompt(prompt, texts), batch_size):
                if output_value == "token_embeddings":
                    for i, own in zip(members, layout.unpack(self._plan.forward(batch)), strict=True):
                        token_vectors[i] = own
                else:
                    pooled = self._pool(batch, text.pooling, skip)
                    pooled = (normalize(pooled) if text.normalize else pooled)[:, :truncate_dim]
                    vectors[members] = normalize(pooled) if normalize_embeddings else pooled
                advance(len(members))
        if output_value == "token_embeddings":
            return token_vectors[0] if single else token_vectors
        return vectors[0] if single else vectors if convert_to_numpy else list(vectors)

    @staticmethod
    def similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Cosine of the angle between each vector of a [n,D] or [D] and each of b [m,D] or [D]: float32 [n,m]."""
        return cosine_similarity(a, b)

    def _pack(self, texts: list[Sentence], batch_size: int | None) -> Iterator[tuple[list[int], Batch, Layout]]:
        """(numbers of some texts, their tokens, how these lie), until all are done."""
        for part in slices(texts):
            tokens = self._tokenizer(texts[part.start : part.stop])
            for members in batches([len(ids) for ids in tokens.input_ids], self.max_tokens, batch_size):
                types = [tokens.token_type_ids[i] for i in members] if self.config.token_types > 1 else None
                batch, layout = pack(self.config, [tokens.input_ids[i] for i in members], token_type_ids=types)
                yield [part[i] for i in members], batch, layout

    def _pool(self, batch: Batch, modes: Sequence[str], skip: int) -> np.ndarray:
        """One vector for each sequence [B, len(modes)*D], pooled by the plan if it can, else here."""
        if isinstance(self._plan, PoolingPlan):
            return self._plan.pool(batch, modes, skip)
        return pool(self._plan.forward(batch), batch.cu_seqlens, modes, skip)

    @property
    def _text(self) -> TextConfig:
        if self.text is None:
            raise UnsupportedError(
                "this model came without a tokenizer.json, so it cannot encode text; pass token ids to forward"
            )
        return self.text

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        # Made at the first use, so that token ids need nothing but NumPy.
        return Tokenizer(self._text, self.config.longest_sequence, self.threads)


def _check_options(output_value: Any, convert_to_tensor: Any) -> None:
    """Raise for options of `encode` with values that it does not take."""
    if output_value not in ("sentence_embedding", "token_embeddings"):
        raise InputError(f"output_value must be 'sentence_embedding' or 'token_embeddings', not {output_value!r}")
    if convert_to_tensor:
        raise UnsupportedError("there are no tensors here, only NumPy arrays; pass the result to torch.from_numpy")
