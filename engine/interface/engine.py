"""`Engine`: an encoder that is ready to run; most users need no other class."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..backends import choose_backend
from ..backends.interfaces import DecodingBackend
from ..base.arguments import positive_int, renamed_arguments
from ..base.errors import InputError, UnsupportedError, WeightsError, listed, nearest, shown
from ..base.lazy import lazy
from ..model.bits import FASTEST
from ..model.run_config import RunOptions
from ..model.text_config import TextConfig
from ..weights.packed import PACKED_PREFIX
from .engine_base import ImageSide
from .reading_decoder import ReadingPlan
from .similarity_methods import SimilarityMethods
from .vector_methods import VectorMethods

if TYPE_CHECKING:
    from ..weights.model import Model, Transformer


class Engine(VectorMethods, SimilarityMethods):
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

    @renamed_arguments
    def __init__(self, model: Model, *, backend: str = "auto", threads: int | None = None,
                 max_batch_tokens: int = 8192, precision: str | None = None, bits: str = FASTEST):
        """As `load`, for a model that is in memory already, which is checked as `load` checks it."""
        from ..files.reading import release_pages
        from ..weights.model import Model, share_weights  # here, as `load_model` below: it takes long to import

        if not isinstance(model, Model):
            raise InputError(f"Engine takes a Model, not {shown(model)}; Engine.load takes the path of one")
        model = model.checked()
        if model.kind != "encode":
            served = {"transcribe": "writes what recordings say; a Transcriber"}.get(
                model.kind, "has a decoder; a Generator")
            raise UnsupportedError(f"Engine runs an encoder alone, and this model {served} runs it")
        options = RunOptions(backend=backend, threads=threads, max_batch_tokens=max_batch_tokens, bits=bits)
        chosen = choose_backend(backend, bits, model.parts.values())       # a `Backend` for the name or "auto"
        parts = [part for part in model.parts.values() if part is not model.decoder and part is not model.images]
        # This engine holds the encoder of calls that name no task, or the first one; each other encoder has its own
        # engine. All engines share a queue, and those of encoders with the same weights a plan.
        held: list[tuple[Transformer, Engine]] = []
        for part in sorted(parts, key=lambda part: part is not model.encoder):
            run = options.config(_precision_of(part, precision, alone=len(parts) == 1))
            engine = Engine.__new__(Engine) if held else self
            plan = next((other._plan for encoder, other in held if share_weights(encoder, part)), None)
            engine._hold(part, chosen, run, plan, queue=held[0][1]._queue if held else None)
            held.append((part, engine))
        if model.images is not None:
            images = options.config(_precision_of(model.images, precision, alone=False))
            self._image_side = ImageSide(model.images, chosen, images, self._queue)
        if model.decoder is not None:
            start = model.generation.decoder_start_token_id
            assert start is not None
            assert isinstance(chosen, DecodingBackend)      # `choose_backend` has checked it
            decoder = chosen.prepare_decoder(model.decoder.config, model.decoder.weights,
                                             options.config(self.precision))
            self._reading = ReadingPlan(self._plan, decoder, start, self.max_batch_tokens)
            self._configs = [self.config, model.decoder.config]
        self._routes = {task: next(engine for encoder, engine in held if encoder is part)
                        for task, part in model.routes.items()}
        self._needs_task = model.encoder is None
        release_pages(array for part in model.parts.values() for name, array in part.weights.items()
                      if not name.startswith(PACKED_PREFIX))

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, backend: str = "auto", threads: int | None = None,
             max_batch_tokens: int = 8192, precision: str | None = None, least_cosine: float | None = None,
             bits: str = FASTEST, memory: str = "map", task: str | None = None, revision: str | None = None) -> Engine:
        """Load a model from a .npz file, a Hugging Face folder, a sentence-transformers folder, or by its name.

        path: a path; or, where there is none, the name of a model on the Hugging Face hub, org/name, or org/name/FILE
            for one of several .gguf or .npz files. It is downloaded once, into the hub's cache.
        backend: "auto" for the fastest backend that runs here, or a name that `engine info` lists.
        threads: the threads of one forward pass; None for every CPU that the process may use. A larger number has no
            effect.
        max_batch_tokens: the most tokens that are computed at a time. It limits the memory of a call, and the length of
            a sequence.
        precision: "float32", "bfloat16", "int8", "q8_0" or "int4", in which linear maps are computed; float32 weights
            are rounded to it. "bfloat16x3" leaves them as they are and is faster than float32, on CPUs with AMX alone.
            None means the precision of a file whose weights are integers, else "float32". "auto" means the fastest of
            "int8", "bfloat16" and "float32" whose vectors of sample sentences have a cosine of at least `least_cosine`
            to float32's, or 0.999.
        least_cosine: the bound of precision="auto"; None for 0.999.
        bits: "portable" for arithmetic with the same bits on every CPU with fused multiply-adds (docs/precision.md).
        memory: "map" leaves the weights in the file and maps it; "copy" reads the file into private memory, so that
            the engine is safe if somebody changes or shortens the file.
        task: the adapter to merge into the weights of a folder that holds adapters, such as "retrieval.query" of
            jina-embeddings-v3; None for the weights without an adapter. "image" for the image encoder alone of a
            folder or a file of CLIP or SigLIP, which has one for texts, too.
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
            precision = engine.precision    # so that a process that loads a pickle of the engine does not choose anew
        else:
            engine = cls(model, **options, precision=precision)
        engine.address = address, commit = source.address
        engine._reload = partial(cls.load, address, **options, precision=precision, memory=memory, task=task,
                                 revision=commit)
        engine._read_model = partial(load_model, address, kind="encode", memory=memory, task=task, revision=commit)
        return engine

    def close(self) -> None:
        """Free the weights and the plans, also those of all `routes`: see `Loaded.close`."""
        routes = [] if self._closed else list(self._routes.values())     # before they are freed
        super().close()
        for engine in routes:
            engine.close()

    def to_model(self) -> Model:
        """Return the `Model` of this engine, read from its files again, with its calibrations and text settings."""
        model = super().to_model()
        texts = {id(part): self._routes.get(name, self).text for name, part in model.parts.items()}
        return model.map(lambda part: part if part is model.images or part.text == texts[id(part)] else
                         replace(part, text=texts[id(part)]))

    @renamed_arguments
    def with_text(self, **changes: Any) -> Engine:
        """Return this engine with other text settings; both share the weights, and this one does not change.

        changes: fields of `TextConfig`, such as max_seq_length, similarity or prompts. The routes get the same changes.

        Raises `InputError` for a field that there is not or a value that is impossible, such as a max_seq_length above
        the positions of the model, and `UnsupportedError` for a model without a tokenizer.
        """
        known = [field.name for field in fields(TextConfig)]
        if unknown := [name for name in changes if name not in known]:
            raise InputError(f"there is no text setting {listed(unknown)}{nearest(unknown[0], known)}; there are "
                             f"{', '.join(known)}")
        return self._with_changes(changes, lambda engine: changes)

    def limited_to(self, max_tokens: int) -> Engine:
        """Return this engine with texts of at most `max_tokens` tokens; both share the weights.

        A route, or this engine itself, with a smaller limit keeps its own.
        """
        most = positive_int("max_tokens", max_tokens)
        return self._with_changes({_LIMIT: most},
                                  lambda engine: {"max_seq_length": min(most, engine.max_seq_length or most)})

    def _with_changes(self, again: dict[str, Any], changes: Callable[[Engine], dict[str, Any]]) -> Engine:
        """Return a copy of this engine, and of its routes, with other text settings; all share the weights.

        changes: returns the fields of `TextConfig` to change in one engine. again: the same changes for
        `_reload_changed`, when a pickle of the new engine is loaded.
        """
        copies: dict[Engine, Engine] = {}
        for engine in [self, *self._routes.values()]:
            if engine not in copies:
                copies[engine] = engine._with_own_text(changes(engine))
        other = copies[self]
        other._routes = {task: copies[engine] for task, engine in self._routes.items()}
        if self._reload is not None:
            reload, before = self._reload, {}
            if reload.func is _reload_changed:      # this engine is a changed one itself: one reload does all changes
                reload, before = reload.args
            other._reload = partial(_reload_changed, reload, _merge_changes(before, again))
        return other

    def _with_own_text(self, changes: dict[str, Any]) -> Engine:
        """Return a copy of this engine, without its routes, that has other text settings and no lazy attributes yet."""
        try:
            text = replace(self._text, **changes)
        except WeightsError as error:
            raise InputError(str(error)) from None
        most, asked = self.config.longest_sequence, changes.get("max_seq_length")
        if most is not None and asked is not None and asked > most:
            raise InputError(f"max_seq_length={asked} is above the {most} positions of the model, which reads no more "
                             f"tokens; give at most {most}")
        other = Engine.__new__(Engine)      # copy.copy would load the model again, as pickle does
        # Lazy attributes, such as the tokenizer, are left out, so that the copy makes its own from the new settings.
        vars(other).update({name: value for name, value in vars(self).items()
                            if not isinstance(getattr(Engine, name, None), lazy)}, text=text)
        return other

    @property
    def routes(self) -> dict[str, Engine]:
        """The engine of each task of a model that has several encoders, such as "query"; empty for other models.

        All methods but `encode`, `encode_query`, `encode_document` and `encode_sparse` are those of the default task,
        or of the first where there is none: `routes[task]` has those of another.
        """
        return dict(self._routes)


_LIMIT = "limited_to"
"""The key for the argument of `limited_to` among the changes of `_reload_changed`, which are fields of `TextConfig`."""


def _merge_changes(before: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """Return one dictionary of changes that has the effect of `before` and then `again`; a limit in it applies last."""
    merged = before | again
    if "max_seq_length" in again:       # it came after the limit of `before`, which does not bound it
        merged.pop(_LIMIT, None)
    if _LIMIT in before and _LIMIT in again:
        merged[_LIMIT] = min(before[_LIMIT], again[_LIMIT])
    return merged


def _reload_changed(reload: partial[Engine], changes: dict[str, Any]) -> Engine:
    """Load an engine of `with_text` or `limited_to` again, in the process that opens its pickle.

    reload: loads the engine without changes. changes: fields of `TextConfig`, and perhaps `_LIMIT`.
    """
    fields_of_text = {name: value for name, value in changes.items() if name != _LIMIT}
    engine = reload().with_text(**fields_of_text)
    return engine.limited_to(changes[_LIMIT]) if _LIMIT in changes else engine


def _precision_of(part: Transformer, asked: str | None, *, alone: bool) -> str:
    """Return the precision in which an encoder computes; raises `UnsupportedError` and `InputError`.

    asked: by the caller. alone: whether the model has no other encoder. A static model multiplies nothing: beside
    other encoders it is float32, and alone it refuses another precision.
    """
    precision = part.precision_for(asked)
    if part.config.num_layers or precision == "float32":
        return precision
    if alone:
        raise UnsupportedError(f"a static model multiplies nothing, so precision={shown(asked)} would change nothing; "
                               "leave it out. engine convert --precision stores the table in fewer bits")
    return "float32"
