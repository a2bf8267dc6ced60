"""OpenAI's file format of batches, for /v1/embeddings: readers.py reads requests by it, and parts.py writes answers."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import shown
from ..weights.modules import shortened

URL = "/v1/embeddings"
"""The address of the requests that are answered; others get an error."""
_ID = "batch_req_"
"""How the ids of answers begin."""
MOST_TEXTS = 2048
"""How many texts a request may have, as in OpenAI's API."""
_FIELDS = {"input", "model", "encoding_format", "dimensions", "user"}
"""The fields that the body of a request may have."""


@dataclass(frozen=True, eq=False)
class BatchRequest:
    """One request, which is one line of an input file: texts whose vectors it asks for."""

    custom_id: Any = None
    texts: tuple[Any, ...] = ()
    """Empty for a request that cannot be answered."""
    reason: str = ""
    """Why it cannot be answered."""
    model: str = ""
    """The model that the request names, which its answer repeats."""
    encoding_format: str = "float"
    dimensions: int | None = None
    """How many numbers of each vector are wanted; None for all."""


def read_request(line: bytes | None) -> BatchRequest:
    """Return the request on a line, with a reason and no texts if it cannot be answered. line: None if too long."""
    if line is None:
        return BatchRequest(reason="the line is too long")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BatchRequest(reason=f"the line is no JSON: {error}")
    if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
        return BatchRequest(reason="expected an object with custom_id, method, url and body")
    custom_id, body = row["custom_id"], row.get("body")
    if row.get("url") != URL or row.get("method") != "POST":
        return BatchRequest(custom_id, reason=f"the method {shown(row.get('method'))} of {shown(row.get('url'))} is "
                                              f"not answered here; only POST of {URL} is")
    if not isinstance(body, dict):
        return BatchRequest(custom_id, reason="the request has no body")
    return _read_body(custom_id, body)


def _read_body(custom_id: str, body: dict[str, Any]) -> BatchRequest:
    """Return the request with this custom_id and body, with a reason and no texts if a field of the body is wrong."""
    texts = body.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    form, width = body.get("encoding_format") or "float", body.get("dimensions")
    if unknown := body.keys() - _FIELDS:
        reason = f"/v1/embeddings has no {', '.join(sorted(unknown))}"
    elif not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        reason = f"input must be a string or a list of strings (lists of token ids are not read), not {shown(texts)}"
    elif len(texts) > MOST_TEXTS:
        reason = f"input may have at most {MOST_TEXTS:,} texts, and has {len(texts):,}"
    elif form not in ("float", "base64"):
        reason = f"encoding_format must be float or base64, not {shown(form)}"
    elif width is not None and (type(width) is not int or width < 1):
        reason = f"dimensions must be an int of at least 1, not {shown(width)}"
    elif not isinstance(model := body.get("model", ""), str):
        reason = f"model must be a string, not {shown(model)}"
    else:
        return BatchRequest(custom_id, tuple(texts), model=model, encoding_format=form, dimensions=width)
    return BatchRequest(custom_id, reason=reason)


def answer(request: BatchRequest, vectors: np.ndarray, tokens: int) -> dict[str, Any]:
    """Return the JSON object that answers a request. vectors: float32 [n, D], of its n texts; tokens: their number."""
    vectors = shortened(vectors, request.dimensions)
    data = [{"object": "embedding", "index": i, "embedding": _encoded(vector, request.encoding_format)}
            for i, vector in enumerate(vectors)]
    body = {"object": "list", "data": data, "model": request.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    return _line(request, 200, body)


def refusal(request: BatchRequest, reason: str) -> dict[str, Any]:
    """Return the JSON object, for the file of rejected rows, that says why a request is not answered."""
    return _line(request, 400, {"error": {"message": reason, "type": "invalid_request_error", "param": None,
                                          "code": None}})


def is_answers(data: bytes) -> bool:
    """Return whether a job wrote these lines of answers or refusals, by the id on the first; True if there is none."""
    try:
        return all(json.loads(line)["id"].startswith(_ID) for line in data.splitlines()[:1])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False


def _line(request: BatchRequest, status: int, body: dict[str, Any]) -> dict[str, Any]:
    """Return the object of an output line: ids, an HTTP status, and the body of the response."""
    custom_id = f"{request.custom_id}".encode("utf-8", "surrogatepass")
    number = hashlib.sha256(custom_id).hexdigest()[:24]     # a hash, so that every run writes the same bytes
    return {"id": f"{_ID}{number}", "custom_id": request.custom_id,
            "response": {"status_code": status, "request_id": number, "body": body}, "error": None}


def _encoded(vector: np.ndarray, form: str) -> Any:
    """Return a float32 vector [D] as JSON: a list of floats, or base64 of its little-endian bytes."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(f"{x:.9g}") for x in vector]       # nine digits give the same float32 back
