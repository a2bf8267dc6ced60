"""`Method`: a method of a model as an object: its options, what it needs of the model, and how it computes results.

    inputs, options -> Method.prepare -> Workload: slices of tokens -> Computation -> rows -> results

`Engine` runs a method to its end with `run.py`. A server, which computes calls of several callers together, does the
same steps one by one: `steps.tokenized`, and then `Workload.take`, `end` and `result`.
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
    """The attributes of a model that methods use: an `Engine`, or any object that has them."""

    text: TextConfig | None
    """The configuration of its tokenizer; None for a model that reads no texts."""

    @property
    def heads(self) -> dict[str, Any]:
        """The heads of the model, each by the name of the method that runs it."""

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """For each method, by name, the calibration of its scores on labelled texts."""

    @property
    def text_encoder(self) -> TextEncoder:
        """The encoder that computes vectors of texts."""

    @property
    def reads_images(self) -> bool:
        """Whether the model reads images."""

    @property
    def image_encoder(self) -> ImageEncoder:
        """The encoder that computes vectors of images; raises `UnsupportedError` for a model of texts alone."""

    @property
    def sparse_runner(self) -> HeadRunner:
        """The runner of the head for sparse vectors; raises `UnsupportedError` for a model without it."""

    def runner_of(self, task: str, use: str = "") -> HeadRunner:
        """Return the runner of a task's head; raises `UnsupportedError` without it. use: of the head, for messages."""


class Listed(NamedTuple):
    """The inputs of a call one by one, for a caller that checks some of them at a time."""

    items: Sequence[Any]
    check: Callable[[int, Any], Any]
    """Returns the checked input for its number and its value; raises `InputError`."""
    whole: Callable[[list[Any]], Any] = lambda checked: checked
    """Returns the argument of `Method.prepare` for the list of all checked inputs."""


def listed(inputs: Any) -> Sequence[Any]:
    """Return `inputs` if it is a list or a tuple; raises `InputError` otherwise, also for a text."""
    if not isinstance(inputs, (list, tuple)):
        raise InputError(f"inputs must be a list, not {type(inputs).__name__} {shown(inputs, 60)}")
    return inputs


def listed_sentences(inputs: Any, options: Any = None) -> Listed:
    """Return inputs that are texts or pairs of texts one by one; raises `InputError` for no list."""
    return Listed(listed(inputs), lambda i, given: check_sentence(i, given, "inputs"))


def listed_texts(inputs: Any, options: Any = None) -> Listed:
    """Return inputs that are texts one by one; raises `InputError` for no list."""
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
    """The parts that methods of all kinds of models have: a name, options, and what they need of the model."""

    name: str
    """The name of the method of `Engine`, `Reranker`, `Generator` or `Transcriber` that runs it."""
    options: type[AnyOptions]
    needs: Callable[[Any], object]
    """Raises `UnsupportedError` for a model that lacks what the method needs; it gets an `EncodingModel`, or for the
    methods of other classes a model of their protocols."""

    def __repr__(self) -> str:
        return f"<Method {self.name}: {', '.join(field.name for field in fields(self.options)) or 'no options'}>"

    def read_options(self, given: Mapping[str, Any]) -> AnyOptions:
        """Return the checked options for a dictionary by their names; raises `InputError` for a wrong name or value."""
        refuse_unknown(self.name, given, [*self.options.__dataclass_fields__])
        return self.options(**given)


@dataclass(frozen=True, eq=False, repr=False)
class Method(NamedMethod[AnyOptions]):
    """A method of a model that computes whole sequences."""

    read: Callable[[Any, AnyOptions], tuple[Any, bool]]
    """Returns (the checked inputs as a list, whether the caller gave one input and so gets one result, not a list).

    Raises `InputError`.
    """
    prepare: Callable[[Any, Any, AnyOptions], Workload]
    """Returns the workload for a model, inputs of `read` and options. Raises `InputError`, and `UnsupportedError` for
    options that the model does not have."""
    listed: Callable[[Any, AnyOptions], Listed] = listed_sentences
    """Returns the inputs one by one, as `read` and for a list alone; raises `InputError` otherwise."""
    with_role: Callable[[Any, Any, dict[str, Any], Any], tuple[Any, dict[str, Any]]] | None = None
    """Returns (the model, the options) for texts of a role, from the model, the role ("query" or "document"), options
    by their names, and inputs. None for a method whose texts have no roles."""
    streamed: str = ""
    """The name of its results in `Engine.encode_stream` and `engine embed`; "" if these do not offer the method."""
    columns: Callable[[Any], dict[str, Any]] | None = None
    """Returns the columns of streamed results by their names, as arrays of Arrow."""
    prepare_images: Callable[[Any, Images, AnyOptions], Workload] | None = None
    """Returns the workload for images, as `prepare` does for texts; None for a method of texts alone."""
