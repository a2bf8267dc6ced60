"""`PreparedModel`: a model that generates on a backend, which `Generator`, `Reranker` and `Transcriber` hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..backends import check_layout, check_portable, get_backend
from ..backends.interfaces import DecodingBackend
from ..base.arguments import count_or_none, positive_int, positive_int_or_none
from ..base.cpus import choose_threads
from ..base.errors import InputError, UnsupportedError, located, shown
from ..base.stop import Stop
from ..model.bits import FASTEST
from ..model.config import ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.precision import cache_name
from ..model.run_config import RunConfig
from ..model.text_config import TextConfig
from ..text.tokenizer import NO_TOKENIZER, Tokenizer
from .calls import run
from .checks import checked
from .encoder_decoder import KeptSource, SourceStepper
from .groups import Generation
from .lengths import Lengths
from .results import Generated, Request
from .schedule import Budget
from .scoring import Scoring
from .step_queue import StepQueue

if TYPE_CHECKING:
    from ..weights.model import Model

KEPT = 4096
"""The most tokens of prefixes that a model keeps between two calls, unless the caller says otherwise."""


class PreparedModel:
    """The plans of a decoder and of its encoder, and the tokenizers of both sides."""

    def __init__(self, model: Model, holder: str, *, backend: str = "auto", threads: int | None = None,
                 max_batch_tokens: int = 8192, precision: str | None = None, max_rows: int = 64,
                 cache_tokens: int | None = None, keep_tokens: int | None = None, cache: str | None = None,
                 bits: str = FASTEST):
        """Check a model and prepare its parts. holder: the class whose arguments these are, as messages name it."""
        from ..files.reading import release_pages
        from ..weights.model import Model  # here, because `import engine` shall stay light

        if not isinstance(model, Model):
            raise InputError(f"{holder} takes a Model, not {shown(model)}; {holder}.load takes the path of one")
        model = model.checked()
        if model.decoder is None or model.kind == "encode":
            raise UnsupportedError("this model has no decoder, so it generates no tokens; an Engine runs its encoder")
        max_batch_tokens = positive_int("max_batch_tokens", max_batch_tokens)
        chosen, count = get_backend(backend), choose_threads(threads)
        if not isinstance(chosen, DecodingBackend):
            raise UnsupportedError(f"the {chosen.name} backend does not run decoders; cython, numba and reference do")
        portable = check_portable(chosen, bits)
        for part in model.parts.values():
            check_layout(chosen, part.layout, part.config.decodes, portable)
        cache_tokens = positive_int_or_none("cache_tokens", cache_tokens)
        keep_tokens = _keep_tokens(keep_tokens, cache_tokens)
        runs = {name: RunConfig(count, part.precision_for(precision), max_batch_tokens, cache_tokens=cache_tokens,
                                cache=cache_name(cache), bits=bits)
                for name, part in model.parts.items()}
        self.config: ModelConfig = model.decoder.config
        self.encoder_config: ModelConfig | None = model.encoder.config if model.encoder else None
        self.configs: Sequence[ModelConfig] = [part.config for part in model.parts.values()]
        self.generation: GenerationConfig = model.generation
        self.calibrations = model.decoder.calibrations
        self.text: TextConfig | None = model.decoder.text
        self.source_text: TextConfig | None = (model.encoder or model.decoder).text
        self.stem = model.encoder.stem if model.encoder else None
        self.backend, self.threads, self.max_batch_tokens, self.bits = chosen.name, count, max_batch_tokens, bits
        self.precision = runs["decoder"].precision
        self.budget = Budget(positive_int("max_rows", max_rows), max_batch_tokens)
        self.encoder = None
        if model.encoder is not None:
            self.encoder = chosen.prepare(model.encoder.config, model.encoder.weights, runs["encoder"])
        self.decoder = chosen.prepare_decoder(self.config, model.decoder.weights, runs["decoder"])
        self.cache = runs["decoder"].cache_precision        # here, after the backend has checked the precision
        for part in model.parts.values():
            release_pages(part.weights.values())
        self.lengths = Lengths(self.config, self.encoder_config, self.decoder.longest, max_batch_tokens)
        self._tokenizers: dict[int, Tokenizer] = {}
        self._stepper = SourceStepper(self.decoder, self.encoder, self.encoder_config)
        self.queue = StepQueue(self._stepper, self.budget, cache_tokens, keep_tokens=keep_tokens)

    def checked(self, request: Request, kept: KeptSource | None = None) -> Generation:
        """Return a request that the model can compute; raises an `EngineError` for any other one.

        kept: as in `engine.generation.checks.checked`.
        """
        return checked(self._stepper, request, self.budget, self.lengths, kept)

    def score(self, requests: Sequence[Request], continuations: Sequence[Sequence[int]], stop: Stop,
              place: Callable[[int], str], **options: Any) -> list[list[float]]:
        """Return log p(id | source, prompt, ids before it) of each id of the continuation of each request.

        place: returns what a message calls a request. options: of `Scoring`. All requests are checked before the first
        one is computed. Raises `InputError` for wrong ids.
        """
        works = []
        for i, (request, ids) in enumerate(zip(requests, continuations, strict=True)):
            with located(place(i)):
                works.append(Scoring(self._stepper, request, ids, lengths=self.lengths, **options))
        return run(self.queue, works, stop, place)

    def tokenizer(self, text: TextConfig | None) -> Tokenizer:
        """Return the tokenizer of one side, which cuts nothing off a text, and is made at its first use.

        Raises `UnsupportedError` for None.
        """
        if text is None:
            raise UnsupportedError(f"{NO_TOKENIZER}; pass token ids, or add a tokenizer.json to its folder")
        if id(text) not in self._tokenizers:
            self._tokenizers[id(text)] = Tokenizer(text, max_tokens=None, threads=self.threads, truncates=False)
        return self._tokenizers[id(text)]

    def with_text(self, result: Generated) -> Generated:
        """Return a result with its text, if the model has a tokenizer."""
        return result if self.text is None else replace(result, text=self.tokenizer(self.text).continuation(result.ids))


def _keep_tokens(keep_tokens: Any, cache_tokens: int | None) -> int:
    """Return the checked `keep_tokens`; None stands for `KEPT`, or for `cache_tokens` if that is less."""
    if keep_tokens is None:
        return KEPT if cache_tokens is None else min(KEPT, cache_tokens)
    kept = count_or_none("keep_tokens", keep_tokens) or 0
    if cache_tokens is not None and kept > cache_tokens:
        raise InputError(f"keep_tokens={kept:,} must not be above cache_tokens={cache_tokens:,}, which bounds all "
                         "tokens of the cache, with those that are kept")
    return kept
