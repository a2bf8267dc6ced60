"""`Method`: what a model does with inputs, as a value: what it needs of the model, its options, and how it computes.

    inputs, options -> Method.prepare -> Workload: slices of tokens -> Computation -> rows -> results

`Engine` runs a method to its end with `run`. Whoever computes the calls of several callers together takes the same
steps apart: `tokenized`, and then `Workload.take`, `end` and `result`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ..base.arguments import is_one_of, refuse_unknown
from ..base.errors import InputError, shown
from ..base.options import Options
from ..encoding.image_encoder import ImageEncoder
from ..encoding.text_encoder import ROLE_PROMPTS, TextEncoder, role_prompt
from ..heads.runner import HeadRunner
from ..images import Images
from ..model.text_config import TextConfig
from ..text.sentences import check_sentence
from ..weights.calibration import Calibration
from .workload import Workload


class EncodingModel(Protocol):
    """What methods use of a model: an `Engine`, or anything with these attributes."""

    text: TextConfig | None
    """How it reads texts; None without a tokenizer."""

    @property
    def heads(self) -> dict[str, Any]:
        """The heads of the model, by the method that runs each."""

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """What is known from labelled texts about the scores of each method."""

    @property
    def text_encoder(self) -> TextEncoder:
        """What computes vectors of texts."""

    @property
    def reads_images(self) -> bool:
        """Whether it takes images."""

    @property
    def image_encoder(self) -> ImageEncoder:
        """What computes vectors of images; raises `UnsupportedError` for a model of texts alone."""

    @property
    def sparse_runner(self) -> HeadRunner:
        """What runs the head of sparse vectors."""

    def runner_of(self, task: str, use: str = "") -> HeadRunner:
        """Return what runs the head of a task; raises `UnsupportedError` for a model without it. use: for messages."""


class Listed(NamedTuple):
    """The inputs of a method, one by one, for a caller that checks some of them at a time."""

    items: Sequence[Any]
    check: Callable[[int, Any], Any]
    """Returns an input as it is prepared, by its number; raises `InputError`."""
    whole: Callable[[list[Any]], Any] = lambda checked: checked
    """Returns what `Method.prepare` takes, by all inputs."""


def listed(inputs: Any) -> Sequence[Any]:
    """Return inputs that are a list; raises `InputError`, also for a text, whose items are its letters."""
    if not isinstance(inputs, (list, tuple)):
        raise InputError(f"inputs must be a list, not {type(inputs).__name__} {shown(inputs, 60)}")
    return inputs


def listed_sentences(inputs: Any, options: Any = None) -> Listed:
    """Return a list of texts or pairs of texts."""
    return Listed(listed(inputs), lambda i, given: check_sentence(i, given, "inputs"))


def listed_texts(inputs: Any, options: Any = None) -> Listed:
    """Return a list of texts."""
    return Listed(listed(inputs), lambda i, given: check_sentence(i, given, "inputs", pairs=False))


def check_role(name: str, value: Any) -> str | None:
    """Return the role of texts, "query", "document" or None; raises `InputError`."""
    if value is not None and not is_one_of(value, ROLE_PROMPTS):
        raise InputError(f'{name} must be "query", "document" or None, not {shown(value)}')
    return value


def with_role_prompt(text: TextConfig, role: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with the prompt of a role, "query" or "document", unless they name a prompt."""
    if options.get("prompt") is not None or options.get("prompt_name") is not None:
        return options
    return options | {"prompt": role_prompt(text, ROLE_PROMPTS[role])}


AnyOptions = TypeVar("AnyOptions", bound=Options)


@dataclass(frozen=True, eq=False, repr=False)
class NamedMethod(Generic[AnyOptions]):
    """What a model does with inputs: its name, its options, and what it needs of the model."""

    name: str
    """The name of the method of `Engine`, `Reranker`, `Generator` or `Transcriber` that runs it."""
    options: type[AnyOptions]
    needs: Callable[[Any], object]
    """Raises `UnsupportedError` for a model that lacks what the method needs; it gets an `EncodingModel`, or for the
    methods of other classes a model of their protocols."""

    def __repr__(self) -> str:
        return f"<Method {self.name}: {', '.join(one.name for one in fields(self.options)) or 'no options'}>"

    def read_options(self, given: Mapping[str, Any]) -> AnyOptions:
        """Return options that were given by their names; raises `InputError` for another name or a wrong value."""
        refuse_unknown(self.name, given, [*self.options.__dataclass_fields__])
        return self.options(**given)


@dataclass(frozen=True, eq=False, repr=False)
class Method(NamedMethod[AnyOptions]):
    """What a model that computes sequences whole does with inputs."""

    read: Callable[[Any, AnyOptions], tuple[Any, bool]]
    """Returns the inputs as they are prepared, and whether the caller gave one alone, whose result is returned alone.

    Raises `InputError`.
    """
    prepare: Callable[[Any, Any, AnyOptions], Workload]
    """Returns the work for inputs of `read`. Raises `InputError`, and `UnsupportedError` for options that the model
    does not have."""
    listed: Callable[[Any, AnyOptions], Listed] = listed_sentences
    """Returns a list of inputs, one by one; raises `InputError` for what is no list."""
    with_role: Callable[[Any, Any, dict[str, Any], Any], tuple[Any, dict[str, Any]]] | None = None
    """Gets a model, the role of texts, "query" or "document", options by their names, and inputs; returns the model and
    the options for the role. None for a method whose texts have no roles."""
    streamed: str = ""
    """The kind of result of `Engine.encode_stream` and of the command `engine embed`; "" if these do not have it."""
    columns: Callable[[Any], dict[str, Any]] | None = None
    """Returns the columns of streamed results, as arrays of Arrow."""
    prepare_images: Callable[[Any, Images, AnyOptions], Workload] | None = None
    """Returns the work for images, as `prepare` does for texts; None for a method of texts alone."""
