"""`ReadingPlan`: the vectors of a decoder that reads the text of its encoder a second time, as BART's heads need them.

Lewis et al. 2019 (arXiv 1910.13461), section 3: the decoder gets the text one token later, behind a start token, and
its last vector stands for the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..backends.batch import Batch
from ..backends.interfaces import Decoder, Plan
from ..backends.steps import Row
from ..base.stop import NEVER, Stop


class ReadingPlan:
    """A plan over the plans of an encoder and of a decoder, whose logits are its vectors. Any thread may call it."""

    def __init__(self, encoder: Plan, decoder: Decoder, start_id: int):
        """start_id: the first token of the decoder."""
        self._encoder, self._decoder, self._start = encoder, decoder, start_id

    @property
    def longest(self) -> int | None:
        """The most tokens of a sequence, as `Plan.longest`."""
        limits = [limit for limit in (self._encoder.longest, self._decoder.longest) if limit is not None]
        return min(limits, default=None)

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return the vectors of the decoder for the tokens of a batch of ids, as `Plan.forward`."""
        assert batch.input_ids is not None
        read = self._encoder.forward(batch, stop)
        found = np.empty((batch.tokens, self._decoder.vocab_size), np.float32)
        starts = [(first, last) for first, last in pairwise(batch.cu_seqlens.tolist()) if first < last]
        for group in self._opened(starts, stop):
            try:
                places = np.concatenate([np.arange(*place) for _, place in group])
                ends = np.cumsum([0, *(last - first for _, (first, last) in group)]).astype(np.int32)
                self._decoder.cache_sources([number for number, _ in group], read[places], ends, stop)
                rows = [Row(number, None, self._shifted(batch.input_ids[first:last]), last - first)
                        for number, (first, last) in group]
                found[places] = self._decoder.step(rows, stop).logits
            finally:
                for number, _ in group:
                    self._decoder.close(number)
        return found

    def _opened(self, places: list[tuple[int, int]], stop: Stop) -> Iterator[list[tuple[int, tuple[int, int]]]]:
        """Yield groups of sequences with the numbers of their requests, as many as there is room for."""
        group: list[tuple[int, tuple[int, int]]] = []
        for place in places:
            size = place[1] - place[0]
            number = self._decoder.open(self, size, None if group else stop)
            if number is None:      # a call that has requests open must not wait, since other calls wait for these
                yield group
                group = []
                number = self._decoder.open(self, size, stop)
                assert number is not None
            group.append((number, place))
        if group:
            yield group

    def _shifted(self, ids: np.ndarray) -> np.ndarray:
        """Return the ids that the decoder reads: the start token, then all but the last."""
        return np.append(self._start, ids[:-1]).astype(np.int64)
