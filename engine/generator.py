"""`Generator`: a model that generates tokens, made ready to run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .architectures.taps import Head
from .backends import DecodingBackend, check_layout, get_backend
from .checks import positive_int
from .config import ModelConfig, RunConfig, TextConfig
from .cpus import choose_threads
from .errors import InputError, UnsupportedError, shown
from .generation.batching import Budget
from .generation.batching import generate as run_requests
from .generation.batching import stream as stream_requests
from .generation.results import Generated, Request, Token
from .generation.scoring import score as score_requests
from .generation.settings import GenerationConfig, ids_array
from .languages import choose_languages, language_ids
from .lazy import lazy
from .outputs import read_heads
from .parameters import expected_shapes
from .sources import SourceStepper
from .text import Tokenizer, check_sentences

if TYPE_CHECKING:
    from .sequences import SequenceModel


@dataclass(frozen=True)
class Piece:
    """A new token of a stream."""

    id: int
    text: str | None
    """The text that the token adds; it may be empty, because some characters need several tokens. None without a
    tokenizer."""


@dataclass(frozen=True)
class Scored:
    """What a model thinks of given tokens."""

    log_probabilities: NDArray[np.float32]
    """[n]: ln p of each token after those before it; a prompt's first token has none and is left out."""

    @property
    def total(self) -> float:
        """Return ln p of all tokens together."""
        return float(self.log_probabilities.sum(dtype=np.float64))


class Generator:
    """A decoder, perhaps with an encoder, on one backend: `generate` for ids or texts, `translate` for texts.

        generator = Generator.load("opus-mt-en-de")
        generator.translate(["A sentence."], num_beams=4)       # ["Ein Satz."]

    The same request gives the same result, to the last bit, alone and in any batch, for any number of threads
    (`backend="reference"` excepted). Any number of Python threads may call one generator.
    """

    def __init__(
        self,
        model: SequenceModel,
        *,
        backend: str = "auto",
        threads: int | None = None,
        max_tokens: int = 8192,
        precision: str | None = None,
        max_rows: int = 64,
    ):
        """As `load`, for a model that is in memory already, which is checked as `load` checks it."""
        from .sequences import SequenceModel  # here, as below: `import engine` shall stay light
        from .weights.files import release_pages

        if not isinstance(model, SequenceModel):
            raise InputError(f"Generator takes a SequenceModel, not {shown(model)}; Generator.load takes the path of "
                             "one")
        model = model.checked()
        max_tokens = positive_int("max_tokens", max_tokens)
        chosen, count = get_backend(backend), choose_threads(threads)
        if not isinstance(chosen, DecodingBackend):
            raise UnsupportedError(f"the {chosen.name} backend does not run decoders; cython, numba and "
                                   "reference do")
        for half in model.halves.values():
            check_layout(chosen, half.layout)
        runs = {name: RunConfig(count, half.precision_for(precision), max_tokens)
                for name, half in model.halves.items()}
        self.config = model.decoder.config
        self.encoder_config: ModelConfig | None = model.encoder.config if model.encoder else None
        self.generation: GenerationConfig = model.generation
        self.text: TextConfig | None = model.decoder.text
        self.source_text: TextConfig | None = (model.encoder or model.decoder).text
        self.backend, self.threads, self.max_tokens = chosen.name, count, max_tokens
        self.precision = runs["decoder"].precision
        self.budget = Budget(positive_int("max_rows", max_rows), max_tokens)
        self._encoder = None
        if model.encoder is not None:
            self._encoder = chosen.prepare(model.encoder.config, model.encoder.weights, runs["encoder"])
        self._decoder = chosen.prepare_decoder(self.config, model.decoder.weights, runs["decoder"])
        for half in model.halves.values():
            release_pages(half.weights.values())
        self._parameters = sum(int(np.prod(shape, dtype=np.int64)) for half in model.halves.values()
                               for shape in expected_shapes(half.config).values())
        self._reload: partial[Generator] | None = None

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        backend: str = "auto",
        threads: int | None = None,
        max_tokens: int = 8192,
        precision: str | None = None,
        max_rows: int = 64,
        memory: str = "map",
    ) -> Generator:
        """Load a generating model from an .npz file or a Hugging Face folder.

        backend, threads, precision, memory: as in `Engine.load`.
        max_tokens: most tokens computed together; also the longest source and the longest prompt.
        max_rows: most hypotheses that are in the batch at once. It changes the speed and the memory, and no result.

        Raises `WeightsError`, `UnsupportedError`, `BackendUnavailable` and `InputError`, as `Engine.load` does.
        """
        from .model import model_path
        from .sequences import load_sequence_model
        from .weights.files import release_freed

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_tokens": max_tokens,
                                   "precision": precision, "max_rows": max_rows}
        generator = cls(load_sequence_model(path, memory=memory), **options)
        release_freed()     # the blocks of a GGUF file became float32 arrays, which are packed now
        generator._reload = partial(cls.load, os.path.abspath(model_path(path)), **options, memory=memory)
        return generator

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        if self._reload is None:
            raise UnsupportedError("a generator is pickled as the path of its model, and this one was made from a "
                                   "model in memory; save_sequence_model it and Generator.load the file")
        return self._reload, ()

    def __repr__(self) -> str:
        c, layers = self.config, f"{self.config.num_layers} layers"
        if self.encoder_config is not None:
            layers = f"{self.encoder_config.num_layers} + {layers}"
        return (f"<Generator: {c.family}, {layers} of width {c.hidden_size}, {self._parameters / 1e6:.1f}M parameters; "
                f"{self.backend} backend, {self.precision}, {self.threads} thread{'s' * (self.threads > 1)}>")

    def generate(self, inputs: Any, *, prompts: Any = None, timeout: float | None = None, output_attentions: Any = None,
                 **settings: Any) -> list[Any]:
        """Return the result of each input, in order: a `Generated` with ids, score and text.

        inputs: a list of texts or of id sequences, which an encoder reads; without an encoder, the prompts.
        prompts: of a model with an encoder, the first tokens of each result, as ids; None for its start token.
        settings: the arguments of transformers' `generate`, such as num_beams, max_new_tokens, do_sample and seed, in
            place of the model's own (`engine.generation.settings.GenerationConfig` explains each).
        timeout: seconds after which the call raises `TimedOut`.
        output_attentions: heads of cross-attention, as pairs (layer, head) that count from 0, or True for all; negative
            numbers count from the end. `Generated.attentions` of each result then has their weights, which say from
            which source tokens each new token came.

        With num_return_sequences above 1, each result is a list of `Generated`, best first.
        """
        config = self.generation.changed(**settings)
        asked = self._heads(output_attentions)
        requests = [replace(request, heads=tuple(dict.fromkeys(asked.values())))
                    for request in self._requests(inputs, prompts, config)]
        results = [[self._with_text(result) for result in found]
                   for found in run_requests(self._stepper(), requests, budget=self.budget, timeout=timeout)]
        if asked:
            results = [[replace(result, attentions={given: result.attentions[head] for given, head in asked.items()})
                        for result in found] for found in results]
        return results if config.num_return_sequences > 1 else [found[0] for found in results]

    def translate(self, texts: Any, *, source_language: str | None = None, target_language: str | None = None,
                  timeout: float | None = None, **settings: Any) -> list[Any]:
        """Return the text that the model makes of each text; with num_return_sequences above 1, a list of texts each.

        source_language, target_language: codes of the model's own, which `languages` lists; None for those of its
            settings. A model that knows many languages as M2M100 does needs a target_language, unless its settings name
            one.
        The other arguments are those of `generate`.
        """
        inputs, own = self.translation(texts, source_language, target_language, **settings)
        results = self.generate(inputs, timeout=timeout, **own)
        return [[one.text for one in result] if isinstance(result, list) else result.text for result in results]

    def translation(self, texts: Any, source_language: str | None = None, target_language: str | None = None,
                    **settings: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the inputs and the settings with which `generate` translates; the arguments are those of `translate`.
        """
        self.check_translates()
        if isinstance(texts, str):
            raise InputError(f"the texts must be a list, not {shown(texts)}")
        sources = [self._ids(self.source_text, text, "a text") for text in check_sentences(texts)]
        family, languages = self.config.family, self._languages
        inputs, own = choose_languages(family, languages, sources, source_language, target_language)
        config = self.generation.changed(**own | settings)
        first = {config.decoder_start_token_id, config.forced_bos_token_id}
        if languages and family != "marian" and not first & {*languages.values()}:
            raise InputError("this model needs a target_language for its results; it knows "
                             f"{', '.join(languages)}")
        return inputs, own | settings

    @property
    def languages(self) -> list[str]:
        """The codes of the languages that `translate` takes; empty for a model without tokens of languages."""
        return list(self._languages)

    @lazy
    def _languages(self) -> dict[str, int]:
        return language_ids(self.config.family, self.source_text)

    def check_translates(self) -> None:
        """Raise `UnsupportedError` for a model without an encoder, or without a tokenizer of one of its sides."""
        if self.encoder_config is None:
            raise UnsupportedError("this model has no encoder, so it does not translate; call generate")
        for text in (self.source_text, self.text):
            self._tokenizer(text)

    def stream(self, source: Any, *, prompt: Any = None, timeout: float | None = None,
               **settings: Any) -> Iterator[Piece]:
        """Yield each new token of one input as soon as it is certain; end and start tokens are left out.

        source: a text or ids, as one of the inputs of `generate`. A beam search is certain only at its end.
        """
        config = self.generation.changed(**settings)
        if config.num_return_sequences > 1:
            raise InputError("stream gives one result; leave out num_return_sequences")
        [request] = self._requests([source], None if prompt is None else [prompt], config)
        ids: list[int] = []
        written = ""
        for event in stream_requests(self._stepper(), [request], timeout=timeout):
            if not isinstance(event, Token):
                continue
            ids.append(event.id)
            if self.text is None:
                yield Piece(event.id, None)
                continue
            text = self._tokenizer(self.text).decode(ids)
            # The bytes of a character may lie in several tokens; until all are there, the text ends in U+FFFD.
            certain = text.rstrip("\ufffd") if text.startswith(written) else written
            piece, written = certain[len(written) :], certain
            yield Piece(event.id, piece)

    def score(self, inputs: Any, targets: Any = None, *, prompts: Any = None,
              timeout: float | None = None) -> list[Scored]:
        """Return the log probabilities of given tokens under the model itself, which no setting changes.

        inputs, prompts: as for `generate`. targets: for each input, the ids or the text whose tokens are scored, which
        come after the start token or the prompt. Without an encoder they may be left out; then the tokens of each input
        are scored, from the second on.
        """
        requests = self._requests(inputs, prompts, self.generation)
        if targets is None:
            if self.encoder_config is not None:
                raise InputError("a model with an encoder scores targets: score(inputs, targets)")
            tokens = [ids_array("an input", request.prompt).tolist() for request in requests]
            requests = [replace(request, prompt=ids[:1]) for request, ids in zip(requests, tokens, strict=True)]
            wanted = [ids[1:] for ids in tokens]
        else:
            wanted = [self._ids(self.text, item, "a target").tolist() for item in targets]
            if len(wanted) != len(requests):
                raise InputError(f"there are {len(requests)} inputs and {len(wanted)} targets; each input needs one")
        found = score_requests(self._stepper(), requests, wanted, budget=self.budget, timeout=timeout)
        return [Scored(np.array(own, np.float32)) for own in found]

    def _heads(self, value: Any) -> dict[Head, Head]:
        """Return the heads that output_attentions asks for, as the caller numbers them and counted from 0."""
        if self.encoder_config is None and value is not None and value is not False:
            raise InputError("this model has no encoder and so no cross-attention; leave output_attentions out")
        return read_heads("output_attentions", value, self.config.num_layers, self.config.num_heads)

    def _stepper(self) -> SourceStepper:
        return SourceStepper(self._decoder, self._encoder, self.encoder_config)

    def _requests(self, inputs: Any, prompts: Any, config: GenerationConfig) -> list[Request]:
        """Return the requests of inputs; texts become ids."""
        if isinstance(inputs, str) or not isinstance(inputs, (Sequence, np.ndarray)):
            raise InputError(f"the inputs must be a list of texts or of token ids, not {shown(inputs)}")
        ids = [self._ids(self.source_text, item, "an input") for item in inputs]
        if self.encoder_config is None:
            if prompts is not None:
                raise InputError("this model has no encoder, so its inputs are its prompts; leave prompts out")
            return [Request(None, item.tolist(), config) for item in ids]
        if prompts is not None and len(prompts) != len(ids):
            raise InputError(f"there are {len(ids)} inputs and {len(prompts)} prompts; each input needs one")
        starts = [None] * len(ids) if prompts is None else [self._ids(self.text, item, "a prompt").tolist()
                                                            for item in prompts]
        return [Request(item.tolist(), start, config) for item, start in zip(ids, starts, strict=True)]

    def _ids(self, text: TextConfig | None, item: Any, what: str) -> NDArray[np.int64]:
        if not isinstance(item, str):
            return ids_array(what, item)
        [ids] = self._tokenizer(text)(check_sentences([item])).input_ids
        return ids.astype(np.int64)

    def _with_text(self, result: Generated) -> Generated:
        return result if self.text is None else replace(result, text=self._tokenizer(self.text).decode(result.ids))

    def _tokenizer(self, text: TextConfig | None) -> Tokenizer:
        if text is None:
            raise UnsupportedError("this model came without a tokenizer that the engine can read; pass token ids, or "
                                   "add a tokenizer.json to its folder")
        tokenizers = self._tokenizers
        if id(text) not in tokenizers:
            tokenizers[id(text)] = Tokenizer(text, self.max_tokens, self.threads)
        return tokenizers[id(text)]

    @lazy
    def _tokenizers(self) -> dict[int, Tokenizer]:
        return {}
