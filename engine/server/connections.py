"""Limit the open connections of a server, and end idle ones so that new ones find room."""

from __future__ import annotations

import logging
from typing import Protocol

LOG = logging.getLogger("engine.server")


class Connection(Protocol):
    """A connection that `Connections` may end."""

    def end(self) -> None:
        """End the connection at once; only called while its client has no request under way."""


class Connections:
    """The open connections of a server, of which there is a limit: each takes a descriptor of the process."""

    def __init__(self, most: int):
        """most: the number of connections that may be open at a time."""
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}     # an ordered set; the connection that has waited longest is first

    def add(self, connection: Connection) -> bool:
        """Add a new connection; return False if the limit is reached and all others have a request under way.

        At the limit, the connection that has waited longest for a request ends.
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
        self._open.add(connection)
        self.set_idle(connection, idle=True)
        return True

    def set_idle(self, connection: Connection, idle: bool) -> None:
        """Note whether a connection has no request under way; do nothing for one that is not open."""
        self._idle.pop(connection, None)
        if idle and connection in self._open:
            self._idle[connection] = None

    def remove(self, connection: Connection) -> None:
        """Forget a connection that ends."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
