"""Why a request is refused, and how each family of routes says it: the status, and the form of the body."""

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
"""The status of each reason, unless a family has another."""


JSON = (b"content-type", b"application/json")
"""The header of every body but that of /metrics."""


class Refusal(EngineError):
    """A request gets no answer but an error; reason: one of `STATUSES`."""

    def __init__(self, reason: str, message: str, field: str | None = None, retry_after: float | None = None):
        """field: the field of the request that is wrong. retry_after: seconds after which to try again."""
        super().__init__(message)
        self.reason, self.field, self.retry_after = reason, field, retry_after


class NotFinite(EngineError):
    """The result of a request is not a number, or infinite."""


@dataclass(frozen=True)
class ErrorForm:
    """How the routes of one interface answer what they refuse."""

    body: Callable[[Refusal, int, str], Any]
    """Makes the body from the reason, the status and the id of the request."""
    cuts: bool
    """Whether a long text is cut where a request does not say it."""
    statuses: Mapping[str, int]
    """Statuses other than those of `STATUSES`."""

    def status(self, refusal: Refusal) -> int:
        """Return the status of an answer."""
        return self.statuses.get(refusal.reason, STATUSES[refusal.reason])


_PLACE = re.compile(r"(?P<field>messages|prompt(?:\[\d+\])?): (?:message (?P<number>\d+))?(?P<setting>logit_bias )?")
"""What stands in front of a message about the inputs of a request for text."""


def field_of(error: InputError) -> str | None:
    """Return the path of the input that an error is about; None where it does not say."""
    if (found := _PLACE.match(str(error))) is None:
        return None
    if found["setting"] is not None:
        return found["setting"].strip()
    return found["field"] if found["number"] is None else f"{found['field']}[{found['number']}]"


def _in_words_of_clients(message: str) -> str:
    """Return a message about a request for text with OpenAI's names of settings."""
    if _PLACE.match(message) is None:
        return message
    return re.sub(r"\b(max_new_tokens|max_length)\b", "max_tokens", message)


def release(error: BaseException) -> None:
    """Let an error, and those that it came from, hold no frames.

    They have the body of a request and the error itself, so that all of it would stay until a garbage collection, which
    counts objects and not bytes.
    """
    found: BaseException | None = error
    while found is not None:
        clear_frames(found.__traceback__)
        behind = found.__context__
        found.__traceback__ = found.__cause__ = found.__context__ = None
        found = behind


def refusal_of(error: BaseException, request: str) -> Refusal:
    """Return why a request has no answer, for an error of its computation. request: its id."""
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
    kind = {429: "rate_limit_error", 401: "authentication_error"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error")
    code = {"key": "invalid_api_key", "model": "model_not_found", "overloaded": "rate_limit_exceeded",
            "too_long": "context_length_exceeded"}.get(refusal.reason)
    return {"error": {"message": str(refusal), "type": kind, "param": refusal.field, "code": code}}


def _cohere(refusal: Refusal, status: int, request: str) -> Any:
    # Cohere's own errors have the first two fields; clients of /rerank by other servers look for an error, as OpenAI's.
    return {"id": request, "message": str(refusal), **_openai(refusal, status, request)}


def _tei(refusal: Refusal, status: int, request: str) -> Any:
    kinds = {"empty": "Empty", "overloaded": "Overloaded", "failed": "Backend", "unsupported": "Backend",
             "closing": "Unhealthy", "changed": "Unhealthy"}
    return {"error": str(refusal), "error_type": kinds.get(refusal.reason, "Validation")}


OPENAI = ErrorForm(_openai, cuts=False, statuses={})
"""Of the routes of OpenAI and vLLM, and of ours."""
COHERE = ErrorForm(_cohere, cuts=True, statuses={})
TEI = ErrorForm(_tei, cuts=True, statuses={"wrong": 422, "too_long": 413})


def refused(family: ErrorForm, refusal: Refusal, request: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the status, the headers and the body that say why there is no answer. request: its id."""
    status = family.status(refusal)
    headers = [JSON]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(refusal.retry_after))))
    if refusal.reason == "key":
        headers.append((b"www-authenticate", b"Bearer"))
    return status, headers, orjson.dumps(family.body(refusal, status, request))
