"""The emulator's thread, which the Python forms of PTX functions read and change: tests/tools/cuda_emulator.py."""

from __future__ import annotations

import threading
from typing import Any

WARP = 32


def current() -> Any:
    """Return the thread of the emulator that runs the kernel: its block, copies, and meetings with other threads."""
    return threading.current_thread()
