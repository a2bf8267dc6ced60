"""Which backends the tests run on: those of this machine that run single operations as well as models."""

from importlib import import_module

from engine.backends import BACKENDS


def why_not(name: str) -> str | None:
    """Return why tests for every backend leave this one out here, or None if it is among `RUNNING`."""
    if name == "cuda":
        return "runs whole models of some families alone; test_cuda.py and tests/backends/numba_cuda test it"
    return import_module(BACKENDS[name]).BACKEND.unavailable()


RUNNING = tuple(name for name in BACKENDS if why_not(name) is None)
"""The names of the backends, the fastest first."""

COMPILED = tuple(name for name in RUNNING if name != "reference")
"""The backends that also compute in bfloat16 and int8, and whose bits do not depend on the batch."""
