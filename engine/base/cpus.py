"""Count the CPUs that this process may use: the smaller of its CPU affinity and the quotas of its control groups.

`os.cpu_count` does not report the quota of a container, and threads beyond the quota only wait for one another.
OMP_NUM_THREADS limits the number of threads that the engine chooses by itself, so `threads=` of a user overrides it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .arguments import positive_int_or_none

OMP_NUM_THREADS = "OMP_NUM_THREADS"
"""The variable by which users, Ray and other schedulers limit the threads of every OpenMP library in a process."""


@dataclass(frozen=True)
class CpuLimit:
    """A number of CPUs, at least 1, and the setting that limits the process to it."""

    cpus: int
    source: str
    """The name of the setting, for messages."""


def usable_cpus() -> int:
    """Return the number of CPUs of the strictest limit in `cpu_limits()`."""
    return min(limit.cpus for limit in cpu_limits())


def choose_threads(asked: int | None) -> int:
    """Return the number of threads to use: `asked`, at most the usable CPUs; for None the least of `thread_limits()`.

    Raises `InputError` for a number below 1.
    """
    wanted = positive_int_or_none("threads", asked)
    return min(limit.cpus for limit in thread_limits()) if wanted is None else min(wanted, usable_cpus())


def thread_limits() -> list[CpuLimit]:
    """Return every limit on the number of threads that we choose: the limits on CPUs, and that of OMP_NUM_THREADS."""
    threads = omp_num_threads()
    return [*cpu_limits(), *([CpuLimit(threads, OMP_NUM_THREADS)] if threads else [])]


def omp_num_threads() -> int | None:
    """Return the number of threads that OMP_NUM_THREADS asks for; None if it is not set, or is no number above 0.

    OpenMP allows a list, such as 4,2: a number for each level of nesting, of which this returns the first. It ignores
    any other value, such as 0 or a word, like OpenMP libraries.
    """
    numbers = re.fullmatch(r"\s*(\d{1,9})\s*(?:,\s*\d+\s*)*", os.environ.get(OMP_NUM_THREADS, ""), re.ASCII)
    return (numbers and int(numbers[1])) or None


def cpu_limits(proc: str = "/proc/self") -> list[CpuLimit]:
    """Return every limit on this process's CPUs; `proc` is the kernel's folder about the process, if there is one."""
    if hasattr(os, "sched_getaffinity"):
        first = CpuLimit(len(os.sched_getaffinity(0)), "CPU affinity")
    else:
        first = CpuLimit(os.cpu_count() or 1, "CPUs of the machine")
    return [first, *_quotas(proc)]


def _quotas(proc: str) -> Iterator[CpuLimit]:
    """Yield the CPU quotas of the process's control group and of all the groups that contain it."""
    for mount, group, version in _cpu_groups(proc):
        for folder in _with_parents(group):
            quota = _read_quota(mount + folder, version)
            if quota is not None:
                yield CpuLimit(max(1, quota), f"CPU quota in {mount + folder}")


def _read_quota(group: str, version: int) -> int | None:
    """Return the number of CPUs that a control group (its folder) may use, rounded up; None when it has no quota."""
    # The files have two times: the CPU time that the group may use in each period, and the period.
    if version == 2:
        words = _read(f"{group}/cpu.max").split()
    else:
        words = _read(f"{group}/cpu.cfs_quota_us").split() + _read(f"{group}/cpu.cfs_period_us").split()
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None  # both "max" and -1 mean that there is no quota
    quota, period = map(int, words)
    return -(-quota // period)


def _with_parents(group: str) -> Iterator[str]:
    """Yield a group and the groups that contain it: "/a/b", "/a" and "" for "/a/b"."""
    while group:
        yield group
        group = group.rpartition("/")[0]
    yield ""


def _cpu_groups(proc: str) -> Iterator[tuple[str, str, int]]:
    """Yield (mount point, group of this process, version) of each hierarchy that controls CPUs. See cgroups(7)."""
    mounts = list(_cgroup_mounts(proc))
    for line in _read(f"{proc}/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        version = 1 if controllers else 2
        if version == 1 and "cpu" not in controllers.split(","):
            continue
        for root, mount, mounted_version in mounts:
            if mounted_version == version:
                # In a container, the kernel may report the host's path although only the group itself is mounted.
                below = path.removeprefix(root.rstrip("/")).rstrip("/")
                visible = below.startswith("/") and "/.." not in below and os.path.isdir(mount + below)
                yield mount, below if visible else "", version


def _cgroup_mounts(proc: str) -> Iterator[tuple[str, str, int]]:
    """Yield (path in it, mount point, version) of each mounted hierarchy that can control CPUs. See proc(5)."""
    for line in _read(f"{proc}/mountinfo").splitlines():    # "id parent device root mount ... - type source options"
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        # The kernel writes a space in a path as \040, its octal code.
        root, mount = (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text) for text in fields[3:5])
        if kind[0] == "cgroup2":
            yield root, mount, 2
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            yield root, mount, 1


def _read(path: str) -> str:
    """Return the text of a file, or "" when it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
