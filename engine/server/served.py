"""`Served`: a service, and what all routes and pages of a server share."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..base.errors import listed, shown
from ..base.lazy import lazy
from .admission import Memory
from .event_loop import Replies, Rest
from .keys import ApiKeys
from .mapped import MappedFiles
from .metrics import Metrics
from .refusals import Refusal
from .requests import RequestService
from .settings import MAX_ON_DISK, Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ID = re.compile(rb"[\w.:-]{1,64}")
"""The ids of requests, in the header x-request-id, that are taken over; other ones are replaced."""


@dataclass(frozen=True)
class Named:
    """A model and its names in requests."""

    service: RequestService
    names: tuple[str, ...]
    """Answers have the first."""
    silent_names: tuple[str, ...] = ()
    """Other names that requests may have, which no answer shows, such as a path."""


@dataclass(eq=False)
class Served:
    """The services and what all routes share."""

    service: RequestService
    """That of the first model, whose names are those of the settings."""
    settings: Settings
    keys: ApiKeys
    metrics: Metrics
    files: MappedFiles = field(default_factory=MappedFiles)
    """The files that the model reads while it computes."""
    others: Sequence[Named] = ()
    """The other models."""
    closing: bool = False
    """Whether new requests are refused, because the server stops."""

    @lazy
    def answers(self) -> Replies:
        """The results for the event loop of the server, which runs at the first use."""
        return Replies()

    def __post_init__(self) -> None:
        self.models = [Named(self.service, self.settings.names, self.settings.silent_names), *self.others]
        self.rest = Rest(lambda: self.backlog)
        self.disk = Memory(MAX_ON_DISK)
        """What the recordings of all requests take on disk."""
        self.created = int(time.time())
        self._prefix, self._numbers = os.urandom(6).hex(), count(1)
        self._page: bytes | None = None     # the text of /metrics of this turn of the event loop

    def id_of(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id of a request: that of its own header, or a new one."""
        given = headers.get(b"x-request-id", b"")
        return given.decode() if _ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"

    def owner(self, headers: Mapping[bytes, bytes]) -> str:
        """Return whose key a request has; raises `Refusal` for a key that the server does not know."""
        owner = self.keys.owner(headers.get(b"authorization") or b"Bearer " + headers.get(b"x-api-key", b""))
        if owner is None:
            raise Refusal("key", "this server needs a key that it knows, in the header authorization: Bearer KEY, or "
                          "x-api-key: KEY")
        return owner

    def numbers(self) -> bytes:
        """Return the text of /metrics, made once for all who ask in one turn of the event loop: it takes milliseconds,
        and everybody may ask.
        """
        if self._page is None:
            self._page = self.metrics.text()
            asyncio.get_running_loop().call_soon(setattr, self, "_page", None)
        return self._page

    def named(self, name: Any, tasks: Sequence[str] = ()) -> Named:
        """Return the model that a request means; raises `Refusal`.

        name: what the request calls it; None for the first model that does one of some tasks, if one does.
        """
        if not isinstance(name, str):
            able = (each for each in self.models if not each.service.tasks.isdisjoint(tasks))
            return next(able, self.models[0])
        for each in self.models:
            if name in each.names or name in each.silent_names:
                return each
        raise Refusal("model", f"there is no model {shown(name)} here; this server has {listed(self.names)}", "model")

    @property
    def names(self) -> list[str]:
        """The names of all models."""
        return [name for each in self.models for name in each.names]

    def wait_of(self, model: Named) -> float:
        """Return how many seconds a request to a model may take."""
        return self.settings.timeout if model.service.kind in ("encode", "rank") else self.settings.text_timeout

    @property
    def longest_wait(self) -> float:
        """The most seconds that a request may take."""
        return max(map(self.wait_of, self.models))

    @property
    def backlog(self) -> float:
        """The seconds for which the event loop may rest: as long as the models have work, and nobody gets a stream."""
        return min(each.service.backlog for each in self.models)

    def close(self) -> None:
        """End the services and their threads, after all answers."""
        for each in reversed(self.models):      # the first one has the threads
            each.service.close()
        self.files.close()


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request; of several with one name the last."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return dict(headers)
