"""What the tests of the benchmarks have in common: the folder asv_bench can be imported, and a record of a machine."""

import sys

import pytest

from ..tools.paths import ROOT


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "asv_bench"))
    yield
    for name in [n for n in sys.modules if n.split(".")[0] in ("peers", "benchmarks")]:
        del sys.modules[name]


def numbers(rows):
    return {
        "machine": {"cpu": "A CPU", "engine runs": "avx2", "threads": 2, "python": "3.11", "date": "2000-01-01",
                    "versions": {"engine": "1"}},
        "peak": {"float32": 200.0, "int8": 300.0},
        "quick": False,
        "text": {"sentences": 100, "tokens": 2000, "median": 18.0, "95 %": 70.0, "longest": 200},
        "rows": [{"model": "MiniLM", "precision": "float32", **row} for row in rows],
    }  # fmt: skip
