"""`StopText`: the text of new tokens up to the first stop text that is complete in it.

The tokens come one by one. A stop text may begin and end inside tokens. Three kinds of text exist at any time:

    given         the characters that `add` has returned; nothing takes them back
    held          certain characters that were not given: the longest end of the text with which a stop text begins
    waiting       characters that a later token may still change, such as bytes that are no whole character yet

All stop texts are looked for at once, by the automaton of Aho and Corasick ("Efficient string matching", 1975). Its
state is the longest end of the text that a stop text begins with, so a character costs the same at any length of text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from functools import lru_cache

from .incremental import IncrementalText


class _Automaton:
    """Finds stop texts in characters that come one by one. A state is a number; 0 is the first one."""

    def __init__(self, stops: tuple[str, ...]):
        """Build the tree of all beginnings of the stop texts, a state for each, and then connect the states."""
        self.next: list[dict[str, int]] = [{}]
        """The states that follow each state, by the characters with which a stop text goes on."""
        self.found, self.held = [0], [0]
        """found, by state: the length of the longest stop text that ends here; 0 for none. held, by state: how many
        characters at the end of the text are the beginning of a stop text that may follow."""
        self._other = [0]       # the state of the next shorter end of the text, to try if no stop text goes on here
        for stop in stops:
            state = 0
            for character in stop:
                state = self.next[state].setdefault(character, len(self.next))
                if state == len(self.next):
                    self.next.append({})
                    self.found.append(0)
                    self.held.append(0)
                    self._other.append(0)
            self.found[state] = len(stop)
        self._connect()

    def _connect(self) -> None:
        """Set `_other` of each state, and `found` and `held` with the stop texts of shorter ends of the text."""
        depths, waiting = [0] * len(self.next), deque([0])
        while waiting:      # breadth first, because a state needs the values of shorter ends
            state = waiting.popleft()
            for character, following in self.next[state].items():
                depths[following] = depths[state] + 1
                if state:
                    self._other[following] = self.after(self._other[state], character)
                other = self._other[following]
                self.found[following] = self.found[following] or self.found[other]
                self.held[following] = depths[following] if self.next[following] else self.held[other]
                waiting.append(following)

    def after(self, state: int, character: str) -> int:
        """Return the state after one more character."""
        while (following := self.next[state].get(character)) is None:
            if not state:
                return 0
            state = self._other[state]
        return following


@lru_cache(8)
def _automaton(stops: tuple[str, ...]) -> _Automaton:
    """Return the automaton of these stop texts, which all requests with equal stop texts share."""
    return _Automaton(stops)


class StopText:
    """The text of ids that come one by one, which ends at the first place at which a stop text is complete in it.

    Of stop texts that are complete at the same place, the longest one counts.
    """

    def __init__(self, text: IncrementalText, stops: Sequence[str], include: bool = False, least: int = 0):
        """text: one without ids yet, which this object owns. stops: the stop texts, none of which is empty. include:
        whether the result keeps the stop text.

        least: a stop text that is complete in the text of the first `least` - 1 ids does not end it.
        """
        self._text, self._include, self._least = text, include, least
        self._automaton = _automaton(tuple(stops)) if stops else None
        self._ids = self._state = 0
        # `_ids`: the number of ids so far. `_state`: that of the automaton after the certain characters.
        self._certain = 0       # how many characters of the text are certain
        self._ignored = 0       # how many characters of the text belong to the first `least` - 1 ids
        self._held = ""
        """The last characters that are certain and were not given."""
        self._given: list[str] = []
        self.found: str | None = None
        """The stop text that ended the text; None before."""

    def add(self, number: int) -> str:
        """Add an id (number); return the new text that is certain and part of no stop text, which may be empty.

        Call it no more once `found` is a text.
        """
        new = self._text.add(number)
        given = new if self._automaton is None else self._before_stop(new, self._automaton)
        self._given.append(given)
        return given

    def _before_stop(self, new: str, automaton: _Automaton) -> str:
        """Return the text, held and `new`, that no stop text can contain any more. new: the certain text of one id.

        It also looks at the waiting text behind it, because a stop text that is complete there ends the text, too.
        """
        self._ids += 1
        waiting = self._text.waiting() if self._text.waits else ""
        ignored = self._ignored - self._certain     # how many of the new characters come before a stop text may end
        if self._ids < self._least:     # no stop text may end in the text of this id
            ignored = len(new) + len(waiting)
            self._ignored = self._certain + ignored
        state, certain, whole = self._state, self._state, self._held + new
        for place, character in enumerate(new + waiting, 1):
            state = automaton.after(state, character)
            if automaton.found[state] and place > ignored:
                end = len(self._held) + place       # in `whole`, of the held, new and waiting text
                begin, whole = end - automaton.found[state], whole + waiting
                self.found, self._held = whole[begin:end], ""
                return whole[: end if self._include else begin]
            if place == len(new):       # all characters behind it are waiting, not certain
                certain = state
        self._state, self._certain = certain, self._certain + len(new)
        given = len(whole) - automaton.held[certain]
        self._held = whole[given:]
        return whole[:given]

    def end(self) -> str:
        """Return the held and the waiting text, when no more ids come."""
        return "" if self.found is not None else self._held + self._text.end()

    def whole(self) -> str:
        """Return the whole text, as if it ended here."""
        return "".join(self._given) + (self.fork().end() if self.waits else "")

    @property
    def waits(self) -> bool:
        """Return whether `end` may return a text now."""
        return self.found is None and (bool(self._held) or self._text.waits)

    def fork(self) -> StopText:
        """Return a copy with the same ids so far, to which other ids may be added."""
        other = copy(self)
        other._text, other._given = self._text.fork(), [*self._given]
        return other
