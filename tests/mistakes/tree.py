"""Copy the tree, make a mistake in the copy, and run tests there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..tools.paths import ROOT
from .mistake import Mistake

CUDA = ROOT / "build" / "cuda-12.9" / "bin" / "python"
"""The Python of the environment with the extra [cuda]."""
LIMIT = 900
"""Seconds after which the tests of a mistake are stopped."""
_COMPILED = ("*.so", "*.c")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*| - .*)?$", re.MULTILINE)
_PASSED = re.compile(r"\b[0-9]+ passed\b")


class NotTried(Exception):
    """The mistake cannot be tried here; the message says why."""


@dataclass(frozen=True)
class Seen:
    """What the tests said of a mistake."""

    tests: tuple[str, ...]
    """The tests that failed, without their parameters."""
    how: str = ""
    """What else happened: the process died, or the tests did not end."""

    @property
    def caught(self) -> bool:
        """Return whether something failed."""
        return bool(self.tests or self.how)


class Tree:
    """A copy of the tree, with what is compiled in it. Each file keeps its time, so that nothing is compiled anew."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._compiled: list[Path] = []
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                                check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                self._copy(Path(name))
        for pattern in _COMPILED:
            for path in (ROOT / "engine").rglob(pattern):
                name = path.relative_to(ROOT)
                self._copy(name)
                self._compiled.append(name)
        if (ROOT / "models").is_dir():
            (folder / "models").symlink_to(ROOT / "models")

    def _copy(self, name: Path) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, self.folder / name)

    @contextmanager
    def changed(self, mistake: Mistake) -> Iterator[None]:
        """Make the mistake and compile what it concerns; afterwards the copy is as it was."""
        path = self.folder / mistake.file
        source = path.read_text(encoding="utf-8")
        if source.count(mistake.right) != 1:
            raise NotTried(f"the right text occurs {source.count(mistake.right)} times in {mistake.file}")
        try:
            path.write_text(source.replace(mistake.right, mistake.wrong), encoding="utf-8")
            if mistake.build:
                try:
                    found = self.run([sys.executable, "-Wignore", "-m", "tests.mistakes.build", *mistake.build])
                except subprocess.TimeoutExpired:
                    raise NotTried(f"it does not compile in {LIMIT} s") from None
                if found.returncode:
                    raise NotTried(f"it does not compile: {found.stdout[-2000:]}")
            yield
        finally:
            self._copy(Path(mistake.file))
            for name in self._compiled if mistake.build else ():
                self._copy(name)

    def run(self, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the copy; its errors go to its output."""
        own = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=self.folder, env=os.environ | own | environment, check=False, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=LIMIT)  # fmt: skip

    def see(self, mistake: Mistake, most: int = 1) -> Seen:
        """Return what the tests of a mistake say of it; they stop after `most` failures."""
        python = str(CUDA) if mistake.cuda else sys.executable
        if mistake.cuda and not CUDA.exists():
            raise NotTried("the extra [cuda-compile] is not there; `make test-cuda` installs it in build/cuda-12.9")
        own = {} if mistake.isa is None else {"ENGINE_ISA": mistake.isa}
        if "/numba_cpu/" in mistake.file:       # kernels that are wrong do not belong into the user's cache
            own["ENGINE_CACHE_DIR"] = str(self.folder / "build" / "numba")
        with self.changed(mistake):
            try:
                found = self.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--maxfail={most}",
                                  "-k", mistake.cases, *mistake.caught_by], **own)
            except subprocess.TimeoutExpired:
                return Seen((), f"the tests did not end in {LIMIT} s")
        if found.returncode < 0:
            return Seen((), f"the tests died of signal {-found.returncode}")
        tests = failed_tests(found.stdout)
        if found.returncode in (1, 2) and tests:
            return Seen(tests)
        if "Error while loading conftest" in found.stdout:
            return Seen((), "no test can be collected")
        if found.returncode == 0 and _PASSED.search(found.stdout):
            return Seen(())
        raise NotTried(f"pytest ended with status {found.returncode}: {found.stdout[-2000:]}")


def failed_tests(printed: str) -> tuple[str, ...]:
    """Return the tests that pytest lists as failed, each once and without its parameters."""
    return tuple(dict.fromkeys(_FAILED.findall(printed)))
