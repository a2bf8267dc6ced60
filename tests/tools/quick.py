"""Which files are slow, so that they start first, and what `make test-quick` runs: all others, on one backend."""

from functools import cache
from pathlib import Path
from typing import Any

from engine.backends import BACKENDS
from engine.base.errors import BackendUnavailable

from ..families.cases import CASES
from .paths import TESTS
from .running import RUNNING

SLOW = (
    "backends/numba_cpu/test_table.py", "backends/cpu/test_random_models.py", "backends/cpu/test_random_calls.py",
    "backends/cpu/test_random_decoders.py", "backends/cpu/test_stop.py", "faults", "project/test_documents.py",
    "backends/numba_cpu", "backends/numba_cuda", "benchmarks/test_simulation.py", "files/test_hostile_files.py",
    "files/test_mapped_memory.py", "files/test_torch_checkpoint.py", "fuzz", "interface/test_forks.py",
    "interface/test_transcriber.py", "real_models/test_minilm.py", "soak", "speech/test_recordings.py",
    "text/test_hostile_tokenizers.py", "text/test_long_texts.py")
"""Files and folders that take long, in the order in which they start: they start processes, draw many models at random,
or run real models. The first one compiles all of Numba's kernels, which later ones load from the cache."""


@cache
def other_kernels() -> set[str]:
    """Return the names of all kernel tables but the one that the engine chooses here."""
    try:
        from engine.backends.cython_cpu import isa

        return {*isa.INSTRUCTION_SETS, "numba"} - {isa.chosen().isa}
    except (ImportError, BackendUnavailable):
        return set()


@cache
def turn(path: Path) -> int:
    """Return the place of a test file in `SLOW`, by its own name or that of its folder, and their number for others."""
    names = [place.relative_to(TESTS).as_posix() for place in (path, *path.parents) if place.is_relative_to(TESTS)]
    return next((SLOW.index(name) for name in names if name in SLOW), len(SLOW))


OTHER_MODELS = {name for case in CASES for name in case.golden[1:]} | {
    name for case in CASES for name in case.generating if name not in case.generates}
"""The golden models that are not the first of their family."""


def is_quick(path: Path, params: dict[str, Any]) -> bool:
    """Return whether a test of a file, with these parameters, belongs to the quick ones.

    They run on one backend and one instruction set, with one model a family.
    """
    if turn(path) < len(SLOW):
        return False
    for name, value in params.items():
        if not isinstance(value, str):
            continue
        if name in ("backend", "compiled_backend") and value in BACKENDS and value != RUNNING[0]:
            return False
        if name in ("name", "kernels") and value in other_kernels():
            return False
        if name in ("name", "golden") and value in OTHER_MODELS:
            return False
    return True
