"""`Engine.encode_sparse`: for each text a sparse vector over the vocabulary, numbers for some of its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..base.arguments import positive_int_or_none
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..heads.runner import HeadRunner
from ..heads.sparse import NOTHING, SparseVectors, largest, sparse_rows, sparse_vectors
from ..text.sentences import Sentence, add_prompt, choose_prompt, read_sentences
from .columns import column, lists
from .encode import with_role
from .method import EncodingModel, Method
from .workload import Computation, Cost, Slice, Workload

_WORD = 48
"""Estimated bytes of a word of a sparse vector: its int32 id and float32 number in arrays, and both in JSON."""
_WORDS = 1024
"""The number of words for which a sparse vector is counted before it is computed; few texts have more."""


@dataclass(frozen=True)
class EncodeSparseOptions(Options):
    """The options of `Engine.encode_sparse` that say what is computed."""

    prompt_name: str | None = None
    prompt: str | None = None
    max_active_dims: int | None = option(None, positive_int_or_none)


class _SparseVectors(Workload):
    """The workload whose results are (ids of words int32 [n], their numbers float32 [n]) of each text."""

    def __init__(self, runner: HeadRunner, inputs: Sequence[Sentence], most: int | None):
        """most: how many words of a text are kept, those with the largest numbers; None for all."""
        super().__init__(Computation(runner.encoder.queue, partial(sparse_rows, runner)), inputs,
                         tokenize=lambda texts, stop: runner.encoder.tokens_or_unread(texts, stop=stop),
                         results=[NOTHING] * len(inputs),       # a text without tokens gets no row
                         cost=Cost(sequence=_WORD * min(_WORDS, runner.config.outputs)))
        self._runner, self._most = runner, most

    def beyond(self, row: Any) -> int:
        """Return the bytes of the words of a row beyond the first `_WORDS`, which its cost counts already."""
        return _WORD * max(0, len(row[0]) - _WORDS)

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the words with the largest numbers of each sequence."""
        super().take(part, numbers, [largest(words, values, self._most) for words, values in rows])

    def result(self) -> SparseVectors:
        """Return the results of all texts as one object."""
        return sparse_vectors(self._runner, self.results)


def _prepare(model: EncodingModel, texts: Sequence[Sentence], options: EncodeSparseOptions) -> Workload:
    """Return the workload of a call for texts, with the prompt in front of each."""
    runner = model.sparse_runner
    prompt = choose_prompt(runner.encoder.text, options.prompt, options.prompt_name)
    return _SparseVectors(runner, add_prompt(prompt, texts), options.max_active_dims or runner.config.max_active_dims)


def _columns(rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return the columns of a file of results: "indices", the ids of words, and "values", their numbers.

    rows: (ids, numbers) of each text.
    """
    return {name: lists([row[i] for row in rows], column(np.concatenate([row[i] for row in rows])))
            for i, name in enumerate(("indices", "values"))}


ENCODE_SPARSE = Method("encode_sparse", EncodeSparseOptions, lambda model: model.sparse_runner,
                       lambda given, options: (read_sentences(given)[0], False), _prepare,
                       with_role=with_role, streamed="sparse", columns=_columns)
