"""Tokenize a call of a `Method`, and make its results, in steps of some milliseconds, for a server of many calls."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any, cast

from ..base.errors import UnsupportedError
from ..base.stop import NEVER, Stop
from ..encoding.call import PLAIN
from ..images import Images
from ..queues.work import Work
from ..text.cuts import Cuts, reporting
from ..text.tokens import merge_tokens
from .method import Method, check_role
from .workload import Cost, Slice, Workload

STEP_INPUTS, STEP_CHARACTERS = 128, 2**14
"""The most inputs and characters that are tokenized in one step, unless one input has more: some milliseconds."""
CHECKED = 4096
"""The most inputs that are checked in one step."""


class Tokenized:
    """A tokenized call: the sequences of all its slices, to be computed in batches with those of other calls."""

    def __init__(self, workload: Workload, parts: list[Slice], cut: list[bool]):
        """parts: all slices of the call in their order. cut: for each input, whether it was cut."""
        self.workload, self._parts, self.cut = workload, parts, cut
        self.lengths = [len(ids) for part in parts for ids in part.tokens.input_ids]
        """The number of tokens of each sequence, in the order of the slices."""

    def work(self, kind: Hashable = None) -> Work:
        """Return the work of all sequences for the queue of the model. kind: names its options, for statistics."""
        tokens = merge_tokens([(part.tokens, range(len(part.tokens.input_ids))) for part in self._parts])
        work = self.workload.computation.work(tokens, PLAIN)
        work.kind = kind
        return work

    @property
    def counts(self) -> list[int]:
        """The number of tokens of each input."""
        return [count for part in self._parts for count in part.counts]

    @property
    def bytes(self) -> int:
        """An estimate of the bytes of the tokens, the rows and the results."""
        return self.workload.cost.of(len(self.lengths), sum(self.lengths)) + sum(map(_embedded, self._parts))

    @property
    def reads_images(self) -> bool:
        """Whether the inputs are images."""
        return isinstance(self.workload.inputs, Images)

    def result(self, rows: Sequence[Any], stop: Stop = NEVER) -> Any:
        """Return the result of the call; for several slices, a generator of steps that returns it.

        rows: the row of each sequence; None for a sequence without one.
        """
        if len(self._parts) > 1:
            return self._result_in_steps(rows, stop)
        for part in self._parts:
            self._end(part, rows, stop)
        return self.workload.result()

    def _result_in_steps(self, rows: Sequence[Any], stop: Stop) -> Generator[None, None, Any]:
        """Finish one slice after the other, yield between them, and return the result of the workload."""
        first = 0
        for part in self._parts:
            if first:
                yield
            last = first + len(part.tokens.input_ids)
            self._end(part, rows[first:last], stop)
            first = last
        return self.workload.result()

    def _end(self, part: Slice, rows: Sequence[Any], stop: Stop) -> None:
        """Finish a slice. rows: of each of its sequences; None for a sequence without one."""
        numbers = [i for i, row in enumerate(rows) if row is not None]
        if numbers:
            self.workload.take(part, numbers, [rows[i] for i in numbers], stop)
        self.workload.end(part, stop)


def tokenized(method: Method[Any], model: Any, inputs: Any, given: Mapping[str, Any], truncation: bool,
              stop: Stop = NEVER) -> Generator[int, None, Tokenized]:
    """Tokenize a call in steps: yield, between steps, an estimate of the least bytes of the call; return the tokens.

    model: the argument of `Method.prepare`. inputs: a list, or for `rank` a query and a list. given: options by their
    names, and "role" ("query" or "document") for a method that has roles, which chooses the prompt and the encoder.
    truncation: whether long texts are cut; otherwise they raise `TextTooLong`. Raises the errors of the method and of
    `stop`.
    """
    options = dict(given)
    if method.with_role is not None and "role" in options:
        role = check_role("role", options.pop("role"))
        model, options = method.with_role(model, role, options, inputs)
    checked_options = method.read_options(options)
    if isinstance(inputs, Images):
        if method.prepare_images is None:
            raise UnsupportedError(f"{method.name} reads texts, and no images")
        return (yield from _tokens_of(method.prepare_images(model, inputs, checked_options), truncation, stop))
    method.needs(model)
    items, check, argument_of = method.listed(inputs, checked_options)
    checked: list[Any] = []
    for first in range(0, len(items), CHECKED):
        if len(items) > CHECKED:
            yield Cost().of(len(items), len(items))     # an input has at least one token
        checked += [check(i, item) for i, item in enumerate(items[first : first + CHECKED], first)]
    workload = method.prepare(model, argument_of(checked), checked_options)
    return (yield from _tokens_of(workload, truncation, stop))


def _tokens_of(workload: Workload, truncation: bool, stop: Stop) -> Generator[int, None, Tokenized]:
    """Tokenize the inputs of a workload, one slice a step, and return the tokens.

    Before each slice it yields an estimate of the least bytes of the call, from the tokens so far and the least number
    of tokens that the other inputs can have; where a method counts the tokens of a slice before it makes them, also
    after each count. So the caller can refuse a call before its memory is taken.
    """
    inputs, parts = len(workload.inputs), cast(list[Slice], [])
    marks: list[bool] = []      # for each input, whether it was cut; empty for images, which are never cut
    cuts = Cuts(truncation, marks=marks)
    least = workload.least(stop)        # the least number of tokens of an input
    made = embedded = 0         # sums over the slices so far: tokens, and bytes of the vectors of images

    def least_bytes(here: int) -> int:
        """Return the least bytes of the call, if the present slice has `here` tokens."""
        tokens = made + here + least * (inputs - places.stop)
        return embedded + max(passing, workload.cost.of(workload.sequences * inputs, tokens))

    for places in workload.parts(STEP_INPUTS, STEP_CHARACTERS):
        passing = workload.passing(places)
        yield least_bytes(least * len(places))
        for here in workload.token_sums(places, stop):
            yield least_bytes(here)
        with reporting(cuts):
            part = workload.slice(places, stop)
        parts.append(part)
        made += sum(part.counts)
        embedded += _embedded(part)
    return Tokenized(workload, parts, marks or [False] * inputs)


def _embedded(part: Slice) -> int:
    """Return the bytes of the vectors that stand for the tokens of images in a slice; 0 for texts."""
    return sum(vectors.nbytes for vectors in part.tokens.embeds or ())
