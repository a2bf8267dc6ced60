"""Implement `engine doctor`: facts about the installation and the machine on one screen, for the report of a bug."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path

import numpy as np

from ..base.install import PACKAGE, explain_missing_kernels
from ..base.version import __version__
from .machine import backend_lines, print_lines, thread_lines

DISTRIBUTION = "encoder-engine"

OF_DEVELOPERS = {"bench", "fuzz", "test"}
"""The extras for work on the project itself, which are not shown."""

VARIABLES = ("ENGINE_ISA", "ENGINE_CACHE_DIR", "OMP_NUM_THREADS", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE")
"""The environment variables to show, which change how the engine works; none of them holds a secret."""

CPU_FIELDS = {"model name": "", "vendor_id": "", "cpu family": "family ", "model": "model ",
              "CPU implementer": "implementer ", "CPU part": "part "}
"""The fields of /proc/cpuinfo that tell a CPU from others, and the words before their values."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `engine doctor`."""
    command.add_argument("--json", action="store_true", help="write one JSON object, for programs")


def doctor(args: argparse.Namespace) -> None:
    """Print every fact, as a table or as one JSON object from names to lists of lines."""
    if args.json:
        print(json.dumps(facts(), indent=2))
        return
    for label, lines in facts().items():
        print_lines(label, lines)


def facts() -> dict[str, list[str]]:
    """Return the lines of each fact by its label. No fact may raise an error, as the others tell what is broken."""
    return {
        "encoder-engine": [f"{__version__} in {PACKAGE}"],
        "Python": [f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"],
        "NumPy": [np.__version__],
        "system": [f"{platform.system()} {platform.release()}, {platform.machine()}, {c_library()}"],
        "CPU": [cpu_model()],
        "instruction set": instruction_sets(),
        "threads": thread_lines(),
        **{f"backend {name}": lines for name, lines in backend_lines().items()},
        **{label: [line] for label, line in extras().items()},
        "model cache": [str(model_cache())],
        "environment": [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ] or ["nothing set"],
    }


def c_library(maps: str = "/proc/self/maps") -> str:
    """Return the name of the C library, with a version for glibc. maps: the file that lists the mapped libraries."""
    try:
        if version := os.confstr("CS_GNU_LIBC_VERSION"):
            return version
    except (AttributeError, ValueError, OSError):
        pass  # musl and other systems do not know this name
    try:
        loaded = Path(maps).read_text(encoding="utf-8", errors="replace")
    except OSError:
        loaded = ""
    # Alpine has /lib/ld-musl-x86_64.so.1, and Debian /usr/lib/x86_64-linux-musl/libc.so.
    return "musl" if re.search(r"/ld-musl-|/libc\.musl-|-linux-musl/libc\.so", loaded) else "an unknown C library"


def cpu_model(cpuinfo: str = "/proc/cpuinfo") -> str:
    """Return the CPU's name as Linux spells it; on Arm, which has no names, its implementer and part."""
    try:
        text = Path(cpuinfo).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    parts = [f"{label}{match[1]}" for name, label in CPU_FIELDS.items()
             if (match := re.search(rf"^{name}\s*: *(\S.*)$", text, re.MULTILINE))]
    return ", ".join(parts) or "unknown"


def instruction_sets() -> list[str]:
    """Return lines: the kernels that run, and why these; the ones in this installation; and why some cannot run."""
    try:
        from ..backends.cython_cpu import isa
    except ImportError as error:
        return [explain_missing_kernels(error)]
    runs = isa.available()
    asked = os.environ.get("ENGINE_ISA")
    if asked and (reason := isa.why_not(asked)):
        first = f"none: ENGINE_ISA={asked}, but {reason}"
    elif asked:
        first = f"{asked}, because ENGINE_ISA names it"
    else:
        first = f"{runs[0]}, the fastest that runs here" if runs else "none"
    built = [name for name in isa.INSTRUCTION_SETS if isa.is_built(name)]
    refused = [f"not {name}: {reason}" for name in built if (reason := isa.why_not(name))]
    return [first, f"in this installation: {', '.join(built) or 'none'}", *refused]


def extras() -> dict[str, str]:
    """Return, by the label "extra NAME", the versions of the packages of each extra, and which of them are missing."""
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {"extras": f"unknown: no package {DISTRIBUTION} is installed, and Python found {PACKAGE}"}
    versions_of: dict[str, list[str]] = {}
    for line in required:
        package = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ["']([\w-]+)["']""", line)
        if package and extra and package[0] != DISTRIBUTION and extra[1] not in OF_DEVELOPERS:
            versions_of.setdefault(extra[1], []).append(f"{package[0]} {_version(package[0])}")
    return {f"extra {extra}": ", ".join(versions) for extra, versions in versions_of.items()}


def _version(package: str) -> str:
    """Return the version of an installed package, or "is missing"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is missing"


def model_cache() -> Path:
    """Return the folder in which huggingface_hub keeps models; it need not exist, nor need the package be installed."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(os.path.expanduser(folder)))
