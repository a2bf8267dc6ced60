"""Name the wheels: a version of CPython, a C library and a machine each; and find the headers of each Python."""

from __future__ import annotations

import os
import subprocess
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tests.project.compatibility import pythons

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")


class Library(NamedTuple):
    """A C library, as zig names it after the machine, and how it names the library in a module's list of needs."""

    zig: str
    triplet: str


LIBRARIES = {"manylinux_2_28": Library("linux-gnu.2.28", "linux-gnu"),
             "musllinux_1_2": Library("linux-musl", "linux-musl")}  # fmt: skip
"""The C libraries, by the name that they have in the tag of a wheel."""


class Target(NamedTuple):
    """One wheel."""

    python: str
    library: str
    machine: str

    @property
    def interpreter(self) -> str:
        """The tag of the interpreter, such as cp311."""
        return f"cp{self.python.replace('.', '')}"

    @property
    def platform(self) -> str:
        """The tag of the platform, such as manylinux_2_28_x86_64."""
        return f"{self.library}_{self.machine}"

    def __str__(self) -> str:
        return f"{self.interpreter}-{self.platform}"


TARGETS = [Target(*parts) for parts in product(PYTHONS, LIBRARIES, MACHINES)]
"""Every wheel of a release."""


def chosen(names: list[str]) -> list[Target]:
    """Return the targets whose names contain one of these words; all of them for no word."""
    if wrong := [name for name in names if not any(name in str(target) for target in TARGETS)]:
        raise SystemExit(f"no wheel is called {' or '.join(wrong)}; choose among {', '.join(map(str, TARGETS))}")
    return [target for target in TARGETS if not names or any(name in str(target) for name in names)]


def headers() -> dict[str, Path]:
    """Return the folder with Python.h of each version: of interpreters here, and those that PYTHON_HEADERS lists."""
    code = "import sysconfig; print(sysconfig.get_path('include'))"
    found = {version: Path(subprocess.check_output([python, "-c", code], text=True).strip())
             for version, python in pythons().items() if version in PYTHONS}
    for folder in filter(None, os.environ.get("PYTHON_HEADERS", "").split(os.pathsep)):
        found[Path(folder).name.removeprefix("python")] = Path(folder).absolute()      # the build runs elsewhere
    return {version: folder for version, folder in found.items() if (folder / "Python.h").is_file()}
