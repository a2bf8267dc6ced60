"""Bind the socket of a server, run its event loop, and stop it at a signal. `cli/serve.py` calls `bind` and `run`."""

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
"""The most new connections that the kernel keeps until the server accepts them."""
_ACCEPTED = 64
"""The most connections that are accepted in one turn of the event loop: asyncio takes that number as its `backlog`."""
_TURNS = 8
"""The turns of the event loop for which descriptors are kept free, for connections just accepted or not yet closed."""
_SPARE = 16
"""Descriptors that are kept free for other files than those that are open when the server starts."""


@contextlib.contextmanager
def bind(settings: Settings) -> Iterator[socket.socket]:
    """Yield a socket that is bound to the address of a server and does not listen yet; raises `InputError`.

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
    """Return the bound socket of a server. stack: gets what closes and deletes it; the caller closes the stack."""
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
    """Delete a file, if it is there."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _refusal(settings: Settings, error: OSError) -> InputError:
    """Return the error of the command for an address that the system refuses."""
    place = f"--host {settings.host} --port {settings.port}"
    asked = place if settings.uds is None else f"--uds {settings.uds}"
    return InputError(f"{asked} cannot be bound: {error}; choose another address, or --port 0 for a free port")


def listen(listener: socket.socket, settings: Settings) -> None:
    """Let a bound socket listen; raises `InputError` if another server with this address was faster."""
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _refusal(settings, error) from error


def _remove_old(path: str) -> None:
    """Delete the Unix socket of a dead server, which refuses connections; raises `InputError` for anything else."""
    if not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise InputError(f"--uds {path} is no socket; choose a path where nothing is")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, contextlib.suppress(ConnectionRefusedError):
        client.connect(path)
        raise InputError(f"--uds {path}: another server listens there; choose another path")
    os.unlink(path)


def address_of(listener: socket.socket) -> str:
    """Return the address of a server for clients, such as "http://127.0.0.1:8080" or "unix:/run/engine.sock"."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def raise_descriptors() -> int:
    """Raise the soft limit of open descriptors to the hard one, and return it: each connection takes a descriptor."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):      # a hard limit without end that the kernel refuses
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_of(descriptors: int) -> tuple[int, int]:
    """Return (the most open connections, the most connections that are accepted in one turn of the event loop).

    descriptors: their limit. asyncio reports a connection a few turns of the event loop after it was accepted, and
    closes the one that ends for it a turn later, so `_TURNS` turns of new connections need descriptors as well.
    """
    accepted = max(1, min(_ACCEPTED, descriptors // (8 * _TURNS)))      # at most an eighth of all is for them
    others = len(os.listdir("/proc/self/fd")) + _SPARE
    return max(1, min(CONNECTIONS, descriptors - others - _TURNS * accepted)), accepted


def run(served: Served, listener: socket.socket, ready: Callable[[str], Any] = lambda address: None) -> None:
    """Serve until SIGTERM or SIGINT; then refuse new requests, answer all that were accepted, and return.

    ready: called with the address when the server listens.
    """
    logs.log_as_json()
    descriptors = raise_descriptors()
    connections, accepted = connections_of(descriptors)
    address = address_of(listener)
    listen(listener, served.settings)

    def begin() -> None:
        """Log the start, and call `ready`."""
        logs.write("start", address=address, model=served.settings.names[0], tasks=sorted(served.service.tasks),
                   descriptors=descriptors, connections=connections)
        ready(address)

    gc.collect()
    gc.freeze()     # collections during requests skip all objects that were loaded before
    try:
        asyncio.run(Server(served, begin, connections, accepted).serve(sockets=[listener]))
        served.close()
        logs.write("stop", address=address)
    finally:
        served.close()      # a second call does nothing
        logs.end()


class Server(uvicorn.Server):
    """A server of uvicorn that refuses requests from the signal on, and whose process then ends with status 0."""

    def __init__(self, served: Served, begin: Callable[[], Any] = lambda: None, connections: int = CONNECTIONS,
                 accepted: int = _ACCEPTED):
        """begin: called when the server accepts connections and handles signals.

        connections: the most that are open. accepted: the most that are accepted in one turn of the event loop.
        """
        settings = served.settings
        protocol: Any = type("OwnProtocol", (Protocol,), {"settings": settings, "room": Connections(connections)})
        super().__init__(uvicorn.Config(
            App(served), http=protocol, ws="none", loop="asyncio", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, proxy_headers=False, server_header=False, backlog=accepted,
            timeout_graceful_shutdown=int(served.longest_wait + settings.body_seconds) + 1))
        self._served, self._begin = served, begin

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, with the kernel's backlog of connections set again, and call `begin`."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)        # asyncio has set the kernel's backlog to `accepted`
        self._begin()

    async def on_tick(self, counter: int) -> bool:
        """Check once a second whether the files of the model have changed, and log repeated messages."""
        if counter % 10 == 0:       # uvicorn has ten ticks a second
            self._served.files.look()
            logs.report()
        return await super().on_tick(counter)

    def stop(self) -> None:
        """Refuse new requests, answer those that were accepted, and end."""
        self._served.closing = True
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal; a second one that is SIGINT does not wait for answers."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals during the block.

        uvicorn's own method would send them to the process again at its end, which would then not end with status 0.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        old = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in old.items():
                signal.signal(sig, handler)
