"""Run many cases in forked children with little memory and time, and report what a case does that no case may do."""

import faulthandler
import json
import os
import re
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from mmap import mmap

import numpy as np

from tests.tools.children import read_child

CPU_SECONDS = 2
"""Limit on the CPU time of a case."""
SECONDS = 60
"""Limit on the time of a case that waits; far above `CPU_SECONDS`, because a busy machine makes every case wait."""
MEMORY = 500_000_000
"""Limit on the bytes of address space that a child may take beside what it starts with."""
GROWTH = 200_000_000
"""Limit on the bytes by which a case may raise the child's peak of resident memory."""
LEAK = 10_000
"""Limit on the bytes of resident memory that a case leaves behind, as the mean of the cases of a child."""

Finding = tuple[int, str]
"""The number of a case, and what it did."""
RunCase = Callable[[int], tuple[int, bool]]
"""Runs the case of this number; returns the number of its kind, and whether it gave an answer."""


class Children:
    """Runs cases in one child after the other: a child goes on until its last case, or until a case kills it."""

    def __init__(self, start: Callable[[], RunCase], kinds: int, cpu_seconds: float = CPU_SECONDS,
                 seconds: float = SECONDS):
        """`start` is called in each child, and returns what runs a case there."""
        self._start, self._cpu_seconds, self._seconds = start, cpu_seconds, seconds
        self._shared = np.frombuffer(mmap(-1, 8 * (1 + 2 * kinds)), np.int64)
        self.counts = self._shared[1:].reshape(kinds, 2)
        """Numbers of cases of each kind that gave an `EngineError`, and that gave an answer."""

    def run(self, first: int, last: int) -> list[Finding]:
        """Run the cases from `first` to `last - 1`, and return what they did that no case may do."""
        findings: list[Finding] = []
        waited = -1
        while first < last:
            text, status = self._fork(first, last)
            findings += [tuple(json.loads(line)) for line in text.splitlines()]
            if status == 0:
                break
            if status > 0:
                raise RuntimeError(f"a child could not start: {text}")
            at, name = int(self._shared[0]), signal.Signals(-status).name
            if name == "SIGALRM" and at != waited:      # a machine that was suspended looks so, and a hang comes twice
                first = waited = at
                continue
            findings.append((at, {"SIGPROF": f"took over {self._cpu_seconds} s of CPU time",
                                  "SIGALRM": f"took over {self._seconds} s"}.get(name, f"killed by {name}")))
            first = at + 1
        return findings

    def _fork(self, first: int, last: int) -> tuple[str, int]:
        self._shared[0] = first
        return read_child(lambda writer: self._run_all(first, last, writer))

    def _run_all(self, first: int, last: int, writer: int) -> None:
        try:
            run = self._start()
        except BaseException:
            os.write(writer, json.dumps([first, traceback.format_exc()]).encode())
            raise
        faulthandler.disable()
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a panic of Rust prints a page
        limit = _memory(0) + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        warnings.simplefilter("error")
        third, resident = (last - first) // 3, []
        for index in range(first, last):
            if index - first in (third, 2 * third):
                resident.append(_memory(1))
            if what := self._run_one(run, index):
                os.write(writer, json.dumps([index, what]).encode() + b"\n")
        # Memory that one large case has used may stay with the process; a leak grows in the last third, too.
        resident.append(_memory(1))
        if third >= 300 and (leak := min(np.diff(resident)) / third) > LEAK:
            os.write(writer, json.dumps([first, f"the {last - first} cases from this one leak {leak:,.0f} bytes each"])
                     .encode() + b"\n")

    def _run_one(self, run: RunCase, index: int) -> str | None:
        self._shared[0] = index
        signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        peak = _peak()
        try:
            kind, answered = run(index)
        except BaseException as error:
            return describe(error)
        self.counts[kind, int(answered)] += 1
        if (growth := _peak() - peak) > GROWTH:
            return f"took {growth:,} bytes of memory"
        return None


def describe(error: BaseException) -> str:
    """Return the type and the message of an error, with the line of the engine that raised it, and the traceback."""
    text = "".join(traceback.format_exception(error))
    places = re.findall(r'File "[^"]*?(engine/[^"]*)", line ([0-9]+)', text)
    place = ":".join(places[-1]) if places else "outside the engine"
    return f"{type(error).__name__} at {place}: {str(error)[:300]}\n{text[-3000:]}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _memory(column: int) -> int:
    """Return the bytes of this process's address space (column 0), or of its resident memory (column 1)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[column]) * resource.getpagesize()


def largest_child() -> int:
    """Return the largest resident memory of all children so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
