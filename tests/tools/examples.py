"""The functions of the example programs."""

import runpy
from typing import Any

from .paths import ROOT


def example(name: str, lines: int = 60) -> dict[str, Any]:
    """Return the functions of an example, which has at most this number of lines."""
    path = ROOT / "examples" / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= lines
    return runpy.run_path(str(path))
