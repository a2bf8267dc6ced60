"""`Workload`: one call of a method, from the tokens of its inputs, a slice at a time, to its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..base.stop import NEVER, Stop
from ..encoding.call import PLAIN, Call
from ..encoding.text_encoder import TextEncoder
from ..heads.runner import HeadRunner
from ..text.sentences import slices
from ..text.tokenizer import Places, Tokens, tokens_of

Rows: TypeAlias = Iterator[tuple[Sequence[int], Any]]
"""The numbers of some sequences, and the rows of each, in a list or an array."""


@dataclass(frozen=True)
class Computation:
    """What turns sequences into rows.

    Sequences of equal computations may be computed together, whichever calls they are of: no bit depends on it.
    """

    function: Callable[[Any, Tokens, Call], Rows]
    owner: TextEncoder | HeadRunner

    @property
    def encoder(self) -> TextEncoder:
        """The encoder that reads the sequences."""
        return self.owner if isinstance(self.owner, TextEncoder) else self.owner.encoder

    def rows(self, tokens: Tokens, call: Call = PLAIN) -> Rows:
        """Yield the numbers of sequences and the rows of each, for a batch at a time; a sequence may have none."""
        return self.function(self.owner, tokens, call)


def pooled_vectors(encoder: TextEncoder) -> Computation:
    """Return what computes the pooled vector of each sequence, float32 [width]."""
    return Computation(TextEncoder.pooled, encoder)


def token_vectors(encoder: TextEncoder) -> Computation:
    """Return what computes the vectors of the tokens of each sequence, float32 [T, D]."""
    return Computation(TextEncoder.token_vectors, encoder)


def head_logits(runner: HeadRunner) -> Computation:
    """Return what computes the logits of each sequence, float32 [rows, outputs]; of one without tokens there are none.
    """
    return Computation(_logits, runner)


def _logits(runner: HeadRunner, tokens: Tokens, call: Call) -> Rows:
    return (((i,), (row,)) for i, row in runner.logits(tokens, call))


@dataclass(eq=False)
class Slice:
    """Consecutive inputs of a call, which were tokenized at one time."""

    places: range
    """The places of the inputs in the call."""
    tokens: Tokens
    """Those of each input, or of all windows of the first input, then of the second one, and so on."""
    windows: Sequence[Sequence[Places]] | None = None
    """The windows of each input; None where an input is one sequence."""
    rows: list[Any] = field(default_factory=list)
    """What is kept of each window until all are there; None for a window without a row."""

    @classmethod
    def of_windows(cls, places: range, windows: Sequence[Sequence[Places]]) -> Slice:
        """Return a slice of inputs that are read in windows."""
        tokens = tokens_of(windows)
        return cls(places, tokens, windows, [None] * len(tokens.input_ids))

    @property
    def counts(self) -> list[int]:
        """The number of tokens of each input, in all its windows."""
        if self.windows is None:
            return [len(ids) for ids in self.tokens.input_ids]
        return [sum(len(places.input_ids) for places in of_input) for of_input in self.windows]

    def rows_of_inputs(self) -> Iterator[list[Any]]:
        """Yield the rows of the windows of each input."""
        first = 0
        for of_input in self.windows or ():
            yield self.rows[first : first + len(of_input)]
            first += len(of_input)


def gathered(pieces: Iterable[tuple[Slice, Sequence[int]]]) -> Tokens:
    """Return the tokens of some sequences of some slices, which may be those of several calls, in this order."""
    pieces = list(pieces)
    ids = [part.tokens.input_ids[i] for part, numbers in pieces for i in numbers]
    types = [part.tokens.token_type_ids[i] for part, numbers in pieces for i in numbers]
    skips = reads = None
    if any(part.tokens.skips is not None for part, _ in pieces):
        skips = [0 if part.tokens.skips is None else part.tokens.skips[i] for part, numbers in pieces for i in numbers]
    if any(part.tokens.reads is not None for part, _ in pieces):
        reads = [len(part.tokens.input_ids[i]) if part.tokens.reads is None else part.tokens.reads[i]
                 for part, numbers in pieces for i in numbers]
    return Tokens(ids, types, skips, reads)


class Bound(NamedTuple):
    """How much a call computes at most, which is known before any token is made.

    A text has at most one token for each byte of UTF-8, unless a normalizer writes one character as several.
    """

    sequences: int
    tokens: int


class Workload:
    """One call of a method: its inputs as slices of tokens, what computes these, and what becomes of the rows.

    For each range of `parts`: `slice` makes the tokens, `take` gets the rows of all sequences, in any order and in one
    call or several, and then `end` is called. When all slices have ended, `result` returns the result of the call.
    """

    def __init__(self, computation: Computation, inputs: Sequence[Any],
                 tokenize: Callable[[Sequence[Any], Stop], Tokens] | None = None, results: Any = None, *,
                 bytes_of_sequence: int = 0, bytes_of_token: int = 0):
        """inputs: what is tokenized, with prompts. tokenize: None where `slice` is another one.

        results: a list or an array for the result of each input; None for a list. bytes_of_sequence, bytes_of_token:
        about how much memory the rows of a sequence take, and those of a token.
        """
        self.computation, self.inputs, self._tokenize = computation, inputs, tokenize
        self.results: Any = [None] * len(inputs) if results is None else results
        self.bytes_of_sequence, self.bytes_of_token = bytes_of_sequence, bytes_of_token

    def parts(self) -> Iterator[range]:
        """Yield ranges of inputs to tokenize at one time, which bounds the memory."""
        return slices(self.inputs)

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the tokens of some inputs. Tokenizers report cuts to the call that runs, as `text/cuts.py` says."""
        assert self._tokenize is not None
        return Slice(places, self._tokenize(self.inputs[places.start : places.stop], stop))

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep what is needed of the rows of some sequences of a slice."""
        for number, row in zip(numbers, rows, strict=True):
            self.results[part.places[number]] = row

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the results of a slice, of which all rows were taken."""

    def result(self) -> Any:
        """Return the result of the call, when all slices have ended."""
        return self.results

    def bytes_of(self, part: Slice) -> int:
        """Return about how much memory the rows of a slice take."""
        lengths = [len(ids) for ids in part.tokens.input_ids]
        return self.bytes_of_sequence * len(lengths) + self.bytes_of_token * sum(lengths)

    def bound(self) -> Bound:
        """Return how much the call computes at most."""
        limit = self.computation.encoder.tokenizer.limit
        return Bound(len(self.inputs), sum(min(limit, _most_tokens(one) + _SPECIAL) for one in self.inputs))


_SPECIAL = 4
"""How many special tokens stand around a text or a pair of texts at most."""


def _most_tokens(text: Any) -> int:
    """Return how many tokens a text, or all texts of a pair or a list, have at most, as `Bound` says."""
    if isinstance(text, str):
        return len(text) if text.isascii() else len(text.encode())
    return sum(map(_most_tokens, text))


def bound_of_windows(texts: Iterable[Any], limit: int, stride: int) -> Bound:
    """Return how many windows of at most `limit` tokens texts have at most, and how many tokens these have.

    texts: of a pair, the first text stands in each window of the second. stride: the tokens by which windows overlap.
    """
    windows = tokens = 0
    for text in texts:
        first = _most_tokens(text[0]) if isinstance(text, tuple) else 0
        size, room = _most_tokens(text) - first, limit - _SPECIAL - first
        count = 1 + max(0, -(-(size - room) // max(1, room - stride)))
        windows, tokens = windows + count, tokens + min(count * limit, size + count * (_SPECIAL + first + stride))
    return Bound(windows, tokens)


class Logits(Workload):
    """One row of logits for each text or pair; zeros for a text without tokens."""

    def __init__(self, runner: HeadRunner, inputs: Sequence[Any],
                 tokenize: Callable[[Sequence[Any], Stop], Tokens] | None = None,
                 finish: Callable[[np.ndarray], Any] = lambda logits: logits):
        """tokenize: None for the tokenizer of the encoder. finish: makes the result of float32 [n, outputs]."""
        outputs = runner.config.outputs
        super().__init__(head_logits(runner), inputs, tokenize or runner.encoder.tokenizer,
                         np.zeros((len(inputs), outputs), np.float32), bytes_of_sequence=4 * outputs)
        self._finish = finish

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the one row of each sequence."""
        for number, row in zip(numbers, rows, strict=True):
            self.results[part.places[number]] = row[0]

    def result(self) -> Any:
        """Return what `finish` makes of the logits."""
        return self._finish(self.results)


def pair_logits(runner: HeadRunner, pairs: Sequence[tuple[str, str]],
                finish: Callable[[np.ndarray], Any] = lambda logits: logits) -> Logits:
    """Return the work for the logits of pairs; a query that many pairs share is tokenized once."""
    return Logits(runner, pairs, runner.encoder.tokenizer.pairs, finish)

