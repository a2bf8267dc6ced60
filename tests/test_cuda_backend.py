"""Test the backend's messages without a GPU, and its calls to a GPU, on stand-ins. Needs no CUDA package."""

import os
import sys
from types import SimpleNamespace

import pytest

from engine import backends
from engine.backends import get_backend, numba_cuda
from engine.backends.numba_cuda.device import Gpu
from engine.backends.numba_cuda.kernel import Kernel
from engine.config import RunConfig
from engine.errors import BackendUnavailable, UnsupportedError


@pytest.fixture
def machine(monkeypatch):
    """Return a function that sets whether there is a driver, and a GPU with which compute capability or error."""

    def arrange(available=True, capability=(9, 0), error=None):
        def get_current_device():
            if error:
                raise error
            return SimpleNamespace(compute_capability=capability)

        cuda = SimpleNamespace(is_available=lambda: available, get_current_device=get_current_device)
        monkeypatch.setattr(numba_cuda, "_there", lambda name: True)
        monkeypatch.setitem(sys.modules, "engine.backends.numba_cuda.toolchain", SimpleNamespace(cuda=cuda))
        monkeypatch.setattr(numba_cuda, "_driver_error", lambda: "libcuda is missing")

    return arrange


def test_packages_are_missing(monkeypatch):
    monkeypatch.setattr(numba_cuda, "_there", lambda name: name != "numba_cuda")
    with pytest.raises(BackendUnavailable, match=r"cuda: numba_cuda not found; pip install 'encoder-engine\[cuda\]'"):
        get_backend("cuda")


@pytest.mark.parametrize(("situation", "reason"), [
    ({"available": False}, "no CUDA driver: libcuda is missing"),
    ({"error": RuntimeError("no device\n  is detected")}, "no GPU can be opened: no device is detected"),
    ({"capability": (7, 5)}, "compute capability 8.0 is needed, and this GPU has 7.5"),
])
def test_why_not(machine, situation, reason):
    machine(**situation)
    with pytest.raises(BackendUnavailable, match=f"cannot run cuda: {reason}"):
        get_backend("cuda")


def test_a_gpu(machine):
    machine()
    assert get_backend("cuda") is numba_cuda.BACKEND


def test_auto_does_not_take_it():
    assert "cuda" in backends.BACKENDS
    assert "cuda" not in backends.AUTO


def test_what_it_does_not_run():
    with pytest.raises(UnsupportedError, match="whole models, not single operations; they run on cython, numba"):
        numba_cuda.BACKEND.ops(1)


def test_bench_does_not_hold_a_gpu_against_the_cpus_limits():
    bench = pytest.importorskip("engine.bench", reason="the compiled kernels are not built")
    with pytest.raises(UnsupportedError, match=r"for a GPU run python -m asv_bench\.gpu"):
        next(bench.measure(SimpleNamespace(backend="cuda")))


def test_int8_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="computes in bfloat16 and float32; precision 'int8' is not there"):
        numba_cuda.BACKEND.prepare(None, {}, RunConfig(precision="int8"))


class Stream:
    """Records the work queued on it; it is also its own builder of graphs."""

    def __init__(self, log):
        self.log, self.name = log, "stream"

    def record(self):
        return SimpleNamespace(sync=lambda: self.log.append("wait"))

    def create_graph_builder(self):
        return self

    def begin_building(self):
        self.name = "graph"
        return self

    def end_building(self):
        self.name = "stream"

    def complete(self):
        return SimpleNamespace(launch=lambda stream: self.log.append(f"replay on {stream.name}"))


@pytest.fixture
def gpu():
    """Return a GPU whose driver is a list of calls."""
    made = object.__new__(Gpu)
    made.log = []
    made._process = os.getpid()
    made._stream = Stream(made.log)
    made._core = SimpleNamespace(set_current=lambda: made.log.append("current"))

    class Compiled:
        def __getitem__(self, launch):
            grid, threads, target, shared = launch
            return lambda *arguments: made.log.append((target.name, grid, threads, shared, *arguments))

    made._compile = lambda kernel: Compiled()
    return made


KERNEL = Kernel("test", None, (), threads=128, shared=64)


def test_work_is_run_once_and_recorded_once(gpu):
    replay = gpu.record(lambda: gpu.launch(KERNEL, (3,), "x"))
    own, recorded = (("stream", (3,), 128, 64, "x"), ("graph", (3,), 128, 64, "x"))
    assert gpu.log == [own, "wait", recorded]
    replay()
    gpu.launch(KERNEL, (3,), "x")
    assert gpu.log[3:] == ["replay on stream", own]


def test_a_recording_that_fails_is_ended(gpu):
    def work():
        gpu.launch(KERNEL, (3,), "x")
        if len(gpu.log) > 2:
            raise MemoryError

    with pytest.raises(MemoryError):
        gpu.record(work)
    gpu.launch(KERNEL, (1,), "y")
    assert gpu.log[-1][0] == "stream"


def test_a_forked_child_is_told(gpu):
    gpu.activate()
    gpu._process = -1
    with pytest.raises(BackendUnavailable, match="does not survive a fork"):
        gpu.activate()
    assert gpu.log == ["current"]
