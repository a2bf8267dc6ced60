"""Keep results in a JSON file, each from the moment on when it is there, so that several short runs add up.

A result is found again by the name of what was measured, a digest of the sources that it depends on, and the GPU.
"""

import ast
import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from engine.backends import code_cache
from engine.backends.numba_cuda import stored
from engine.files.writing import replacing

RESULTS = "results"
"""The entry of the file that holds the results by their keys. Other entries stay as they are."""


class Record:
    """The results in a file, and those for one GPU that are there already."""

    def __init__(self, path: Path, machine: dict[str, str]):
        """machine: the GPU, under this name, and the versions of the software, which are written beside a result."""
        self.path, self.machine = path, machine
        self.content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.results: dict[str, dict] = self.content.setdefault(RESULTS, {})

    def key(self, name: str, digest: str) -> str:
        """Return the key of a result."""
        return f"{name} | {digest} | {self.machine['GPU']}"

    def find(self, name: str, digest: str) -> dict | None:
        """Return a result that is there; one that failed is none, because it may have failed for want of time."""
        found = self.results.get(self.key(name, digest))
        return found if found is not None and found.get("ok", True) else None

    def put(self, name: str, digest: str, result: dict) -> None:
        """Write a result at once. The file is replaced as a whole, so that a run that is stopped keeps the others."""
        self.results[self.key(name, digest)] = result | {"date": date.today().isoformat(), "machine": self.machine}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.content, indent=1, allow_nan=False) + "\n"
        with replacing(self.path) as file:
            file.write(text.encode())


def digest_of(modules: Iterable[str] | None) -> str:
    """Return a digest of modules of kernels and of all that they import, or of the whole backend for None."""
    if modules is None:
        files = {path.relative_to(stored.HERE) for path in stored.HERE.rglob("*.py")}
    else:
        files, ahead = set[Path](), [Path("kernels", f"{module}.py") for module in modules]
        while ahead:
            if (file := ahead.pop()) not in files:
                files.add(file)
                ahead += _imported(file)
    return code_cache.hash_of(stored.HERE / file for file in sorted(files))[:12]


def _imported(file: Path) -> list[Path]:
    """Return the modules of the backend that one of them imports, as files relative to it."""
    tree = ast.parse((stored.HERE / file).read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(file.parts):
            folder = file.parents[node.level - 1] / Path(*(node.module or "").split("."))
            found += [folder / alias.name for alias in node.names] + [folder]
    return [path for path in (part.with_suffix(".py") for part in found if part.name)
            if (stored.HERE / path).is_file()]
