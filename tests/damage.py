"""Damaging files, and watching what reading them costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.errors import EngineError

LITTLE = 4_000_000
"""Bytes that reading a hostile file of a few kB may take; a hostile .npy header alone costs Python's parser half."""


def owner(array: np.ndarray) -> object:
    """What holds the array's memory in the end."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


@st.composite
def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """A file with ranges overwritten, repeated or removed, as bad disks, bad copies and bad people leave them."""
    result = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(result)))
        end = draw(st.integers(begin, min(len(result), begin + 300)))
        piece = draw(st.one_of(st.binary(max_size=16), st.just(bytes(result[begin:end])), st.just(b"\xff" * 8)))
        at = draw(st.integers(0, len(result)))
        result[at:at + draw(st.sampled_from([0, len(piece), end - begin]))] = piece
    return bytes(result)


def peak_of(call: Callable[..., Any], *arguments: Any) -> int:
    """Peak of Python's allocations during a call that may raise an `EngineError` and nothing else."""
    tracemalloc.start()
    try:
        with suppress(EngineError):
            call(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
