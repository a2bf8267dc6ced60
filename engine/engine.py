"""`Engine`: a model made ready to run. The one object with state, and the one that most users meet."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends import TappingPlan, check_layout, get_backend
from .backends.functional import Ops
from .checks import deadline_of, explain_arguments, flag, positive_int, positive_int_or_none
from .config import RunConfig, TextConfig
from .cpus import choose_threads
from .encoding import TextEncoder, check_options, role_prompt
from .errors import InputError, UnsupportedError, shown
from .layout import PREFIX
from .lazy import lazy
from .outputs import read_asked
from .packing import pack
from .parameters import expected_shapes
from .pooling import cosine_similarity, pairwise_cosine_similarity
from .stems import embed
from .text import check_sentences, choose_prompt

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
        """As `load`, for a model that is in memory already, which is checked as `load` checks it."""
        from .model import Model  # here, as `load_model` below: `import engine` shall stay light
        from .weights.files import release_pages

        if not isinstance(model, Model):
            raise InputError(f"Engine takes a Model, not {shown(model)}; Engine.load takes the path of one")
        model = model.checked()

        max_tokens = positive_int("max_tokens", max_tokens)
        run = RunConfig(choose_threads(threads), model.precision_for(precision), max_tokens)
        chosen = get_backend(backend)
        check_layout(chosen, model.layout)
        self.config = model.config
        self.text = model.text
        self._dense = model.dense
        self._stem = model.stem
        self.backend = chosen.name
        self.threads = run.threads
        self.max_tokens = max_tokens
        self.precision = run.precision
        self._plan = chosen.prepare(model.config, model.weights, run)
        release_pages(array for name, array in model.weights.items() if not name.startswith(PREFIX))
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
        least_cosine: float | None = None,
        memory: str = "map",
        task: str | None = None,
    ) -> Engine:
        """Load a model from a .npz file, a Hugging Face folder or a sentence-transformers folder.

        backend: "auto" for the fastest that runs here, or a name that `engine info` lists.
        threads: of one forward pass; None for as many as the process may use, which is also the most it gets.
        max_tokens: most tokens worked on at a time; bounds the memory of a call, and the length of one sequence.
        precision: of linear weights and products: "float32", "bfloat16" or "int8", to which float32 weights are then
            rounded; None for "int8" when the file's are in int8, else "float32"; "auto" for the fastest of them whose
            vectors of a sample of sentences have a cosine of at least `least_cosine` to float32's.
        least_cosine: the bound for precision="auto"; None for 0.999.
        memory: "map" for weights that stay in the file, mapped; "copy" to read the file into private memory, so that
            nobody who changes or shortens the file can hurt.
        task: which adapter to merge into the weights of a folder that holds adapters, such as "retrieval.query" of
            jina-embeddings-v3; None for the weights without an adapter.

        Raises `WeightsError` for a damaged or incomplete model, `UnsupportedError` for one with features that are not
        there, `BackendUnavailable` and `InputError`.
        """
        from .model import load_model, model_path  # here, because it alone takes as long to import as all the rest

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_tokens": max_tokens}
        if least_cosine is not None and precision != "auto":
            raise InputError(f'least_cosine is for precision="auto", not for precision={shown(precision)}')
        model = load_model(path, memory=memory, task=task)
        if precision == "auto":
            from .accuracy import fastest_engine

            engine = fastest_engine(model, lambda name: cls(model, **options, precision=name), least_cosine)
            precision = engine.precision  # another process that loads the pickled engine computes the same bits
        else:
            engine = cls(model, **options, precision=precision)
        place = os.path.abspath(model_path(path))
        engine._reload = partial(cls.load, place, **options, precision=precision, memory=memory, task=task)
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
        pixel_values: Any = None,
        input_features: Any = None,
        output_hidden_states: Any = None,
        output_attentions: Any = None,
        output_entropies: Any = None,
        timeout: float | None = None,
    ) -> Any:
        """The vectors of all tokens, after the last layer.

        Arrays give an array. B sequences, T tokens, D model width:
            input_ids       integers [B,T]
            attention_mask  0/1 or bool [B,T], 1 for a real token, in any pattern; None when all are real
            token_type_ids  integers [B,T]; None for zeros
            position_ids    integers [B,T]; None to count as the model's family does
            inputs_embeds   floats [B,T,D], instead of input_ids: rows that stand in for those of the word table, as
                            wide as these are
            pixel_values    floats [B,C,H,W], instead of input_ids, for a model of images: resized and normalised as
                            the model's image processor does it
            input_features  floats [B,C,T], instead of input_ids, for Whisper: log-mel spectrograms of C frequencies
            returns         float32 [B,T,D], zeros at padding
        Padding costs nothing.

        A list of sequences of any lengths gives a list: input_ids, and token_type_ids and position_ids if given, are
        lists of [T_i], or inputs_embeds is a list of [T_i,D]; so is attention_mask, if some of the tokens are padding;
        returns a list of float32 [T_i,D], views of one array. The lists of a transformers tokenizer can be passed as
        `forward(**tokenizer(texts))`.

        A call that asks for one of these returns a `ForwardOutput` instead, with the same token vectors in it:
            output_hidden_states  True for all, or a layer or layers from 0 to L: 0 for the embeddings, l for the
                                  result of layer l
            output_attentions     True for all, or pairs (layer, head) from (0, 0): the attention weights [T,T]
            output_entropies      True for all, or pairs (layer, head): the entropy in nats of each token's weights
        Negative numbers count from the end. The rest of the pass computes as without them, to the last bit.

        timeout: seconds after which the call stops with `TimedOut`; None for no limit. Ctrl-C stops a call, too.

        Raises `InputError` for a wrong shape, type or range, and `UnsupportedError` where the backend cannot give
        what is asked for.
        """
        deadline = deadline_of(timeout)
        asked = read_asked(self.config, output_hidden_states, output_attentions, output_entropies)
        stemmed = {"pixel_values": pixel_values, "input_features": input_features}
        inputs_embeds = self._embed({name: value for name, value in stemmed.items() if value is not None},
                                    inputs_embeds)
        batch, layout = pack(
            self.config, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds=inputs_embeds
        )
        if asked is None:
            return layout.unpack(self._plan.forward(batch, deadline))
        if not isinstance(self._plan, TappingPlan):
            raise UnsupportedError(f"the {self.backend} backend gives no hidden states, attention weights or "
                                   "entropies; cython, numba and reference do: Engine.load(..., backend=...)")
        return asked.output(layout, self._plan.tap(batch, asked.taps, deadline))

    @explain_arguments(
        inputs="pass the sentences first, or as sentences=",
        task="for a prompt, call encode_query or encode_document; for an adapter, Engine.load(path, task=...)",
        processing_kwargs="the settings of the tokenizer are in the model's folder",
    )
    def encode(
        self,
        sentences: Any,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        pool: None = None,
        chunk_size: None = None,
        timeout: float | None = None,
    ) -> Any:
        """Vectors of sentences, as `SentenceTransformer.encode` gives them.

        sentences: a string, or a collection of n strings; a pair of strings, in a collection, is read as one input.
        prompt_name, prompt: a prompt of the model by its name, or a text, to put in front of every sentence.
        batch_size: most sentences worked on at a time, beside the engine's `max_tokens`; it does not change the result.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG.
        output_value: "sentence_embedding", "token_embeddings" for the vectors of all tokens, or None for everything.
        convert_to_numpy: False gives a list of n vectors in place of one array.
        normalize_embeddings: scale to length 1, even when the model does not.
        truncate_dim: keep this many of the first dimensions.
        timeout: seconds after which the call stops with `TimedOut`; None for no limit.
        precision, convert_to_tensor, device, pool, chunk_size: only values that change nothing, as the defaults do.

        Returns float32 [n, D'], or [D'] for a single string; D' is the model's width for each of its pooling modes, or
        the width of its last Dense module.
        Token embeddings are a list of n arrays [T_i, D], or one. Everything is a list of n dictionaries, or one:
        input_ids, attention_mask, token_type_ids if the model has them, token_embeddings and sentence_embedding.
        Raises `InputError`, and `UnsupportedError` for a model without a tokenizer.
        """
        check_options(self.backend, output_value=output_value, precision=precision, device=device, pool=pool,
                      convert_to_tensor=convert_to_tensor, chunk_size=chunk_size)  # fmt: skip
        convert_to_numpy = flag("convert_to_numpy", convert_to_numpy)
        single = isinstance(sentences, str)
        rows = self._encoder.encode(
            check_sentences([sentences] if single else sentences),
            choose_prompt(self._text, prompt, prompt_name),
            batch_size=positive_int_or_none("batch_size", batch_size),
            show_progress_bar=None if show_progress_bar is None else flag("show_progress_bar", show_progress_bar),
            output_value=output_value,
            normalize_embeddings=flag("normalize_embeddings", normalize_embeddings),
            truncate_dim=positive_int_or_none("truncate_dim", truncate_dim),
            deadline=deadline_of(timeout),
        )
        return rows[0] if single else rows if convert_to_numpy else list(rows)

    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Encode queries: as `encode`, with the prompt "query" of the model unless options name a prompt.

        If the model has no prompt "query", no prompt is used, even if the model has a default prompt.
        """
        return self._encode_as(("query",), sentences, options)

    def encode_document(self, sentences: Any, **options: Any) -> Any:
        """Encode documents: as `encode`, with the prompt "document" of the model unless options name a prompt.

        If the model has no prompt "document", its prompt "passage" is used, or else "corpus", or else no prompt.
        """
        return self._encode_as(("document", "passage", "corpus"), sentences, options)

    def tokenize(self, sentences: Any) -> dict[str, np.ndarray]:
        """Return the token ids of sentences as the arguments of `forward`: `engine.forward(**engine.tokenize(texts))`.

        Returns input_ids, attention_mask and, if the model has them, token_type_ids: int64 [n,T], padded on the right.
        No prompt is added. Raises what `encode` raises.
        """
        return self._encoder.tokenize(check_sentences([sentences] if isinstance(sentences, str) else sentences))

    @property
    def max_seq_length(self) -> int | None:
        """Most tokens of a sentence, special ones included, beyond which `encode` cuts it; None for no limit."""
        limits = [self.text.max_seq_length if self.text else None, self.config.longest_sequence]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def prompts(self) -> dict[str, str]:
        """The model's prompts by name, as a copy."""
        return dict(self.text.prompts) if self.text else {}

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt that `encode` uses when it is given none, or None."""
        return self.text.default_prompt_name if self.text else None

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of the vectors that `encode` returns."""
        return self._encoder.width

    def get_sentence_embedding_dimension(self) -> int:
        """Return `get_embedding_dimension()`; sentence-transformers before version 6 has this name."""
        return self.get_embedding_dimension()

    @staticmethod
    def similarity(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Cosine of the angle between each vector of a [n,D] or [D] and each of b [m,D] or [D]: float32 [n,m]."""
        return cosine_similarity(a, b)

    @staticmethod
    def similarity_pairwise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Cosine of the angle between each vector of a [n,D] or [D] and the one of b in its place: float32 [n]."""
        return pairwise_cosine_similarity(a, b)

    def _encode_as(self, prompt_names: tuple[str, ...], sentences: Any, options: dict[str, Any]) -> Any:
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options = options | {"prompt": role_prompt(self._text, prompt_names)}
        return self.encode(sentences, **options)

    @property
    def _text(self) -> TextConfig:
        if self.text is None:
            raise UnsupportedError(
                "this model came without a tokenizer that the engine can read, so it cannot encode text; pass token "
                "ids to forward, or add a tokenizer.json to its folder"
            )
        return self.text

    def _embed(self, given: dict[str, Any], inputs_embeds: Any) -> Any:
        """Return `inputs_embeds`, or the token vectors of images or sound; raises `InputError`."""
        for name, value in given.items():
            if self._stem is None or self._stem.given != name or inputs_embeds is not None:
                takes = "input_ids" if self._stem is None else self._stem.given
                raise InputError(f"this model takes {takes} or inputs_embeds, one of them, and not {name}")
            inputs_embeds = embed(self._stem, value, self._ops("the layers before the first layer of this model"))
        return inputs_embeds

    def _ops(self, part: str) -> Ops:
        """Return the single operations of the backend, which compute a part of the model."""
        try:
            return get_backend(self.backend).ops(self.threads)
        except UnsupportedError as error:
            raise UnsupportedError(f"the {self.backend} backend does not run {part}; cython, numba and reference can: "
                                   "Engine.load(..., backend=...)") from error

    @lazy
    def _encoder(self) -> TextEncoder:
        ops = self._ops("the Dense modules of this model, so it cannot encode text") if self._dense else None
        return TextEncoder(self.config, self._text, self._plan, self.threads, self.max_tokens, self._dense, ops)
