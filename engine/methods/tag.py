"""`Engine.tag`: a label for each token of a text, or the entities that neighbouring labels make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..heads.runner import HeadRunner
from ..heads.tokens import Tagging, check_tagging, entities_of, first_of_words, read_words, tag_windows
from ..text.sentences import read_texts
from .method import Listed, Method, listed, listed_texts
from .workload import DICTIONARY_BYTES, NUMBER_BYTES, Cost, Slice, Workload, head_logits

_PLACE = 300
"""Estimated bytes that `Places` takes for each token: its text, and where it stands."""
_BYTE = 80
"""Estimated bytes that the package tokenizers takes for each byte of a text that it reads whole: the places of the
byte before and after each normalizer."""
_COUNTED = 2**19
"""The number of tokens of one text at which counting stops: so many need more memory than a request may have."""


@dataclass(frozen=True)
class TagOptions(Options):
    """The options of `Engine.tag` that say what is computed."""

    aggregation_strategy: str = Tagging.strategy
    ignore_labels: Collection[str] = Tagging.ignored
    stride: int | None = None
    words: str = Tagging.words
    is_split_into_words: bool = option(False, flag)

    def __post_init__(self) -> None:
        super().__post_init__()
        tagging, stride = check_tagging(self.aggregation_strategy, self.ignore_labels, self.stride, self.words)
        object.__setattr__(self, "ignore_labels", tagging.ignored)      # the checked value, in a frozen dataclass
        object.__setattr__(self, "stride", stride)

    @property
    def tagging(self) -> Tagging:
        """The options that say how entities are made from the labels of tokens."""
        return Tagging(self.aggregation_strategy, frozenset(self.ignore_labels), self.words)


class WindowedTexts(Workload, ABC):
    """The base of workloads that read texts in windows, and need the logits of all tokens of a text for its result."""

    def __init__(self, runner: HeadRunner, texts: Sequence[Any]):
        super().__init__(head_logits(runner), texts,
                         cost=Cost(token=NUMBER_BYTES * runner.config.outputs + _PLACE + DICTIONARY_BYTES))
        self._runner = runner

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the logits of each window, float32 [T, outputs], until the slice ends."""
        for number, row in zip(numbers, rows, strict=True):
            part.rows[number] = row

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the result of each text of a slice."""
        for place, result in zip(part.places, self.results_of(part, stop), strict=True):
            self.results[place] = result
        part.rows.clear()

    @abstractmethod
    def results_of(self, part: Slice, stop: Stop) -> Iterator[Any]:
        """Yield the result of each text of a slice, from the logits of its windows."""


class _Tags(WindowedTexts):
    """The workload whose results are the tags or the entities of each text, or of each list of words."""

    def __init__(self, runner: HeadRunner, texts: Sequence[Any], options: TagOptions):
        super().__init__(runner, texts)
        self._options, self._tagging = options, options.tagging

    def passing(self, places: range) -> int:
        """Return an estimate of the bytes to read the longest of some texts whole, even if it has few tokens."""
        if self._options.stride is None:
            return 0        # a text that has one window is cut before it is read
        return _BYTE * max(_bytes_of(text) for text in self.inputs[places.start : places.stop])

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the windows of some texts."""
        return Slice.of_windows(places, tag_windows(
            self._runner, self.inputs[places.start : places.stop], stride=self._options.stride,
            split=self._options.is_split_into_words, stop=stop))

    def results_of(self, part: Slice, stop: Stop) -> Iterator[list[dict[str, Any]]]:
        """Yield the tags or the entities of each text of a slice."""
        texts = self.inputs[part.places.start : part.places.stop]
        return entities_of(self._runner, texts, part.windows or (), dict(enumerate(part.rows)), self._tagging,
                           split=self._options.is_split_into_words, stop=stop)

    def token_sums(self, places: range, stop: Stop = NEVER) -> Iterator[int]:
        """Yield the sum of the tokens of all windows after each text, which may have as many windows as tokens."""
        if (stride := self._options.stride) is not None:
            tokens = 0
            for text in self.inputs[places.start : places.stop]:
                joined = text if isinstance(text, str) else " ".join(text)
                tokens += self._runner.encoder.tokenizer.window_tokens(joined, stride, _COUNTED, stop)
                yield tokens


def _bytes_of(text: str | Sequence[str]) -> int:
    """Return the bytes of a text, or of a list of words, in UTF-8."""
    words = [text] if isinstance(text, str) else text
    return sum(len(word) if word.isascii() else len(word.encode()) for word in words)


class WordLogits(WindowedTexts):
    """The workload whose results are, for each list of words, the logits of the first token of each word.

    A result is (numbers of the words int64 [n], their logits float32 [n, labels]). A long list is truncated, and a word
    without tokens has no logits.
    """

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the one window of each text, which is truncated."""
        return Slice.of_windows(places, tag_windows(
            self._runner, self.inputs[places.start : places.stop], stride=None, split=True, stop=stop))

    def results_of(self, part: Slice, stop: Stop) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (numbers of the words that have tokens, their logits) for each text of a slice."""
        for [places], [logits] in zip(part.windows or (), part.rows_of_inputs(), strict=True):
            first_tokens = first_of_words(places)       # by the number of the word
            rows = np.array([*first_tokens.values()], np.int64)
            yield (np.array([*first_tokens], np.int64),
                   np.zeros((0, self._runner.config.outputs), np.float32) if logits is None else logits[rows])


def _listed(inputs: Any, options: TagOptions) -> Listed:
    """Return the inputs one by one: texts, or lists of words if the options say so."""
    if options.is_split_into_words:
        return Listed(listed(inputs), lambda i, words: read_words([words])[0][0])
    return listed_texts(inputs)


TAG = Method("tag", TagOptions, lambda model: model.runner_of("tag"),
             lambda given, options: read_words(given) if options.is_split_into_words else read_texts(given),
             lambda model, texts, options: _Tags(model.runner_of("tag"), texts, options), listed=_listed)
