"""Call a function in a forked child that may take only so much memory and time."""

import faulthandler
import os
import resource
import signal
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from engine.base.errors import EngineError

from .children import read_child

MEMORY = 500_000_000
SECONDS = 10
"""Of CPU time, far above the 2 s that no file may take; the bombs took over 20 s."""
WAITING = 4
"""How many times as long a child may take with waiting, for other processes or for ever."""


def outcome(call: Callable[..., Any], *arguments: Any, memory: int = MEMORY, seconds: float = SECONDS) -> str:
    """Return what a call in a child gives: "ok: " and the value, "EngineError: ", or what went wrong.

    The child may allocate `memory` bytes more than this process has.
    """
    if not hasattr(os, "fork") or not os.path.exists("/proc/self/statm"):
        pytest.skip("this system has no fork, or no /proc")

    def run(writer: int) -> None:
        os.write(writer, _call(call, arguments, memory, seconds).encode(errors="replace")[:4000])

    text, status = read_child(run)
    if status == -signal.SIGALRM:   # a machine that was suspended looks so, and a call that hangs does so twice
        text, status = read_child(run)
    if status < 0:
        late = -status in (signal.SIGALRM, signal.SIGPROF)
        return "took too long" if late else f"killed by {signal.Signals(-status).name}"
    return text


def _call(call: Callable[..., Any], arguments: tuple[Any, ...], memory: int, seconds: float) -> str:
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    faulthandler.disable()
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("error")
    try:
        return f"ok: {call(*arguments)!r}"
    except EngineError as error:
        return f"EngineError: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
