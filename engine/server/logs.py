"""The log of a server: one JSON object a line on standard error, without texts of requests.

A thread of its own writes the lines, so that nobody waits for whoever reads them. A line that cannot be written, or
that comes while too many wait, is lost and counted, and nothing else happens.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import select
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from typing import Any, NamedTuple, TypeAlias

import orjson

from .settings import LOG_BYTES

_OUT, _ERROR = 1, 2
"""The descriptors of standard output and standard error."""
_AT_ONCE = 2**16
"""The most bytes of lines that one system call writes; a pipe has room for as many."""
GATHER = 0.1
"""Seconds in which the thread of the log gathers lines: to wake it for each of them takes a tenth of a busy server."""
_END_SECONDS = 2.0
"""How long the end of a server waits for a log that nobody reads."""
_APART = 1.0
"""Seconds between two lines of one message that repeats."""
_KEPT_MESSAGES = 1000
"""How many messages are kept to see whether they repeat."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_Message: TypeAlias = tuple[str, str, str, str | None]
"""The level, the logger, the start of the text without its numbers, and the kind of the error."""


class Writer:
    """Writes lines to a descriptor of this process in their order, in a thread of its own. Any thread may call it.

    The thread writes to the descriptor itself: a stream of Python has a lock, which a stuck writer would hold at the
    end of the process, and keeps what could not be written for a second attempt that fails as well.
    """

    def __init__(self, descriptor: int = _ERROR, most: int = LOG_BYTES):
        """most: the most bytes of lines that wait; later lines are lost."""
        self._descriptor, self._most = descriptor, most
        self._changed = threading.Condition()       # whose lock one thread may take twice, as a finalizer may log
        self._lines: deque[bytes] = deque()
        self._waiting = 0       # bytes of all lines that are not written yet
        self.lost = 0
        """How many lines were lost because nobody read the log, or because they could not be written."""
        self._torn = False      # whether the last line was written in part
        self._thread: threading.Thread | None = None

    def write(self, line: bytes) -> None:
        """Let the thread write a line, which has its line feed; never waits for it."""
        with self._changed:
            # Python has no standard error if that was closed when it started; its number is another file's then.
            if self._waiting + len(line) > self._most or sys.__stderr__ is None:
                self.lost += 1
                return
            self._lines.append(line)
            self._waiting += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="server-log", daemon=True)
                self._thread.start()
            if len(self._lines) == 1:       # the thread may be waiting for it
                self._changed.notify_all()

    def lose(self, count: int = 1) -> None:
        """Count lines that could not be made."""
        with self._changed:
            self.lost += count

    def wait(self, seconds: float) -> bool:
        """Wait until all lines are written or lost, for some seconds at most; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
            time.sleep(GATHER)
            with self._changed:
                data = self._take()
            lost = self._put(data)
            with self._changed:
                self.lost += lost
                self._waiting -= len(data)
                self._changed.notify_all()

    def _take(self) -> bytes:
        """Return the next lines."""
        lines, size = [], 0
        while self._lines and size < _AT_ONCE:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return b"".join(lines)

    def _put(self, data: bytes) -> int:
        """Write lines, and return how many of them were lost."""
        whole = left = b"\n" + data if self._torn else data     # not on the line of another one
        try:
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:     # another program shares the descriptor, and has set it so
                    _is_ready(self._descriptor, None)
        except OSError:
            pass
        if written := whole[: len(whole) - len(left)]:
            self._torn = not written.endswith(b"\n")
        return min(left.count(b"\n"), data.count(b"\n"))


WRITER = Writer()


def write(event: str, **fields: Any) -> None:
    """Write a line with a time in seconds since 1970, the event, and the fields that are not None."""
    line = {"time": round(time.time(), 3), "event": event} | {
        name: value for name, value in fields.items() if value is not None}
    try:
        data = orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:       # a path with bytes that are no UTF-8, of which orjson writes none
        data = json.dumps(line, default=str).encode() + b"\n"
    WRITER.write(data)


def announce(text: str) -> None:
    """Write a line to standard output if that takes it at once; otherwise it is lost as a line of the log is."""
    try:
        if sys.__stdout__ is not None and _is_ready(_OUT, 0):
            os.write(_OUT, text.encode("utf-8", "backslashreplace") + b"\n")
            return
    except OSError:
        pass
    WRITER.lose()


def places_of(error: BaseException) -> list[str]:
    """Return where an error was raised, the innermost place last. Its message is left out: it may hold a text."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]


class _Repeat(NamedTuple):
    """When a message may have its next line, its last text, and how often it was left out since its last line."""

    due: float
    text: str
    left_out: int


class JsonLines(logging.Handler):
    """Writes what libraries log as lines of the same form. A message that repeats has one line a second at most.

    Messages that differ in numbers alone are one message: a descriptor or an address in it is another one each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._repeats: dict[_Message, _Repeat] = {}     # the one that came last at the end

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record: its message, and the kind and the places of its error."""
        try:
            error = record.exc_info[1] if record.exc_info else None
            self.write(record.levelname.lower(), record.name, record.getMessage(), error)
        except Exception:       # a line that cannot be made must not end a request
            WRITER.lose()

    def write(self, level: str, logger: str, text: str, error: BaseException | None = None) -> None:
        """Write a message, and the kind and the places of its error, or count it as left out."""
        kind, now = None if error is None else type(error).__name__, time.monotonic()
        message = level, logger, _NUMBER.sub("#", text.partition("\n")[0][:200]), kind
        self.acquire()
        try:
            last = self._repeats.pop(message, _Repeat(0.0, text, 0))
            is_early = now < last.due
            self._repeats[message] = _Repeat(last.due, text, last.left_out + 1) if is_early else _Repeat(
                now + _APART, text, 0)
            if len(self._repeats) > _KEPT_MESSAGES:
                WRITER.lose(self._repeats.pop(next(iter(self._repeats))).left_out)
        finally:
            self.release()
        if not is_early:
            write("log", level=level, logger=logger, message=text, left_out=last.left_out or None, error=kind,
                  places=None if error is None else places_of(error))

    def report(self, now: float = math.inf) -> None:
        """Write a line for each message that was left out and may come again, with how often it was left out."""
        self.acquire()
        try:
            due = [(message, last) for message, last in self._repeats.items() if last.due <= now]
            for message, last in due:
                del self._repeats[message]
                if last.left_out:
                    self._repeats[message] = _Repeat(now + _APART, last.text, 0)
        finally:
            self.release()
        for (level, logger, _, kind), last in due:
            if last.left_out:
                write("log", level=level, logger=logger, message=last.text, left_out=last.left_out, error=kind)


_HANDLER = JsonLines()


def log_as_json() -> None:
    """Let all loggers of this process, warnings, and errors that nobody catches write JSON lines."""
    root = logging.getLogger()
    root.handlers = [_HANDLER]
    root.setLevel(logging.WARNING)

    def show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        _HANDLER.write("warning", category.__name__, str(message))

    def in_thread(raised: threading.ExceptHookArgs) -> None:
        name = raised.thread.name if raised.thread is not None else ""
        _HANDLER.write("error", "threading", f"the thread {name} has ended", raised.exc_value)

    def in_finalizer(raised: Any) -> None:
        _HANDLER.write("error", "sys", raised.err_msg or "an exception was ignored", raised.exc_value)

    warnings.showwarning = show_warning
    threading.excepthook = in_thread
    sys.unraisablehook = in_finalizer


def report() -> None:
    """Write how often messages were left out that came again within a second, once that second is over."""
    _HANDLER.report(time.monotonic())


def end() -> None:
    """Wait until the log is written; where nobody reads it, for a limited time."""
    _HANDLER.report()
    WRITER.wait(_END_SECONDS)


def _is_ready(descriptor: int, milliseconds: int | None) -> bool:
    """Return whether a descriptor can be written, after waiting for some time at most; None for no limit."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))
