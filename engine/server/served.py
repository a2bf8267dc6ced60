"""`Served`: a service, and what all routes and pages of a server share."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..base.lazy import lazy
from ..interface.reranker import Reranker
from .event_loop import Replies, Rest
from .keys import ApiKeys
from .mapped import MappedFiles
from .metrics import Metrics
from .refusals import Refusal
from .service import Service
from .settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ID = re.compile(rb"[\w.:-]{1,64}")
"""The ids of requests, in the header x-request-id, that are taken over; other ones are replaced."""


@dataclass(eq=False)
class Served:
    """A service and what all routes share."""

    service: Service
    settings: Settings
    keys: ApiKeys
    metrics: Metrics
    files: MappedFiles = field(default_factory=MappedFiles)
    """The files that the model reads while it computes."""
    closing: bool = False
    """Whether new requests are refused, because the server stops."""

    @lazy
    def answers(self) -> Replies:
        """The results for the event loop of the server, which runs at the first use."""
        return Replies()

    def __post_init__(self) -> None:
        self.rest = Rest(self.service)
        self.created = int(time.time())
        self._prefix, self._numbers = os.urandom(6).hex(), count(1)
        self._page: bytes | None = None     # the text of /metrics of this turn of the event loop

    def id_of(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id of a request: that of its own header, or a new one."""
        given = headers.get(b"x-request-id", b"")
        return given.decode() if _ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"

    def owner(self, headers: Mapping[bytes, bytes]) -> str:
        """Return whose key a request has; raises `Refusal` for a key that the server does not know."""
        owner = self.keys.owner(headers.get(b"authorization", b""))
        if owner is None:
            raise Refusal("key", "this server needs a key that it knows, in the header authorization: Bearer KEY")
        return owner

    def numbers(self) -> bytes:
        """Return the text of /metrics, made once for all who ask in one turn of the event loop: it takes milliseconds,
        and everybody may ask.
        """
        if self._page is None:
            self._page = self.metrics.text()
            asyncio.get_running_loop().call_soon(self._forget_page)
        return self._page

    def _forget_page(self) -> None:
        self._page = None

    def close(self) -> None:
        """End the service and its threads, after all answers."""
        self.service.close()
        self.files.close()

    @property
    def longest(self) -> int | None:
        """The most tokens of a text, special tokens included; a longer one is cut or refused."""
        model = self.service.model
        return model.max_length if isinstance(model, Reranker) else model.max_seq_length

    @property
    def serves(self) -> str:
        """What the model serves, for messages."""
        return f"this model serves {', '.join(sorted(self.service.tasks))}"


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request; of several with one name the last."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return dict(headers)
