"""`DecoderMethod`: what a model that generates does with inputs, as a value; and `PreparedWorks`, one call of it.

    inputs, options -> DecoderMethod.prepare -> works -> the queue of the model -> PreparedWorks.finish -> results

It has the name, the options and the needs of a `Method`, and `prepare` and `finish`, but no `Workload`. A decoder reads
and writes an input token by token, so each input is a work of its own in the queue of the model, and there are no
slices of tokens, batches and rows to take apart. Whoever has an owner, a priority or a deadline for a request, or wants
its tokens one by one, submits the works itself and finishes their results, as `Session` and `Stream` do.
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
    """What methods use of a model that generates: a `Generator`, or anything with these attributes."""

    @property
    def prepared(self) -> PreparedModel:
        """The model with its queue and its tokenizers, ready to compute."""

    @property
    def calibrations(self) -> dict[str, Calibration]:
        """What is known from labelled texts about the scores of each method."""

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
    """A call of a method whose arguments are checked, so that nothing but the computation is left."""

    @property
    def single(self) -> bool:
        """Whether the caller gave one input alone, whose result is returned alone."""

    def results(self, stop: Stop = NEVER) -> Iterator[Any]:
        """Yield the result of each input, in order, each as soon as it is there."""


AnyPrepared = TypeVar("AnyPrepared", bound=Prepared)


@dataclass(frozen=True)
class PreparedWorks:
    """A call of a method whose inputs are computed each by itself: a checked work for each of them."""

    queue: StepQueue
    """The queue of the model, to which the works are submitted."""
    works: Sequence[DecoderWork]
    finish: Callable[[int, Any], Any]
    """Returns the result of an input by its number, from the results of its work."""
    place: Callable[[int], str]
    """Returns what an error message calls an input, by its number."""
    single: bool
    samples: int = 1
    """How many results an input has; `finish` returns a list of them if they are several."""

    def results(self, stop: Stop = NEVER) -> Iterator[Any]:
        """Yield the result of each input, in order, each as soon as it is there."""
        # The end of the block ends the open works; an error that somebody keeps would otherwise keep them.
        with closing(Results(self.queue, self.works, stop, self.place)) as of_works:
            for i, results in enumerate(of_works):
                yield self.finish(i, results)


@dataclass(frozen=True, eq=False, repr=False)
class DecoderMethod(NamedMethod[AnyOptions], Generic[AnyOptions, AnyPrepared]):
    """What a model that generates does with inputs."""

    prepare: Callable[..., AnyPrepared]
    """Returns the call by (model, inputs of the caller, checked options, `Stop` of the call, what messages call each
    input: None to count them from 0). Raises `InputError` for a wrong input, before anything is computed, and
    `UnsupportedError` for options that the model does not have."""

    def results(self, model: Any, inputs: Any, options: AnyOptions, stop: Stop = NEVER,
                places: Sequence[str] | None = None) -> Iterator[Any]:
        """Check all inputs, and return an iterator over their results, in order, each as soon as it is there.

        The arguments are those of `prepare`.
        """
        self.needs(model)
        return self.prepare(model, inputs, options, stop, places).results(stop)

    def run(self, model: Any, inputs: Any, options: AnyOptions, stop: Stop = NEVER) -> Any:
        """Return the results of all inputs in a list, or of a single input its result alone."""
        self.needs(model)
        prepared = self.prepare(model, inputs, options, stop, None)
        results = [*prepared.results(stop)]
        return results[0] if prepared.single else results

    def read_options(self, given: Mapping[str, Any]) -> AnyOptions:
        """Return options that were given by their names, among which there may be settings of a generation.

        Raises `InputError` for a wrong value, and for another name if the method generates nothing; `prepare` raises it
        for a name that is no setting.
        """
        if not issubclass(self.options, GeneratingOptions):
            return super().read_options(given)
        known = {*self.options.__dataclass_fields__} - {"settings"}     # all other names are those of settings
        settings = {name: value for name, value in given.items() if name not in known}
        return self.options(**{name: value for name, value in given.items() if name in known}, settings=settings)
