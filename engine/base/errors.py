"""Define every error that this package raises on purpose, and helpers for their messages.

Each message says what was expected, which value was found, and how to correct it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import islice
from typing import Any

_MOST_COMPARED, _LONGEST_COMPARED = 1000, 100       # bounds of `closest`: names, and characters of a name
_CREDENTIALS = re.compile(r"(?<=://)[^:/\s]*:(?:[^/\s]*|\S*?)@|(?:(?<=http://)|(?<=https://))[^/\s]*@|"
                          r"\?[^'\s]*=[^'\s]*")
"""Matches the credentials of a URI: "key:secret@" before a bucket, even if the secret has a slash, which should be
written as %2F; all text and "@" before the host of a web address; and the options after "?"."""


class EngineError(Exception):
    """Base class of all errors that `engine` raises on purpose."""


class WeightsError(EngineError, ValueError):
    """A weights file or model folder is damaged, incomplete or does not fit its configuration."""


class InputError(EngineError, ValueError):
    """An argument of a call has the wrong type, shape or range."""


class FileMissing(InputError, WeightsError, FileNotFoundError):
    """There is no file at the path of a recording or of an image."""


class TextTooLong(InputError):
    """A text has more tokens than the model reads, and may not be cut."""

    def __init__(self, message: str, tokens: str = "", limit: int = 0, place: int = 0):
        """tokens: how many it has, as a text, such as "512" or "more than 512". limit: how many the model reads.

        place: the number of the text among those of the call.
        """
        super().__init__(message)
        self.tokens, self.limit, self.place = tokens, limit, place


class ContextTooLong(InputError):
    """A prompt, perhaps together with its new tokens, has more tokens than the model reads."""


class CallError(InputError, TypeError):
    """A call has too few or too many arguments."""


class UnsupportedError(EngineError, NotImplementedError):
    """A model or a request is well formed but needs a feature that the engine or the chosen backend lacks."""


class HubError(EngineError, OSError):
    """A model could not be fetched from the Hugging Face hub: a wrong name, no permission, no network or no space."""


class PackageMissing(UnsupportedError, ImportError):
    """A package that a module of the engine needs is not installed."""


# The messages of `TimedOut`: for a call, for a request with a deadline, and for a wait that ends without the request.
LATE_CALL = "the call did not finish within its timeout; give it more time, or less to do"
LATE_REQUEST = "the request did not end before its deadline; give it a later deadline, or less to do"
LATE_WAIT = ("the result was not there within the timeout of the wait, and the request goes on; wait once more, or "
             "cancel it")


class TimedOut(EngineError, TimeoutError):
    """A call did not finish within its `timeout`, or a request before its deadline; it was stopped, without a result.

    Only the timeout of a wait, such as `Submission.result(timeout)`, stops nothing: the request goes on.
    """

    def __init__(self, message: str = LATE_CALL):
        super().__init__(message)


class Cancelled(EngineError):
    """A call was cancelled by another thread; it was stopped and returned nothing."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled")


class Overloaded(EngineError):
    """A server has more to do than it can answer in time; the request was refused before anything was computed."""

    def __init__(self, reason: str, retry_after: float):
        """retry_after: the seconds after which there should be room for it."""
        super().__init__(f"{reason}; try again in {math.ceil(retry_after)} s")
        self.retry_after = retry_after


class Closing(EngineError):
    """A server stops, and takes no more requests."""

    def __init__(self) -> None:
        super().__init__("the server stops, and takes no more requests")


class BackendUnavailable(EngineError, RuntimeError):
    """The requested backend or instruction set cannot run on this machine or in this installation."""


def shown(value: Any, most: int = 80) -> str:
    """Return the repr of a value for a message, cut to `most` characters; if repr fails, the name of its type."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more than 4,300 digits, or lists in lists in lists
        return f"<{type(value).__name__} without a short form>"
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(names: Iterable[str]) -> str:
    """Return names for a message, separated by commas: the first ten, each cut to 80 characters."""
    names = list(names)
    return ", ".join([*(shown(name)[1:-1] for name in names[:10]), *(["..."] if len(names) > 10 else [])])


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" with the known name that a wrong name resembles most; "" if there is none."""
    return "".join(f" (did you mean {one}?)" for one in closest(name, known))


def closest(name: str, known: Iterable[str], least: float = 0.6) -> list[str]:
    """Return the known name that a wrong name resembles most, in a list; an empty list if there is none.

    least: the least similarity, from 0 to 1: twice the number of equal letters over that of all letters (`difflib`).
    The search takes time for every pair of letters, so it looks at the first `_MOST_COMPARED` names alone, and at none
    of more than `_LONGEST_COMPARED` characters.
    """
    names = [other for other in islice(known, _MOST_COMPARED) if len(other) <= _LONGEST_COMPARED]
    return get_close_matches(name, names, n=1, cutoff=least) if len(name) <= _LONGEST_COMPARED else []


@contextmanager
def located(place: str) -> Iterator[None]:
    """Put a place, such as "input 3", in front of the message of an `InputError` or a `WeightsError` of the block."""
    try:
        yield
    except (InputError, WeightsError) as error:
        raise type(error)(f"{place}: {error}") from None


def without_credentials(text: str) -> str:
    """Return a URI, or a message with URIs, without credentials and without options, because some are secret."""
    return _CREDENTIALS.sub("", text)
