"""Run a command, and measure from outside, by Linux's /proc, what it and all processes that it starts use."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from .results import busy_seconds
from .worker import Failed

INTERVAL = 0.1
"""Seconds between two looks at the processes."""
MEMORY_INTERVAL = 0.5
"""Seconds between two looks at their memory, which the kernel adds up page by page."""
PATIENCE = 1800.0
LEAVING = 3.0
"""Seconds that processes get to end after the command that started them; then they are killed."""


@dataclass
class Used:
    """What a command used, together with all processes that it started."""

    wall: float = 0.0
    """Seconds until it ended."""
    first: float | None = None
    """Seconds until `ready` was true for the first time."""
    cpu: float = 0.0
    """Seconds of CPU time."""
    memory: int = 0
    """The most bytes of memory at one time; a page that several processes share counts once."""
    others: float = 0.0
    """Seconds of CPU time of all other programs meanwhile, this one included."""
    moved: int = 0
    """Bytes through calls that read or write files, pipes and sockets; mapped files and shared memory do not count."""


def run(command: list[str], folder: Path, log: Path, ready: Callable[[], bool]) -> Used:
    """Run a command in a folder, with its output in a log; raises `Failed` with the log's last line if it fails."""
    used, busy, start, memory_at = Used(), busy_seconds(), monotonic(), 0.0
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   start_new_session=True)
    seen: dict[int, int] = {}
    try:
        while not (ended := has_ended(process.pid)):        # a process that has ended still says what it used
            now = monotonic() - start
            if now > PATIENCE:
                raise Failed(f"no end in {PATIENCE / 60:.0f} minutes")
            family = look(process.pid, used)
            seen |= family
            if now >= memory_at:
                used.memory, memory_at = max(used.memory, sum(map(memory, family))), now + MEMORY_INTERVAL
            if used.first is None and ready():
                used.first = monotonic() - start
            sleep(INTERVAL)
        used.wall = monotonic() - start
        look(process.pid, used)
        used.others = max(0.0, busy_seconds() - busy - used.cpu)
        if used.first is None and ready():
            used.first = used.wall
    finally:
        seen.pop(process.pid, None)
        end(seen, LEAVING if ended else 0.0)
        if not ended:
            process.kill()
        code = process.wait()
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        raise Failed(next((line.strip() for line in reversed(lines) if line.strip()), f"ended with status {code}"))
    return used


def has_ended(pid: int) -> bool:
    """Return True if a child has ended, and leave what the kernel knows about it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def look(root: int, used: Used) -> dict[int, int]:
    """Bring CPU time and bytes up to date; return the processes that live, and when each started.

    The times of a process include those of children that it has waited for, so the sum over the living processes is
    that of all. The largest sum counts, because a parent may also let a child go without waiting.
    """
    processes = {int(name): found for name in os.listdir("/proc") if name.isdigit() and (found := status(int(name)))}
    family, size = {root}, 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, found in processes.items() if found.parent in family}
    family &= processes.keys()
    used.cpu = max(used.cpu, sum(processes[pid].cpu for pid in family))
    used.moved = max(used.moved, sum(map(moved, family)))
    return {pid: processes[pid].start for pid in family}


class Status(NamedTuple):
    """What the kernel says about a process."""

    lives: bool
    """False if it has ended, and its parent has not waited for it yet."""
    parent: int
    cpu: float
    """Seconds of CPU time of the process and its awaited children."""
    start: int
    """When it started, in clock ticks; with the number of the process it is a name that no other process gets."""


def status(pid: int) -> Status | None:
    """Return the status of a process, or None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    cpu = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return Status(fields[0] not in "ZX", int(fields[1]), cpu, int(fields[19]))


def moved(pid: int) -> int:
    """Return the bytes that a process and its awaited children have read and written by calls; 0 if it is gone."""
    return numbers_of(pid, "io", ("rchar:", "wchar:"))


def memory(pid: int) -> int:
    """Return the bytes of memory of a process, with its share of the pages that it shares; 0 if it is gone."""
    return 1024 * numbers_of(pid, "smaps_rollup", ("Pss:",))


def numbers_of(pid: int, file: str, names: tuple[str, ...]) -> int:
    """Return the sum of the numbers behind some names in a file about a process; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(names))


def end(started: dict[int, int], seconds: float) -> None:
    """Kill the processes that are still there after these seconds, and return when all are gone.

    started: when each process started, by its id, since the system gives an id to a new process.
    """
    deadline = monotonic() + seconds

    def living() -> list[int]:
        return [pid for pid, start in started.items() if (now := status(pid)) and now.lives and now.start == start]

    while (left := living()) and monotonic() < deadline:
        sleep(INTERVAL)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while left and living():        # until they are gone, they use what the next job is measured by
        sleep(INTERVAL)
