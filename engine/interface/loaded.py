"""`Loaded`: the base class of `Engine`, `Generator`, `Reranker` and `Transcriber`: load, close, save, pickle, repr."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from ..base.advice.attributes import ATTRIBUTES, CALLED, SET
from ..base.arguments import renamed_arguments
from ..base.errors import EngineError, InputError, UnsupportedError, nearest, shown
from ..model.bits import PORTABLE
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..weights.calibration import Calibration
from ..weights.parameters import expected_shapes

if TYPE_CHECKING:
    from ..generation.prepared import PreparedModel
    from ..loading.source import Source
    from ..text.tokenizer import Tokenizer
    from ..weights.model import Model

AnyLoaded = TypeVar("AnyLoaded", bound="Loaded")


_LEFT_BY_CLOSE = ("_closed", "_configs", "_calibrations")
"""The private attributes that a closed object keeps, for `repr` and messages."""


def _advice(name: str, cls: type) -> str:
    """Return the end of a message about an attribute that a class lacks: what to use instead, or a similar name."""
    if name in ATTRIBUTES:
        return f"; {ATTRIBUTES[name]}"
    if name.startswith("_"):
        return ""
    public = [known for known in dir(cls) if not known.startswith("_")]
    return f"{nearest(name, public)}; help({cls.__name__}) lists what there is"


def _load_again(cls: type[AnyLoaded], address: str, commit: str | None, kind: str, options: dict[str, Any],
                memory: str, reading: dict[str, Any]) -> AnyLoaded:
    """Load an object again, in the process that opens its pickle; the other arguments are those of `_load`.

    address, commit: the path or the name on the hub, and the commit of the name.
    """
    from ..loading.load import open_source  # here, because `import engine` shall stay light

    source = open_source(address, memory, commit)
    source.kind_given = True        # otherwise `_load` might refuse a kind that the first load has accepted
    return cls._load(source, kind, options, memory, **reading)


class _Named(type):
    """The metaclass of `Loaded`: for an unknown attribute of a class, the error says what to use instead."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise AttributeError(f"{cls.__name__!r} has no attribute {name!r}{_advice(name, cls)}")


class Loaded(metaclass=_Named):
    """A model on a backend, with its configuration and options; a pickle of it loads the model from the same path."""

    config: ModelConfig
    """The architecture; for a model that generates, that of its decoder."""
    text: TextConfig | None
    """The configuration of the tokenizer; None without one."""
    backend: str
    threads: int
    """The threads of one pass."""
    precision: str
    bits: str
    """Whose bits results have: "fastest" for those of this CPU, "portable" for those that all CPUs have in common."""
    max_batch_tokens: int
    """The most tokens that are computed together."""
    _configs: Sequence[ModelConfig]
    """The architectures of all parts, the decoder last."""
    _model: PreparedModel
    """The prepared model of all classes but `Engine`, which has plans of its own."""
    address: tuple[str, str | None] | None = None
    """The path, or the name on the hub and its commit, which load the same files again; None for a model in memory."""
    _reload: partial[Any] | None = None
    """Loads the object again in another process; None for a model in memory."""
    _calibrations: Mapping[str, Calibration] = {}
    _made_with_calibrations: tuple[str, ...] = ()
    """The lazy attributes that depend on the calibrations, which an object with another calibration makes anew."""
    _read_model: partial[Model] | None = None
    """Reads the model from its files again; None for a model in memory."""
    _own: tuple[str, ...] = ("text", "generation")
    """The attributes among `SET`, names that users of other libraries assign, that this class sets itself, once."""
    _closed = False
    """Whether `close` was called."""

    def _adopt(self, model: Any) -> None:
        """Hold a `PreparedModel`, or a `LetterModel`, and copy its configuration and options to public attributes."""
        self._model, self._configs = model, model.configs
        self.config, self.text = model.config, model.text
        self.backend, self.threads, self.precision = model.backend, model.threads, model.precision
        self.bits = model.bits
        self.max_batch_tokens = model.max_batch_tokens
        self._calibrations = {calibration.task: calibration for calibration in model.calibrations}

    @classmethod
    def _load(cls: type[AnyLoaded], source: Source, kind: str, options: dict[str, Any], memory: str,
              **reading: Any) -> AnyLoaded:
        """Return an object of this class for a model that generates. options: the arguments of its `__init__`.

        kind: "generate", "transcribe" or "rank". reading: further arguments of `load_model`, which the `load` of the
        class has, too.
        Raises `UnsupportedError` for a model of speech in place of one of texts, or the other way round.
        """
        from ..files.reading import release_freed
        from ..loading.load import load_model  # here, because `import engine` shall stay light

        if kind == "generate" and not source.kind_given:
            source.refuse_generator()
        model = load_model(source, kind=kind, precision=options["precision"], **reading)
        if kind != "rank" and model.kind != kind:
            raise source.refuse_kind(kind, model.kind)
        make: Any = cls
        loaded: AnyLoaded = make(model, **options)
        if kind == "generate" and source.longest is not None and not source.long_context:
            loaded._model.lengths.name_long_context(source.longest)
        release_freed()     # the blocks of a GGUF file became float32 arrays, which are packed now
        loaded.address = address, commit = source.address
        loaded._reload = partial(_load_again, cls, address, commit, kind, options, memory, reading)
        loaded._read_model = partial(load_model, address, kind=kind, precision=options["precision"], memory=memory,
                                     revision=commit, **reading)
        return loaded

    def close(self) -> None:
        """Free the weights and the plans; every later call raises an `EngineError`, and a second `close` does nothing.

        It does not wait. A call that runs in another thread, and an open `Stream`, go to their ends, or stop with the
        same error; the memory is free when the last of them has ended. Objects of `with_text` and `with_calibration`
        share the weights, which stay as long as one of them is open. `with` calls it at the end of the block.
        """
        if not self._closed:
            self._closed = True
            for name in [name for name in vars(self) if name.startswith("_") and name not in _LEFT_BY_CLOSE]:
                vars(self).pop(name, None)

    def __enter__(self: AnyLoaded) -> AnyLoaded:
        if self._closed:
            raise self._closed_error()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _closed_error(self) -> EngineError:
        """Return the error of every call after `close`."""
        return EngineError(f"this {type(self).__name__} is closed; load the model again, or close it after all calls")

    def to_model(self) -> Model:
        """Return the `Model` of this object, with its calibrations and text settings.

        It is read from the files again, so that the weights are those of the files, whatever the precision of this
        object is. Raises `UnsupportedError` for an object that was made from a model in memory.
        """
        if self._closed:
            raise self._closed_error()
        if self._read_model is None:
            raise UnsupportedError(f"this {type(self).__name__} was made from a model in memory, and keeps the weights "
                                   "as its kernels read them; save that model: engine.save(model, path), and first "
                                   "model.with_calibration(...) for a calibration")
        model = self._read_model()
        for calibration in self._calibrations.values():
            model = model.with_calibration(calibration)
        return model

    @renamed_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model of this object as one `.npz`, with its calibrations and text settings, as `engine.save` does.

        An existing file is replaced when the new one is complete. Raises the errors of `to_model` and `engine.save`.
        """
        from ..loading.npz_model import save  # here, because `import engine` shall stay light

        save(self.to_model(), path)

    @property
    def prepared(self) -> PreparedModel:
        """The plans, the tokenizers and the queue of a model that generates; an encoder has none."""
        return self._model

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """For each method, by name, the calibration of its scores that `engine.calibrate` made from labelled texts."""
        return dict(self._calibrations)

    @renamed_arguments
    def with_calibration(self: AnyLoaded, calibration: Calibration) -> AnyLoaded:
        """Return this object with a calibration of its model; both share the weights, and this one does not change.

        The result cannot be pickled: `save` writes its model with the calibration, which you can load.
        """
        if not isinstance(calibration, Calibration):
            raise InputError("with_calibration takes the calibration of a report of engine.calibrate, not "
                             f"{shown(calibration)}")
        calibration = calibration.checked(self._calibrated_outputs, "the calibration")
        other = type(self).__new__(type(self))              # copy.copy would load the model again, as pickle does
        kept = {name: value for name, value in vars(self).items() if name not in self._made_with_calibrations}
        vars(other).update(kept, _calibrations={**self._calibrations, calibration.task: calibration}, _reload=None)
        return other

    @property
    def calibrated_tasks(self) -> list[str]:
        """The tasks that `engine.calibrate` accepts for this model, calibrated or not; the first is its default."""
        return [*self._calibrated_outputs]

    @property
    def _calibrated_outputs(self) -> dict[str, int]:
        """The number of outputs of each task that can be calibrated."""
        return {}

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model's results (sources may have another one): encode, decode and special_tokens.

        Raises `UnsupportedError` for a model without a tokenizer.
        """
        return self._model.tokenizer(self.text)

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        """Raise `TypeError`, and say which method to call."""
        names = [cls.__name__ for cls in type(self).__mro__ if cls.__name__ in CALLED]
        raise TypeError(f"{type(self).__name__!r} object is not a function; call {CALLED[names[0]]}")

    if not TYPE_CHECKING:  # for mypy, an attribute that is not here is an error

        def __getattr__(self, name: str) -> Any:
            """Raise an error that says what to use instead of an unknown attribute, or that the object is closed."""
            if self._closed and name.startswith("_") and not name.startswith("__"):
                raise self._closed_error()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}"
                                 f"{_advice(name, type(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute once; raise `InputError` for a second time, as a change would have no effect."""
        if not name.startswith("_") and (name in vars(self) or (name in SET and name not in self._own)):
            advice = SET.get(name, f"load the model again, with {name}=... if load has it")
            raise InputError(f"{name} of a loaded {type(self).__name__} does not change; {advice}")
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        if self._closed:
            raise self._closed_error()
        if self._reload is None:
            name = type(self).__name__
            raise UnsupportedError(f"{name} is pickled as the path of its model, and this one was made from a model in "
                                   f"memory; write it with engine.save, and load the file with {name}.load")
        return self._reload, ()

    def __repr__(self) -> str:
        if self._closed:
            return f"<{type(self).__name__}: {self.config.family}, closed>"
        c, layers = self.config, " + ".join(str(config.num_layers) for config in self._configs)
        numbers = sum(int(np.prod(shape, dtype=np.int64)) for config in self._configs
                      for shape in expected_shapes(config).values())
        cache = f", cache {self._model.cache}" if c.decodes else ""
        return (f"<{type(self).__name__}: {c.family}, {layers} layers of width {c.hidden_size}, "
                f"{numbers / 1e6:.1f}M parameters; {self.backend} backend, {self.precision}{cache}, "
                f"{'portable bits, ' * (self.bits == PORTABLE)}{self.threads} "
                f"thread{'s' * (self.threads > 1)}>")
