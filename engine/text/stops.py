"""`StopText`: the text of new tokens up to the first stop text that is complete in it.

The tokens come one by one. A stop text may begin and end inside tokens. Three kinds of text exist at any time:

    given         its characters were returned by `add`; nothing takes them back
    held          certain, and the longest end of the text that is the beginning of a stop text
    waiting       what a later token may still change, such as bytes that are no whole character yet

The search reads what is new, what waits, and as many characters before them as a stop text has without its last one.
So a token costs the same at any length of the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from .incremental import IncrementalText


class StopText:
    """The text of ids that come one by one, which ends at the first place at which a stop text is complete in it.

    Of stop texts that are complete at the same place, the longest one counts.
    """

    def __init__(self, text: IncrementalText, stops: Sequence[str], include: bool = False, least: int = 0):
        """text: of no ids yet. stops: the stop texts, none of which is empty. include: whether the stop text is kept.

        least: a stop text that is complete in the text of the first `least` - 1 ids does not end it.
        """
        self._text, self._stops, self._include, self._least = text, stops, include, least
        self._longest = max(map(len, stops), default=0)
        self._ids = 0
        self._certain = 0       # how many characters of the text are certain
        self._ignored = 0       # how many characters of the text came before a stop text could end it
        self._seen = ""
        """The last characters that are certain, of which `_held` at the end were not given."""
        self._held = 0
        self._given: list[str] = []
        self.found: str | None = None
        """The stop text that ended the text; None before."""

    def add(self, number: int) -> str:
        """Return the text that is certain with the next id and part of no stop text; it may be empty.

        No id may come after the one that made `found` a text.
        """
        given = self._add(number)
        self._given.append(given)
        return given

    def _add(self, number: int) -> str:
        """Return the text of `add`, which keeps it for later."""
        self._ids += 1
        new = self._text.add(number)
        window = self._seen + new
        waiting = self._text.waiting() if self._longest and self._text.waits else ""
        before = self._certain - len(self._seen)        # characters before the window
        if self._ids < self._least:
            self._ignored = before + len(window) + len(waiting)
        else:
            place = self._search(window + waiting, max(len(self._seen), self._ignored - before))
            if place is not None:
                return self._ended(window + waiting, *place)
        self._certain += len(new)
        begin = len(self._seen) - self._held
        self._held = self._may_begin(window)
        self._seen = window[max(0, len(window) - max(self._longest - 1, 0)) :]
        return window[begin : len(window) - self._held]

    def end(self) -> str:
        """Return the rest of the text, when no more ids come."""
        if self.found is not None:
            return ""
        return self._seen[len(self._seen) - self._held :] + self._text.end()

    def whole(self) -> str:
        """Return the whole text, as if it ended here."""
        return "".join(self._given) + (self.fork().end() if self.waits else "")

    @property
    def waits(self) -> bool:
        """Return whether `end` may return a text now."""
        return self.found is None and (self._held > 0 or self._text.waits)

    def fork(self) -> StopText:
        """Return a text with the same ids so far, which goes on by itself."""
        copy = StopText(self._text.fork(), self._stops, self._include, self._least)
        copy._ids, copy._certain, copy._ignored = self._ids, self._certain, self._ignored
        copy._seen, copy._held, copy._given, copy.found = self._seen, self._held, [*self._given], self.found
        return copy

    def _search(self, text: str, least: int) -> tuple[int, int] | None:
        """Return where the first stop text begins and ends that ends behind the first `least` characters, or None."""
        found = None
        for stop in self._stops:
            begin = text.find(stop, max(0, least - len(stop) + 1))
            if begin >= 0 and (found is None or (begin + len(stop), begin) < (found[1], found[0])):
                found = begin, begin + len(stop)
        return found

    def _ended(self, text: str, begin: int, end: int) -> str:
        """Return what is left to give of a text that ends with a stop text at these places of its last characters."""
        self.found = text[begin:end]
        given = len(self._seen) - self._held
        self._held = 0
        return text[given : end if self._include else begin]

    def _may_begin(self, text: str) -> int:
        """Return the number of characters at the end of the text that are the beginning of a stop text."""
        for count in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-count:]
            if any(len(stop) > count and stop.startswith(end) for stop in self._stops):
                return count
        return 0
