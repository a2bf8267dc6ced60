"""Describe this machine for `engine info` and `engine doctor`: each backend, and the limits on threads."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import zip_longest

from ..backends import BACKENDS
from ..backends.interfaces import Backend
from ..base.cpus import OMP_NUM_THREADS, omp_num_threads, thread_limits
from .console import print_row


def backend_lines() -> dict[str, list[str]]:
    """Return lines about each backend by its name: what it uses on this machine, or why it cannot run."""
    lines = {}
    for name, module in BACKENDS.items():
        backend: Backend = import_module(module).BACKEND
        reason = backend.unavailable()
        if reason is None:
            portable = "no portable bits" if backend.no_portable_bits() else "portable bits, where they are asked for"
            lines[name] = [*backend.describe().splitlines(), portable]
        else:
            lines[name] = [f"cannot run: {reason}"]
    return lines


def thread_lines() -> list[str]:
    """Return the number of threads that a model gets by default, and a line for each limit."""
    limits = thread_limits()
    lines = [str(min(limit.cpus for limit in limits)), *(f"{limit.cpus} by {limit.source}" for limit in limits)]
    if os.environ.get(OMP_NUM_THREADS) and omp_num_threads() is None:
        lines.append(f"{OMP_NUM_THREADS}={os.environ[OMP_NUM_THREADS][:40]} is ignored: it is no number above 0")
    return lines


def print_lines(label: str, lines: list[str]) -> None:
    """Print the first line as a row of a table, and the others below it."""
    for title, line in zip_longest([label], lines, fillvalue=""):
        print_row(title, line)


def print_machine() -> None:
    """Print the backends and the threads."""
    for name, lines in backend_lines().items():
        print_lines(f"backend {name}", lines)
    print_lines("threads", thread_lines())
