"""How a long text is cut into windows that overlap, and how many tokens they have, before they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..base.errors import InputError

REPEATS = 16
"""In how many windows a token may be without a limit on the tokens of all windows of a text."""
MAX_REPEATED = 2**20
"""Limit on the tokens of all windows of a text that overlap by more."""


@dataclass(frozen=True)
class Windows:
    """How a long text is cut into windows."""

    limit: int
    """The most tokens of a window."""
    beside: int
    """The tokens of a window that are not of the text: special ones, and those of the first text of a pair."""
    stride: int
    """The tokens by which a window overlaps the next one."""

    @property
    def step(self) -> int:
        """By how many tokens a window lies behind the one before it."""
        return self.limit - self.beside - self.stride

    @property
    def repeats(self) -> float:
        """How often a token of a long text is read."""
        return (self.limit - self.beside) / self.step

    def tokens(self, text: int) -> int:
        """Return how many tokens all windows have together. text: the tokens of the text."""
        more = max(0, text - (self.limit - self.beside))        # behind the first window
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
