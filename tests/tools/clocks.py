"""A clock that a test moves ahead, so that a deadline passes at the moment that the test chooses."""

import time
from collections.abc import Callable

import pytest


def jumping_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let `time.monotonic` go on as before, and return a function that moves it ahead by some seconds."""
    monotonic, ahead = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + ahead[0])

    def jump(seconds: float) -> None:
        ahead[0] += seconds

    return jump
