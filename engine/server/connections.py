"""The connections of a server: how many there are, and which of them end so that others find room."""

from __future__ import annotations

import logging
from typing import Protocol

LOG = logging.getLogger("engine.server")


class Connection(Protocol):
    """A connection that can be ended."""

    def end(self) -> None:
        """End the connection, whose client has no request under way."""


class Connections:
    """The open connections of a server, of which there is a limit: each takes a descriptor of the process."""

    def __init__(self, most: int):
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}     # those without a request under way, the longest wait first

    def add(self, one: Connection) -> bool:
        """Take a new connection; return False where there are too many, and all of them have a request under way.

        The connection that has waited for a request for the longest time ends for the new one.
        """
        if len(self._open) >= self._most:
            LOG.warning("%d connections are open, and there may be no more, as each takes a descriptor (ulimit -n): "
                        "those without a request end for new ones, and where all have one, new ones are refused",
                        len(self._open))
            oldest = next(iter(self._idle), None)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.end()
        self._open.add(one)
        self.set_idle(one, True)
        return True

    def set_idle(self, one: Connection, idle: bool) -> None:
        """Say whether a connection has no request under way; nothing for one that is not open."""
        self._idle.pop(one, None)
        if idle and one in self._open:
            self._idle[one] = None

    def remove(self, one: Connection) -> None:
        """Forget a connection that ends."""
        self._open.discard(one)
        self._idle.pop(one, None)
