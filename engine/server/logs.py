"""The log of a server: one JSON object a line on standard error, without texts of requests."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any

import orjson


def write(event: str, **fields: Any) -> None:
    """Write a line with a time in seconds since 1970, the event, and the fields that are not None."""
    line = {"time": round(time.time(), 3), "event": event} | {
        name: value for name, value in fields.items() if value is not None}
    sys.stderr.write(orjson.dumps(line, default=str).decode() + "\n")


def places_of(error: BaseException) -> list[str]:
    """Return where an error was raised, the innermost place last. Its message is left out: it may hold a text."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]


class JsonLines(logging.Handler):
    """Writes what libraries log as lines of the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record: its message, and the kind and the places of its error."""
        error = record.exc_info[1] if record.exc_info else None
        try:
            write("log", level=record.levelname.lower(), logger=record.name, message=record.getMessage(),
                  error=None if error is None else type(error).__name__,
                  places=None if error is None else places_of(error))
        except Exception:       # a log that cannot be written must not end a request
            self.handleError(record)


def log_as_json() -> None:
    """Let all loggers of this process write JSON lines, of warnings and above."""
    root = logging.getLogger()
    root.handlers = [JsonLines()]
    root.setLevel(logging.WARNING)
