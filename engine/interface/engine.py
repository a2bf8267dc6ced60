"""`Engine`: an encoder that is ready to run; most users need no other class."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import check_layout, check_portable, get_backend
from ..backends.batch import Batch
from ..backends.interfaces import DecodingBackend, ObservingPlan
from ..backends.ops_interface import Ops
from ..base.arguments import flag, positive_int, positive_int_or_none, renamed_arguments
from ..base.cpus import choose_threads
from ..base.errors import InputError, UnsupportedError, WeightsError, listed, nearest, shown
from ..base.lazy import lazy
from ..base.stop import Stop
from ..encoding import (
    ROLE_PROMPTS,
    TextEncoder,
    are_of_tokens,
    calling,
    check_options,
    maxsim,
    packed_pairwise,
    packed_precision,
    packed_similarity,
    pairwise_maxsim,
    pairwise_similarity,
    quantize_vectors,
    role_prompt,
    similarity,
)
from ..encoding.outputs import Asked, read_asked
from ..encoding.packing import pack
from ..encoding.stream import encode_stream
from ..heads import SparseVectors, check_sparse
from ..model.bits import FASTEST, PORTABLE
from ..model.precision import canonical_name
from ..model.run_config import RunConfig
from ..model.text_config import LATE_SIMILARITIES, TextConfig
from ..text.cuts import truncating
from ..text.sentences import check_sentences, choose_prompt, read_sentences
from ..text.tokenizer import NO_TOKENIZER, Tokenizer
from ..weights.input_layers import embed
from ..weights.packed import PREFIX
from .head_methods import HeadMethods
from .loaded import Loaded
from .look import Look, make_look
from .reading_decoder import ReadingPlan
from .token_dropout import with_token_dropout

if TYPE_CHECKING:
    from ..backends.interfaces import Backend, Plan
    from ..weights.model import Model, Transformer


class Engine(HeadMethods, Loaded):
    """A transformer encoder on one backend: `forward` for token ids, `encode` for sentences, and its heads.

        engine = Engine.load("sentence-transformers/all-MiniLM-L6-v2")
        vectors = engine.encode(["a first sentence", "a second one"])        # float32 [2, 384]

    `heads` lists what stands after the encoder, if there is something; `classify`, `predict` and `rank`, `tag`,
    `answer`, `fill_mask`, `encode_sparse` and `encode_tokens` run it. A model with an encoder for each task has
    `routes`; `encode_query` and `encode_document` choose one, and so does `encode(..., task=...)`.

    The result of a sequence is the same, to the last bit, in every batch (except with `backend="reference"`). Any
    number of Python threads may call one engine. An engine survives a fork and need not be closed; `close` and a `with`
    block free its weights. A pickled engine loads its model from the same path again.
    """

    _reading: ReadingPlan | None = None
    """What gives the vectors that the heads read where these are a decoder's."""

    @renamed_arguments
    def __init__(
        self,
        model: Model,
        *,
        backend: str = "auto",
        threads: int | None = None,
        max_batch_tokens: int = 8192,
        precision: str | None = None,
        bits: str = FASTEST,
    ):
        """As `load`, for a model that is in memory already, which is checked as `load` checks it."""
        from ..files.reading import release_pages
        from ..weights.model import (  # here, as `load_model` below: `import engine` shall stay light
            Model,
            share_weights,
        )

        if not isinstance(model, Model):
            raise InputError(f"Engine takes a Model, not {shown(model)}; Engine.load takes the path of one")
        model = model.checked()
        if model.kind != "encode":
            raise UnsupportedError("Engine runs an encoder alone, and this model has a decoder; a Generator runs it")
        chosen, threads = get_backend(backend), choose_threads(threads)
        check_portable(chosen, bits)
        max_batch_tokens = positive_int("max_batch_tokens", max_batch_tokens)
        parts = [part for part in model.parts.values() if part is not model.decoder]
        held: list[tuple[Transformer, Engine]] = []
        for part in sorted(parts, key=lambda part: part is not model.encoder):  # this engine holds the first
            run = RunConfig(threads, _precision_of(part, precision, alone=len(parts) == 1), max_batch_tokens, bits=bits)
            engine = Engine.__new__(Engine) if held else self
            plan = next((own._plan for other, own in held if share_weights(other, part)), None)
            engine._hold(part, chosen, run, plan)
            held.append((part, engine))
        if model.decoder is not None:
            start = model.generation.decoder_start_token_id
            run = RunConfig(threads, self.precision, max_batch_tokens, bits=bits)
            assert start is not None
            self._reading = _reading_plan(self._plan, chosen, model.decoder, run, start)
            self._configs = [self.config, model.decoder.config]
        self._routes = {task: next(own for other, own in held if other is part) for task, part in model.routes.items()}
        self._needs_task = model.encoder is None
        release_pages(array for part in parts for name, array in part.weights.items() if not name.startswith(PREFIX))

    def _hold(self, encoder: Transformer, backend: Backend, run: RunConfig, plan: Plan | None) -> None:
        """Hold an encoder; plan: that of another engine with the same weights, None to prepare one."""
        check_layout(backend, encoder.layout, decodes=False, portable=run.portable)
        self.config, self._configs = encoder.config, [encoder.config]
        self.text, self._stem, self._heads = encoder.text, encoder.stem, encoder.heads
        self._calibrations = {one.task: one for one in encoder.calibrations}
        self._modules, self._token_modules = encoder.modules, encoder.token_modules
        self._words = {name: array for name, array in encoder.weights.items() if name.startswith("embeddings.word")}
        self.backend, self.threads, self.precision = backend.name, run.threads, run.precision
        self.max_batch_tokens, self.bits = run.max_tokens, run.bits
        self._plan = plan or backend.prepare(encoder.config, encoder.weights, run)
        if plan is None and encoder.config.dropped_id is not None:
            self._plan = with_token_dropout(self._plan, encoder.config, self._word_table)
        self._routes, self._needs_task = {}, False

    @classmethod
    @renamed_arguments
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        backend: str = "auto",
        threads: int | None = None,
        max_batch_tokens: int = 8192,
        precision: str | None = None,
        least_cosine: float | None = None,
        bits: str = FASTEST,
        memory: str = "map",
        task: str | None = None,
        revision: str | None = None,
    ) -> Engine:
        """Load a model from a .npz file, a Hugging Face folder, a sentence-transformers folder, or by its name.

        path: a path; or, where there is none, the name of a model on the Hugging Face hub, org/name, or org/name/FILE
            for one of several .gguf or .npz files. It is downloaded once, into the hub's cache.
        backend: "auto" for the fastest backend that runs here, or a name that `engine info` lists.
        threads: the threads of one forward pass; None for every CPU that the process may use. A larger number has no
            effect.
        max_batch_tokens: the most tokens that are computed at a time. It limits the memory of a call, and the length of
            a sequence.
        precision: "float32", "bfloat16" or "int8", in which linear maps are computed; float32 weights are rounded to
            it. "bfloat16x3" leaves them as they are and is faster than float32, on CPUs with AMX alone. None means
            "int8" for a file with int8 weights, else "float32". "auto" means the fastest of "int8", "bfloat16" and
            "float32" whose vectors of sample sentences have a cosine of at least `least_cosine` to float32's, or 0.999.
        bits: "portable" for arithmetic with the same bits on every CPU with fused multiply-adds (docs/precision.md).
        memory: "map" leaves the weights in the file and maps it; "copy" reads the file into private memory, so that
            the engine is safe if somebody changes or shortens the file.
        task: the adapter to merge into the weights of a folder that holds adapters, such as "retrieval.query" of
            jina-embeddings-v3; None for the weights without an adapter.
        revision: of a name, its branch, tag or commit; None for the main branch.

        Raises `WeightsError` for a damaged or incomplete model, `UnsupportedError` for a model that generates or needs
        a feature that the engine lacks, `BackendUnavailable`, `InputError` and `HubError`.
        """
        from ..loading.load import load_model, open_source  # here, because it takes as long to import as all the rest

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens,
                                   "bits": bits}
        if least_cosine is not None and precision != "auto":
            raise InputError(f'least_cosine is for precision="auto", not for precision={shown(precision)}')
        source = open_source(path, memory, revision)
        model = load_model(source, kind="encode", task=task)
        if precision == "auto":
            from .auto_precision import fastest_engine

            if model.encoder is None or model.routes:
                raise UnsupportedError('precision="auto" compares the vectors of one encoder, and this model has '
                                       f"routes: {', '.join(model.routes)}; choose a precision by its name")
            engine = fastest_engine(model.encoder, lambda name: cls(model, **options, precision=name), least_cosine)
            precision = engine.precision  # another process that loads the pickled engine computes the same bits
        else:
            engine = cls(model, **options, precision=precision)
        address, commit = source.address
        engine._reload = partial(cls.load, address, **options, precision=precision, memory=memory, task=task,
                                 revision=commit)
        engine._read_model = partial(load_model, address, kind="encode", memory=memory, task=task, revision=commit)
        return engine

    def close(self) -> None:
        """Free the weights and the plans, also those of all `routes`: see `Loaded.close`."""
        routes = [] if self._closed else list(self._routes.values())
        super().close()
        for engine in routes:
            engine.close()

    def to_model(self) -> Model:
        """Return the `Model` of this engine, read from its files again, with its calibrations and text settings."""
        model = super().to_model()
        texts = {id(part): self._routes.get(name, self).text for name, part in model.parts.items()}
        return model.map(lambda part: part if part.text == texts[id(part)] else replace(part, text=texts[id(part)]))

    @renamed_arguments
    def with_text(self, **changes: Any) -> Engine:
        """Return this engine with other text settings; both share the weights, and this one does not change.

        changes: fields of `TextConfig`, such as max_seq_length, similarity or prompts. The routes get the same changes.

        Raises `InputError` for a field that there is not or a value that is impossible, such as a max_seq_length above
        the positions of the model, and `UnsupportedError` for a
        model without a tokenizer.
        """
        known = [one.name for one in fields(TextConfig)]
        if unknown := [name for name in changes if name not in known]:
            raise InputError(f"there is no text setting {listed(unknown)}{nearest(unknown[0], known)}; there are "
                             f"{', '.join(known)}")
        made: dict[Engine, Engine] = {}
        for own in [self, *self._routes.values()]:
            if own not in made:
                made[own] = own._with_own_text(changes)
        other = made[self]
        other._routes = {task: made[own] for task, own in self._routes.items()}
        if self._reload is not None:
            reload, before = self._reload, {}
            if reload.func is _reload_with_text:    # a chain of calls is one call
                reload, before = reload.args
            other._reload = partial(_reload_with_text, reload, before | changes)
        return other

    def _with_own_text(self, changes: dict[str, Any]) -> Engine:
        """Return a copy of this engine alone with other text settings, without what was computed from the old ones."""
        try:
            text = replace(self._text, **changes)
        except WeightsError as error:
            raise InputError(str(error)) from None
        most, asked = self.config.longest_sequence, changes.get("max_seq_length")
        if most is not None and asked is not None and asked > most:
            raise InputError(f"max_seq_length={asked} is above the {most} positions of the model, which reads no more "
                             f"tokens; give at most {most}")
        other = Engine.__new__(Engine)      # copy.copy would load the model again, as pickle does
        vars(other).update({name: value for name, value in vars(self).items()
                            if not isinstance(getattr(Engine, name, None), lazy)}, text=text)
        return other

    @renamed_arguments
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
        """Return the vectors of all tokens after the last layer.

        Arrays give an array. B sequences, T tokens, D model width:
            input_ids       integers [B,T]
            attention_mask  0/1 or bool [B,T], 1 for a real token, in any pattern; None when all are real
            token_type_ids  integers [B,T]; None for zeros
            position_ids    integers [B,T]; None to count as the model's family does
            inputs_embeds   floats [B,T,D], instead of input_ids: word embeddings, as wide as the rows of the word table
            pixel_values    floats [B,C,H,W], instead of input_ids, for a model of images: pixels that the model's image
                            processor resized and normalised
            input_features  floats [B,C,T], instead of input_ids, for Whisper: log-mel spectrograms of C frequencies
            returns         float32 [B,T,D], zeros at padding
        Padding costs nothing.

        Lists give a list, and the sequences may have any lengths. input_ids, token_type_ids, position_ids and
        attention_mask are then lists of [T_i], or inputs_embeds is a list of [T_i,D]; the result is a list of float32
        [T_i,D], which are views of one array. You can pass the lists of a transformers tokenizer as
        `forward(**tokenizer(texts))`.

        With one of these arguments, the call returns a `ForwardOutput`, which also has the token vectors:
            output_hidden_states  True for all, or a layer or layers from 0 to L: 0 for the embeddings, l for the
                                  result of layer l
            output_attentions     True for all, or pairs (layer, head) from (0, 0): the attention weights [T,T]
            output_entropies      True for all, or pairs (layer, head): the entropy in nats of each token's weights
        Negative numbers count from the end. These arguments do not change a bit of the token vectors.

        timeout: seconds after which the call stops with `TimedOut`; None for no limit. Ctrl-C stops a call, too.

        Raises `InputError` for a wrong shape, type or range, and `UnsupportedError` for an argument that the backend
        does not support.
        """
        stop = Stop.after(timeout)
        asked = read_asked(self.config, output_hidden_states, output_attentions, output_entropies)
        stemmed = {"pixel_values": pixel_values, "input_features": input_features}
        inputs_embeds = self._embed({name: value for name, value in stemmed.items() if value is not None},
                                    inputs_embeds)
        batch, form = pack(
            self.config, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds=inputs_embeds
        )
        if asked is None:
            return form.unpack(self._plan.forward(batch, stop))
        return asked.output(form, self._observe(batch, asked, stop))

    def _observe(self, batch: Batch, asked: Asked, stop: Stop) -> list[np.ndarray]:
        """Return the token vectors of a batch, and the arrays that were asked for."""
        if not isinstance(self._plan, ObservingPlan):
            raise UnsupportedError(f"the {self.backend} backend gives no hidden states, attention weights or "
                                   "entropies; cython, numba and reference do: Engine.load(..., backend=...)")
        return self._plan.observe(batch, asked.observed, stop)

    @renamed_arguments
    def look(self, text: Any, *, timeout: float | None = None) -> Look:
        """Return what attention does with one text: the entropy of each head, its share of the maximum, and rollout.

        text: a string or a pair of strings, which is truncated to `max_seq_length`. timeout: as in `forward`.

        The `Look` has arrays and two pictures. It takes T * T numbers of memory for each head, T being the tokens.
        Raises `InputError`, and `UnsupportedError` for a model without layers, or a backend that gives no weights.
        """
        stop = Stop.after(timeout)
        with truncating():
            tokens = self._encoder.tokenizer(check_sentences([text]), stop)
        names = [self._encoder.tokenizer.decode([int(i)], skip_special_tokens=False) for i in tokens.input_ids[0]]
        if not names:
            raise InputError(f"the text {shown(text)} has no tokens to look at")
        if not self.config.num_layers:
            raise UnsupportedError("a static model has no layers, and so no attention to look at")
        uses_types = self.config.token_types > 1 and self._text.feeds_token_types
        batch, form = pack(self.config, [tokens.input_ids[0]], None, [tokens.token_type_ids[0]] if uses_types else None)
        asked = read_asked(self.config, None, True, True)
        assert asked is not None
        output = asked.output(form, self._observe(batch, asked, stop))
        return make_look(names, output, self.config.num_layers, self.config.num_heads, self._ops("rollout"))

    @renamed_arguments
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
        ranges: Any = None,
        task: str | None = None,
        truncation: bool | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the vectors of sentences, as `SentenceTransformer.encode` does.

        sentences: a string, or a collection of n strings; a pair of strings in a collection is one input.
        prompt_name, prompt: the name of a prompt of the model, or a text, to put in front of every sentence.
        batch_size: the most sentences that are computed at a time, besides the limit `max_batch_tokens`; it does not
            change the result.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG and standard error is a
            terminal.
        output_value: "sentence_embedding", "token_embeddings" for the vectors of all tokens, or None for everything.
        convert_to_numpy: False gives a list of n vectors in place of one array.
        normalize_embeddings: scale to length 1, even when the model does not.
        truncate_dim: keep this many of the first dimensions; None for what the model's files say, usually all. A number
            above the width of the vectors keeps all, as in sentence-transformers.
        precision: "float32", or "int8", "uint8", "binary" or "ubinary" for vectors in fewer bits, as
            `quantize_embeddings` of sentence-transformers makes them: int8 [n, D'] or one bit a dimension [n, D'/8].
        ranges: for int8 and uint8 the smallest and the largest number of each dimension, [2, D']; None for those of the
            vectors of this call, with a warning, because a vector then depends on the others.
        task: one of `routes`, such as "query"; None for the model's default, if it has routes.
        truncation: what becomes of a sentence with more than `max_seq_length` tokens: None cuts it, and the call warns
            once with the number of such sentences; True cuts it without a word; False raises `InputError`.
        timeout: seconds after which the call stops with `TimedOut`; None for no limit.
        convert_to_tensor, device, pool, chunk_size: accepted for compatibility, with values that have no
            effect, as the defaults; every other value is an error.

        Returns float32 [n, D'], or [D'] for a single string. D' is the model's width times the number of its pooling
        modes, or what its modules after pooling make of it. Token embeddings are a list of n arrays [T_i, D], or one
        array. output_value=None gives a list of n dictionaries, or one dictionary, with input_ids, attention_mask,
        token_type_ids if the model has them, token_embeddings and sentence_embedding.
        Raises `InputError`, and `UnsupportedError` for a model without a tokenizer.
        """
        if (engine := self.engine_of(task)) is not self:
            return engine.encode(
                sentences, prompt_name=prompt_name, prompt=prompt, batch_size=batch_size,
                show_progress_bar=show_progress_bar, output_value=output_value, precision=precision,
                convert_to_numpy=convert_to_numpy, convert_to_tensor=convert_to_tensor, device=device,
                normalize_embeddings=normalize_embeddings, truncate_dim=truncate_dim, pool=pool, chunk_size=chunk_size,
                ranges=ranges, truncation=truncation, timeout=timeout)  # fmt: skip
        if self._late is not None:
            raise UnsupportedError("this model has a vector for each token, and none for a whole text; encode_query, "
                                   "encode_document and encode_tokens return the vectors of tokens (on the command "
                                   "line, engine embed --result tokens)")
        if (sparse := self.heads.get("encode_sparse")) is not None and sparse.reads_numbers:
            raise UnsupportedError("this model has a number for each token and no vectors; encode_sparse returns its "
                                   "sparse vectors")
        check_options(self.backend, output_value=output_value, precision=precision, device=device, pool=pool,
                      convert_to_tensor=convert_to_tensor, chunk_size=chunk_size)  # fmt: skip
        convert_to_numpy = flag("convert_to_numpy", convert_to_numpy)
        own, single = read_sentences(sentences)
        with calling(own, batch_size, show_progress_bar, truncation, timeout) as call:
            rows = self._encoder.encode(
                own, choose_prompt(self._text, prompt, prompt_name), call, output_value=output_value,
                normalize_embeddings=flag("normalize_embeddings", normalize_embeddings),
                truncate_dim=positive_int_or_none("truncate_dim", truncate_dim))  # fmt: skip
        precision = "float32" if precision is None else canonical_name(precision)
        if precision != "float32":
            rows = quantize_vectors(rows, precision, ranges)
        return rows[0] if single else rows if convert_to_numpy else list(rows)

    @renamed_arguments
    def encode_stream(self, sentences: Iterable[Any], *, rows: int = 4096, result: str = "vectors",
                      **options: Any) -> Iterator[Any]:
        """Return an iterator over the results of sentences, `rows` of them at a time, in their order.

        It reads `rows` sentences, encodes them, yields the result and forgets both, so that the memory does not grow
        with the number of sentences. Row i has the bits of row i of the call for all sentences at once.

        sentences: an iterable of strings, such as a generator; a pair of strings in it is one input. It is read only
            as far as results are asked for.
        result: "vectors" of `encode`, "sparse" vectors of `encode_sparse`, "tokens" of `encode_tokens`, or "classes" of
            `classify`.
        options: those of that method, such as normalize_embeddings=True, checked at the call. A timeout is that of each
            array. Only the first array with sentences that were cut gives a warning. precision="int8" and "uint8" need
            ranges.

        Raises `InputError` and `UnsupportedError` as the method does; an error of the iterable passes through, after
        the arrays before it.
        """
        return encode_stream(self, sentences, rows, result, options)

    @renamed_arguments
    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Encode queries: as `encode`, with the prompt "query" of the model unless options name a prompt.

        If the model has no prompt "query", no prompt is used, even if the model has a default prompt. A model with
        `routes` runs the one called "query".
        """
        return self._encode_as("query", sentences, options)

    @renamed_arguments
    def encode_document(self, sentences: Any, **options: Any) -> Any:
        """Encode documents: as `encode`, with the prompt "document" of the model unless options name a prompt.

        If the model has no prompt "document", its prompt "passage" is used, or else "corpus", or else no prompt. A
        model with `routes` runs the one called "document".
        """
        return self._encode_as("document", sentences, options)

    @renamed_arguments
    def tokenize(self, sentences: Any, *, truncation: bool | None = None) -> dict[str, np.ndarray]:
        """Return the token ids of sentences as the arguments of `forward`: `engine.forward(**engine.tokenize(texts))`.

        Returns input_ids, attention_mask and, if the model has them, token_type_ids: int64 [n,T], padded on the right.
        No prompt is added. truncation: None and True cut sentences as `encode` does, and False leaves them whole, so
        that you can count their tokens. Raises the errors of `encode`.
        """
        own, _ = read_sentences(sentences)
        whole = truncation is not None and not flag("truncation", truncation)
        with truncating(True if whole else truncation):
            return self._encoder.tokenize(own, whole=whole)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which truncates to `max_seq_length`: encode, decode and special_tokens.

        Raises `UnsupportedError` for a model without a tokenizer.
        """
        return self._encoder.tokenizer

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a sentence, with special tokens; `encode` truncates to it. None for no limit."""
        limits = [self.text.max_seq_length if self.text else None, self.config.longest_sequence]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def prompts(self) -> dict[str, str]:
        """The model's prompts by name, as a copy."""
        return dict(self.text.prompts) if self.text else {}

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt that `encode` uses when the call names none, or None."""
        return self.text.default_prompt_name if self.text else None

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of the vectors that `encode` returns."""
        return self._encoder.width

    def get_sentence_embedding_dimension(self) -> int:
        """Return `get_embedding_dimension()`; sentence-transformers before version 6 has this name."""
        return self.get_embedding_dimension()

    @property
    def similarity_fn_name(self) -> str:
        """How the model compares its vectors: "cosine", "dot", "euclidean" or "manhattan"; or texts with a vector for
        each token: "maxsim" or "meanmaxsim"."""
        return self.text.similarity if self.text else "cosine"

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
            return a.dot(b) if name == "dot" else similarity(name, a.to_dense(), b.to_dense(), self._similarity_ops)
        if (name := self._late_similarity(a, b)) is not None:
            return maxsim(self._ops("MaxSim"), a, b, mean=name == "meanmaxsim")
        if (packed := packed_precision(lambda: self._width, a, b, precision)) is not None:
            return packed_similarity(packed, a, b)
        return similarity(self.similarity_fn_name, a, b, self._similarity_ops)

    @renamed_arguments
    def similarity_pairwise(self, a: Any, b: Any, *, precision: str | None = None) -> np.ndarray:
        """Return the similarity of each vector of a, [n,D] or [D], and its partner in b: float32 [n].

        precision, and sparse vectors and vectors of tokens, are as for `similarity`.
        """
        if (name := self._sparse_similarity(a, b)) is not None:
            return pairwise_similarity(name, a.to_dense(), b.to_dense())
        if (name := self._late_similarity(a, b)) is not None:
            return pairwise_maxsim(self._ops("MaxSim"), a, b, mean=name == "meanmaxsim")
        if (packed := packed_precision(lambda: self._width, a, b, precision)) is not None:
            return packed_pairwise(packed, a, b)
        return pairwise_similarity(self.similarity_fn_name, a, b)

    @property
    def _similarity_ops(self) -> Ops | None:
        """What multiplies vectors; None for NumPy, beside a GPU."""
        return None if self.backend == "cuda" else self._ops("similarity")

    @property
    def _width(self) -> int:
        """The dimensions of a vector of `encode`; of a model that encodes no text, those of a token's vector."""
        return self.config.hidden_size if self.text is None else self._encoder.width

    def _sparse_similarity(self, a: Any, b: Any) -> str | None:
        """Return how the sparse vectors a and b are compared; None if both are other vectors. Raises `InputError`."""
        if not isinstance(a, SparseVectors) and not isinstance(b, SparseVectors):
            return None
        check_sparse(a, b)
        head = self.heads.get("encode_sparse")
        return self.similarity_fn_name if head is None or head.reads_numbers else "dot"

    def _late_similarity(self, a: Any, b: Any) -> str | None:
        """Return how vectors of tokens are compared, one of `LATE_SIMILARITIES`; None if a and b are other vectors."""
        if self.similarity_fn_name in LATE_SIMILARITIES:
            return self.similarity_fn_name
        return "meanmaxsim" if "encode_tokens" in self.heads and (are_of_tokens(a) or are_of_tokens(b)) else None

    def _encode_as(self, role: str, sentences: Any, options: dict[str, Any]) -> Any:
        if self._late is not None:
            return self.encode_tokens(sentences, **{"task": role} | options)
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options = options | {"prompt": role_prompt(self._text, ROLE_PROMPTS[role])}
        if self._routes and options.get("task") is None:
            options = options | {"task": role}
        return self.encode(sentences, **options)

    @property
    def routes(self) -> dict[str, Engine]:
        """The engine of each task of a model that has several encoders, such as "query"; empty for other models.

        All methods but `encode`, `encode_query`, `encode_document` and `encode_sparse` are those of the default task,
        or of the first where there is none: `routes[task]` has those of another.
        """
        return dict(self._routes)

    def engine_of(self, task: str | None) -> Engine:
        """Return the engine that serves a task; raises `InputError` for a task that the model has not."""
        if task is None and not self._needs_task:
            return self
        known = ", ".join(map(repr, self._routes))
        if not self._routes:
            raise InputError(f"this model has no routes, so task={shown(task)} chooses nothing; for a prompt, call "
                             "encode_query or encode_document; for an adapter, Engine.load(path, task=...)")
        if task is None or not isinstance(task, str) or task not in self._routes:
            raise InputError(f"task must be one of {known}, the routes of this model, not {shown(task)}")
        return self._routes[task]

    @property
    def _text(self) -> TextConfig:
        if self.text is None:
            raise UnsupportedError(f"{NO_TOKENIZER}, so it cannot encode text; pass token ids to forward, or add a "
                                   "tokenizer.json to its folder")
        return self.text

    def _embed(self, given: dict[str, Any], inputs_embeds: Any) -> Any:
        """Return `inputs_embeds`, or the token vectors of images or audio; raises `InputError`."""
        for name, value in given.items():
            if self._stem is None or self._stem.given != name or inputs_embeds is not None:
                takes = "input_ids" if self._stem is None else self._stem.given
                raise InputError(f"this model takes {takes} or inputs_embeds, one of them, and not {name}")
            inputs_embeds = embed(self._stem, value, self._ops("the layers before the first layer of this model"))
        return inputs_embeds

    @property
    def text_encoder(self) -> TextEncoder:
        """What `encode` runs, in three steps: texts to tokens, tokens to pooled vectors, and these to results.

        Raises `UnsupportedError` for a model without a tokenizer.
        """
        return self._encoder

    def _ops(self, part: str) -> Ops:
        """Return the single operations of the backend, which compute a part of the model."""
        try:
            return get_backend(self.backend).ops(self.threads, self.bits == PORTABLE)
        except UnsupportedError as error:
            raise UnsupportedError(f"the {self.backend} backend does not run {part}; cython, numba and reference can: "
                                   "Engine.load(..., backend=...)") from error

    @lazy
    def _head_encoder(self) -> TextEncoder:
        """What gives the vectors that heads read: usually the encoder, and in BART's classifiers the decoder."""
        if self._reading is None:
            return self._encoder
        return TextEncoder(self.config, self._text, self._reading, self.threads, self.max_batch_tokens)

    @lazy
    def _encoder(self) -> TextEncoder:
        ops = None
        if self._modules or self._token_modules:
            ops = self._ops("the modules of this model before and after pooling, so it cannot encode text")
        return TextEncoder(self.config, self._text, self._plan, self.threads, self.max_batch_tokens, self._modules,
                           self._token_modules, ops)


def _reading_plan(plan: Plan, backend: Backend, decoder: Transformer, run: RunConfig, start: int) -> ReadingPlan:
    """Return the plan of the vectors that heads read; plan: of the encoder. start: the first token of the decoder.

    Raises `UnsupportedError` for a backend that runs no decoders.
    """
    if not isinstance(backend, DecodingBackend):
        raise UnsupportedError(f"the {backend.name} backend does not run decoders, and the head of this model reads "
                               "one; cython, numba and reference do")
    check_layout(backend, decoder.layout, decodes=True, portable=run.portable)
    return ReadingPlan(plan, backend.prepare_decoder(decoder.config, decoder.weights, run), start)


def _reload_with_text(reload: partial[Engine], changes: dict[str, Any]) -> Engine:
    """Load an engine of `with_text` again, in the process that opens its pickle."""
    return reload().with_text(**changes)


def _precision_of(part: Transformer, asked: str | None, *, alone: bool) -> str:
    """Return the precision of an encoder's computation; raises `UnsupportedError` and `InputError`.

    A static model multiplies nothing: it is float32 beside other encoders, and alone it refuses another precision.
    """
    precision = part.precision_for(asked)
    if part.config.num_layers or precision == "float32":
        return precision
    if alone:
        raise UnsupportedError(f"a static model multiplies nothing, so precision={shown(asked)} would change nothing; "
                               "leave it out. engine convert --precision stores the table in fewer bits")
    return "float32"
