"""`Served`: the state that all routes and pages of one server share: its models, settings, keys, metrics and ids."""

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
"""The ids in the header x-request-id that a request may keep; any other id is replaced by a new one."""


@dataclass(frozen=True)
class Named:
    """One served model, and its names in requests."""

    service: RequestService
    names: tuple[str, ...]
    """The names that are listed; answers have the first one."""
    silent_names: tuple[str, ...] = ()
    """Names that requests may use and no answer shows, such as a path."""


@dataclass(eq=False)
class Served:
    """The models of a server and the state that its routes share. Only the event loop uses it, except `close`."""

    service: RequestService
    """The service of the first model, whose names are in the settings."""
    settings: Settings
    keys: ApiKeys
    metrics: Metrics
    files: MappedFiles = field(default_factory=MappedFiles)
    """The mapped files of all models, which are watched for changes."""
    others: Sequence[Named] = ()
    """The models after the first."""
    closing: bool = False
    """Whether new requests are refused, because the server stops."""

    @lazy
    def answers(self) -> Replies:
        """Brings results of threads to the event loop of the server, which must run at the first use."""
        return Replies()

    def __post_init__(self) -> None:
        self.models = [Named(self.service, self.settings.names, self.settings.silent_names), *self.others]
        self.rest = Rest(lambda: self.backlog)      # lets the event loop sleep for moments while the models are busy
        self.disk = Memory(MAX_ON_DISK)
        """Counts the bytes on disk of the recordings of all requests."""
        self.created = int(time.time())
        self._prefix, self._numbers = os.urandom(6).hex(), count(1)     # of the ids of requests
        self._page: bytes | None = None     # the text of /metrics, for the present turn of the event loop only

    def id_of(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id of a request: that of its header x-request-id, or a new one."""
        own_id = headers.get(b"x-request-id", b"")
        return own_id.decode() if _ID.fullmatch(own_id) else f"{self._prefix}-{next(self._numbers):x}"

    def owner(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the name of the client by its API key, "" without keys; raises `Refusal` for an unknown key."""
        owner = self.keys.owner(headers.get(b"authorization") or b"Bearer " + headers.get(b"x-api-key", b""))
        if owner is None:
            raise Refusal("key", "this server needs a key that it knows, in the header authorization: Bearer KEY, or "
                          "x-api-key: KEY")
        return owner

    def numbers(self) -> bytes:
        """Return the text of /metrics.

        It takes milliseconds and needs no key, so it is made once for all requests of one turn of the event loop.
        """
        if self._page is None:
            self._page = self.metrics.text()
            asyncio.get_running_loop().call_soon(setattr, self, "_page", None)
        return self._page

    def named(self, name: Any, tasks: Sequence[str] = ()) -> Named:
        """Return the model that a request means; raises `Refusal` for an unknown name.

        name: of the model in the request. Without a str, it is the first model with one of `tasks`, or the first model.
        """
        if not isinstance(name, str):
            able = (model for model in self.models if not model.service.tasks.isdisjoint(tasks))
            return next(able, self.models[0])
        for model in self.models:
            if name in model.names or name in model.silent_names:
                return model
        raise Refusal("model", f"there is no model {shown(name)} here; this server has {listed(self.names)}", "model")

    @property
    def names(self) -> list[str]:
        """The listed names of all models."""
        return [name for model in self.models for name in model.names]

    def wait_of(self, model: Named) -> float:
        """Return the most seconds that a request to a model may take; a model that writes texts has another limit."""
        return self.settings.timeout if model.service.kind in ("encode", "rank") else self.settings.text_timeout

    @property
    def longest_wait(self) -> float:
        """The most seconds that a request to any of the models may take."""
        return max(map(self.wait_of, self.models))

    @property
    def backlog(self) -> float:
        """The seconds for which all models have work, so that the event loop may sleep; 0 during a stream."""
        return min(model.service.backlog for model in self.models)

    def close(self) -> None:
        """Answer all accepted requests, and end the services and their threads."""
        for model in reversed(self.models):     # the first one owns the workers, which the others share
            model.service.close()
        self.files.close()


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request by their names in lower case; of several with one name, the last."""
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return dict(headers)
