"""Turn errors into answers: the reason of a `Refusal`, and its status and body in the form of each family of routes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any

import orjson

from ..base.errors import (
    Closing,
    ContextTooLong,
    EngineError,
    InputError,
    Overloaded,
    TextTooLong,
    TimedOut,
    UnsupportedError,
)
from .settings import Limit

STATUSES: Mapping[str, int] = {
    "wrong": 400, "empty": 400, "unsupported": 400, "too_long": 400, "key": 401, "path": 404, "model": 404,
    "method": 405, "slow": 408, "too_large": 413, "type": 415, "header": 431, "overloaded": 429, "failed": 500,
    "closing": 503, "changed": 503, "full": 503, "late": 504}
"""The HTTP status for each reason of a refusal, unless the family of routes has another one."""
JSON = (b"content-type", b"application/json")
"""The header of every body but that of /metrics."""


class Refusal(EngineError):
    """The error that a client gets in place of an answer."""

    def __init__(self, reason: str, message: str, field: str | None = None, retry_after: float | None = None):
        """reason: a key of `STATUSES`. field: the wrong field of the request. retry_after: seconds before a retry."""
        super().__init__(message)
        self.reason, self.field, self.retry_after = reason, field, retry_after


class NotFinite(EngineError):
    """The result of a request has NaN or infinity, which JSON cannot express."""


@dataclass(frozen=True)
class ErrorForm:
    """The form of the errors of one family of routes, such as OpenAI's."""

    body: Callable[[Refusal, int, str], Any]
    """Returns the body for orjson from the refusal, the status and the id of the request."""
    cuts: bool
    """Whether a long text is cut where the request does not say it; it is refused otherwise."""
    statuses: Mapping[str, int]
    """The statuses that differ from `STATUSES`, by reason."""

    def status(self, refusal: Refusal) -> int:
        """Return the HTTP status of a refusal in this family."""
        return self.statuses.get(refusal.reason, STATUSES[refusal.reason])


_PLACE = re.compile(r"(?P<field>messages|prompt(?:\[\d+\])?): (?:message (?P<number>\d+))?(?P<setting>logit_bias )?")
"""The start of a message about the inputs of a request for text: the field, and a message's number or a setting."""


def field_of(error: InputError) -> str | None:
    """Return the field that an error is about, such as "messages[2]" or "prompt[0]"; None if it names none."""
    if (place := _PLACE.match(str(error))) is None:
        return None
    if place["setting"] is not None:
        return place["setting"].strip()
    return place["field"] if place["number"] is None else f"{place['field']}[{place['number']}]"


def _in_words_of_clients(message: str) -> str:
    """Return a message of the library with OpenAI's names of settings, if it is about a request for text."""
    if _PLACE.match(message) is None:
        return message
    return re.sub(r"\b(max_new_tokens|max_length)\b", "max_tokens", message)


def release(error: BaseException) -> None:
    """Remove the tracebacks of an error and of the errors that it came from, and clear their frames.

    The frames refer to the body of a request and to the error itself. This cycle would stay in memory until a garbage
    collection, whose time depends on the number of objects and not on their bytes.
    """
    current: BaseException | None = error
    while current is not None:
        clear_frames(current.__traceback__)
        earlier = current.__context__
        current.__traceback__ = current.__cause__ = current.__context__ = None
        current = earlier


def refusal_of(error: BaseException, request: str) -> Refusal:
    """Return the refusal that tells a client of any error of its request. request: its id, for messages."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TextTooLong):
        return Refusal("too_long", f"a text is too large: it has {error.tokens} tokens, and the model reads at most "
                       f"{error.limit:,}; shorten it, or say \"truncate\": true")
    if isinstance(error, InputError):
        reason = "too_long" if isinstance(error, ContextTooLong) else "wrong"
        return Refusal(reason, _in_words_of_clients(str(error)), field_of(error))
    for kind, reason in ((UnsupportedError, "unsupported"), (Closing, "closing"), (TimedOut, "late"),
                         (Limit, "too_large")):
        if isinstance(error, kind):
            return Refusal(reason, str(error))
    if isinstance(error, Overloaded):
        return Refusal("overloaded", str(error), retry_after=error.retry_after)
    if isinstance(error, NotFinite):
        return Refusal("failed", f"the result of request {request} has NaN or infinity, which is no answer")
    return Refusal("failed", f"the computation of request {request} failed; the log of the server has the error under "
                   "this id")


def _openai(refusal: Refusal, status: int, request: str) -> Any:
    """Return the body of an error in OpenAI's form."""
    kind = {429: "rate_limit_error", 401: "authentication_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error")
    code = {"key": "invalid_api_key", "model": "model_not_found", "overloaded": "rate_limit_exceeded",
            "too_long": "context_length_exceeded"}.get(refusal.reason)
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.field, "code": code}}


def _cohere(refusal: Refusal, status: int, request: str) -> Any:
    """Return the body of an error for /v2/embed and /rerank: Cohere's fields and OpenAI's, which other clients read."""
    return {"id": request, "message": str(refusal), **_openai(refusal, status, request)}


def _tei(refusal: Refusal, status: int, request: str) -> Any:
    """Return the body of an error in the form of text-embeddings-inference."""
    kinds = {"empty": "Empty", "overloaded": "Overloaded", "failed": "Backend", "unsupported": "Backend",
             "closing": "Unhealthy", "changed": "Unhealthy"}
    return {"error": str(refusal), "error_type": kinds.get(refusal.reason, "Validation")}


OPENAI = ErrorForm(_openai, cuts=False, statuses={})
"""The errors of the routes of OpenAI and vLLM, and of our own routes."""
COHERE = ErrorForm(_cohere, cuts=True, statuses={})
TEI = ErrorForm(_tei, cuts=True, statuses={"wrong": 422, "too_long": 413})


def refused(family: ErrorForm, refusal: Refusal, request: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return (status, headers, body) of the answer for a refusal. request: its id."""
    status = family.status(refusal)
    headers = [JSON]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(refusal.retry_after))))
    if refusal.reason == "key":
        headers.append((b"www-authenticate", b"Bearer"))
    return status, headers, orjson.dumps(family.body(refusal, status, request))
