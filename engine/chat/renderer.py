"""`Renderer`: starts, asks and ends the process that renders templates of models (render.py).

The process gets a template and JSON over a pipe, and returns a text or an error. It starts at the first request and
ends after a minute without one, at `close`, or with its parent. A dead process is replaced; a fork starts its own.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

from ..backends.lock import new_turn
from ..base.errors import EngineError, InputError, UnsupportedError
from ..base.install import install_command
from ..base.stop import Stop
from . import render
from .messages import printable
from .system_calls import filter_of_this_machine

SCRIPT = Path(render.__file__)
WALL_SECONDS = 60.0
"""The most seconds of one request, for a process that hangs without using CPU time, which no template can cause."""
_OLDEST = (3, 1, 6)
"""The oldest version of Jinja2 whose sandbox has no known vulnerability."""
_LOOK_SECONDS = 0.05
"""How long a call waits for a pipe before it checks its stop again, in seconds."""
_BLOCK = 2**16
"""The most bytes that are written to a pipe at a time."""
_MOST_BYTES = 4 * (render.MAX_ANSWER + 1000)
"""More bytes than the longest answer can have; a process that announces more is ended."""
LONG_BYTES = 2**16
"""Requests with more bytes have a second process, so that short requests never wait for long ones."""
_TRIES = 3
"""How many processes a request is sent to at most, if each ends before it reads it."""
_STARTING = threading.RLock()
"""Held while a process starts and while this process forks, so that a forked child knows all pipes that it inherits."""
_OPEN: WeakSet[_Process] = WeakSet()
"""All processes that this process has started; a forked child closes its copies of their pipes."""


class _EndedError(Exception):
    """The process ended before it read the request, so that another one may have it."""


class TemplateFailedError(InputError):
    """A template raised an error other than by `raise_exception`."""


class _Line:
    """One process for short or for long requests, while there is one, and the turn of the call that uses it."""

    def __init__(self) -> None:
        self.turn = new_turn()
        self.process: _Process | None = None


class Renderer:
    """Renders templates in a separate process, for one call at a time. Any thread may call it, and waits for its turn.

    Requests of many bytes have a second process.
    """

    def __init__(self, *, seconds: float = render.SECONDS, idle_seconds: float = render.IDLE_SECONDS):
        """seconds: the CPU time of one request. idle_seconds: how long a process without a request stays."""
        self._seconds, self._idle_seconds = seconds, idle_seconds
        self._short, self._long = _Line(), _Line()

    def render(self, template: str, values: dict[str, Any], date: datetime, stop: Stop, *, trusted: bool = False
               ) -> str:
        """Return the text of a template rendered with values, which are plain JSON.

        date: the time that `strftime_now` writes. stop: ends the wait. trusted: whether the template may be rendered
        without a filter of system calls on a system that has none.

        Raises `InputError` for a template that raises, does not end, or needs too much memory; `UnsupportedError` where
        Jinja2 or the filter is missing; and `EngineError` if the process was ended from outside, or cannot start.
        """
        parts = [date.year, date.month, date.day, date.hour, date.minute, date.second, date.microsecond]
        return self._ask({"template": template, "values": values, "date": parts}, stop, trusted)

    def own_texts(self, template: str, stop: Stop, *, trusted: bool = False) -> str:
        """Return the literal texts of a template, joined with U+0000. Arguments and errors are those of `render`."""
        return self._ask({"template": template}, stop, trusted)

    @property
    def process_id(self) -> int | None:
        """The id of the process of short calls; None while there is none."""
        return None if self._short.process is None else self._short.process.id

    def close(self) -> None:
        """End the processes; a running call raises `EngineError`, and a later call starts another process."""
        for line in (self._short, self._long):
            if (process := line.process) is not None:
                process.end()

    def _ask(self, request: dict[str, Any], stop: Stop, trusted: bool) -> str:
        """Send a request to the process for its length; return the text of the answer, or raise its error."""
        data = json.dumps(request).encode()
        line = self._long if len(data) > LONG_BYTES else self._short
        with line.turn.take(stop):
            for _ in range(_TRIES):
                process = self._running(line, trusted)
                try:
                    kind, text = process.ask(data, stop)
                except _EndedError:
                    continue
                return _result(kind, text)
        raise EngineError("the process that renders chat templates ended before it read a request, several times; "
                          "something on this system ends it")

    def _running(self, line: _Line, trusted: bool) -> _Process:
        """Return the process of a line if it waits for a request, otherwise a new one. Needs the turn of the line."""
        process = line.process
        if process is None or not process.waits:
            if process is not None:
                process.end()
            process = line.process = _Process(self._seconds, self._idle_seconds)
        if process.refusal and not trusted:
            raise UnsupportedError(f"this system has no filter of system calls ({process.refusal}), so nothing keeps a "
                                   "chat template from harming it if it escapes from Jinja's sandbox; if you trust the "
                                   "template, say trust_template=True, or render it yourself and call generate")
        return process


def _result(kind: int, text: str) -> str:
    """Return the text of an answer, or raise the `InputError` that it stands for."""
    if kind == render.TEXT:
        return text
    if kind == render.REFUSED:
        raise InputError(f"the chat template refuses these messages: {printable(text)}")
    if kind == render.LONG:
        raise InputError(f"the chat template makes a text of {text} characters; at most {render.MAX_ANSWER:,} are "
                         "allowed")
    if kind == render.MEMORY:
        raise InputError(f"the chat template needs too much memory; it may have {render.MEMORY_BYTES >> 20} MB")
    raise TemplateFailedError(f"the chat template fails with these messages: {printable(text)}")


class _Process:
    """One rendering process, and the two pipes to it."""

    def __init__(self, seconds: float, idle_seconds: float):
        """Start the process, and wait until it is ready; raises `UnsupportedError` and `EngineError`."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise UnsupportedError("chat templates are rendered by a Python process of their own, and sys.executable "
                                   f"is {sys.executable!r}, which is none, because Python is part of another program; "
                                   "set sys.executable to a Python, and delete sys.frozen if it is there, or render "
                                   "the template yourself and call generate")
        # The arguments are those of `main` in render.py.
        command = [sys.executable, "-I", "-S", str(SCRIPT), filter_of_this_machine().hex(), str(seconds),
                   str(idle_seconds), *_folders_of_jinja()]
        self._number, self._seconds = 0, seconds    # the number of the last request
        self._asked = math.inf      # the `time.monotonic()` of the last request, inf before the first
        self._ended = False
        self._lock = threading.RLock()
        with _STARTING:
            try:
                self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                               stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True, cwd="/",
                                               env={"LC_ALL": "C.UTF-8", "TZ": "UTC0"})
            except (OSError, TypeError, ValueError) as error:
                raise EngineError(f"the process that renders chat templates cannot start: {error}") from error
            assert self._child.stdin is not None
            assert self._child.stdout is not None
            self._to, self._from = self._child.stdin, self._child.stdout
            for other in list(_OPEN):
                other._child.poll()     # reaps a process that has ended because it was idle
            self._end_later = finalize(self, _end, self._child, os.getpid())
            _OPEN.add(self)
        self.id = self._child.pid
        try:
            for pipe in (self._to, self._from):
                os.set_blocking(pipe.fileno(), False)
            kind, self.refusal = self._answer(time.monotonic() + WALL_SECONDS, Stop())
            """Why the process has no filter of system calls; "" if it has one."""
            if kind == render.FAILED:
                raise EngineError(f"the process that renders chat templates does not start: {printable(self.refusal)}")
        except _EndedError:
            raise EngineError("the process that renders chat templates does not start; it was run as: "
                              f"{' '.join(command[:4])}; sys.executable must be a Python") from None
        except BaseException:
            self.end()
            raise

    @property
    def waits(self) -> bool:
        """Whether the process lives and has written nothing since its last answer, so that it waits for a request."""
        try:
            return not self._ended and not _ready(self._from.fileno(), select.POLLIN, 0)
        except ValueError:      # another thread, or a fork, has closed the pipe
            return False

    def ask(self, data: bytes, stop: Stop) -> tuple[int, str]:
        """Return (kind, text) of the answer to a request; end the process after any error.

        Raises `_EndedError` if the process ended before it read the request.
        """
        self._asked = time.monotonic()
        until = self._asked + WALL_SECONDS
        self._number += 1
        data = render.REQUEST.pack(len(data), self._number) + data
        try:
            self._send(memoryview(data), until, stop)
            kind, text = self._answer(until, stop)
        except _EndedError:
            raise
        except BaseException:
            self.end()      # the rest of a request or of an answer in a pipe would spoil the next one
            raise
        return kind, text

    def _send(self, data: memoryview, until: float, stop: Stop) -> None:
        """Write all bytes to the process. until: the `time.monotonic()` at which this has to be done."""
        while data:
            self._wait(self._to, select.POLLOUT, until, stop)
            try:
                data = data[self._to.write(data[:_BLOCK]) or 0 :]       # None if the pipe is full again
            except BrokenPipeError:
                return      # the last answer of the process, in the other pipe, says why
            except ValueError:
                raise _closed() from None

    def _answer(self, until: float, stop: Stop) -> tuple[int, str]:
        """Return (kind, text) of the answer to the last request; raises `_EndedError` if the process never read it."""
        while True:
            length, number, kind = render.ANSWER.unpack(self._receive(render.ANSWER.size, until, stop))
            if length > _MOST_BYTES:
                raise EngineError(f"the process that renders chat templates announces an answer of {length:,} bytes, "
                                  "which it cannot have; it was ended")
            text = self._receive(length, until, stop).decode("utf-8", "replace")
            if kind == render.LEAVING:
                self.end()
                raise _EndedError
            if number == self._number:
                return kind, text

    def _receive(self, size: int, until: float, stop: Stop) -> bytes:
        """Return exactly `size` bytes from the process; raises the error of `_death`. until: a `time.monotonic()`."""
        data = bytearray()
        while len(data) < size:
            self._wait(self._from, select.POLLIN, until, stop)
            try:
                part = self._from.read(min(size - len(data), 2**20))
            except ValueError:
                raise _closed() from None
            if part == b"":
                raise self._death()
            data += part or b""     # None where the pipe does not block and has nothing
        return bytes(data)

    def _wait(self, pipe: Any, event: int, until: float, stop: Stop) -> None:
        """Wait for an event of poll(2) at a pipe; raises `InputError` at `until`, and the errors of a `Stop`."""
        while True:
            stop.check()
            try:
                if _ready(pipe.fileno(), event, _LOOK_SECONDS):
                    return
            except ValueError:      # another thread, or a fork, has closed the pipe
                raise _closed() from None
            if time.monotonic() > until:
                raise InputError(f"the chat template has no result after {WALL_SECONDS:.0f} s")

    def _death(self) -> Exception:
        """End a process that has closed its pipe without an answer, and return the error that tells the reason."""
        was_ended = self._ended
        self.end()
        code = self._child.returncode
        if was_ended:
            return _closed()
        # The process never exits with status 0 in a request; subprocess says 0 if another waiter took the status.
        is_known = bool(code)
        if code == -signal.SIGPROF or (not is_known and time.monotonic() - self._asked >= self._seconds):
            return InputError(f"the chat template does not end within {self._seconds:g} s of CPU time")
        if self._number == 0:       # it had no request yet, so that no template ended it
            return _EndedError()
        if code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE, -signal.SIGSYS):
            return InputError("the chat template lets the process that renders it crash "
                              f"({signal.Signals(-code).name})")
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        if not is_known:
            how += ", or an unknown one, as where this process ignores SIGCHLD or waits for all of its children"
        return EngineError(f"the process that renders chat templates was ended from outside ({how}); the next call "
                           "starts another one")

    def end(self) -> None:
        """End the process, and wait until it is gone."""
        with self._lock:
            self._ended = True
            self._end_later()

    def forget(self) -> None:
        """Close the pipes in a forked child, and leave the process to the parent."""
        self._ended = True
        self._lock = threading.RLock()      # a thread of the parent, which a child lacks, may hold the old one
        self._end_later.detach()
        self._child.returncode = 0          # so that subprocess does not wait for it: it is no child of this process
        self._to.close()
        self._from.close()


def _closed() -> EngineError:
    """Return the error of a call whose process was ended by this one."""
    return EngineError("the process that renders chat templates was ended while it worked, because it was closed, or "
                       "this process was forked in the middle of the call")


def _end(child: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a process, close its pipes and wait for it. owner: the id of its parent; elsewhere this does nothing."""
    if os.getpid() != owner:
        return
    child.kill()        # no call waits for an answer now
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    child.wait()


def _ready(descriptor: int, event: int, seconds: float) -> bool:
    """Wait for at most `seconds`; return whether a pipe has an event of poll(2), or its other end is closed."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(seconds * 1000))


@cache
def _folders_of_jinja() -> list[str]:
    """Return the folders from which Jinja2 and MarkupSafe are imported; raises `UnsupportedError` without them."""
    specs = [find_spec(name) for name in ("jinja2", "markupsafe")]
    if any(spec is None or spec.origin is None for spec in specs):
        raise UnsupportedError(f"a chat needs the package jinja2; {install_command('chat')}")
    try:
        stated = version("jinja2")
    except PackageNotFoundError:        # a copy in a folder or a zip file, without the metadata that pip writes
        stated = str(getattr(import_module("jinja2"), "__version__", "0"))
    numbers = tuple(int(part) for part in stated.split(".")[:3] if part.isdigit())
    if numbers < _OLDEST:
        raise UnsupportedError(f"a chat needs jinja2 {'.'.join(map(str, _OLDEST))} or newer, and {stated} is "
                               f"installed; older ones have known holes; {install_command('chat')}")
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin))


def _forget_all() -> None:
    """Forget all processes of the parent; runs in a forked child, which may then start its own."""
    for process in list(_OPEN):
        process.forget()
    _OPEN.clear()
    _STARTING.release()


os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_forget_all)
