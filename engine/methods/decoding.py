"""`DecoderMethod`: a method of a model that generates, as an object; and `PreparedWorks`, one call of it.

    inputs, options -> DecoderMethod.prepare -> works -> the queue of the model -> PreparedWorks.finish -> results

It has the name, the options and the needs of a `Method`, and `prepare` and `finish`, but no `Workload`. A decoder reads
and writes an input token by token, so each input is a work of its own in the queue of the model, without slices of
tokens, batches and rows. `Session` and `Stream`, whose requests have an owner, a priority or a deadline, or are read
token by token, submit the works themselves, and then call `finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..base.options import Options
from ..base.stop import NEVER, Stop
from ..generation.calls import Results
from ..generation.prepared import PreparedModel
from ..generation.step_queue import StepQueue
from ..generation.works import DecoderWork
from ..weights.calibration import Calibration
from .method import AnyOptions, NamedMethod


class GeneratingModel(Protocol):
    """The attributes of a model that these methods use: a `Generator`, or any object that has them."""

    @property
    def prepared(self) -> PreparedModel:
        """The model with its queue and its tokenizers, ready to compute."""

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """For each method, by name, the calibration of its scores on labelled texts."""

    @property
    def language_ids(self) -> dict[str, int]:
        """The ids of the tokens of languages, by their codes; empty for a model without them."""


@dataclass(frozen=True, kw_only=True)
class GeneratingOptions(Options):
    """The options of a method that generates tokens."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `GenerationConfig` in place of the model's own settings. `settings_of_call` checks them, because a
    setting that is not given has the value of the model's files."""


class Prepared(Protocol):
    """A call of a method whose arguments have been checked, so that only the computation remains."""

    @property
    def single(self) -> bool:
        """Whether the caller gave one input, not a list, and so gets one result, not a list."""

    def results(self, stop: Stop = NEVER) -> Iterator[Any]:
        """Yield the result of each input, in their order, each as soon as it is computed."""


AnyPrepared = TypeVar("AnyPrepared", bound=Prepared)


@dataclass(frozen=True)
class PreparedWorks:
    """A call with one checked work for each input, which the caller submits, or `results` does."""

    queue: StepQueue
    """The queue of the model, to which the works are submitted."""
    works: Sequence[DecoderWork]
    finish: Callable[[int, Any], Any]
    """Makes the result of an input, from its number and the results of its work."""
    place: Callable[[int], str]
    """Returns the name of an input in error messages, by its number."""
    single: bool
    samples: int = 1
    """How many results an input has; `finish` returns a list of them if they are several."""

    def results(self, stop: Stop = NEVER) -> Iterator[Any]:
        """Submit all works, and yield the result of each input, in their order, each as soon as it is computed."""
        # The block cancels open works at an error, even if the caller keeps the error and so this frame.
        with closing(Results(self.queue, self.works, stop, self.place)) as results_of_works:
            for i, results in enumerate(results_of_works):
                yield self.finish(i, results)


@dataclass(frozen=True, eq=False, repr=False)
class DecoderMethod(NamedMethod[AnyOptions], Generic[AnyOptions, AnyPrepared]):
    """A method of a model that generates."""

    prepare: Callable[..., AnyPrepared]
    """Returns the call for (model, inputs of the caller, checked options, `Stop` of the call, names of the inputs in
    messages, or None to count them from 0). Raises `InputError` for a wrong input, before anything is computed, and
    `UnsupportedError` for options that the model does not have."""

    def results(self, model: Any, inputs: Any, options: AnyOptions, stop: Stop = NEVER,
                places: Sequence[str] | None = None) -> Iterator[Any]:
        """Check all inputs now, and return an iterator over their results, in order, each as soon as it is computed.

        The arguments are those of `prepare`.
        """
        self.needs(model)
        return self.prepare(model, inputs, options, stop, places).results(stop)

    def run(self, model: Any, inputs: Any, options: AnyOptions, stop: Stop = NEVER) -> Any:
        """Return a list of the results of all inputs, or for one input its result."""
        self.needs(model)
        prepared = self.prepare(model, inputs, options, stop, None)     # None: messages count the inputs from 0
        results = [*prepared.results(stop)]
        return results[0] if prepared.single else results

    def read_options(self, given: Mapping[str, Any]) -> AnyOptions:
        """Return the checked options for a dictionary of options and settings of a generation by their names.

        Raises `InputError` for a wrong value, and for another name if the method generates nothing; `prepare` raises it
        for a name that is no setting.
        """
        if not issubclass(self.options, GeneratingOptions):
            return super().read_options(given)
        known = {*self.options.__dataclass_fields__} - {"settings"}     # all other names are those of settings
        settings = {name: value for name, value in given.items() if name not in known}
        return self.options(**{name: value for name, value in given.items() if name in known}, settings=settings)
