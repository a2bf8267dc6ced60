"""Start a server, and stop it: sockets, signals and the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from ..base.errors import InputError
from . import logs
from .app import Served, make_app
from .protocol import Protocol
from .settings import Settings


def bind(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address of a server, and does not listen yet; raises `InputError`.

    A server binds before it loads its model, so that an address in use is known at once.
    """
    if settings.uds is not None:
        return _bind_path(settings.uds)
    try:
        [family, kind, protocol, _, address], *_ = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise InputError(f"--host {settings.host} --port {settings.port} cannot be bound: {error}; choose another port, "
                         "or --port 0 for a free one") from error
    return found


def _bind_path(path: str) -> socket.socket:
    """Return a Unix socket at a path, which only this user may open; one that no server listens at is replaced."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.exists(path):
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise InputError(f"--uds {path} is no socket; choose a path where nothing is")
            with contextlib.suppress(ConnectionRefusedError):
                found.connect(path)
                raise InputError(f"--uds {path}: another server listens there; choose another path")
            os.unlink(path)
        mask = os.umask(0o177)
        try:
            found.bind(path)
        finally:
            os.umask(mask)
    except OSError as error:
        raise InputError(f"--uds {path} cannot be bound: {error}; choose another path") from error
    return found


def address_of(listener: socket.socket) -> str:
    """Return the address of a server as clients write it."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def raise_descriptors() -> int:
    """Raise the soft limit of descriptors to the hard one, and return it: a connection takes one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):      # a hard limit without end that the kernel refuses
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def run(served: Served, listener: socket.socket, ready: Callable[[str], Any] = lambda address: None) -> None:
    """Serve until SIGTERM or SIGINT; then refuse new requests, answer all that were accepted, and return.

    ready: called with the address when the server listens.
    """
    settings = served.settings
    logs.log_as_json()
    descriptors = raise_descriptors()
    protocol: Any = type("OwnProtocol", (Protocol,), {"settings": settings})
    config = uvicorn.Config(
        make_app(served), http=protocol, ws="none", loop="asyncio", lifespan="off", interface="asgi3", log_config=None,
        access_log=False, proxy_headers=False, server_header=False, backlog=2048,
        timeout_graceful_shutdown=int(settings.timeout + settings.body_seconds) + 1)
    address = address_of(listener)
    listener.listen(2048)
    logs.write("start", address=address, model=settings.names[0], tasks=sorted(served.service.tasks),
               descriptors=descriptors)
    ready(address)
    try:
        asyncio.run(_Server(config, served).serve(sockets=[listener]))
    finally:
        served.service.close()
        served.threads.shutdown()
        if settings.uds is not None:
            with contextlib.suppress(OSError):
                os.unlink(settings.uds)
    logs.write("stop", address=address)


class _Server(uvicorn.Server):
    """A server of uvicorn that refuses requests from the signal on, and whose process then ends with status 0."""

    def __init__(self, config: uvicorn.Config, served: Served):
        super().__init__(config)
        self._served = served

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second SIGINT does not wait for answers."""
        self._served.closing = True
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals of the block. uvicorn would send them to the process again at its end."""
        old = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in old.items():
                signal.signal(sig, handler)
