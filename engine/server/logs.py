"""The log of a server: one JSON object a line on standard error, without the texts of requests.

A thread of its own writes the lines, so that no request waits for a slow reader of the log. A line that cannot be
written, or that comes while too many wait, is lost and counted, and nothing else happens.
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
_WRITE_BYTES = 2**16
"""About the most bytes that one system call writes: as many as a pipe has room for."""
GATHER = 0.1
"""Seconds for which the thread gathers lines before it writes: to wake it for each line takes 10% of a busy server."""
_END_SECONDS = 2.0
"""The most seconds that the end of a server waits for a log that nobody reads."""
_REPEAT_SECONDS = 1.0
"""The least seconds between two lines of one message that repeats."""
_KEPT_MESSAGES = 1000
"""The most messages that are kept to see whether they repeat."""
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_Message: TypeAlias = tuple[str, str, str, str | None]
"""The level, the logger, the start of the text without its numbers, and the kind of the error."""


class Writer:
    """Writes lines to a descriptor of this process in their order, in a thread of its own. Any thread may call it.

    The thread writes to the descriptor itself: a stream of Python has a lock, which a stuck writer would hold at the
    end of the process, and keeps what could not be written for a second attempt that fails as well.
    """

    def __init__(self, descriptor: int = _ERROR, most: int = LOG_BYTES):
        """descriptor: of the file. most: the most bytes of lines that wait; lines beyond them are lost."""
        self._descriptor, self._most = descriptor, most
        # Guards the fields below. Its lock is reentrant: a finalizer that runs inside `write` may log, too.
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0     # of all lines that are not written yet, those in the thread's hands included
        self.lost = 0
        """How many lines were lost because nobody read the log, or because they could not be written."""
        self._is_torn = False       # whether the end of the last line that was written is missing
        self._thread: threading.Thread | None = None

    def write(self, line: bytes) -> None:
        """Queue a line, which ends with a line feed, for the thread; never waits. The first line starts the thread."""
        with self._changed:
            # If standard error was closed when Python started, its number may now belong to another file.
            if self._waiting_bytes + len(line) > self._most or sys.__stderr__ is None:
                self.lost += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="server-log", daemon=True)
                self._thread.start()
            if len(self._lines) == 1:       # the thread may be waiting for it
                self._changed.notify_all()

    def lose(self, count: int = 1) -> None:
        """Count lines as lost that could not be formatted."""
        with self._changed:
            self.lost += count

    def wait(self, seconds: float) -> bool:
        """Wait for at most `seconds` until all lines are written or lost; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting_bytes, seconds)

    def _run(self) -> None:
        """Write lines as they come, without end: the body of the daemon thread."""
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
            time.sleep(GATHER)
            with self._changed:
                data = self._next_lines()
            lost = self._put(data)      # without the lock: this may wait for the reader
            with self._changed:
                self.lost += lost
                self._waiting_bytes -= len(data)
                self._changed.notify_all()

    def _next_lines(self) -> bytes:
        """Remove the oldest lines, of about `_WRITE_BYTES`, from the queue, and return them joined. Needs the lock."""
        lines, size = [], 0
        while self._lines and size < _WRITE_BYTES:
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return b"".join(lines)

    def _put(self, data: bytes) -> int:
        """Write lines, and return how many of them were lost because the descriptor has an error."""
        whole = left = b"\n" + data if self._is_torn else data     # end a torn line first
        try:
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:     # another program that shares the descriptor has made it non-blocking
                    _is_ready(self._descriptor, milliseconds=None)
        except OSError:
            pass
        if written := whole[: len(whole) - len(left)]:
            self._is_torn = not written.endswith(b"\n")
        return min(left.count(b"\n"), data.count(b"\n"))        # the line feed that ends a torn line is no line


WRITER = Writer()


def write(event: str, **fields: Any) -> None:
    """Log an event: its line has the time in seconds since 1970, the event, and the fields that are not None."""
    line = {"time": round(time.time(), 3), "event": event} | {
        name: value for name, value in fields.items() if value is not None}
    try:
        data = orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:       # orjson refuses a str from a path with bytes that are no UTF-8
        data = json.dumps(line, default=str).encode() + b"\n"
    WRITER.write(data)


def announce(text: str) -> None:
    """Write a line to standard output if that can be done without waiting; otherwise count it as a lost line."""
    try:
        if sys.__stdout__ is not None and _is_ready(_OUT, milliseconds=0):
            os.write(_OUT, text.encode("utf-8", "backslashreplace") + b"\n")
            return
    except OSError:
        pass
    WRITER.lose()


def places_of(error: BaseException) -> list[str]:
    """Return the places of an error's traceback, the innermost last, without its message, which may quote a request."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]


class _Repeat(NamedTuple):
    """What is known of a message that may repeat: when it may have its next line, and how often it was left out."""

    due: float          # of `time.monotonic`
    text: str           # its last text, with the numbers
    left_out: int       # since its last line


class JsonLines(logging.Handler):
    """Writes what libraries log as lines of the same form, at most one line a second for a message that repeats.

    Messages that differ in numbers alone count as one message, as they may have descriptors or addresses in them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._repeats: dict[_Message, _Repeat] = {}     # in the order in which they came last, the newest at the end

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record of `logging`: its message, and the kind and the places of its error."""
        try:
            error = record.exc_info[1] if record.exc_info else None
            self.write(record.levelname.lower(), record.name, record.getMessage(), error)
        except Exception:       # a line that cannot be made must not end a request
            WRITER.lose()

    def write(self, level: str, logger: str, text: str, error: BaseException | None = None) -> None:
        """Write a message with the kind and the places of its error, or count it as left out if it repeats too soon."""
        kind, now = None if error is None else type(error).__name__, time.monotonic()
        message = level, logger, _NUMBER.sub("#", text.partition("\n")[0][:200]), kind
        self.acquire()
        try:
            last = self._repeats.pop(message, _Repeat(due=0.0, text=text, left_out=0))
            is_early = now < last.due
            self._repeats[message] = _Repeat(last.due, text, last.left_out + 1) if is_early else _Repeat(
                now + _REPEAT_SECONDS, text, left_out=0)
            if len(self._repeats) > _KEPT_MESSAGES:     # forget the oldest
                WRITER.lose(self._repeats.pop(next(iter(self._repeats))).left_out)
        finally:
            self.release()
        if not is_early:
            write("log", level=level, logger=logger, message=text, left_out=last.left_out or None, error=kind,
                  places=None if error is None else places_of(error))

    def report(self, now: float = math.inf) -> None:
        """Write how often messages were left out whose second is over at `now`, of `time.monotonic`; or all of them."""
        self.acquire()
        try:
            due = [(message, last) for message, last in self._repeats.items() if last.due <= now]
            # A message that has a line now waits a second for its next one; the others are forgotten.
            for message, last in due:
                del self._repeats[message]
                if last.left_out:
                    self._repeats[message] = _Repeat(now + _REPEAT_SECONDS, last.text, left_out=0)
        finally:
            self.release()
        for (level, logger, _, kind), last in due:
            if last.left_out:
                write("log", level=level, logger=logger, message=last.text, left_out=last.left_out, error=kind)


_HANDLER = JsonLines()


def log_as_json() -> None:
    """Let all loggers of this process, warnings, and uncaught errors of threads and finalizers write JSON lines."""
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
    """Write how often messages were left out because they came again within a second; a server calls it regularly."""
    _HANDLER.report(time.monotonic())


def end() -> None:
    """Write the last counts of repeated messages, and wait until the log is written, for `_END_SECONDS` at most."""
    _HANDLER.report()
    WRITER.wait(_END_SECONDS)


def _is_ready(descriptor: int, milliseconds: int | None) -> bool:
    """Return whether a descriptor can be written, after waiting for at most `milliseconds`; None sets no limit."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))
