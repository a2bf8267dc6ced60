"""The work of `Engine.classify` for labels of the caller: a sequence for each text with each label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base.stop import NEVER, Stop
from ..heads.runner import HeadRunner
from ..heads.zero_shot import entailment_of, hypotheses_of, zero_shot_labels
from ..text.sentences import slices
from .workload import DICTIONARY, NUMBER, Cost, Slice, Workload, head_logits


class ZeroShotLabels(Workload):
    """The labels of each text, by the logits of its pairs with the hypotheses of all labels."""

    def __init__(self, runner: HeadRunner, texts: Sequence[str], labels: Sequence[str], template: str | None,
                 multi_label: bool, top_k: int | None):
        """Raises `InputError` for a hypothesis that is too long, and `UnsupportedError` for another classifier."""
        entailment_of(runner)
        super().__init__(head_logits(runner), texts, cost=Cost(sequence=NUMBER * runner.config.outputs + DICTIONARY))
        self._runner, self._labels, self._multi_label, self._top_k = runner, labels, multi_label, top_k
        self._hypotheses = hypotheses_of(runner, labels, template)
        self.sequences = len(labels)

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of texts to tokenize at one time, which have a sequence for each label."""
        return slices(self.inputs, most, most_characters, self.sequences)

    def least(self, stop: Stop = NEVER) -> int:
        """Return how many tokens the pairs of each text have at least: those of the hypotheses."""
        return sum(map(len, self._hypotheses.encodings))

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the pairs of some texts."""
        tokens = self._runner.encoder.tokenizer.with_each(
            self.inputs[places.start : places.stop], self._hypotheses, stop)
        return Slice(places, tokens, rows=[None] * len(tokens.input_ids), sequences=[self.sequences] * len(places))

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the logits of each pair until the slice ends."""
        for number, row in zip(numbers, rows, strict=True):
            part.rows[number] = row[0]

    def end(self, part: Slice, stop: Stop = NEVER) -> None:
        """Make the result of each text of a slice."""
        for place, rows in zip(part.places, part.rows_of_inputs(), strict=True):
            stop.check()
            self.results[place] = zero_shot_labels(self._runner, np.stack(rows), self._labels, self._multi_label,
                                                   self._top_k)
        part.rows.clear()
