"""`Windows`: how many windows a long text has that overlap, and how many tokens, before `Tokenizer` makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..base.errors import InputError

REPEATS = 16
"""If each token is in at most this many windows, the number of tokens of all windows has no limit."""
MAX_REPEATED = 2**20
"""The most tokens of all windows of a text whose tokens are in more than `REPEATS` windows."""


@dataclass(frozen=True)
class Windows:
    """The sizes of the windows into which a text is cut."""

    limit: int
    """The most tokens of a window."""
    beside: int
    """The number of other tokens of a window: special tokens, and the tokens of the first text of a pair."""
    stride: int
    """The number of tokens by which a window overlaps the next one."""

    @property
    def step(self) -> int:
        """The number of tokens by which each window moves on."""
        return self.limit - self.beside - self.stride

    @property
    def repeats(self) -> float:
        """In how many windows a token of a long text is."""
        return (self.limit - self.beside) / self.step

    def tokens(self, text: int) -> int:
        """Return how many tokens all windows have together. text: the number of tokens of the text."""
        more = max(0, text - (self.limit - self.beside))        # tokens behind the first window
        windows = 1 + -(-more // self.step)
        return text + (windows - 1) * self.stride + windows * self.beside

    def least_text(self, most: int) -> int:
        """Return a number of tokens such that the windows of any longer text have more than `most` tokens together."""
        return most * self.step // self.limit + self.limit

    def check_overlap(self, count: Callable[[int], int]) -> None:
        """Raise `InputError` for a text that windows would read again and again, in more tokens than `MAX_REPEATED`.

        count: returns the number of the text's tokens; it may stop counting above its argument.
        """
        if self.repeats <= REPEATS:
            return
        tokens = count(self.least_text(MAX_REPEATED))
        if (size := self.tokens(tokens)) > MAX_REPEATED:
            raise InputError(f"a window of {self.limit} tokens that overlaps the next one by a stride of {self.stride} "
                             f"moves by {self.step}, so the windows of this text, which has at least {tokens:,} "
                             f"tokens, would have {size:,} together; at most {MAX_REPEATED:,} are made of a text that "
                             f"is read more than {REPEATS} times: choose a smaller stride")
