"""Build and test the package with every Python and every compiler that is installed here, and print a table.

    python -m tests.project.compatibility FOLDER [NAME...]        (or: make compatibility)

Each row is an environment of its own in FOLDER, with the package installed into it and the tests run from outside the
source tree:

- each Python from 3.10 on, also free-threaded ones, with the newest releases of NumPy and Cython;
- the oldest of these Pythons with the oldest releases that pyproject.toml admits ("oldest");
- each gcc and clang with a number in its name, with the Python that runs this.

NAME selects rows. PYTHONS in the environment lists more interpreters, separated by colons.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.project.clean import copy_repository
from tests.tools.documents import ROOT

TESTS = ["backends/kernels", *(f"{name}.py" for name in (
    "ops/test_golden", "ops/test_definition", "encoding/test_packing", "backends/cpu/test_plan",
    "backends/cpu/test_digests", "interface/test_engine", "families/test_vectors", "files/test_hostile_files",
    "files/test_npz", "files/test_writing", "backends/cpu/test_pool", "backends/cpu/test_random_models",
    "files/test_safetensors", "backends/cpu/test_stop", "text/test_tokenizer"))]
"""The tests of what depends on the interpreter, on NumPy and on the compiler."""

PREINSTALLED = Path.home() / ".pyenv/versions"

FACTS = """
import sys, sysconfig
from importlib.metadata import version
from engine.backends.cython_cpu import isa
isa.chosen()
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
print(version("numpy"), version("Cython"), "on" if gil else "off" if free else "?", sep=" | ")
"""


class Row(NamedTuple):
    """One combination to try."""

    name: str
    python: str
    compiler: str = "gcc"
    oldest: bool = False


def main(folder: Path, names: list[str]) -> int:
    """Try each row, print a table in Markdown, and return the number of rows that failed."""
    results = []
    for row in rows():
        if not names or row.name in names:
            print(f"--- {row.name}", flush=True)
            results.append((row, *tried(row, folder / row.name)))
    print("\n| | Python | compiler | NumPy | Cython | GIL | tests |\n|---|---|---|---|---|---|---|")
    for row, facts, outcome in results:
        print(f"| {row.name} | {version(row.python)} | {version(row.compiler)} | {facts} | {outcome} |")
    return sum("failed" in outcome or "passed" not in outcome for *_, outcome in results)


def rows() -> Iterator[Row]:
    """Yield every combination that is there."""
    found = pythons()
    for name, path in found.items():
        yield Row(name, path)
    oldest = next((path for name, path in found.items() if not name.endswith("t")), sys.executable)
    yield Row("oldest", oldest, oldest=True)
    for name in compilers():
        yield Row(name, sys.executable, name)


def pythons() -> dict[str, str]:
    """Return the interpreters by name, such as "3.13t", the oldest first; the first of each version counts."""
    places = [*os.environ.get("PYTHONS", "").split(":"), *on_path(r"python3(\.\d+t?)?"),
              *map(str, PREINSTALLED.glob("*/bin/python3.*"))]  # fmt: skip
    found: dict[str, str] = {}
    code = ("import sys, sysconfig, ensurepip; print('%d.%d' % sys.version_info[:2] + "
            "'t' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))")  # fmt: skip
    for place in filter(None, places):
        if re.search(r"python[\d.]*t?$", place):
            asked = subprocess.run([place, "-c", code], capture_output=True, text=True)
            name = asked.stdout.strip()
            if asked.returncode == 0 and number(name) >= (3, 10):
                found.setdefault(name, place)
    return dict(sorted(found.items(), key=lambda item: (number(item[0]), item[0])))


def compilers() -> list[str]:
    """Return the names of the compilers with a number, such as gcc-12."""
    return sorted({Path(path).name for path in on_path(r"(gcc|clang)-\d+")}, key=lambda name: (name[:2], number(name)))


def on_path(pattern: str) -> list[str]:
    """Return the programs on PATH whose names match."""
    folders = [Path(name) for name in os.environ["PATH"].split(os.pathsep) if Path(name).is_dir()]
    return [str(path) for folder in folders for path in sorted(folder.iterdir()) if re.fullmatch(pattern, path.name)]


def number(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def version(program: str) -> str:
    """Return what a program says of its version, in short."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.splitlines()
    digits = re.findall(r"\d+\.\d+[.\w+]*", said[0])
    return ("clang " if "clang" in said[0] else "gcc " if "gcc" in program else "") + digits[-1]


def tried(row: Row, folder: Path) -> tuple[str, str]:
    """Build and test one row; return what was used, and how it ended."""
    copy, empty, log = folder / "copy", folder / "empty", folder / "log.txt"
    empty.mkdir(parents=True, exist_ok=True)
    copy_repository(copy)
    python = str((folder / "venv/bin/python").absolute())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"CC": row.compiler, "ENGINE_BUILD_ISA": os.environ.get("ENGINE_BUILD_ISA", "best,baseline")}

    def run(*command: str, check: bool = True) -> str:
        with open(log, "a+", encoding="utf-8") as file:
            start = file.seek(0, os.SEEK_END)
            file.write(f"$ {' '.join(command)}\n")
            file.flush()
            done = subprocess.run(command, cwd=empty, env=environment, stdout=file, stderr=subprocess.STDOUT)
            file.seek(start)
            said = file.read()
        if check and done.returncode:
            print(said[-3000:], flush=True)
            raise RuntimeError(command)
        return said

    install = ["-m", "pip", "install", "-q", "--no-compile"]
    try:
        run(row.python, "-m", "venv", "--clear", str((folder / "venv").absolute()))
        run(python, *install, *requirements(row.oldest), "pytest>=8", "hypothesis>=6.100")
        run(python, *install, "--only-binary=:all:", "tokenizers>=0.20,!=0.23.1,!=0.23.2", check=False)
        run(python, *install, "--no-build-isolation", "--no-deps", str(copy.absolute()))
        facts = run(python, "-c", FACTS).splitlines()[-1]
    except RuntimeError as error:
        return "| |", f"failed: {' '.join(error.args[0][1:5])}"
    tests = [str((copy / "tests" / name).absolute()) for name in TESTS]
    said = run(python, "-m", "pytest", "-q", "--import-mode=append", "-p", "no:cacheprovider", *tests, check=False)
    print(said[-1500:], flush=True)
    return facts, re.sub(r"=+| in .*", "", said.strip().splitlines()[-1]).strip()


def requirements(oldest: bool) -> list[str]:
    """Return what pyproject.toml requires to build and to run: the newest, or the oldest release that it admits."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:requires|dependencies) = (\[.*\])", text, re.MULTILINE)
    found = re.findall(r'"(\w+)>=([\d.]+)"', " ".join(lines))
    assert [name for name, _ in found] == ["setuptools", "Cython", "numpy"]
    if not oldest:
        return [f"{name}>={least}" for name, least in found]
    # The first release of setuptools 77 was withdrawn.
    return [f"{name}=={least if '.' in least else least + '.*'}" for name, least in found]


if __name__ == "__main__":
    print(platform.platform())
    sys.exit(min(1, main(Path(sys.argv[1]), sys.argv[2:])))
