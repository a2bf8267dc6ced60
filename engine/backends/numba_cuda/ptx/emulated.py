"""The emulator's warp, which the Python forms of PTX functions read and change: tests/tools/cuda_emulator.py."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

WARP = 32


def current() -> Any:
    """Return the warp of the emulator that runs the kernel: its block, lanes, copies, and meetings with other warps."""
    return threading.current_thread()


def store_rows(addresses: np.ndarray, rows: np.ndarray, there: np.ndarray) -> None:
    """Write the rows of the lanes that are there to global memory, at addresses that are multiples of a row's bytes."""
    if there.any():
        pieces = rows.view(np.uint8)[there]
        memory, places = current().block.places(addresses[there], pieces.shape[1])
        memory[places] = pieces
