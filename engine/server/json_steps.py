"""Write the JSON of answers; of long ones in steps of some milliseconds, between which the workers do other calls."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import orjson

from .workers import Steps

STEP = 0.005
"""The seconds of a step; one item is never divided, so it alone may take longer."""


class JsonRows:
    """A list for JSON, from an iterable whose items are computed as they are written; so it can be written once."""

    def __init__(self, items: Iterable[Any]):
        self.items = items


def write_json(value: Any) -> Steps:
    """Return the JSON of a value as a list of bytes to be joined; a generator, which yields between its steps.

    value: what orjson writes, NumPy arrays too; or `JsonRows`, alone or as values of dicts at any depth; or bytes that
    are JSON already.
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
        # The last items behind a comma; or only "[" where there was no item at all.
        parts.append((opening + b",".join(chunk) if chunk or opening == b"[" else b"") + b"]")
    elif isinstance(value, dict) and value:
        opening = b"{"
        for name, field in value.items():
            parts.append(opening + _json(name) + b":")
            parts += yield from write_json(field)
            opening = b","
        parts.append(b"}")
    else:
        parts.append(_json(value))
    return parts


def json_of(value: Any) -> bytes:
    """Return the JSON of a short value, of the kinds that `write_json` reads, without steps."""
    return _json(_with_lists(value))


def _with_lists(value: Any) -> Any:
    """Return a value in which each `JsonRows` is a list, which orjson writes."""
    if isinstance(value, JsonRows):
        return list(value.items)
    return {name: _with_lists(field) for name, field in value.items()} if isinstance(value, dict) else value


def _json(value: Any) -> bytes:
    """Return the JSON of a value for orjson; bytes are JSON already."""
    return value if isinstance(value, bytes) else orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
