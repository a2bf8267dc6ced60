"""The one form of all files of results: what was measured, on which machine, from which commit, beside which load.

    {"schema": 2, "tool": "peers", "quick": false, "machine": {...}, "rows": [...], ...}

A machine has the fields of `MACHINE`, and a row has a library and either `why`, the reason why there are no numbers, or
numbers. `read` also reads the files from before there was a schema, and fills what they lack with None.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from engine.backends import get_backend
from engine.base.version import __version__
from engine.files.writing import replacing

from .machine import cpu_name

SCHEMA = 2
"""The number of this form. Files of the first one have no number."""
ROOT = Path(__file__).parents[2]
PACKAGES = ("onnxruntime", "openvino", "nncf", "ctranslate2", "torch", "transformers", "zentorch",
            "sentence-transformers", "llama-cpp-python", "fastembed", "ray", "numpy")  # fmt: skip
MACHINE: dict[str, type | tuple[type, ...]] = {
    "cpu": str, "engine runs": str, "threads": int, "python": str, "date": str, "versions": dict,
    "isa": (str, type(None)), "commit": (str, type(None)), "steal": (float, type(None))}
"""The fields of a machine and their types; the last three are None in files of the first form.

isa: the instruction set of the engine's kernels. commit: of the repository, with + for changes that are not committed.
steal: the share of the CPU time that the hypervisor gave to other machines while the measurement ran, from 0 to 1.
"""
TOP: dict[str, type] = {"schema": int, "tool": str, "quick": bool, "machine": dict, "rows": list}


class Steal:
    """Measures the share of CPU time that was stolen since it was made, from the first line of /proc/stat."""

    def __init__(self, stat: Path = Path("/proc/stat")):
        self._stat, self._before = stat, ticks(stat)

    def share(self) -> float | None:
        """Return the share, from 0 to 1; None where the system does not say."""
        now = ticks(self._stat)
        if self._before is None or now is None:
            return None
        stolen, total = now.stolen - self._before.stolen, now.total - self._before.total
        return stolen / total if total > 0 else 0.0


class Ticks(NamedTuple):
    """Times of all CPUs since the machine started, in clock ticks."""

    stolen: int
    total: int
    busy: int
    """The time in which programs and the kernel ran."""


def ticks(stat: Path = Path("/proc/stat")) -> Ticks | None:
    """Return the times of all CPUs; None where the system does not say."""
    try:
        name, *fields = stat.read_text().splitlines()[0].split()
        times = [int(field) for field in fields[:8]]        # guest times, which follow, are part of user times
    except (OSError, IndexError, ValueError):
        return None
    if name != "cpu" or len(times) != 8:
        return None
    idle = times[3] + times[4]
    return Ticks(times[7], sum(times), sum(times) - idle - times[7])


def busy_seconds() -> float:
    """Return the seconds in which programs ran on any CPU since the machine started."""
    return ticks().busy / os.sysconf("SC_CLK_TCK")


def machine(threads: int) -> dict[str, Any]:
    """Describe the machine and the software of a measurement; the share of stolen time comes later."""
    runs = get_backend("auto").describe().splitlines()[0]
    return {"cpu": cpu_name(), "engine runs": runs, "isa": isa_of(runs), "threads": threads,
            "python": platform.python_version(), "date": date.today().isoformat(), "commit": commit(), "steal": None,
            "versions": {"engine": __version__} | {name: installed(name) for name in PACKAGES}}


def isa_of(runs: str) -> str | None:
    """Return the instruction set in the description of a backend, such as "avx2 kernels (of ...)"."""
    name, kernels, _ = runs.partition(" kernels")
    return name if kernels else None


def commit(folder: Path = ROOT) -> str | None:
    """Return the commit of the repository, with + for changes that are not committed; None outside of one."""
    try:
        known = git(folder, "rev-parse", "--short=12", "HEAD")
        return known + "+" * bool(git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return None


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def problems(numbers: dict[str, Any]) -> list[str]:
    """Return what is wrong with the form of results."""
    found = [f"{name} must be {kind.__name__}, not {numbers.get(name)!r}" for name, kind in TOP.items()
             if not isinstance(numbers.get(name), kind)]
    if found:
        return found
    own = numbers["machine"]
    found += [f"machine.{name} must be {kind}, not {own.get(name)!r}" for name, kind in MACHINE.items()
              if name not in own or not isinstance(own[name], kind)]
    found += [f"row {i} needs a library, and numbers or why there are none" for i, row in enumerate(numbers["rows"])
              if not isinstance(row.get("library"), str) or len(row) < 2]
    return found


def read(path: Path) -> dict[str, Any]:
    """Return the results of a file of either form; raises `ValueError` for anything else."""
    numbers = json.loads(path.read_text(encoding="utf-8"))
    if "schema" not in numbers:
        own = numbers.get("machine", {})
        numbers = {"schema": SCHEMA, "tool": "peers"} | numbers | {
            "machine": {"isa": isa_of(own.get("engine runs", "")), "commit": None, "steal": None} | own}
    elif numbers["schema"] != SCHEMA:
        raise ValueError(f"{path} has the form {numbers['schema']!r} of results, and this program reads {SCHEMA}")
    if wrong := problems(numbers):
        raise ValueError(f"{path}: {'; '.join(wrong)}")
    return numbers


def write(path: Path, numbers: dict[str, Any]) -> None:
    """Write results in one step, so that the file is complete at any time; raises `ValueError` if the form is wrong."""
    numbers = {"schema": SCHEMA} | numbers
    if wrong := problems(numbers):
        raise ValueError(f"{path}: {'; '.join(wrong)}")
    write_text(path, json.dumps(numbers, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in one step, so that it is complete at any time."""
    with replacing(path) as file:
        file.write(text.encode())
