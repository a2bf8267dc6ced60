"""Damage files, and measure the memory that reading them takes."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.base.errors import EngineError

LITTLE = 4_000_000
"""Limit on the bytes allocated to read a hostile file of a few kB; parsing a hostile .npy header needs half of it."""


def owner(array: np.ndarray) -> object:
    """Return the object that owns the array's memory."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


@st.composite
def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """Draw a file with ranges overwritten, repeated or removed, as failing disks, bad copies and attackers produce."""
    result = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(result)))
        end = draw(st.integers(begin, min(len(result), begin + 300)))
        piece = draw(st.one_of(st.binary(max_size=16), st.just(bytes(result[begin:end])), st.just(b"\xff" * 8)))
        at = draw(st.integers(0, len(result)))
        result[at:at + draw(st.sampled_from([0, len(piece), end - begin]))] = piece
    return bytes(result)


def peak_of(call: Callable[..., Any], *arguments: Any) -> int:
    """Return the peak of Python's allocations during a call, which may raise only `EngineError`."""
    tracemalloc.start()
    try:
        with suppress(EngineError):
            call(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
