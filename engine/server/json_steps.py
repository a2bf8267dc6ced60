"""Write the JSON of long answers in steps of some milliseconds, between which other threads go on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import orjson

from .workers import Steps

STEP = 0.005
"""The seconds of a step, beyond which one item alone may go."""


class JsonRows:
    """A list whose items are made while it is written."""

    def __init__(self, items: Iterable[Any]):
        self.items = items


def write_json(value: Any) -> Steps:
    """Return the parts, bytes, of the JSON of a value, in steps.

    value: for orjson, with NumPy arrays; it may be `JsonRows`, or an object that has some among its values, or deeper;
    or bytes, which stay as they are.
    """
    parts: list[bytes] = []
    if isinstance(value, JsonRows):
        opening, chunk, begun = b"[", [], time.perf_counter()
        for item in value.items:
            chunk.append(_json(item))
            if time.perf_counter() - begun > STEP:
                parts.append(opening + b",".join(chunk))
                opening, chunk = b",", []
                yield
                begun = time.perf_counter()
        # What is left, behind a comma; "[" where there was no item at all.
        parts.append((opening + b",".join(chunk) if chunk or opening == b"[" else b"") + b"]")
    elif isinstance(value, dict) and value:
        opening = b"{"
        for name, one in value.items():
            parts.append(opening + _json(name) + b":")
            parts += yield from write_json(one)
            opening = b","
        parts.append(b"}")
    else:
        parts.append(_json(value))
    return parts


def json_of(value: Any) -> bytes:
    """Return the JSON of a short value for `write_json` at once."""
    return _json(_with_lists(value))


def _with_lists(value: Any) -> Any:
    if isinstance(value, JsonRows):
        return list(value.items)
    return {name: _with_lists(one) for name, one in value.items()} if isinstance(value, dict) else value


def _json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
