"""Keep the rules of Whisper's timestamps (Radford et al. 2022, arXiv 2212.04356), as transformers does.

Ids below the end token are text, and ids above the token `no_timestamps` are times, in steps of 0.02 s:

1. the token `no_timestamps` never comes;
2. the first new token is a time, at most `max_initial_timestamp_index`;
3. times come in pairs, the end of a segment and the start of the next one: after text and a time comes a time or the
   end token, and after two times, or after the first one, no time;
4. times do not fall. The second time of a pair may repeat the first, and every other one must be later;
5. if all times together are more probable than every other token alone, a time comes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .logit_changes import Change
from .texts import Texts
from .top_k import Exp, log_sum_exp


class Timestamps:
    """The rules, for one vocabulary."""

    removes_only = False  # rule 5 needs all scores

    def __init__(self, no_timestamps: int, end: int, latest_first: int | None, exp: Exp = np.exp) -> None:
        """no_timestamps, end: ids of these tokens; latest_first: the greatest number of the first time, or None."""
        self.no_timestamps, self.end, self.latest_first, self.exp = no_timestamps, end, latest_first, exp

    def change(self, texts: Texts) -> Change:
        begin, rows = self.no_timestamps + 1, np.arange(len(texts))
        columns = np.arange(texts.tokens.shape[1])
        new = (columns >= texts.prompts[:, None]) & (columns < texts.lengths[:, None])
        count = texts.lengths - texts.prompts       # new tokens of each row
        times = new & (texts.tokens >= begin)
        last = times[rows, texts.lengths - 1]       # whether the last token is a time
        before_last = times[rows, np.maximum(texts.lengths - 2, 0)]     # whether the one before it is
        after_time = (count < 2) | before_last      # or whether there is none
        closes = last & ~after_time     # the last token ends a segment, so its pair or the end comes
        latest = np.where(times, texts.tokens, begin - 1).max(axis=1)  # times do not fall: the last one is the largest
        first = np.where(closes, latest, latest + 1)        # a pair may repeat its first time
        return _Rules(begin, self.end, first, no_text=closes, no_time=last & after_time, starts=count == 0,
                      latest_first=self.latest_first, exp=self.exp)


@dataclass(frozen=True)
class _Rules(Change):
    """The tokens that the rules allow next, for each row [R]."""

    begin: int
    """The id of 0 s."""
    end: int
    first: NDArray[np.int64]
    """The lowest time that may come."""
    no_text: NDArray[np.bool_]
    """A time or an end token comes next."""
    no_time: NDArray[np.bool_]
    """No time comes next."""
    starts: NDArray[np.bool_]
    """The next token is the first new one."""
    latest_first: int | None
    exp: Exp

    def apply(self, scores: NDArray[np.float32]) -> None:
        begin = self.begin
        scores[:, begin - 1] = -np.inf      # the token `no_timestamps`
        scores[self.no_text, : self.end] = -np.inf
        scores[self.no_time, begin:] = -np.inf
        scores[self.starts, :begin] = -np.inf
        if self.latest_first is not None:
            scores[self.starts, begin + self.latest_first + 1 :] = -np.inf
        for row, first in enumerate(self.first.tolist()):
            scores[row, begin:first] = -np.inf
        times = log_sum_exp(np.ascontiguousarray(scores[:, begin:]), self.exp)
        scores[times > scores[:, :begin].max(axis=1), :begin] = -np.inf
