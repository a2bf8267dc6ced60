"""`PreparedModel`: a model that generates, ready to run on a backend, which `Generator` and its like hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..backends import choose_backend
from ..backends.interfaces import DecodingBackend
from ..base.errors import InputError, UnsupportedError, shown
from ..model.config import ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.run_config import RunOptions
from ..model.text_config import TextConfig
from ..text.tokenizer import NO_TOKENIZER, Tokenizer
from .checks import checked, checked_rules
from .encoder_decoder import KeptSource, SourceStepper
from .groups import Generation
from .lengths import Lengths
from .processors import Rules
from .results import Echo, Generated, Request, TokenLogprob
from .schedule import Budget
from .scoring import Scoring, Seen
from .settings import settings_of_call
from .step_queue import StepQueue

if TYPE_CHECKING:
    from ..weights.model import Model


class PreparedModel:
    """The plans of a decoder and of its encoder, the tokenizers of both, and the queue of the works."""

    def __init__(self, model: Model, holder: str, options: RunOptions):
        """Check a model and prepare its parts. holder: the name, in messages, of the class whose options these are."""
        from ..files.reading import release_pages
        from ..weights.model import Model  # here, because `import engine` shall stay light

        if not isinstance(model, Model):
            raise InputError(f"{holder} takes a Model, not {shown(model)}; {holder}.load takes the path of one")
        model = model.checked()
        if model.decoder is None or model.kind == "encode":
            raise UnsupportedError("this model has no decoder, so it generates no tokens; an Engine runs its encoder")
        chosen, keep_tokens = choose_backend(options.backend, options.bits, model.parts.values()), options.kept
        assert isinstance(chosen, DecodingBackend)      # `choose_backend` has checked it
        runs = {name: options.config(part.precision_for(options.precision)) for name, part in model.parts.items()}
        run = runs["decoder"]
        self.config: ModelConfig = model.decoder.config
        self.encoder_config: ModelConfig | None = model.encoder.config if model.encoder else None
        self.configs: Sequence[ModelConfig] = [part.config for part in model.parts.values()]
        self.generation: GenerationConfig = model.generation
        self.calibrations = model.decoder.calibrations
        self.text: TextConfig | None = model.decoder.text
        self.source_text: TextConfig | None = (model.encoder or model.decoder).text
        self.stem = model.encoder.stem if model.encoder else None
        self.backend, self.threads, self.precision, self.bits = chosen.name, run.threads, run.precision, run.bits
        self.max_batch_tokens = run.max_tokens
        self.budget = Budget(options.max_rows, run.max_tokens)
        self.encoder = None
        if model.encoder is not None:
            self.encoder = chosen.prepare(model.encoder.config, model.encoder.weights, runs["encoder"])
        self.decoder = chosen.prepare_decoder(self.config, model.decoder.weights, run)
        self.cache = run.cache_precision        # here, after the backend has checked the precision
        for part in model.parts.values():       # the plans hold packed copies, so the pages of the file may go
            release_pages(part.weights.values())
        self.lengths = Lengths(self.config, self.encoder_config, self.decoder.longest, run.max_tokens)
        self._tokenizers: dict[int, Tokenizer] = {}
        self._stepper = SourceStepper(self.decoder, self.encoder, self.encoder_config)
        self._rules: tuple[GenerationConfig, Rules] | None = None
        """The settings of the last request and their rules, so that requests with the same settings check them once."""
        self.queue = StepQueue(self._stepper, self.budget, options.cache_tokens, keep_tokens=keep_tokens)

    def settings_of_call(self, given: Mapping[str, Any]) -> GenerationConfig:
        """Return the model's settings, changed by the arguments of a call (given); raises `InputError`."""
        encode = None if self.text is None else partial(self.tokenizer(self.text).encode, add_special_tokens=False)
        return settings_of_call(self.generation, given, encode)

    def checked(self, request: Request, kept: KeptSource | None = None) -> Generation:
        """Return the work of a request; raises an `EngineError` for a request that the model cannot compute.

        kept: the source that the request reads in place of its own, whose ids then only identify it.
        """
        new_text, known = None if self.text is None else self.tokenizer(self.text).incremental, self._rules
        if known is None or known[0] is not request.config:
            known = self._rules = request.config, checked_rules(self._stepper, request.config)
        return checked(self._stepper, request, self.budget, self.lengths, kept, new_text, known[1])

    def scoring(self, request: Request, continuation: Sequence[int], temperature: float = 1.0, seen: Seen | None = None
                ) -> Scoring:
        """Return the work whose results are log p(id | source, prompt, ids before it) of each id of a continuation.

        temperature: divides the logits. seen: is called with the logits before that, and the ids. Raises `InputError`.
        """
        return Scoring(self._stepper, request, continuation, temperature, seen, self.lengths)

    def tokenizer(self, text: TextConfig | None) -> Tokenizer:
        """Return the tokenizer of the encoder or the decoder, made at its first use; it cuts nothing off a text.

        Raises `UnsupportedError` for None, a model without a tokenizer.
        """
        if text is None:
            raise UnsupportedError(f"{NO_TOKENIZER}; pass token ids, or add a tokenizer.json to its folder")
        if id(text) not in self._tokenizers:
            self._tokenizers[id(text)] = Tokenizer(text, max_tokens=None, threads=self.threads, truncates=False)
        return self._tokenizers[id(text)]

    def with_text(self, result: Generated, echo: Echo | None = None) -> Generated:
        """Return a result with its text and the texts of its tokens in `logprobs`, if the model has a tokenizer.

        echo: the prompt whose ids, text and log probabilities are put in front of those of the result.
        """
        text, logprobs = result.text, result.logprobs
        if self.text is not None:
            text = self.tokenizer(self.text).continuation(result.ids) if text is None else text
            logprobs = None if logprobs is None else tuple(map(self.named, logprobs))
        if echo is None:
            return replace(result, text=text, logprobs=logprobs)
        text = None if text is None else f"{self.text_of(echo)}{text}"
        logprobs = None if logprobs is None else (*map(self.named, echo.logprobs), *logprobs)
        return replace(result, ids=echo.ids + result.ids, text=text, logprobs=logprobs, echoed=len(echo.ids))

    def text_of(self, echo: Echo) -> str | None:
        """Return the text of a prompt that stands in front of results; None without a tokenizer."""
        return self.tokenizer(self.text).decode(echo.ids) if echo.text is None and self.text is not None else echo.text

    def named(self, logprob: TokenLogprob) -> TokenLogprob:
        """Return a log probability with the texts and bytes of its token and of the likeliest tokens, if the model has
        a tokenizer."""
        if self.text is None:
            return logprob
        text_and_bytes = self.tokenizer(self.text).token_text
        top = tuple([TokenLogprob(one.id, one.logprob, (), *text_and_bytes(one.id)) for one in logprob.top])
        return TokenLogprob(logprob.id, logprob.logprob, top, *text_and_bytes(logprob.id))
