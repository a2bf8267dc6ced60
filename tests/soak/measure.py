"""What a process holds: samples from Linux's /proc, and how fast each quantity grows."""

import ctypes
import math
import os
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import NamedTuple

import numpy as np

BLOCKS = 24
LEAST = 600.0
"""Seconds of samples without which growth is not judged: what fills once would look like a leak."""
STUDENT = 2.07
"""97.5 % quantile of Student's t distribution with BLOCKS - 2 degrees of freedom."""


class Bound(NamedTuple):
    """A quantity of a sample, and the growth in an hour that is too much."""

    unit: str
    most: float


BOUNDS = {
    "rss": Bound("MB", 8),
    "anonymous": Bound("MB", 8),
    "pss": Bound("MB", math.inf),
    "threads": Bound("", 0.5),
    "descriptors": Bound("", 0.5),
    "maps": Bound("", 10),
    "blocks": Bound("", 5000),
    "files": Bound("", 0.5),
}
"""`blocks` counts Python's memory blocks, `files` the files in the folder of the soak test. `pss` is not judged: it
also grows when another process that has mapped the same libraries ends."""


class Growth(NamedTuple):
    """A fitted line."""

    start: float
    """Its value at the first sample."""
    slope: float
    """Growth in an hour."""
    error: float
    """Half of the slope's interval of 95 % confidence."""


def sample(folder: Path) -> dict[str, float]:
    """Return what this process holds now, by the names of `BOUNDS`."""
    memory = dict.fromkeys(("Rss", "Anonymous", "Pss"), 0.0)
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in memory:
            memory[name] = int(rest.split()[0]) / 1000
    return {
        "rss": memory["Rss"],
        "anonymous": memory["Anonymous"],
        "pss": memory["Pss"],
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "maps": Path("/proc/self/maps").read_text().count("\n"),
        "blocks": sys.getallocatedblocks(),
        "files": sum(len(files) for _, _, files in os.walk(folder)),
    }


class _MallocInfo(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks", "used", "free", "keepcost")]  # fmt: skip


def malloc_bytes() -> int:
    """Return the bytes of all blocks that glibc has given out. Those of Python's own small objects are not among them.

    Resident memory goes on to grow a little by the order of the blocks, for many thousands of requests after these
    stopped to.
    """
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _MallocInfo
    info = ask()
    return int(info.used + info.mapped)


def growth(seconds: np.ndarray, values: np.ndarray) -> Growth:
    """Fit a line to samples [n] that were taken at these times [n].

    Neighbouring samples resemble each other, so that the scatter of single samples would promise too small an error.
    The line is therefore fitted to the means of `BLOCKS` blocks.
    """
    blocks = min(BLOCKS, len(seconds))
    if blocks < 3:
        return Growth(float(values[0]), 0.0, math.inf)
    x = np.array([part.mean() for part in np.array_split(seconds, blocks)]) / 3600
    y = np.array([part.mean() for part in np.array_split(values, blocks)])
    spread = ((x - x.mean()) ** 2).sum()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / spread
    start = y.mean() + slope * (seconds[0] / 3600 - x.mean())
    left = y - y.mean() - slope * (x - x.mean())
    return Growth(float(start), float(slope), float(STUDENT * math.sqrt((left**2).sum() / (blocks - 2) / spread)))


class Record:
    """Samples, in one block of memory, so that they do not count as growth themselves."""

    def __init__(self) -> None:
        self._numbers = array("d")

    def add(self, time: float, row: dict[str, float]) -> None:
        """Add a sample of `sample`."""
        self._numbers.extend([time, *(row[name] for name in BOUNDS)])

    def columns(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the times [n], and the values [n] of each quantity."""
        table = np.array(self._numbers).reshape(-1, 1 + len(BOUNDS))
        return table[:, 0], dict(zip(BOUNDS, table[:, 1:].T, strict=True))


def report(samples: Record, warm_up: float) -> list[str]:
    """Print how each quantity grew after `warm_up` seconds; return a line for each that surely outgrew its bound.

    Samples over less than `LEAST` seconds are printed, and not judged.
    """
    times, columns = samples.columns()
    kept = (times - times[0] >= warm_up) | (times == times[-1])
    seconds = times[kept]
    print(f"{len(seconds)} samples over {seconds[-1] - seconds[0]:.0f} s, after a warm-up of {warm_up:.0f} s")
    print(f"{'':12}{'at start':>12}{'lowest':>12}{'highest':>12}{'growth in an hour':>26}{'bound':>10}")
    found, judged = [], seconds[-1] - seconds[0] >= LEAST
    for name, (unit, most) in BOUNDS.items():
        values = columns[name][kept]
        line = growth(seconds, values)
        slope = f"{line.slope:+.2f} +- {line.error:.2f} {unit:2}"
        print(f"{name:12}{line.start:12.1f}{values.min():12.1f}{values.max():12.1f}{slope:>26}{most:10.1f}")
        if judged and line.slope - line.error > most:
            found.append(f"{name} grew by {line.slope:.2f} +- {line.error:.2f} {unit} in an hour; {most} are allowed")
    if not judged:
        print(f"this is too short to judge growth: {LEAST:.0f} s after the warm-up are needed")
    return found


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that have ended."""
    return sum(os.times()[:4])


class Pace:
    """Keeps the CPU time of all threads and children together below a share of one core."""

    def __init__(self, duty: float):
        self._duty = duty
        self._begun, self._used = time.monotonic(), cpu_seconds()

    def wait(self, stop: threading.Event, until: float = math.inf) -> None:
        """Sleep while more was used than the share; no longer than to `until`."""
        while not stop.is_set():
            now = time.monotonic()
            ahead = (cpu_seconds() - self._used) / self._duty - (now - self._begun)
            if ahead <= 0 or now >= until:
                return
            stop.wait(min(ahead, until - now, 1.0))
