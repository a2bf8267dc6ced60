"""`Generator`: the class for users of models that generate tokens, such as language models and translators."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..backends.steps import CacheStatistics
from ..base.arguments import renamed_arguments
from ..base.lazy import lazy
from ..base.stop import Stop
from ..generation.prepared import PreparedModel
from ..generation.schedule import Pace
from ..methods.decoding import DecoderMethod
from ..methods.generate import GENERATE, GenerateOptions, prepare_one
from ..methods.score import SCORE, ScoreOptions
from ..methods.table import generating_methods_of
from ..methods.translate import TRANSLATE, TranslateOptions, language_ids, sources_of
from ..model.bits import FASTEST
from ..model.run_config import RunOptions
from .chat_methods import ChatMethods
from .session import Session
from .stream import Stream

if TYPE_CHECKING:
    from ..weights.model import Model


@dataclass(frozen=True)
class Statistics(CacheStatistics):
    """Numbers of requests, tokens and cells of a model that generates: now, or in all since it was loaded."""

    open_requests: int
    """Requests that are computed now."""
    waiting_calls: int
    """Requests that wait for their first step."""
    tokens_in: int
    """Tokens of prompts and sources, in all."""
    tokens_out: int
    """New tokens, in all samples and in the results of beam searches, in all."""
    kept_tokens: int
    """Those of `cache_tokens` that no open request needs, for later requests that begin with them. Open requests use
    the others, `cache_tokens - kept_tokens`."""
    found_tokens: int
    """Tokens of prompts that were in the cache, or that another request was about to read."""
    read_tokens: int
    """Tokens of prompts that the model has read."""
    times_given_way: int
    """How often a request has lost its cells in a full cache, and had to read its tokens again."""


class Generator(ChatMethods):
    """A decoder, perhaps with an encoder, on one backend: `generate` for ids or texts, `translate` for texts.

        generator = Generator.load("opus-mt-en-de")
        generator.translate(["A sentence."], num_beams=4)       # ["Ein Satz."]

    The same request gives the same result, to the last bit, in every batch and with any number of threads (except with
    `backend="reference"`). Any number of Python threads may call one generator.
    """

    @renamed_arguments
    def __init__(self, model: Model, *, backend: str = "auto", threads: int | None = None, max_batch_tokens: int = 8192,
                 precision: str | None = None, max_rows: int = 64, cache_tokens: int | None = None,
                 keep_tokens: int | None = None, cache: str | None = None, bits: str = FASTEST):
        """As `load`, for a model that is in memory already, which is checked as `load` checks it."""
        self._adopt(PreparedModel(model, "Generator", RunOptions(
            backend=backend, threads=threads, max_batch_tokens=max_batch_tokens, precision=precision, max_rows=max_rows,
            cache_tokens=cache_tokens, keep_tokens=keep_tokens, cache=cache, bits=bits)))
        self.encoder_config, self.source_text = self._model.encoder_config, self._model.source_text
        self.generation = self._model.generation
        self._decoder = self._model.decoder

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, backend: str = "auto", threads: int | None = None,
             max_batch_tokens: int = 8192, precision: str | None = None, max_rows: int = 64,
             cache_tokens: int | None = None, keep_tokens: int | None = None, cache: str | None = None,
             bits: str = FASTEST, memory: str = "map", revision: str | None = None, long_context: bool = False
             ) -> Generator:
        """Load a model that generates, from a folder of Hugging Face or of CTranslate2, an .npz, a .gguf, or by name.

        path, revision, backend, threads, precision, bits, memory: as in `Engine.load`.
        max_batch_tokens: the most tokens that are computed together. A longer prompt is read in parts, and a longer
            source is refused.
        max_rows: the most hypotheses in the batch. It changes the speed and the memory, and no result. One request may
            have up to 1,024 beams or samples, or `max_rows` of them if that is more.
        cache_tokens: the most tokens in the cache, in cells of 16, those that are kept included. A request enters when
            there is room for its prompt, or for all of its beams or samples, and gives way when the cache is full. One
            that can never fit is refused. None for any number.
        keep_tokens: the most tokens of prompts and answers whose keys and values are kept between calls, so that a
            later prompt with the same beginning does not read it again; it changes no result. 0 keeps nothing. None is
            4,096, or cache_tokens if that is less.
        cache: the precision of the keys and values that are kept: "float32", "bfloat16", or "int8" with a scale for
            each token and key head. None is "float32" for precision float32, and "bfloat16" for the others.
        long_context: of a model with two tables of rotary positions (LongRoPE, as in Phi-3.5), whether all sequences
            have the table for long ones; without it, all have the one for sequences up to the length of the training,
            which is then the limit. Other models refuse it.

        Raises `WeightsError`, `UnsupportedError`, `BackendUnavailable`, `InputError`, `HubError`, as `Engine.load`.
        """
        from ..loading.load import open_source  # here, because `import engine` shall stay light

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens,
                                   "precision": precision, "max_rows": max_rows, "cache_tokens": cache_tokens,
                                   "keep_tokens": keep_tokens, "cache": cache, "bits": bits}
        return cls._load(open_source(path, memory, revision), "generate", options, memory, long_context=long_context)

    @renamed_arguments
    def generate(self, inputs: Any, *, prompts: Any = None, add_special_tokens: bool = True,
                 timeout: float | None = None, output_attentions: Any = None, cache_key: str = "", **settings: Any
                 ) -> Any:
        """Return the result of each input, in order: a `Generated` with ids, score and text.

        inputs: texts or id sequences, in a list or any other iterable, which an encoder reads; without an encoder, the
            prompts. A single string gives its result alone. None is truncated: `InputError` refuses one that is too
            long before anything is computed.
        prompts: for a model with an encoder, the first tokens of each result, as ids; None for its start token. For a
            single string it is one prompt.
        add_special_tokens: False reads texts without the special tokens that the tokenizer adds, such as a start token;
            special tokens that are written in a text are read in both cases. A text that begins with the start token
            has two of them, with a warning, unless you say False.
        settings: the arguments of transformers' `generate`, such as num_beams, max_new_tokens, do_sample and seed, in
            place of the model's own (`engine.GenerationConfig` explains each). Names of other libraries that mean the
            same, such as max_tokens, are accepted. Settings of sampling without do_sample=True give a `UserWarning`.
        timeout: seconds after which the call raises `TimedOut`.
        output_attentions: heads of cross-attention, as pairs (layer, head) that count from 0, or True for all; negative
            numbers count from the end. `Generated.attentions` of each result then has their weights, which say from
            which source tokens each new token came.
        cache_key: whose prompts share what is read; those of calls with another key are never compared with these.

        With num_return_sequences above 1, each result is a list of `Generated`, best first.
        """
        options = GenerateOptions(prompts=prompts, add_special_tokens=add_special_tokens,
                                  output_attentions=output_attentions, cache_key=cache_key, settings=settings)
        return GENERATE.run(self, inputs, options, Stop.after(timeout))

    @renamed_arguments
    def results(self, inputs: Any, *, prompts: Any = None, add_special_tokens: bool = True,
                timeout: float | None = None, output_attentions: Any = None, cache_key: str = "",
                places: Sequence[str] | None = None, **settings: Any) -> Iterator[Any]:
        """Return an iterator over the results that `generate` returns, in order: each as soon as it is there.

        places: what an error message calls each input, such as "line 3"; None counts them from 0. The other arguments
        are those of `generate`. All inputs are checked before the first one is computed. Closing the iterator ends it.
        """
        options = GenerateOptions(prompts=prompts, add_special_tokens=add_special_tokens,
                                  output_attentions=output_attentions, cache_key=cache_key, settings=settings)
        return GENERATE.results(self, inputs, options, Stop.after(timeout), places)

    @renamed_arguments
    def translate(self, texts: Any, *, source_language: str | None = None, target_language: str | None = None,
                  timeout: float | None = None, **settings: Any) -> Any:
        """Return the translation of each text; with num_return_sequences above 1, a list of translations for each.

        texts: a list or another collection of strings; a single string gives its translation alone.
        source_language: the language of the texts, by one of the codes of `languages`; None for that of the model's
            settings.
        target_language: the language of the translations in the same way. A model of many languages, such as M2M100,
            needs it unless its settings name one.
        timeout, settings: as in `generate`.
        """
        options = TranslateOptions(source_language=source_language, target_language=target_language, settings=settings)
        return TRANSLATE.run(self, texts, options, Stop.after(timeout))

    def translation(self, texts: Any, source_language: str | None = None, target_language: str | None = None,
                    places: Sequence[str] | None = None, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return (inputs, settings) with which `generate` translates texts.

        places: what an error message calls each text, such as "line 3"; None counts them from 0. The other arguments
        are those of `translate`.
        """
        TRANSLATE.needs(self)
        options = TranslateOptions(source_language=source_language, target_language=target_language, settings=settings)
        return sources_of(self, texts, options, places)

    @property
    def languages(self) -> list[str]:
        """The codes of the languages that `translate` takes; empty for a model without language tokens."""
        return list(self.language_ids)

    @property
    def language_ids(self) -> dict[str, int]:
        """The id of the token of each language, by the code of the language."""
        return self._languages

    @lazy
    def _languages(self) -> dict[str, int]:
        """`language_ids`, made at its first use, because that reads the tokenizer."""
        return language_ids(self.config.family, self.source_text)

    def check_translates(self) -> None:
        """Raise `UnsupportedError` for a model without an encoder, or without the tokenizer of source or target."""
        TRANSLATE.needs(self)

    @renamed_arguments
    def stream(self, source: Any, *, prompt: Any = None, add_special_tokens: bool = True, timeout: float | None = None,
               cache_key: str = "", **settings: Any) -> Stream:
        """Yield each new token of one input as soon as the search has decided it, without start and end tokens.

        source: a text or ids, like an input of `generate`. A beam search decides its tokens only at its end. timeout:
        seconds from this call to the last token, as for `generate`. cache_key: as there. Several streams may run at
        once: their steps are computed together, with those of all other calls.
        """
        stop = Stop.after(timeout)
        options = GenerateOptions(add_special_tokens=add_special_tokens, cache_key=cache_key, settings=settings)
        [work] = prepare_one(self, "stream", source, prompt, options, stop).works
        return Stream(self.prepared, work, stop)

    @renamed_arguments
    def session(self, *, step_seconds: float = Pace.step_seconds, idle_seconds: float = Pace.idle_seconds) -> Session:
        """Return a session, which takes requests of any number of threads at any time, and computes them together.

        step_seconds: how much longer a step may take for parts of prompts than without them, while somebody waits for a
            next token. idle_seconds: how long a step may take while nobody does. At least 16 tokens of a prompt are
            read in a step, so that every prompt goes on.
        """
        return Session(self, Pace(step_seconds, idle_seconds))

    @renamed_arguments
    def score(self, inputs: Any, targets: Any = None, *, prompts: Any = None, add_special_tokens: bool = True,
              timeout: float | None = None, cache_key: str = "") -> Any:
        """Return the log probabilities of given tokens under the model itself, which no setting changes.

        A model that `engine.calibrate` calibrated gives calibrated ones: its logits are divided by its temperature.

        inputs, prompts, add_special_tokens, timeout, cache_key: as in `generate`.
        targets: for each input, the ids or the text to score; they follow the start token or the prompt. A model
            without an encoder needs no targets: it then scores the tokens of each input, from the second token on.

        Returns a list of `Scored`; for a single string as inputs, to which one target belongs, its `Scored` alone.
        """
        options = ScoreOptions(prompts=prompts, add_special_tokens=add_special_tokens, cache_key=cache_key)
        return SCORE.run(self, (inputs, targets), options, Stop.after(timeout))

    @property
    def methods(self) -> dict[str, DecoderMethod[Any, Any]]:
        """The methods that this model can run, by their names, such as "generate"."""
        return generating_methods_of(self)

    @property
    def _calibrated_outputs(self) -> dict[str, int]:
        return {"score": self.config.vocab_size} if self.encoder_config is None else {}

    def statistics(self) -> Statistics:
        """Count the requests, the tokens and the memory of the cache, for a server that has to decide what it takes."""
        queue = self._model.queue
        entered, waiting = queue.counts
        return Statistics(**vars(self._decoder.statistics()), open_requests=entered, waiting_calls=waiting,
                          tokens_in=queue.tokens_in, tokens_out=queue.tokens_out, kept_tokens=queue.prefixes.kept,
                          found_tokens=queue.prefixes.found_tokens, read_tokens=queue.tokens_read,
                          times_given_way=queue.room.gave_way)
