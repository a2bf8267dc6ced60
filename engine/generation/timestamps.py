"""`Timestamps`: the rules of Whisper's timestamps (Radford et al. 2022, arXiv 2212.04356), as in transformers.

Ids below the end token are text, and ids above the token `no_timestamps` are times, in steps of 0.02 s:

1. the token `no_timestamps` never comes;
2. the first new token is a time, at most `max_initial_timestamp_index`;
3. times come in pairs, the end of a segment and the start of the next one: after text and a time comes a time or the
   end token, and after two times, or after the first one, no time;
4. times do not fall. The second time of a pair may repeat the first, and every other one must be later;
5. if all times together are more probable than every other token alone, a time comes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .top_k import Exp, log_sum_exp


class Timestamps:
    """The rules of timestamps for one vocabulary, which remove the tokens that may not come next."""

    def __init__(self, no_timestamps: int, end: int, latest_first: int | None, exp: Exp = np.exp) -> None:
        """no_timestamps, end: ids of these tokens. latest_first: the latest first time, in steps of 0.02 s, or None."""
        self.no_timestamps, self.end, self.latest_first, self.exp = no_timestamps, end, latest_first, exp

    def apply(self, scores: NDArray[np.float32], new: NDArray[np.int64]) -> None:
        """Set, in `scores` [V], the tokens that may not come next to -inf. new: [n]: the new ids so far."""
        begin = self.no_timestamps + 1      # the id of 0 s
        times = new >= begin
        last = bool(times[-1:].any())       # whether the last token is a time
        after_time = len(new) < 2 or bool(times[-2])        # whether the token before it is a time, or there is none
        latest = int(new[times].max(initial=begin - 1))     # times do not fall, so the last one is the largest
        closes = last and not after_time        # the last token ends a segment, so the next is a time or the end token
        scores[begin - 1] = -np.inf     # the token `no_timestamps`
        if closes:
            scores[: self.end] = -np.inf
        if last and after_time:
            scores[begin:] = -np.inf
        if not len(new):
            scores[:begin] = -np.inf
            if self.latest_first is not None:
                scores[begin + self.latest_first + 1 :] = -np.inf
        scores[begin : latest if closes else latest + 1] = -np.inf      # a pair may repeat its first time
        if log_sum_exp(scores[None, begin:], self.exp)[0] > scores[:begin].max():
            scores[:begin] = -np.inf
