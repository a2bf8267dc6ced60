"""A model in memory: its encoder, its decoder, and how it generates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown
from ..model.config import ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.head import WIDE_ROWS
from ..model.image_config import ImageConfig
from ..model.precision import FORMATS, LOADABLE, canonical_name, stored_format
from ..model.text_config import TextConfig
from .attention_pooling import AttentionPooling
from .bfloat16 import widened
from .calibration import Calibration, check_calibrations, outputs_of
from .head import Head, check_heads, tasks_of
from .input_layers import Frames, Patches, Stem
from .modules import SENTENCE, TOKENS, Module, check_modules
from .packed import PACKED_PREFIX, PackedFormat
from .parameters import check, matrices, precision_of

IMAGE = "image"
"""The task of `load_model` that reads only the encoder of images of a model that also has an encoder of texts."""


@dataclass(frozen=True, eq=False)
class Transformer:
    """An encoder or a decoder, and everything needed to run it."""

    config: ModelConfig
    weights: Mapping[str, np.ndarray]
    """Arrays by name; `expected_shapes` states their names and shapes."""
    text: TextConfig | None = None
    """The text settings with the tokenizer; None without a tokenizer, so that it runs on token ids alone."""
    modules: tuple[Module, ...] = ()
    """The modules that change a sentence's vector, after pooling and before `text.normalize`."""
    token_modules: tuple[Module, ...] = ()
    """The modules that change the vectors of tokens, before pooling."""
    stem: Stem | None = None
    """The input layer, which turns images or audio into token vectors; None if the encoder reads texts."""
    images: ImageConfig | None = None
    """How an image becomes the pixels of the input layer; None if files do not state it, or without such a layer."""
    pooling: AttentionPooling | None = None
    """The head that pools an image's vectors; None if the class token's vector is used, and for a model of texts."""
    layout: PackedFormat | None = None
    """The layout of linear maps that are packed for some CPUs (`engine.weights.packed`); None if they are not."""
    heads: tuple[Head, ...] = ()
    """The task heads after the encoder, such as a classifier; at most one of each task."""
    calibrations: tuple[Calibration, ...] = ()
    """Calibrations of the scores of the heads, or of a decoder; at most one for each task."""

    _checked: bool = field(default=False, init=False, repr=False)
    """Whether the numbers of the weights have been checked. `replace` returns an object that has not been checked."""

    def __repr__(self) -> str:
        """Return the family, the size and the number of arrays."""
        c = self.config
        return (f"<Transformer: {c.family}, {c.num_layers} layers of width {c.hidden_size}, "
                f"{len(self.weights)} arrays, {'a' if self.text else 'no'} tokenizer>")

    def checked(self, source: str = "the model") -> Transformer:
        """Return this with contiguous, aligned weights; raises `WeightsError` unless they fit the configuration.

        source: the beginning of the message. The numbers are checked once. Names, shapes and dtypes are checked at
        every call, because the weights may be a dictionary that somebody changes.
        """
        self.check_types(source)
        check(self.config, self.weights, source, numbers=not self._checked, layout=self.layout)
        if not self._checked:
            self.check_modules(source)
        heads = self.heads if self._checked else check_heads(self.heads, self.config, source)
        calibrations = self.check_calibrations(source)
        weights = {name: np.require(np.asarray(array), requirements=["C", "A"]) for name, array in self.weights.items()}
        before = (*self.weights.values(), *self.heads, *self.calibrations)
        after = (*weights.values(), *heads, *calibrations)
        same = all(new is old for new, old in zip(after, before, strict=True))      # nothing had to be converted
        transformer = self if same else replace(self, weights=weights, heads=heads, calibrations=calibrations)
        object.__setattr__(transformer, "_checked", True)       # the class is frozen
        return transformer

    def check_types(self, source: str) -> None:
        """Raise `WeightsError` unless everything but the arrays has its type."""
        if type(self.config) is not ModelConfig or not isinstance(self.text, TextConfig | None):
            raise WeightsError(f"{source}: config must be a ModelConfig, and text a TextConfig or None")
        if not isinstance(self.weights, Mapping) or not isinstance(self.layout, PackedFormat | None):
            raise WeightsError(f"{source}: weights must map names to arrays, and layout be a PackedFormat or None")
        if not isinstance(self.stem, Stem | None) or (
                self.stem is not None and self.stem.weight.shape[0] != self.config.hidden_size):
            raise WeightsError(f"{source}: stem must be None, or make token vectors of width {self.config.hidden_size}")
        if type(self.images) not in (ImageConfig, type(None)) or (
                self.images is not None and not isinstance(self.stem, Patches)):
            raise WeightsError(f"{source}: images must be None, or an ImageConfig beside a stem that reads images")
        if type(self.pooling) not in (AttentionPooling, type(None)):
            raise WeightsError(f"{source}: pooling must be None or an AttentionPooling, not {shown(self.pooling)}")
        if self.pooling is not None:
            self.pooling.check(self.config.hidden_size, source)
        wide = [head.config.rows for head in self.heads if isinstance(head, Head) and head.config.rows in WIDE_ROWS]
        if wide and not (isinstance(self.stem, Patches) and (wide[0] != "first_two" or self.stem.first_count > 1)):
            raise WeightsError(f"{source}: a head of rows {wide[0]} needs a stem that reads images"
                               f"{', with two first tokens' if wide[0] == 'first_two' else ''}")

    def check_modules(self, source: str) -> None:
        """Raise `WeightsError` unless the modules fit the encoder and each other."""
        if self.text is None:
            check_modules(self.modules, self.config.hidden_size, SENTENCE, source)      # an encoder of images
            return
        width = check_modules(self.token_modules, self.config.hidden_size, TOKENS, source)
        check_modules(self.modules, len(self.text.pooling) * width, SENTENCE, source)

    def check_calibrations(self, source: str) -> tuple[Calibration, ...]:
        """Return the calibrations, checked; raises `WeightsError` unless they fit the heads, or the decoder."""
        if not self.calibrations:
            return self.calibrations
        outputs = outputs_of([head.config for head in self.heads], self.config.vocab_size if self.config.decodes else 0)
        return check_calibrations(self.calibrations, outputs, source)

    @property
    def precision(self) -> str:
        """Return the coarsest integer format that a linear weight is in; "float32" if none is (also for bfloat16).

        Packed weights have the precision that they were packed for.
        """
        return precision_of(self.config, self.weights) if self.layout is None else self.layout.precision

    def precision_for(self, asked: str | None) -> str:
        """Return the engine's name of the precision `asked`, which may be an alias; for None, the weights' precision.

        Raises `UnsupportedError` for a precision that the weights cannot have, such as float32 for int8 weights, and
        `InputError` for anything but a string or None.
        """
        if asked is None:
            return self.precision
        if not isinstance(asked, str):
            raise InputError(f"precision must be None or one of {', '.join(LOADABLE)}, not {shown(asked)}")
        asked = canonical_name(asked)
        if self.layout is not None and stored_format(asked) != self.precision:
            raise UnsupportedError(f"the file is packed for precision {self.precision!r}, not {shown(asked)}; load the "
                                   "original model")
        if FORMATS[self.precision].scales and asked != self.precision:
            raise UnsupportedError(f"the weights are in {self.precision} and do not give precision {shown(asked)}; "
                                   "convert or load the original model")
        if asked in FORMATS and not FORMATS[asked].rounded and asked != self.precision:
            raise UnsupportedError(f"precision {asked!r} is for GGUF files whose weights are in it, and these are in "
                                   f"{self.precision}; int4 is as small and more exact")
        return asked

    def with_wide_vectors(self) -> Transformer:
        """Return this with every bfloat16 or float16 vector in float32; matrices stay, as backends widen these."""
        matrix_names = set(matrices(self.config))
        narrow = {name: array for name, array in self.weights.items() if name not in matrix_names
                  and not name.startswith(PACKED_PREFIX) and array.dtype in (np.uint16, np.float16)}
        return replace(self, weights=dict(self.weights) | {name: widened(array) for name, array in narrow.items()})


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A model in memory, with any of: an encoder, encoders by task, an encoder of images, a decoder with its encoder.

    A decoder with `logits_size` gives the vectors that the encoder's heads read; it reads the text of the encoder, one
    token later, from `generation.decoder_start_token_id` on.

    `encoder.text` and `decoder.text` are the tokenizers of the two sides; a model with one tokenizer has it in both.
    """

    encoder: Transformer | None = None
    decoder: Transformer | None = None
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    """The settings with which the decoder generates unless a call has its own."""
    routes: Mapping[str, Transformer] = field(default_factory=dict)
    """The encoder of each task, such as "query" and "document"; empty for a model with one encoder. With routes,
    `encoder` is the one that runs where a call names no task; None if a call must name one."""
    images: Transformer | None = None
    """The encoder of images beside `encoder`, which reads texts; None where `encoder` is the only one."""

    def __repr__(self) -> str:
        return f"<Model: {', '.join(f'{name} {part!r}' for name, part in self.parts.items())}>"

    @property
    def parts(self) -> dict[str, Transformer]:
        """Return each part of the model once, by the name "encoder", "images" or "decoder", or by a task."""
        parts: dict[str, Transformer] = {}
        for name, part in (*self.routes.items(), ("encoder", self.encoder), ("images", self.images),
                           ("decoder", self.decoder)):
            if part is not None and not any(part is other for other in parts.values()):
                parts[name] = part
        return parts

    @property
    def kind(self) -> str:
        """Return the kind of use: "transcribe" for audio, "encode" without a decoder that generates, or "generate"."""
        if self.encoder is not None and "transcribe" in tasks_of(self.encoder.heads):
            return "transcribe"
        if self.decoder is None or self.decoder.config.logits_size:
            return "encode"
        return "transcribe" if self.encoder is not None and isinstance(self.encoder.stem, Frames) else "generate"

    def checked(self, source: str = "the model") -> Model:
        """Return the model with checked parts; raises `WeightsError` unless parts and weights fit each other."""
        self.check_parts(source)
        if len(self.parts) == 1:
            return self.map(lambda part: part.checked(source))
        names = {id(part): name for name, part in self.parts.items()}
        return self.map(lambda part: part.checked(f"{source}, {names[id(part)]}"))

    def check_parts(self, source: str) -> None:
        """Raise `WeightsError` unless the parts are an encoder, a decoder or two that fit each other."""
        if not isinstance(self.routes, Mapping) or not all(isinstance(task, str) for task in self.routes):
            raise WeightsError(f"{source}: routes must map tasks to encoders, not {shown(self.routes)}")
        types = [(part, Transformer) for part in self.parts.values()] + [(self.generation, GenerationConfig)]
        wrong = [shown(value) for value, expected in types if not isinstance(value, expected)]
        if wrong or not self.parts:
            raise WeightsError(f"{source}: a Model has an encoder, a decoder or both, each a Transformer, and a "
                               f"GenerationConfig, not {listed(wrong) or 'neither of the two'}")
        for part in self.parts.values():
            part.check_types(source)
        if any(part.config.decodes for part in (self.encoder, *self.routes.values()) if part is not None):
            raise WeightsError(f"{source}: the encoder's configuration has logits, which only a decoder has")
        if self.images is not None and (self.routes or self.encoder is None or self.encoder.stem is not None
                                        or self.decoder is not None or not isinstance(self.images.stem, Patches)):
            raise WeightsError(f"{source}: images must be an encoder of images beside one encoder of texts")
        if self.decoder is None:
            return
        feeds_heads = self.decoder.config.logits_size > 0
        if self.routes or self.decoder.heads or (self.encoder is not None and self.encoder.heads and not feeds_heads):
            raise WeightsError(f"{source}: only an encoder alone has heads or routes, and this model has a decoder")
        if feeds_heads and (self.encoder is None or self.generation.decoder_start_token_id is None
                            or self.decoder.config.logits_size != self.encoder.config.hidden_size):
            raise WeightsError(f"{source}: a decoder whose vectors are for heads gives as many numbers as the "
                               "encoder's vectors have, and generation.decoder_start_token_id is its first token")
        if not self.decoder.config.decodes:
            raise WeightsError(f"{source}: the decoder's configuration has no logits, so it generates nothing")
        memory = self.decoder.config.memory_size
        width = self.encoder.config.hidden_size if self.encoder is not None else 0
        if memory != width:
            raise WeightsError(f"{source}: the decoder reads vectors of width {memory} by cross-attention, and the "
                               f"encoder gives vectors of width {width}; both must be equal, or 0 without an encoder")

    def with_calibration(self, calibration: Calibration) -> Model:
        """Return the model with a calibration, which replaces one for the same task.

        It goes to the decoder if there is one that generates, and otherwise to the encoder that runs where a call names
        no task. Raises `WeightsError` for a calibration of another model.
        """
        if not isinstance(calibration, Calibration):
            raise InputError(f"with_calibration takes the calibration of a report of engine.calibrate, not "
                             f"{shown(calibration)}")
        generating = None if self.kind == "encode" else self.decoder
        calibrated = generating or self.encoder or next(iter(self.routes.values()))
        others = tuple(one for one in calibrated.calibrations if one.task != calibration.task)
        changed = replace(calibrated, calibrations=(*others, calibration))
        changed.check_calibrations("the model to calibrate")
        return self.map(lambda part: changed if part is calibrated else part)

    def map(self, change: Callable[[Transformer], Transformer]) -> Model:
        """Return the model with the result of `change` for each part; the same object if no part changes.

        A part that stands in several places is changed once.
        """
        changed = {id(part): change(part) for part in self.parts.values()}
        if all(changed[id(part)] is part for part in self.parts.values()):
            return self
        return Model(encoder=None if self.encoder is None else changed[id(self.encoder)],
                     decoder=None if self.decoder is None else changed[id(self.decoder)], generation=self.generation,
                     images=None if self.images is None else changed[id(self.images)],
                     routes={task: changed[id(part)] for task, part in self.routes.items()})


def share_weights(one: Transformer, other: Transformer) -> bool:
    """Return whether two transformers have one configuration, and the very same arrays as weights."""
    return (one.config == other.config and one.weights.keys() == other.weights.keys()
            and all(other.weights[name] is array for name, array in one.weights.items()))
