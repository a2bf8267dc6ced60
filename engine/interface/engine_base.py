"""`EngineBase`: the state of an `Engine`, which all its methods use: plans, heads, routes and text settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from ..backends import get_backend
from ..backends.ops_interface import Ops
from ..base.errors import InputError, UnsupportedError, shown
from ..base.lazy import lazy
from ..encoding.image_encoder import ImageEncoder
from ..encoding.text_encoder import TextEncoder
from ..encoding.vector_encoder import VectorEncoder
from ..model.bits import PORTABLE
from ..model.late_config import LateConfig
from ..model.run_config import RunConfig
from ..model.text_config import TextConfig
from ..queues.model_queue import ModelQueue
from ..text.tokenizer import NO_TOKENIZER, Tokenizer
from ..weights.input_layers import Patches
from ..weights.packed import PACKED_PREFIX
from ..weights.waveform import Waveform
from .loaded import Loaded
from .reading_decoder import ReadingPlan
from .token_dropout import with_token_dropout

if TYPE_CHECKING:
    from ..backends.interfaces import Backend, Plan
    from ..weights.model import Transformer

P = ParamSpec("P")
R = TypeVar("R")
AnyEngine = TypeVar("AnyEngine", bound="EngineBase")


def on_route(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method to run on the engine of the route that its argument `task` names; None runs the default."""

    @wraps(method)
    def routed(*args: P.args, **options: P.kwargs) -> R:
        engine: Any = args[0]       # `self` of the method
        run: Any = method
        return run(engine.engine_of(options.pop("task", None)), *args[1:], **options)

    return routed


class ImageSide:
    """The image encoder of a model, prepared at its first use; engines with other text settings share it."""

    def __init__(self, part: Transformer, backend: Backend, run: RunConfig, queue: ModelQueue,
                 plan: Plan | None = None):
        """plan: of the encoder; None to prepare it for the first image, as a model of texts and images may get none."""
        self._part, self._backend, self._run, self._queue, self._plan = part, backend, run, queue, plan

    @lazy
    def encoder(self) -> ImageEncoder:
        """The encoder, whose plan is prepared here if there is none."""
        from ..files.reading import release_pages  # here, because `import engine` shall stay light

        part, run = self._part, self._run
        assert isinstance(part.stem, Patches)
        surrounding = [part.stem, *part.modules, *([part.pooling] if part.pooling else ())]
        ops = _ops_of(self._backend, run.threads, run.portable, *map(vars, surrounding))
        plan = self._plan or self._backend.prepare(part.config, part.weights, run)
        release_pages(array for name, array in part.weights.items() if not name.startswith(PACKED_PREFIX))
        return ImageEncoder(part.config, plan, run.max_tokens, stem=part.stem, images=part.images, head=part.pooling,
                            threads=run.threads, modules=part.modules, queue=self._queue, ops=ops)


def _ops_of(backend: Backend, threads: int, portable: bool, *parts: Mapping[str, Any]) -> Ops:
    """Return the single operations of a backend. parts: mappings with the arrays that many calls get as arguments."""
    ops = backend.ops(threads, portable)
    ops.keep(_arrays_of(parts))     # they never change, so copies on a GPU may stay
    return ops


class EngineBase(Loaded):
    """One encoder on a backend; in a model with routes, the encoder of the default task, or else the first one."""

    _routes: dict[str, Any]
    """The engine of each task of a model with routes; empty for other models."""
    _needs_task: bool
    """Whether there is no default task, so that each call has to name one."""
    _image_side: ImageSide | None = None
    """The encoder of images; None for a model of texts alone."""
    _reading: ReadingPlan | None = None
    """The plan whose vectors the heads read, if a decoder computes them; None if the encoder does."""

    def _hold(self, encoder: Transformer, backend: Backend, run: RunConfig, plan: Plan | None,
              queue: ModelQueue | None = None) -> None:
        """Set the attributes of this engine for an encoder.

        plan: of another engine with the same weights; None to prepare one. queue: of another engine of the same model;
        None to make one.
        """
        self.config, self._configs = encoder.config, [encoder.config]
        self.text, self._heads = encoder.text, encoder.heads
        self._stem = encoder.stem
        if isinstance(self._stem, Waveform):
            self._stem = self._stem.in_precision(run.precision)
        self._calibrations = {calibration.task: calibration for calibration in encoder.calibrations}
        self._modules, self._token_modules = encoder.modules, encoder.token_modules
        self._words = {name: array for name, array in encoder.weights.items() if name.startswith("embeddings.word")}
        self.backend, self.threads, self.precision = backend.name, run.threads, run.precision
        self.max_batch_tokens, self.bits = run.max_tokens, run.bits
        self._plan = plan or backend.prepare(encoder.config, encoder.weights, run)
        if plan is None and encoder.config.dropped_id is not None:      # ESM; the plan of another engine has it already
            self._plan = with_token_dropout(self._plan, encoder.config, self._word_table)
        self._routes, self._needs_task = {}, False
        self._queue = queue or ModelQueue(run.max_tokens, mixes=backend.batch_invariant)
        if isinstance(encoder.stem, Patches):
            self._image_side = ImageSide(encoder, backend, run, self._queue, self._plan)

    @property
    def queue(self) -> ModelQueue:
        """The queue that computes the calls of all threads; a server gives it a thread of its own."""
        return self._queue

    @property
    def heads(self) -> dict[str, Any]:
        """The heads of the model by the method that runs each: a `HeadConfig`, or for encode_tokens of a model without
        vectors of whole texts a `LateConfig`."""
        heads: dict[str, Any] = {head.config.task: head.config for head in self._heads}
        return heads if self._late is None else heads | {"encode_tokens": self._late}

    @property
    def _late(self) -> LateConfig | None:
        """The settings of a model for late interaction, which has vectors of tokens alone; None for other models."""
        return None if self.text is None else self.text.late

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
        return (self._encoder if self.text is not None or not self.reads_images else self.image_encoder).width

    def get_sentence_embedding_dimension(self) -> int:
        """Return `get_embedding_dimension()`; sentence-transformers before version 6 has this name."""
        return self.get_embedding_dimension()

    @property
    def similarity_fn_name(self) -> str:
        """How the model compares its vectors: "cosine", "dot", "euclidean" or "manhattan"; or texts with a vector for
        each token: "maxsim" or "meanmaxsim"."""
        return self.text.similarity if self.text else "cosine"

    def engine_of(self: AnyEngine, task: str | None) -> AnyEngine:
        """Return the engine that serves a task; raises `InputError` for a task that the model has not."""
        if task is None and not self._needs_task:       # this engine serves the default task
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
        """The tokenizer's configuration; raises `UnsupportedError` for a model that reads no texts."""
        if self.text is None and self.reads_images:
            raise UnsupportedError("this model reads images, and no texts")
        if self.text is None:
            raise UnsupportedError(f"{NO_TOKENIZER}, so it cannot encode text; pass token ids to forward, or add a "
                                   "tokenizer.json to its folder")
        return self.text

    @property
    def text_encoder(self) -> TextEncoder:
        """The encoder that `encode` runs: from texts to tokens, to pooled vectors, and to results.

        Raises `UnsupportedError` for a model without a tokenizer.
        """
        return self._encoder

    @property
    def reads_images(self) -> bool:
        """Whether `encode` and `classify` take images; a model that reads texts, too, takes both."""
        return self._image_side is not None

    @property
    def image_encoder(self) -> ImageEncoder:
        """The encoder that `encode` runs for images: to patches, to pooled vectors, and to results.

        Raises `UnsupportedError` for a model that reads no images.
        """
        if self._image_side is None:
            raise UnsupportedError("this model reads no images")
        return self._image_side.encoder

    @lazy
    def _ops(self) -> Ops:
        """The single operations of the backend, for the parts around the encoder: heads, modules and the stem."""
        surrounding = [*self._modules, *self._token_modules, *([self._stem] if self._stem else ())]
        return _ops_of(get_backend(self.backend), self.threads, self.bits == PORTABLE,
                       *(head.weights for head in self._heads), *map(vars, surrounding))

    @lazy
    def _head_encoder(self) -> VectorEncoder:
        """The encoder whose vectors the heads read; in BART's classifiers, they come from the decoder (`_reading`)."""
        if self.text is None and self.reads_images:
            return self.image_encoder
        if self._reading is None:
            return self._encoder
        return TextEncoder(self.config, self._text, self._reading, self.threads, self.max_batch_tokens,
                           queue=self._queue)

    @lazy
    def _encoder(self) -> TextEncoder:
        """`text_encoder`, made at its first use."""
        ops = self._ops if self._modules or self._token_modules else None
        return TextEncoder(self.config, self._text, self._plan, self.threads, self.max_batch_tokens,
                           modules=self._modules, token_modules=self._token_modules, ops=ops, queue=self._queue)

    @lazy
    def _word_table(self) -> np.ndarray:
        """The word table in float32 [V, E], for heads whose weights are tied to it."""
        from ..weights.parameters import parameters_of
        from ..weights.quantize import widen

        name = "embeddings.word"
        table = np.ascontiguousarray(widen(self._words, name, parameters_of(self.config)[name]))
        self._ops.keep([table])
        return table


def _arrays_of(parts: Iterable[Mapping[str, Any]]) -> Iterator[np.ndarray]:
    """Yield the arrays among the values of mappings, at any depth."""
    for part in parts:
        for value in part.values():
            if isinstance(value, np.ndarray):
                yield value
            elif isinstance(value, Mapping):
                yield from _arrays_of([value])
