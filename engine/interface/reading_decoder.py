"""`ReadingPlan`: the vectors of a decoder that reads the text of its encoder a second time, as BART's heads need them.

Lewis et al. 2019 (arXiv 1910.13461), section 3: the decoder gets the text one token later, behind a start token, and
its last vector stands for the whole text.
"""

from __future__ import annotations

import numpy as np

from ..backends.batch import Batch, split_batch
from ..backends.interfaces import Decoder, Plan
from ..base.stop import NEVER, Stop
from ..generation.calls import all_logits
from ..generation.encoder_decoder import SourceStepper
from ..generation.schedule import Budget
from ..generation.step_queue import StepQueue


class ReadingPlan:
    """A `Plan` of an encoder and a decoder: its vectors are the logits of the decoder. Any thread may call it."""

    def __init__(self, encoder: Plan, decoder: Decoder, start_id: int, max_tokens: int):
        """start_id: the first token of the decoder. max_tokens: the most tokens that are read in one step."""
        self._encoder, self._decoder, self._start = encoder, decoder, start_id
        self._queue = StepQueue(SourceStepper(decoder, encoder), Budget(rows=max_tokens, tokens=max_tokens))

    @property
    def longest(self) -> int | None:
        """The most tokens of a sequence; None if there is no limit."""
        limits = [limit for limit in (self._encoder.longest, self._decoder.longest) if limit is not None]
        return min(limits, default=None)

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return the logits of the decoder for all tokens of a batch of ids: float32 [N, V]."""
        texts = [text for text in split_batch(batch) if text.tokens]
        logits = all_logits(self._queue, texts, [self._shift_right(text.input_ids) for text in texts], stop)
        return np.concatenate([np.empty((0, self._decoder.vocab_size), np.float32), *logits])

    def _shift_right(self, ids: np.ndarray | None) -> np.ndarray:
        """Return the ids that the decoder reads: the start token, then all but the last."""
        assert ids is not None
        return np.append(self._start, ids[:-1]).astype(np.int64)
