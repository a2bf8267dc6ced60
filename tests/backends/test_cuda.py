"""Test the backend's messages without a GPU, and its calls to a GPU, on stand-ins. Needs no CUDA package."""

import os
import sys
import warnings
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine import backends
from engine.backends import get_backend, numba_cuda
from engine.backends.numba_cuda.device import Gpu
from engine.backends.numba_cuda.kernel import Kernel
from engine.backends.numba_cuda.support import LARGEST_ROW, RUNS, Layout, check, steps_of
from engine.base.errors import BackendUnavailable, UnsupportedError
from engine.model.attention import RelativePositions
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.programs import program_of
from engine.programs.operations import Attend, Embed, Heads, Linear, LinearPart, Norm, Store
from engine.programs.program import Program

from ..tools.golden_models import ENCODERS, config_of


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
    with pytest.raises(BackendUnavailable, match=r"cuda: numba_cuda not found; run pip install '\.\[cuda\]'"):
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
    bench = pytest.importorskip("engine.studies.bench", reason="the compiled kernels are not built")
    with pytest.raises(UnsupportedError, match=r"for a GPU run python -m asv_bench\.gpu"):
        next(bench.measure(SimpleNamespace(backend="cuda")))


def test_int8_is_refused_by_name():
    with pytest.raises(UnsupportedError, match="computes in bfloat16 and float32; precision 'int8' is not there"):
        numba_cuda.BACKEND.prepare(None, {}, RunConfig(precision="int8"))


BERT = ModelConfig("test", hidden_size=8, num_layers=2, num_heads=4, head_width=2, ffn_size=12, vocab_size=30)


@pytest.mark.parametrize(("config", "told"), [
    (replace(BERT, hidden_size=LARGEST_ROW + 1), f"Embed of rows wider than {LARGEST_ROW}; Norm of rows wider than "
     f"{LARGEST_ROW}"),
    (replace(BERT, num_kv_heads=2, relative=RelativePositions(terms=("c2p",), limit=6)),
     "Attend with relative positions and 2 heads of keys for 4 of queries"),
], ids=["wide rows", "relative positions of few heads of keys"])
def test_a_model_is_refused_with_all_that_does_not_run(config, told):
    with pytest.raises(UnsupportedError) as caught:
        numba_cuda.BACKEND.prepare(config, {}, RunConfig())
    assert str(caught.value) == f"the cuda backend does not run {told}; cython, numba and reference run it"


@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_runs(name):
    check(program_of(config_of(name)))


@pytest.mark.parametrize("kind", RUNS, ids=lambda kind: kind.__name__)
def test_every_field_is_listed(kind):
    """The plan must follow a new field of an operation, which is then listed; until then it runs the default only."""
    assert {field.name for field in fields(kind)} == set(RUNS[kind])


@dataclass(frozen=True)
class SinkAttend(Attend):
    sink: float | None = None


def with_sink(sink):
    """Return BERT with an Attend that has a new field, which is not listed."""
    return Program(tuple(SinkAttend(**vars(operation), sink=sink) if isinstance(operation, Attend)
                         else operation for operation in program_of(BERT).operations))


def test_a_new_field_is_refused_until_it_is_listed(monkeypatch):
    with pytest.raises(UnsupportedError, match="does not run SinkAttend; cython"):
        check(with_sink(None))
    monkeypatch.setitem(RUNS, SinkAttend, RUNS[Attend])
    check(with_sink(None))
    with pytest.raises(UnsupportedError, match=r"does not run SinkAttend with sink=30\.0; cython"):
        check(with_sink(30.0))
    monkeypatch.setitem(RUNS, Attend, {name: RUNS[Attend][name] for name in RUNS[Attend] if name != "scale"})
    with pytest.raises(UnsupportedError, match=r"Attend with scale=0\.7071"):  # a field without a default
        check(program_of(BERT))


EMBED, STORE = Embed("x", 8), Store("x")


def linear(x, *outs, residual=None):
    return Linear(x, tuple(LinearPart(f"{out}.weight", None, out, 8, 4) for out in outs), residual=residual)


@pytest.mark.parametrize(("operations", "told"), [
    ([linear("x", "q", "k", "v"), linear("v", "x")], "Linear of v where this is not one array"),
    ([linear("x", "q"), linear("x", "k", "v"), Attend("q", "k", "v", "x", 1.0)],
     "Attend of q, k, v where this is not one array"),
    ([linear("x", "q", "k", "v"), Heads(("k",), norms=("w",))], "Heads of k where this is not one array"),
    ([linear("x", "q", "k", "v"), linear("x", "q")], "Linear that writes q to another array than before"),
    ([STORE], "Store as operation 2 of 3"),
    ([EMBED], "Embed as operation 2 of 3"),
    ([Linear("x", (LinearPart("g", None, "y", 8), LinearPart("u", None, "y", 8)), "gelu", gate=True),
      Norm("y", "x", "w", None, 1e-5)], "Linear with a gate, whose result is no input of a Linear"),
])
def test_operands_that_no_kernel_writes_are_refused(operations, told):
    with pytest.raises(UnsupportedError, match=told):
        check(Program((EMBED, *operations, STORE)))


def test_results_are_written_in_the_forms_that_are_read():
    """Of BERT's first layer: x is read by a product and as a residual, y by a norm, all else by products."""
    steps = steps_of(program_of(BERT))
    assert [(type(step.operation).__name__, sorted(step.forms)) for step in steps[:7]] == [
        ("Embed", ["float32", "operand"]), ("Linear", ["operand"]), ("Attend", ["operand"]), ("Linear", ["float32"]),
        ("Norm", ["float32", "operand"]), ("Linear", ["operand"]), ("Linear", ["float32"])]
    assert steps[0].norm is not None
    assert steps_of(program_of(replace(BERT, norm_place="pre")))[1].forms == {"operand"}      # a norm of one product


def test_zeros_lie_behind_each_head():
    layout = Layout(parts=2, width=3, padded=4)
    assert layout.spread(np.arange(1, 7)).tolist() == [1, 2, 3, 0, 4, 5, 6, 0]
    assert layout.spread(np.arange(1, 7)[None], 1).tolist() == [[1, 2, 3, 0, 4, 5, 6, 0]]
    assert layout.spread(np.ones((6, 5))).sum(1).tolist() == [5, 5, 5, 0, 5, 5, 5, 0]


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


@pytest.mark.parametrize("start", ["", "\x1b[1m"], ids=["plain", "bold"])
def test_a_small_grid_is_no_reason_to_warn(gpu, start):
    """numba-cuda warns when it is given the grid, in bold letters where colorama is installed."""

    class Compiled:
        def __getitem__(self, launch):
            warnings.warn(f"{start}Grid size 32 will likely result in GPU under-utilization", stacklevel=1)
            warnings.warn(f"{start}Host array used in CUDA kernel", stacklevel=1)
            return lambda *arguments: None

    gpu._compile = lambda kernel: Compiled()
    with pytest.warns(UserWarning, match="Host array") as caught:
        gpu.launch(KERNEL, (32,), "x")
    assert [str(warning.message) for warning in caught] == [f"{start}Host array used in CUDA kernel"]


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
