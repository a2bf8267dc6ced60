"""`Workload`: one call of a method, from the tokens of its inputs, a slice at a time, to its result."""

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
    """What turns sequences into rows, for the caller that waits for them, or as a work that others queue."""

    def rows(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield (numbers of sequences, their rows in a list or an array), as they come; a sequence may have none."""

    def work(self, tokens: Tokens, call: Call) -> Work:
        """Return the work of all sequences; the row of a sequence is None if it has none."""


class Computation(NamedTuple):
    """What turns sequences into rows in the queue of a model that computes them whole.

    Sequences of works of one job are computed together, whichever calls they are of: no bit depends on it.
    """

    queue: ModelQueue
    work: Callable[[Tokens, Call], Work]
    """Returns the work of some sequences in a call; the row of a sequence is None if it has none."""

    def rows(self, tokens: Tokens, call: Call = PLAIN) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield (numbers of sequences, their rows in a list or an array) for each batch; a sequence may have none."""
        for numbers, rows in self.queue.rows(self.work(tokens, call), call.stop):
            if isinstance(rows, list) and any(row is None for row in rows):
                kept = [i for i, row in enumerate(rows) if row is not None]
                numbers, rows = [numbers[i] for i in kept], [rows[i] for i in kept]
            yield numbers, rows
        tokens.report()


def sentence_vectors(encoder: VectorEncoder) -> Computation:
    """Return what computes the vector of each sequence, float32 [whole_width]."""
    return Computation(encoder.queue, encoder.sentence_vectors)


def token_vectors(encoder: VectorEncoder) -> Computation:
    """Return what computes the vectors of the tokens of each sequence, float32 [T, D]."""
    return Computation(encoder.queue, encoder.token_vectors)


def head_logits(runner: HeadRunner) -> Computation:
    """Return what computes the logits of each sequence, float32 [rows, outputs]; one without tokens has no row."""
    return Computation(runner.vector_encoder.queue, runner.logits)


@dataclass(eq=False)
class Slice:
    """Consecutive inputs of a call, which were tokenized at one time."""

    places: range
    """The places of the inputs in the call."""
    tokens: Tokens
    """The tokens of all sequences: those of the first input, then those of the second one, and so on."""
    windows: Sequence[Sequence[Places]] | None = None
    """The windows of each input, of a method that reads texts in windows."""
    rows: list[Any] = field(default_factory=list)
    """What is kept of each sequence until all are there; None for a sequence without a row."""
    sequences: Sequence[int] | None = None
    """How many sequences each input has; None where each is one."""

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
        """Yield the rows of the sequences of each input."""
        return self._of_inputs(self.rows)

    def _of_inputs(self, of_sequences: list[Any]) -> Iterator[list[Any]]:
        """Yield what the sequences of each input have."""
        first = 0
        for count in [1] * len(self.places) if self.sequences is None else self.sequences:
            yield of_sequences[first : first + count]
            first += count


class Cost(NamedTuple):
    """About how many bytes the rows of a method take, and the results that are made of them, as JSON too."""

    sequence: int = 0
    """For each sequence."""
    token: int = 0
    """For each token of a sequence."""

    def of(self, sequences: int, tokens: int) -> int:
        """Return about how many bytes a call takes with these numbers of sequences and of tokens in all of them."""
        ids_and_type = 4 + 4     # int32
        return sequences * (_SEQUENCE + self.sequence) + tokens * (ids_and_type + self.token)


_SEQUENCE = 800
"""About how many bytes Python takes for a sequence beside its tokens and results: three arrays, and places in lists."""
NUMBER = 24
"""About how many bytes a number of a vector takes: in a row, among all rows, as a function changes it, in JSON."""
DICTIONARY = 400
"""About how many bytes a dictionary of a label, a rank or a tag takes, with its values, and as JSON."""


class Workload:
    """One call of a method: its inputs as slices of tokens, what computes these, and what becomes of the rows.

    For each range of `parts`: `slice` makes the tokens, `take` gets the rows of all sequences, in any order and in one
    call or several, and then `end` is called. When all slices have ended, `result` returns the result of the call.
    """

    sequences = 1
    """How many sequences each input has at least."""

    def __init__(self, computation: Computing, inputs: Sequence[Any],
                 tokenize: Callable[[Any, Stop], Tokens] | None = None, results: Any = None, *, cost: Cost):
        """inputs: what is tokenized, with prompts. tokenize: None where `slice` is another one.

        results: a list or an array for the result of each input; None for a list.
        """
        self.computation, self.inputs, self.cost, self._tokenize = computation, inputs, cost, tokenize
        self.results: Any = [None] * len(inputs) if results is None else results

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of inputs to tokenize at one time, which bounds the memory; None for the usual most of each."""
        if isinstance(self.inputs, Images):
            return self.inputs.parts(most)
        return slices(self.inputs, most, most_characters)

    def reading(self) -> AbstractContextManager[None]:
        """Return a context manager in which files of images are read beside the passes, if each slice is made once."""
        return self.inputs.reading.ahead(self.inputs) if isinstance(self.inputs, Images) else nullcontext()

    def least(self, stop: Stop = NEVER) -> int:
        """Return how many tokens all sequences of an input have at least, before any input is tokenized."""
        return 1

    def token_sums(self, places: range, stop: Stop = NEVER) -> Iterator[int]:
        """Count the tokens of some inputs before `slice` makes them; yield the sum so far after each input.

        A method does it whose windows may have far more tokens than the texts, so that its caller can refuse a call
        that would take too much memory. Other methods yield nothing.
        """
        return iter(())

    def passing(self, places: range) -> int:
        """Return about how many bytes `slice` takes for these inputs only while it runs, because it reads them whole.
        """
        return self.inputs.passing(places) if isinstance(self.inputs, Images) else 0

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the tokens of some inputs. Tokenizers report cuts to the call that runs, as `text/cuts.py` says."""
        assert self._tokenize is not None
        return Slice(places, self._tokenize(self.inputs[places.start : places.stop], stop))

    def beyond(self, row: Any) -> int:
        """Return how many bytes a row and its result take beyond `cost`, which counts a row of the usual size."""
        return 0

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep what is needed of the rows of some sequences of a slice."""
        for number, row in zip(numbers, rows, strict=True):
            self.results[part.places[number]] = row

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the results of a slice, of which all rows were taken."""

    def result(self) -> Any:
        """Return the result of the call, when all slices have ended."""
        return self.results


class Logits(Workload):
    """One row of logits for each text or pair; zeros for a text without tokens."""

    def __init__(self, runner: HeadRunner, inputs: Sequence[Any],
                 tokenize: Callable[[Any, Stop], Tokens] | None = None,
                 finish: Callable[[np.ndarray], Any] = lambda logits: logits, dictionaries: int = 1):
        """tokenize: None for the tokenizer of the encoder. finish: makes the result of float32 [n, outputs].

        dictionaries: how many the result of an input has, for its cost.
        """
        outputs = runner.config.outputs
        super().__init__(head_logits(runner), inputs, tokenize or (
                lambda texts, stop: runner.encoder.unread(texts, stop=stop)),
                         np.zeros((len(inputs), outputs), np.float32),
                         cost=Cost(sequence=NUMBER * outputs + DICTIONARY * dictionaries))
        self._finish = finish

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the one row of each sequence."""
        super().take(part, numbers, [row[0] for row in rows])

    def result(self) -> Any:
        """Return what `finish` makes of the logits."""
        return self._finish(self.results)
