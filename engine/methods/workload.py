"""`Workload`: one call of a `Method`: its inputs as slices of tokens, their computation, and the result.

`run.py` computes a workload at once, and `steps.py` does it in steps; each method has its own subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..base.stop import NEVER, Stop
from ..encoding.call import PLAIN, Call
from ..encoding.vector_encoder import VectorEncoder
from ..heads.runner import HeadRunner
from ..images import Images
from ..queues.model_queue import ModelQueue
from ..queues.work import Work
from ..text.sentences import slices
from ..text.tokens import Places, Tokens, tokens_of_windows


class Computing(Protocol):
    """Turns sequences of tokens into rows of results: at once by `rows`, or as a work for a queue by `work`."""

    def rows(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[Sequence[int], Any]]:
        """Compute sequences; yield (numbers, rows in a list or an array) in any order; a sequence may have no row."""

    def work(self, tokens: Tokens, call: Call) -> Work:
        """Return the work of all sequences; it gives None as the row of a sequence that has none."""


class Computation(NamedTuple):
    """Turns sequences of tokens into rows by the queue of a model that computes whole sequences.

    The queue computes sequences of several calls together if their works have equal jobs; no bit depends on it.
    """

    queue: ModelQueue
    work: Callable[[Tokens, Call], Work]
    """Returns the work of some sequences of a call, which gives None as the row of a sequence that has none."""

    def rows(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[Sequence[int], Any]]:
        """Compute sequences; yield (numbers, rows in a list or an array) for each batch; a sequence may have no row."""
        for numbers, rows in self.queue.rows(self.work(tokens, call), call.stop):
            if isinstance(rows, list) and any(row is None for row in rows):
                kept = [i for i, row in enumerate(rows) if row is not None]
                numbers, rows = [numbers[i] for i in kept], [rows[i] for i in kept]
            yield numbers, rows
        tokens.report()     # of cuts, for a warning or a count


def sentence_vectors(encoder: VectorEncoder) -> Computation:
    """Return the computation of a vector for each sequence: float32 [whole_width]."""
    return Computation(encoder.queue, encoder.sentence_vectors)


def token_vectors(encoder: VectorEncoder) -> Computation:
    """Return the computation of the vectors of the tokens of each sequence: float32 [T, D]."""
    return Computation(encoder.queue, encoder.token_vectors)


def head_logits(runner: HeadRunner) -> Computation:
    """Return the computation of a head's logits: float32 [rows, outputs] a sequence; one without tokens has no row."""
    return Computation(runner.vector_encoder.queue, runner.logits)


@dataclass(eq=False)
class Slice:
    """Consecutive inputs of a call that were tokenized at one time: their tokens, and their rows until its end."""

    places: range
    """The places of the inputs in the call."""
    tokens: Tokens
    """The tokens of all sequences: first those of the first input, then those of the second, and so on."""
    windows: Sequence[Sequence[Places]] | None = None
    """The windows of each input, for a method that reads texts in windows."""
    rows: list[Any] = field(default_factory=list)
    """The rows of the sequences, for a method that needs all rows of an input at once; None for one without a row."""
    sequences: Sequence[int] | None = None
    """The number of sequences of each input; None if each input is one sequence."""

    @classmethod
    def of_windows(cls, places: range, windows: Sequence[Sequence[Places]]) -> Slice:
        """Return a slice of inputs that are read in windows."""
        tokens = tokens_of_windows(windows)
        return cls(places, tokens, windows, rows=[None] * len(tokens.input_ids), sequences=[*map(len, windows)])

    @property
    def counts(self) -> list[int]:
        """The number of tokens of each input, in all its sequences."""
        return [*map(sum, self._of_inputs([len(ids) for ids in self.tokens.input_ids]))]

    def rows_of_inputs(self) -> Iterator[list[Any]]:
        """Yield, for each input, the list of the rows of its sequences."""
        return self._of_inputs(self.rows)

    def _of_inputs(self, of_sequences: list[Any]) -> Iterator[list[Any]]:
        """Yield, for each input, the items of its sequences. of_sequences: an item for each sequence."""
        first = 0
        for count in [1] * len(self.places) if self.sequences is None else self.sequences:
            yield of_sequences[first : first + count]
            first += count


class Cost(NamedTuple):
    """Estimates of the bytes of a method's rows, and of the results that are made of them, as objects and as JSON."""

    sequence: int = 0
    """Bytes for each sequence."""
    token: int = 0
    """Bytes for each token of a sequence."""

    def of(self, sequences: int, tokens: int) -> int:
        """Return an estimate of the bytes of a call. tokens: the sum over all sequences."""
        ids_and_type = 4 + 4     # int32
        return sequences * (_SEQUENCE_BYTES + self.sequence) + tokens * (ids_and_type + self.token)


_SEQUENCE_BYTES = 800
"""Estimated bytes of a sequence beside its tokens and results: three arrays, and places in lists."""
NUMBER_BYTES = 24
"""Estimated bytes of a number of a vector: in its row, among all rows, as a function changes it, and in JSON."""
DICTIONARY_BYTES = 400
"""Estimated bytes of a dictionary for a label, a rank or a tag, with its values, and as JSON."""


class Workload:
    """One call of a method: its inputs as slices of tokens, their computation, and the results made of the rows.

    For each range of `parts`: `slice` makes the tokens, `take` gets the rows of all sequences, in any order and in one
    call or several, and then `end` is called. When all slices have ended, `result` returns the result of the call.
    """

    sequences = 1
    """The least number of sequences of an input."""

    def __init__(self, computation: Computing, inputs: Sequence[Any],
                 tokenize: Callable[[Any, Stop], Tokens] | None = None, results: Any = None, *, cost: Cost):
        """inputs: the texts, with prompts, or images. tokenize: None if a subclass has its own `slice`.

        results: a list or an array that gets the result of each input; None for a new list.
        """
        self.computation, self.inputs, self.cost, self._tokenize = computation, inputs, cost, tokenize
        self.results: Any = [None] * len(inputs) if results is None else results

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of inputs to tokenize at one time, which bounds the memory; None for the usual limits."""
        if isinstance(self.inputs, Images):
            return self.inputs.parts(most)
        return slices(self.inputs, most, most_characters)

    def reading(self) -> AbstractContextManager[None]:
        """Return a context in which threads read the files of images ahead, beside the passes of the model."""
        return self.inputs.reading.ahead(self.inputs) if isinstance(self.inputs, Images) else nullcontext()

    def least(self, stop: Stop = NEVER) -> int:
        """Return the least number of tokens of all sequences of an input together, before any input is tokenized."""
        return 1

    def token_sums(self, places: range, stop: Stop = NEVER) -> Iterator[int]:
        """Count the tokens of some inputs before `slice` makes them; yield the sum so far after each input.

        A method whose windows may have far more tokens than its texts does this, so that its caller can refuse a call
        that would take too much memory. Other methods yield nothing.
        """
        return iter(())

    def passing(self, places: range) -> int:
        """Return an estimate of the bytes that `slice` takes for some inputs only while it reads them."""
        return self.inputs.passing(places) if isinstance(self.inputs, Images) else 0

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the tokens of some inputs; tokenizers report cuts to the running call (`text/cuts.py`)."""
        assert self._tokenize is not None
        return Slice(places, self._tokenize(self.inputs[places.start : places.stop], stop))

    def beyond(self, row: Any) -> int:
        """Return the bytes of a row and its result beyond `cost`, which counts a row of the usual size."""
        return 0

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep what the result needs of the rows of some sequences. numbers: of these sequences in the slice."""
        for number, row in zip(numbers, rows, strict=True):
            self.results[part.places[number]] = row

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the results of a slice, after all its rows were taken."""

    def result(self) -> Any:
        """Return the result of the call, when all slices have ended."""
        return self.results


class Logits(Workload):
    """The workload whose results are one row of logits for each text or pair; zeros for a text without tokens."""

    def __init__(self, runner: HeadRunner, inputs: Sequence[Any],
                 tokenize: Callable[[Any, Stop], Tokens] | None = None,
                 finish: Callable[[np.ndarray], Any] = lambda logits: logits, dictionaries: int = 1):
        """tokenize: None for the tokenizer of the encoder. finish: makes the result from logits, float32 [n, outputs].

        dictionaries: the number of dictionaries in the result of an input, for its cost.
        """
        outputs = runner.config.outputs
        super().__init__(head_logits(runner), inputs,
                         tokenize or (lambda texts, stop: runner.encoder.tokens_or_unread(texts, stop=stop)),
                         results=np.zeros((len(inputs), outputs), np.float32),
                         cost=Cost(sequence=NUMBER_BYTES * outputs + DICTIONARY_BYTES * dictionaries))
        self._finish = finish

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the one row of logits of each sequence."""
        super().take(part, numbers, [row[0] for row in rows])

    def result(self) -> Any:
        """Return the result of the call from the logits of all inputs."""
        return self._finish(self.results)
