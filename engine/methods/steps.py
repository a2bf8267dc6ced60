"""Make the tokens of a call in steps of some milliseconds, and its results, for those who run many calls in turns."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any

from ..base.arguments import is_one_of
from ..base.errors import InputError, UnsupportedError, shown
from ..base.stop import NEVER, Stop
from ..encoding.call import PLAIN
from ..encoding.text_encoder import ROLE_PROMPTS
from ..images import Images
from ..queues.work import Work
from ..text.cuts import Cuts, reporting
from ..text.tokens import merge_tokens
from .method import Method
from .workload import Cost, Slice, Workload

STEP_INPUTS, STEP_CHARACTERS = 128, 2**14
"""The most inputs, and characters unless one input has more, that are tokenized in one step: some milliseconds."""
CHECKED = 4096
"""The most inputs that are checked in one step."""


class Tokenized:
    """A call whose inputs are tokens: the sequences of all its slices, which are computed in any company."""

    def __init__(self, workload: Workload, parts: list[Slice], cut: list[bool]):
        """cut: whether each input was cut."""
        self.workload, self._parts, self.cut = workload, parts, cut
        self.lengths = [len(ids) for part in parts for ids in part.tokens.input_ids]
        """The tokens of each sequence."""

    def work(self, kind: Hashable = None) -> Work:
        """Return the work of all sequences for the queue of the model. kind: by which statistics tell works apart."""
        tokens = merge_tokens([(part.tokens, range(len(part.tokens.input_ids))) for part in self._parts])
        work = self.workload.computation.work(tokens, PLAIN)
        work.kind = kind
        return work

    @property
    def counts(self) -> list[int]:
        """The tokens of each input."""
        return [count for part in self._parts for count in part.counts]

    @property
    def bytes(self) -> int:
        """About how much memory the tokens, the rows and the results take."""
        return self.workload.cost.of(len(self.lengths), sum(self.lengths)) + sum(map(_embedded, self._parts))

    @property
    def reads_images(self) -> bool:
        """Whether the inputs are images."""
        return isinstance(self.workload.inputs, Images)

    def result(self, rows: Sequence[Any], stop: Stop = NEVER) -> Any:
        """Return the result of the call by the row of each sequence, None for none; or the steps that make it, if many.
        """
        if len(self._parts) > 1:
            return self._result_in_steps(rows, stop)
        for part in self._parts:
            self._end(part, rows, stop)
        return self.workload.result()

    def _result_in_steps(self, rows: Sequence[Any], stop: Stop) -> Generator[None, None, Any]:
        """Finish the rows of one slice after the other, and yield between them; return the result of the workload."""
        first = 0
        for part in self._parts:
            if first:
                yield
            last = first + len(part.tokens.input_ids)
            self._end(part, rows[first:last], stop)
            first = last
        return self.workload.result()

    def _end(self, part: Slice, rows: Sequence[Any], stop: Stop) -> None:
        """Make the results of a slice by the row of each sequence."""
        numbers = [i for i, row in enumerate(rows) if row is not None]
        if numbers:
            self.workload.take(part, numbers, [rows[i] for i in numbers], stop)
        self.workload.end(part, stop)


def tokenized(method: Method[Any], model: Any, inputs: Any, given: Mapping[str, Any], truncation: bool,
              stop: Stop = NEVER) -> Generator[int, None, Tokenized]:
    """Return a call as tokens, in steps, each of which yields about how many bytes the call takes at least.

    model: an object of `Method.prepare`. inputs: a list, or for `rank` a query and a list. given: options by their
    names, and the role of texts, "query" or "document", for a method that has roles; the model then chooses the prompt,
    and its encoder. truncation: whether long texts are cut, else they raise `TextTooLong`. Raises the errors of the
    method, and what `stop` raises.
    """
    options = dict(given)
    if method.with_role is not None and "role" in options:
        role = options.pop("role")
        if role is not None and not is_one_of(role, ROLE_PROMPTS):
            raise InputError(f'role must be "query", "document" or None, not {shown(role)}')
        model, options = method.with_role(model, role, options, inputs)
    checked_options = method.read_options(options)
    if isinstance(inputs, Images):
        if method.prepare_images is None:
            raise UnsupportedError(f"{method.name} reads texts, and no images")
        return (yield from _tokens_of(method.prepare_images(model, inputs, checked_options), truncation, stop))
    method.needs(model)
    items, check, whole = method.listed(inputs, checked_options)
    checked: list[Any] = []
    for first in range(0, len(items), CHECKED):
        if len(items) > CHECKED:
            yield Cost().of(len(items), len(items))     # an input has at least one token
        checked += [check(i, one) for i, one in enumerate(items[first : first + CHECKED], first)]
    workload = method.prepare(model, whole(checked), checked_options)
    return (yield from _tokens_of(workload, truncation, stop))


def _tokens_of(workload: Workload, truncation: bool, stop: Stop) -> Generator[int, None, Tokenized]:
    parts: list[Slice] = []
    marks: list[bool] = []
    cuts, inputs, tokens, embedded = Cuts(truncation, marks=marks), len(workload.inputs), 0, 0
    count = workload.sequences * inputs
    least = workload.least(stop)        # of each input
    for places in workload.parts(STEP_INPUTS, STEP_CHARACTERS):
        rest, passing = least * (inputs - places.stop), workload.passing(places)
        yield embedded + max(passing, workload.cost.of(count, tokens + least * len(places) + rest))
        for here in workload.token_sums(places, stop):
            yield max(passing, workload.cost.of(count, tokens + here + rest))
        with reporting(cuts):
            part = workload.slice(places, stop)
        parts.append(part)
        tokens, embedded = tokens + sum(part.counts), embedded + _embedded(part)
    return Tokenized(workload, parts, marks or [False] * inputs)


def _embedded(part: Slice) -> int:
    """Return how many bytes the vectors of the tokens of images take."""
    return sum(vectors.nbytes for vectors in part.tokens.embeds or ())
