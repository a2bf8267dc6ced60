"""Start a server, and stop it: sockets, signals and the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from ..base.errors import InputError
from ..files.claims import claim
from . import logs
from .app import App
from .connections import Connections
from .protocol import Protocol
from .served import Served
from .settings import CONNECTIONS, Settings

BACKLOG = 2048
"""Connections that wait to be taken."""
_TAKEN = 64
"""The most connections that are taken at a time; asyncio takes as many as its `backlog` says."""
_TURNS = 8
"""For how many turns of the event loop there are descriptors for connections that were taken or that end."""
_SPARE = 16
"""Descriptors beside those of connections, and beside those that are open when the server starts."""


@contextlib.contextmanager
def bind(settings: Settings) -> Iterator[socket.socket]:
    """Give a socket that is bound to the address of a server, and does not listen yet; raises `InputError`.

    A server binds before it loads its model, so that an address in use is known at once. The server of a Unix socket
    locks a file PATH.lock beside it, since a socket that does not listen yet looks like that of a server that died.
    Both files are deleted at the end of the block.
    """
    with contextlib.ExitStack() as stack:
        try:
            listening = _opened(settings, stack)
        except OSError as error:
            raise _refusal(settings, error) from error
        yield listening


def _opened(settings: Settings, stack: contextlib.ExitStack) -> socket.socket:
    """Return the bound socket of a server; stack: gets what is to do when the server ends, or when this fails."""
    path = settings.uds
    if path is None:
        [family, _, protocol, _, address], *_ = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # asyncio sets TCP_NODELAY on connections only if the protocol of the socket is that of TCP, and not 0.
        listening = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, protocol))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        return listening
    if not path:
        raise InputError("--uds is empty; give the path of a socket, or leave it out")
    give_up = claim(Path(f"{path}.lock"), 0o600)
    if give_up is None:
        raise InputError(f"--uds {path}: another server has it; choose another path")
    stack.callback(give_up)
    _remove_old(path)
    listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    mask = os.umask(0o177)      # this user alone may open it
    try:
        listening.bind(path)
    finally:
        os.umask(mask)
    stack.callback(_delete, path)
    return listening


def _delete(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _refusal(settings: Settings, error: OSError) -> InputError:
    """Return the error for an address at which no server can listen."""
    place = f"--host {settings.host} --port {settings.port}"
    asked = place if settings.uds is None else f"--uds {settings.uds}"
    return InputError(f"{asked} cannot be bound: {error}; choose another address, or --port 0 for a free port")


def listen(listener: socket.socket, settings: Settings) -> None:
    """Let a socket of `bind` listen; raises `InputError` if another one, bound at the same time, does so already."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _refusal(settings, error) from error


def _remove_old(path: str) -> None:
    """Remove a Unix socket that refuses connections, as its server is dead; raises `InputError` for anything else."""
    if not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise InputError(f"--uds {path} is no socket; choose a path where nothing is")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, contextlib.suppress(ConnectionRefusedError):
        client.connect(path)
        raise InputError(f"--uds {path}: another server listens there; choose another path")
    os.unlink(path)


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


def connections_of(descriptors: int) -> tuple[int, int]:
    """Return how many connections there may be at one time, and how many are taken at a time.

    descriptors: the limit of descriptors. asyncio says that a connection was taken a few turns of the event loop later,
    and closes one that ends for it in the turn after that. So there is room for those of `_TURNS` turns.
    """
    taken = max(1, min(_TAKEN, descriptors // (8 * _TURNS)))
    others = len(os.listdir("/proc/self/fd")) + _SPARE
    return max(1, min(CONNECTIONS, descriptors - others - _TURNS * taken)), taken


def run(served: Served, listener: socket.socket, ready: Callable[[str], Any] = lambda address: None) -> None:
    """Serve until SIGTERM or SIGINT; then refuse new requests, answer all that were accepted, and return.

    ready: called with the address when the server listens.
    """
    logs.log_as_json()
    descriptors = raise_descriptors()
    connections, taken = connections_of(descriptors)
    address = address_of(listener)
    listen(listener, served.settings)

    def begin() -> None:
        logs.write("start", address=address, model=served.settings.names[0], tasks=sorted(served.service.tasks),
                   descriptors=descriptors, connections=connections)
        ready(address)

    gc.collect()
    gc.freeze()     # what was loaded stays, so that no collection beside a flood of requests goes through all of it
    try:
        asyncio.run(Server(served, begin, connections, taken).serve(sockets=[listener]))
        served.close()
        logs.write("stop", address=address)
    finally:
        served.close()      # a second call does nothing
        logs.end()


class Server(uvicorn.Server):
    """A server of uvicorn that refuses requests from the signal on, and whose process then ends with status 0."""

    def __init__(self, served: Served, begin: Callable[[], Any] = lambda: None, connections: int = CONNECTIONS,
                 taken: int = _TAKEN):
        """begin: called when the server takes connections and signals. connections, taken: see `connections_of`."""
        settings = served.settings
        protocol: Any = type("OwnProtocol", (Protocol,), {"settings": settings, "room": Connections(connections)})
        super().__init__(uvicorn.Config(
            App(served), http=protocol, ws="none", loop="asyncio", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, proxy_headers=False, server_header=False, backlog=taken,
            timeout_graceful_shutdown=int(served.longest_wait + settings.body_seconds) + 1))
        self._served, self._begin = served, begin

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)        # asyncio has set it to the number of connections that it takes at a time
        self._begin()

    async def on_tick(self, counter: int) -> bool:
        """Look once a second whether the files of the model have changed, and whether messages were left out."""
        if counter % 10 == 0:       # uvicorn has ten ticks a second
            self._served.files.look()
            logs.report()
        return await super().on_tick(counter)

    def stop(self) -> None:
        """Refuse new requests, answer those that were accepted, and end."""
        self._served.closing = True
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second SIGINT does not wait for answers."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals of the block. uvicorn would send them to the process again at its end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in old.items():
                signal.signal(sig, handler)
