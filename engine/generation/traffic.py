"""`Traffic`: count the tokens that a model reads and makes."""

from __future__ import annotations

from ..backends.lock import new_turn


class Traffic:
    """Counts the tokens of many calls in several threads."""

    def __init__(self) -> None:
        self.tokens_in = self.tokens_out = 0
        self._turn = new_turn()

    def add(self, tokens_in: int, tokens_out: int = 0) -> None:
        """Add the tokens that a model has read, and those that it has made."""
        with self._turn.take():
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
