"""`Generator`: a model that generates tokens and is ready to run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..backends.steps import CacheStatistics
from ..base.arguments import flag, refuse_chat, renamed_arguments, warn_caller
from ..base.errors import InputError, UnsupportedError, located, shown
from ..base.lazy import lazy
from ..base.stop import NEVER, Stop
from ..chat import ChatMethods
from ..encoding.outputs import read_attention_heads
from ..generation.calls import Results
from ..generation.lengths import Bound
from ..generation.prepared import PreparedModel
from ..generation.results import Request, Scored
from ..generation.schedule import Pace
from ..generation.settings import settings_of_call
from ..generation.works import DecoderWork
from ..model.bits import FASTEST
from ..model.generation_config import GenerationConfig, ids_array
from ..model.text_config import TextConfig
from ..programs.observe import AttentionHead
from ..text.sentences import check_order, check_sentences, read_texts
from .loaded import Loaded
from .session import Session
from .stream import Stream
from .translation import choose_languages, language_ids

if TYPE_CHECKING:
    from ..weights.model import Model


def place_of(i: int, places: Sequence[str] | None) -> str:
    """Return what an error message calls input i; places: as in `Generator.results`."""
    return f"input {i}" if places is None else places[i]


@dataclass(frozen=True)
class Statistics(CacheStatistics):
    """What a model that generates does at the moment, and has done since it was loaded."""

    open_requests: int
    """Requests that are computed."""
    waiting_calls: int
    """Requests that wait until they enter."""
    tokens_in: int
    """Tokens of prompts and sources."""
    tokens_out: int
    """New tokens, in all samples and in the results of beam searches."""
    kept_tokens: int
    """Tokens in the cache that no open request needs, for later requests that begin with them."""
    found_tokens: int
    """Tokens of prompts that were in the cache, or that another request was about to read."""
    read_tokens: int
    """Tokens of prompts that the model has read."""


class Generator(ChatMethods, Loaded):
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
        self._adopt(PreparedModel(model, "Generator", backend=backend, threads=threads, precision=precision,
                                  max_batch_tokens=max_batch_tokens, max_rows=max_rows, cache_tokens=cache_tokens,
                                  keep_tokens=keep_tokens, cache=cache, bits=bits))
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
        cache_tokens: the most tokens of all open requests together, each counted with the new tokens that it may have,
            for each beam or sample. A request that can never fit is refused; others wait. None for any number.
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
                 timeout: float | None = None, output_attentions: Any = None, **settings: Any) -> Any:
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

        With num_return_sequences above 1, each result is a list of `Generated`, best first.
        """
        results = list(self._results(inputs, Stop.after(timeout), prompts=prompts, output_attentions=output_attentions,
                                     add_special_tokens=add_special_tokens, **settings))
        return results[0] if isinstance(inputs, str) else results

    @renamed_arguments
    def results(self, inputs: Any, *, prompts: Any = None, add_special_tokens: bool = True,
                timeout: float | None = None, output_attentions: Any = None, places: Sequence[str] | None = None,
                **settings: Any) -> Iterator[Any]:
        """Return an iterator over the results that `generate` returns, in order: each as soon as it is there.

        places: what an error message calls each input, such as "line 3"; None counts them from 0. The other arguments
        are those of `generate`. All inputs are checked before the first one is computed. Closing the iterator ends it.
        """
        return self._results(inputs, Stop.after(timeout), prompts=prompts, output_attentions=output_attentions,
                             places=places, add_special_tokens=add_special_tokens, **settings)

    def _results(self, inputs: Any, stop: Stop, *, prompts: Any = None, output_attentions: Any = None,
                 places: Sequence[str] | None = None, add_special_tokens: bool = True, **settings: Any
                 ) -> Iterator[Any]:
        config = settings_of_call(self.generation, settings)
        asked = self._heads(output_attentions)
        heads, works = tuple(dict.fromkeys(asked.values())), []
        special = flag("add_special_tokens", add_special_tokens)
        for i, request in enumerate(self._requests(inputs, prompts, config, stop, places, special)):
            with located(place_of(i, places)):
                works.append(self._model.checked(replace(request, heads=heads)))
        return self._run(works, stop, asked, config.num_return_sequences > 1, places)

    def _run(self, works: Sequence[DecoderWork], stop: Stop, asked: dict[AttentionHead, AttentionHead], several: bool,
             places: Sequence[str] | None) -> Iterator[Any]:
        """Yield the results of requests, with their texts and the weights of the heads that were asked for."""
        # An error that somebody keeps would otherwise keep the open requests.
        with closing(Results(self._model.queue, works, stop, lambda i: place_of(i, places))) as of_requests:
            for results in of_requests:
                results = [self._model.with_text(result) for result in results]
                if asked:
                    results = [replace(one, attentions={given: one.attentions[head] for given, head in asked.items()})
                               for one in results]
                yield results if several else results[0]

    @renamed_arguments
    def translate(self, texts: Any, *, source_language: str | None = None, target_language: str | None = None,
                  timeout: float | None = None, **settings: Any) -> Any:
        """Return the translation of each text; with num_return_sequences above 1, a list of translations for each.

        texts: a list or another collection of strings; a single string gives its translation alone.
        source_language, target_language: language codes of the model, which `languages` lists; None for the languages
            of its settings. A model of many languages, such as M2M100, needs a target_language unless its settings name
            one.
        The other arguments are those of `generate`.
        """
        stop = Stop.after(timeout)
        inputs, language_settings = self.translation(texts, source_language, target_language, **settings)
        results = self._results(inputs, stop, **language_settings)
        translations = [[one.text for one in result] if isinstance(result, list) else result.text for result in results]
        return translations[0] if isinstance(texts, str) else translations

    def translation(self, texts: Any, source_language: str | None = None, target_language: str | None = None,
                    places: Sequence[str] | None = None, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the inputs and the settings with which `generate` translates.

        places: as in `results`. The other arguments are those of `translate`.
        """
        self.check_translates()
        sources = []
        for i, text in enumerate(read_texts(texts)[0]):
            with located(place_of(i, places)):
                sources.append(self._ids(self.source_text, text, "a text", self._model.lengths.source))
        family, languages = self.config.family, self._languages
        inputs, language_settings = choose_languages(family, languages, sources, source_language, target_language)
        config = self.generation.changed(**language_settings | settings)
        # All families but Marian name the language of a result by its first token, which these two settings choose.
        first_tokens = {config.decoder_start_token_id, config.forced_bos_token_id}
        if languages and family != "marian" and not first_tokens & {*languages.values()}:
            raise InputError(f"this model needs a target_language for its results; it knows {', '.join(languages)}")
        return inputs, language_settings | settings

    @property
    def languages(self) -> list[str]:
        """The codes of the languages that `translate` takes; empty for a model without language tokens."""
        return list(self._languages)

    @lazy
    def _languages(self) -> dict[str, int]:
        return language_ids(self.config.family, self.source_text)

    def check_translates(self) -> None:
        """Raise `UnsupportedError` for a model without an encoder, or without the tokenizer of source or target."""
        if self.encoder_config is None:
            raise UnsupportedError("this model has no encoder, so it does not translate; call generate")
        for text in (self.source_text, self.text):
            self._model.tokenizer(text)

    @renamed_arguments
    def stream(self, source: Any, *, prompt: Any = None, add_special_tokens: bool = True, timeout: float | None = None,
               **settings: Any) -> Stream:
        """Yield each new token of one input as soon as the search has decided it, without start and end tokens.

        source: a text or ids, like an input of `generate`. A beam search decides its tokens only at its end. timeout:
        seconds from this call to the last token, as for `generate`. Several streams may run at once: their steps are
        computed together, with those of all other calls.
        """
        return self._stream(source, Stop.after(timeout), prompt=prompt, add_special_tokens=add_special_tokens,
                            **settings)

    def _stream(self, source: Any, stop: Stop, *, prompt: Any = None, add_special_tokens: bool = True, **settings: Any
                ) -> Stream:
        request = self._one_request("stream", source, prompt, flag("add_special_tokens", add_special_tokens), settings,
                                    stop)
        if request.config.num_return_sequences > 1:
            raise InputError("stream gives one result; leave out num_return_sequences")
        with located(place_of(0, places=None)):
            return Stream(self._model, self._model.checked(request), stop)

    def _one_request(self, method: str, source: Any, prompt: Any, special: bool, settings: dict[str, Any],
                     stop: Stop = NEVER) -> Request:
        """Return the request of one input of `method`. special: whether a text gets the model's special tokens."""
        if isinstance(source, (list, tuple)) and source and all(isinstance(part, str) for part in source):
            raise InputError(f"{method} takes one text, not {len(source)} in a list; call {method}(text) for each, as "
                             "many at once as you like, or results(texts), which yields the whole result of each text")
        config = settings_of_call(self.generation, settings)
        [request] = self._requests([source], None if prompt is None else [prompt], config, stop, special=special)
        return request

    @renamed_arguments
    def session(self, *, step_seconds: float = Pace.step_seconds, idle_seconds: float = Pace.idle_seconds) -> Session:
        """Return a session, which takes requests of any number of threads at any time, and computes them together.

        step_seconds: how much longer a step may take for parts of prompts than without them, while somebody waits for a
            next token. idle_seconds: how long a step may take while nobody does. At least 16 tokens of a prompt are
            read in a step, so that every prompt goes on.
        """
        return Session(self._model, partial(self._one_request, "submit"), Pace(step_seconds, idle_seconds))

    @renamed_arguments
    def score(self, inputs: Any, targets: Any = None, *, prompts: Any = None, add_special_tokens: bool = True,
              timeout: float | None = None) -> Any:
        """Return the log probabilities of given tokens under the model itself, which no setting changes.

        A model that `engine.calibrate` calibrated gives calibrated ones: its logits are divided by its temperature.

        inputs, prompts: as for `generate`. targets: for each input, the ids or the text to score; they follow the start
        token or the prompt. A model without an encoder needs no targets: it then scores the tokens of each input, from
        the second token on. add_special_tokens: as for `generate`, for targets too.

        Returns a list of `Scored`; for a single string as inputs, to which one target belongs, its `Scored` alone.
        """
        stop, special = Stop.after(timeout), flag("add_special_tokens", add_special_tokens)
        single = isinstance(inputs, str)
        if targets is None:
            if self.encoder_config is not None:
                raise InputError("a model with an encoder scores targets: score(inputs, targets)")
            if prompts is not None:
                raise InputError("this model has no encoder, so its inputs are its prompts; leave prompts out")
            requests, wanted = self.own_tokens(inputs, stop, special)
        else:
            requests = self._requests(inputs, prompts, self.generation, stop, special=special)
            items = [targets] if single else _listed("targets", targets)
            if len(items) != len(requests):
                raise InputError(f"there are {len(requests)} inputs and {len(items)} targets; each input needs one")
            wanted = []
            for i, item in enumerate(items):
                with located(place_of(i, places=None)):
                    ids = self._ids(self.text, item, "a target", self._model.lengths.target, special, stop)
                    wanted.append(ids.tolist())
        calibration = self._calibrations.get("score")
        temperature = 1.0 if calibration is None else calibration.temperature
        scores = self._model.score(requests, wanted, stop, lambda i: place_of(i, places=None), temperature=temperature)
        scored = [Scored(np.array(each, np.float32)) for each in scores]
        return scored[0] if single else scored

    def own_tokens(self, inputs: Any, stop: Stop, special: bool = True) -> tuple[list[Request], list[list[int]]]:
        """Return a request for each input with its first token as the prompt, and the other tokens of the input.

        special: whether texts get the special tokens that the tokenizer adds.
        """
        bound = self._model.lengths.scored
        prompted = self._requests(inputs, prompts=None, config=self.generation, stop=stop, special=special, bound=bound)
        tokens = [ids_array("an input", request.prompt).tolist() for request in prompted]
        requests = [replace(request, prompt=ids[:1]) for request, ids in zip(prompted, tokens, strict=True)]
        return requests, [ids[1:] for ids in tokens]

    def score_tokens(self, request: Request, tokens: list[int], stop: Stop, seen: Any, place: int) -> None:
        """Give `seen` the logits of the model itself for the places of tokens, float32 [n, V], and their ids [n].

        place: of the request among the inputs of the caller, for messages.
        """
        self._model.score([request], [tokens], stop, lambda i: place_of(place, places=None), seen=seen)

    @property
    def _calibrated_outputs(self) -> dict[str, int]:
        return {"score": self.config.vocab_size} if self.encoder_config is None else {}

    def _heads(self, value: Any) -> dict[AttentionHead, AttentionHead]:
        """Return the heads that output_attentions asks for, as the caller numbers them and counted from 0."""
        if self.encoder_config is None and value is not None and value is not False:
            raise InputError("this model has no encoder and so no cross-attention; leave output_attentions out")
        return read_attention_heads("output_attentions", value, self.config.num_layers, self.config.num_heads)

    def statistics(self) -> Statistics:
        """Count the requests, the tokens and the memory of the cache, for a server that has to decide what it takes."""
        queue = self._model.queue
        entered, waiting = queue.counts
        return Statistics(**vars(self._decoder.statistics()), open_requests=entered, waiting_calls=waiting,
                          tokens_in=queue.tokens_in, tokens_out=queue.tokens_out, kept_tokens=queue.prefixes.kept,
                          found_tokens=queue.prefixes.found, read_tokens=queue.tokens_read)

    def _requests(self, inputs: Any, prompts: Any, config: GenerationConfig, stop: Stop,
                  places: Sequence[str] | None = None, special: bool = True, bound: Bound | None = None
                  ) -> list[Request]:
        """Return the checked requests of inputs; texts become ids. places: as in `results`.

        special: as in `own_tokens`. bound: of the tokens of an input, if not that of a source, or of a prompt for a
        model without an encoder.
        """
        refuse_chat(inputs, self._instead_of_messages)
        if isinstance(inputs, str):
            inputs, prompts = [inputs], None if prompts is None else [prompts]
        expected = "the inputs must be a text, or a list of texts or of token ids"
        single = isinstance(inputs, (bytes, Mapping)) or getattr(inputs, "shape", None) == ()
        if single or not isinstance(inputs, Iterable):
            raise InputError(f"{expected}, not {shown(inputs)}")
        check_order(inputs, expected)
        items = list(inputs)
        if self.encoder_config is None and prompts is not None:
            raise InputError("this model has no encoder, so its inputs are its prompts; leave prompts out")
        starts: list[Any] = [None] * len(items)
        if prompts is not None:
            starts = _listed("prompts", prompts)
        if len(starts) != len(items):
            raise InputError(f"there are {len(items)} inputs and {len(starts)} prompts; each input needs one")
        requests = []
        for i, item in enumerate(items):
            stop.check()
            with located(place_of(i, places)):
                requests.append(self._request(item, starts[i], config, special, bound, stop))
        return requests

    def _request(self, item: Any, prompt: Any, config: GenerationConfig, special: bool, bound: Bound | None, stop: Stop
                 ) -> Request:
        """Return the request of one input, checked as far as its own ids go. The others are as in `_requests`."""
        refuse_chat(item, self._instead_of_messages)
        lengths = self._model.lengths
        if self.encoder_config is None:
            ids = self._ids(self.text, item, "an input", bound or lengths.prompt, special, stop)
            return Request(source=None, prompt=ids.tolist(), config=config)
        ids = self._ids(self.source_text, item, "an input", bound or lengths.source, special, stop)
        start = None if prompt is None else self._ids(self.text, prompt, "a prompt", lengths.prompt, special, stop)
        return Request(ids.tolist(), None if start is None else start.tolist(), config)

    def _ids(self, text: TextConfig | None, item: Any, what: str, bound: Bound, special: bool = True, stop: Stop = NEVER
             ) -> NDArray[np.int64]:
        """Return the ids of an item, a text or ids; raises `InputError` for more of them than the bound allows.

        special: whether a text gets the special tokens that the tokenizer adds. stop: when to stop.
        """
        if not isinstance(item, str):
            if isinstance(item, (list, tuple)) and any(isinstance(part, str) for part in item):
                raise InputError(f"{what} must be one text or a flat sequence of token ids, not {shown(item)}")
            return ids_array(what, item, bound.check)
        tokenizer, checked = self._model.tokenizer(text), check_sentences([item])
        bound.check(tokenizer.least_tokens(item, bound.most, stop), at_least=True)      # before all of it is tokenized
        if special:
            [ids] = tokenizer(checked, stop).input_ids
        else:
            ids = np.array(tokenizer.encode(item, add_special_tokens=False, stop=stop), np.int64)
        bound.check(len(ids))
        if special and (start := tokenizer.repeated_start(item, ids)):
            warn_caller(f"{what} begins with {start}, and the tokenizer adds another one, so that there are two; leave "
                        "it out of the text, or say add_special_tokens=False", UserWarning)
        return ids.astype(np.int64)


def _listed(name: str, items: Any) -> Any:
    """Return a list of texts or of ids; raises `InputError` for anything else."""
    if isinstance(items, (str, bytes)) or not isinstance(items, (Sequence, np.ndarray)):
        raise InputError(f"the {name} must be a list of texts or of token ids, not {shown(items)}")
    return items
