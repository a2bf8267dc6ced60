"""Test the choice of the backend."""

import importlib.util

import numpy as np
import pytest

from engine import backends
from engine.backends import cython_cpu, get_backend, numba_cpu
from engine.base.errors import BackendUnavailable, UnsupportedError

from ..tools.running import RUNNING, why_not


@pytest.fixture
def situation(monkeypatch):
    """Return a function that sets which backends can run, and which of them are tuned to the CPU."""

    def arrange(able, tuned):
        monkeypatch.delenv("ENGINE_ISA", raising=False)
        for name, module in (("cython", cython_cpu), ("numba", numba_cpu)):
            monkeypatch.setattr(module.BACKEND, "unavailable", lambda name=name: None if name in able else "not here")
            monkeypatch.setattr(module.BACKEND, "tuned", lambda name=name: name in tuned)

    return arrange


@pytest.mark.parametrize("name", backends.BACKENDS)
def test_backends_that_run_here(name):
    """One skipped test for each backend on which the tests of every backend do not run."""
    if reason := why_not(name):
        with pytest.raises((BackendUnavailable, UnsupportedError)):
            get_backend(name).ops(1)
        pytest.skip(reason)
    assert name in RUNNING
    assert get_backend(name).ops(1).softmax(np.zeros((1, 2), np.float32)).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(("able", "tuned", "chosen"), [
    ({"cython", "numba"}, {"cython", "numba"}, "cython"),
    ({"cython", "numba"}, {"numba"}, "numba"),              # only baseline kernels are left
    ({"cython"}, set(), "cython"),                          # and no Numba
    ({"numba"}, {"numba"}, "numba"),
])
def test_auto(situation, able, tuned, chosen):
    situation(able, tuned)
    assert get_backend("auto").name == chosen


def test_kernels_that_are_named_and_cannot_run(situation, monkeypatch):
    """Another backend has other bits, and would be a silent fallback."""
    situation({"numba"}, {"numba"})
    monkeypatch.setenv("ENGINE_ISA", "AMX")
    with pytest.raises(BackendUnavailable, match=r"^ENGINE_ISA is 'AMX', .* cannot run: not here; correct ENGINE_ISA"):
        get_backend("auto")
    assert get_backend("numba").name == "numba"


def test_a_name_is_taken_at_its_word(situation):
    situation({"cython", "numba"}, {"numba"})
    assert get_backend("cython").name == "cython"


def test_none_runs(situation):
    situation(set(), set())
    with pytest.raises(BackendUnavailable, match="cython: not here; numba: not here"):
        get_backend("auto")


def test_unknown_name():
    with pytest.raises(BackendUnavailable, match="'fpga'; choose auto, cython"):
        get_backend("fpga")


def test_numba_missing_says_what_to_install(monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(numba_cpu, "find_spec", lambda name: None if name == "numba" else find_spec(name))
    with pytest.raises(BackendUnavailable, match=r"numba not found; run pip install '\.\[numba\]'"):
        get_backend("numba")


@pytest.mark.parametrize("name", backends.BACKENDS)
def test_every_backend_describes_itself(name):
    backend = importlib.import_module(backends.BACKENDS[name]).BACKEND
    assert backend.name == name
    if backend.unavailable() is None:
        assert backend.describe()
        assert isinstance(backend.tuned(), bool)


def test_baseline_kernels_are_not_tuned_unless_asked_for(monkeypatch):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    monkeypatch.delenv("ENGINE_ISA", raising=False)
    monkeypatch.setattr(isa, "available", lambda: ["baseline"])
    assert not cython_cpu.BACKEND.tuned()
    monkeypatch.setenv("ENGINE_ISA", "baseline")
    assert cython_cpu.BACKEND.tuned()
