"""Test the backend's messages without a GPU, and its calls to a GPU, on stand-ins. Needs no CUDA package."""

import ctypes
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from engine import backends
from engine.backends import get_backend, numba_cuda
from engine.backends.numba_cuda import driver, stored
from engine.backends.numba_cuda.device import Gpu
from engine.backends.numba_cuda.kernel import Code, Kernel
from engine.backends.numba_cuda.ops import CudaOps
from engine.backends.numba_cuda.shared_array import adopt, place
from engine.backends.numba_cuda.support import LARGEST_ROW, RUNS, Layout, check, steps_of
from engine.backends.numba_cuda.toolchain import types
from engine.backends.reference.ops import ReferenceOps
from engine.base.errors import BackendUnavailable, UnsupportedError
from engine.model.attention import RelativePositions
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.programs import program_of
from engine.programs.operations import Attend, Embed, Heads, Linear, LinearPart, Norm, Store
from engine.programs.program import Program

from ..tools import fake_cuda
from ..tools.golden_models import ENCODERS, config_of
from ..tools.gpu_arrays import InterfaceArray
from ..tools.paths import TESTS


@pytest.fixture
def machine(monkeypatch):
    """Return a function that puts a machine with a driver and a GPU under the names of the CUDA packages."""
    return partial(fake_cuda.install, partial(monkeypatch.setitem, sys.modules))


def test_packages_are_missing(monkeypatch):
    monkeypatch.setattr(driver, "_is_installed", lambda name: name != "cuda.core")
    with pytest.raises(BackendUnavailable, match=r"cuda: cuda\.core not found; run pip install '\.\[cuda\]'"):
        get_backend("cuda")


@pytest.mark.parametrize(("situation", "reason"), [
    ({"version": None}, "no CUDA driver: libcuda.so.1 is missing"),
    ({"devices": 0}, "no GPU can be opened: the CUDA driver failed in cuInit: CUDA_ERROR_NO_DEVICE"),
    ({"capability": (7, 5)}, "compute capability 8.0 is needed, and this GPU has 7.5"),
    ({"version": 11_080}, r"the driver of this machine is of CUDA 11.8, and the kernels need CUDA 12.0 \(driver 525"),
    ({"version": 12_090}, "the driver of this machine is of CUDA 12.9, and the package cuda-bindings 13.0.0 needs CUDA "
                          "13 or newer: run pip install 'cuda-bindings<13', or update the driver"),
])
def test_why_not(machine, situation, reason):
    machine(**situation)
    with pytest.raises(BackendUnavailable, match=f"cannot run cuda: {reason}"):
        get_backend("cuda")


@pytest.mark.parametrize("situation", [{}, {"version": 12_000, "bindings": "12.9.4"}, {"capability": (12, 0)}], ids=str)
def test_a_gpu(machine, situation):
    machine(**situation)
    assert get_backend("cuda") is numba_cuda.BACKEND


def test_auto_does_not_take_it():
    assert "cuda" in backends.BACKENDS
    assert "cuda" not in backends.AUTO


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
    assert layout.pad_parts(np.arange(1, 7)).tolist() == [1, 2, 3, 0, 4, 5, 6, 0]
    assert layout.pad_parts(np.arange(1, 7)[None], 1).tolist() == [[1, 2, 3, 0, 4, 5, 6, 0]]
    assert layout.pad_parts(np.ones((6, 5))).sum(1).tolist() == [5, 5, 5, 0, 5, 5, 5, 0]


def body(x, n):
    """Do nothing, as a kernel of an array and a number."""


KERNEL = Kernel("test", body, (types.float32[:, ::1], types.int32), threads=128, shared=64)


@pytest.fixture
def gpu(machine, monkeypatch):
    """Return a GPU whose launches are listed and do nothing."""
    monkeypatch.setattr(stored, "find", lambda kernel, capability: Code("cubin", "entry", b"code", "here"))
    _, core = machine()
    made = Gpu()
    made.log = core.log
    return made


def launches(gpu):
    """Return what was done since the last call: "wait", or a launch as its kernel's name and its grid."""
    done = [work if isinstance(work, str) else (work[0].name, work[1].grid) for work in gpu.log]
    gpu.log.clear()
    return [work for work in done if work != "current"]


def test_work_is_run_once_and_recorded_once(gpu):
    x = gpu.allocate((2, 3), np.float32)
    replay = gpu.record(lambda: gpu.launch(KERNEL, (3,), x, np.int32(7)))
    own = ("test", (3, 1, 1))
    assert launches(gpu) == [own, "wait", own]
    replay()
    gpu.launch(KERNEL, (3,), x, np.int32(7))
    loaded, config, words = gpu.log[-1]
    assert (loaded.entry, loaded.content, config.block, config.shmem_size) == ("entry", b"code", 128, 64)
    assert words[:-1] == (0, 0, 6, 4, x.pointer, 2, 3, 12, 4)
    assert (type(words[-1]), words[-1].value) == (ctypes.c_int32, 7)


def test_clusters_and_dependent_launches(gpu):
    gpu.launch(replace(KERNEL, cluster=2, overlaps=True), (6, 5), gpu.allocate((1, 1), np.float32), np.int32(0))
    _, config, _ = gpu.log[-1]
    assert (config.grid, config.cluster, config.programmatic_stream_serialization) == ((3, 5, 1), (2, 1, 1), True)


def test_much_shared_memory_is_asked_for(gpu, machine):
    driver = sys.modules["cuda.bindings.driver"]
    large = replace(KERNEL, name="large", shared=100_000)
    for kernel in (KERNEL, large, large):
        gpu.launch(kernel, (1,), gpu.allocate((1, 1), np.float32), np.int32(0))
    assert driver.attributes == [("shared", 100_000, "handle of large")]


@pytest.mark.parametrize(("shape", "dtype", "number"), [
    ((2, 3), np.uint16, np.int32(0)), ((6,), np.float32, np.int32(0)), ((2, 3), np.float32, np.float32(0))])
def test_arguments_of_another_type_are_not_launched(gpu, shape, dtype, number):
    with pytest.raises(TypeError, match="test takes "):
        gpu.launch(KERNEL, (1,), gpu.allocate(shape, dtype), number)
    assert launches(gpu) == []


def test_a_recording_that_fails_is_ended(gpu):
    x = gpu.allocate((1, 1), np.float32)
    done = []

    def work():
        gpu.launch(KERNEL, (3,), x, np.int32(0))
        done.append(0)
        if len(done) > 1:
            raise MemoryError

    with pytest.raises(MemoryError):
        gpu.record(work)
    assert gpu._stream.recording is None


def test_code_that_the_driver_refuses_is_named(gpu, monkeypatch):
    monkeypatch.setattr(stored, "find", lambda kernel, capability: Code("ptx", "entry", b"refused", "/a/file.zip"))
    with pytest.raises(BackendUnavailable, match=r"load the kernel test from /a/file\.zip, and .*NO_BINARY_FOR_GPU"):
        gpu.launch(KERNEL, (1,), gpu.allocate((1, 1), np.float32), np.int32(0))


def test_a_forked_child_is_told(gpu):
    gpu.activate()
    gpu._process = -1
    with pytest.raises(BackendUnavailable, match="does not survive a fork"):
        gpu.activate()


def test_arrays_of_other_libraries(gpu, machine):
    """An array without a copy, whose memory is known to the driver, and whose owner lives as long as the array."""
    made, owner = gpu.allocate((3,), np.float32), object()
    adopted = gpu.adopt(gpu.pointer(made), 3, np.float32, owner)
    assert (adopted.shape, adopted.dtype, adopted.pointer, adopted.memory) == ((3,), np.float32, made.pointer, owner)
    assert gpu.gpu_of(made.pointer) == 0
    assert gpu.gpu_of(8) is None
    gpu.wait_for(5)
    gpu.wait_for(None)
    assert sys.modules["cuda.bindings.driver"].waited == [5, "all"]


def test_single_operations_on_a_gpu(machine, monkeypatch):
    """NumPy arrays, and an array that stays: the words of every launch are those of its kernel's arguments."""
    monkeypatch.setattr(stored, "find", lambda kernel, capability: Code("cubin", "entry", b"code", "here"))
    machine(kernels={kernel.name: kernel for kernel in stored.catalogue()})
    device = Gpu()
    ops, reference, rng = CudaOps(device), ReferenceOps(), np.random.default_rng(1)
    x, weight, bias = (rng.standard_normal(shape, np.float32) for shape in ((2, 5), (3, 5), (3,)))
    expected = reference.linear(x, weight, bias, "relu", None)
    assert np.abs(ops.linear(x, weight, bias, "relu", None) - expected).max() <= 1e-5
    shared = ops.linear(*(place(device, array) for array in (x, weight, bias)), "relu", None)
    assert np.abs(shared.numpy() - expected).max() <= 1e-5
    assert adopt(device, "x", InterfaceArray.of(shared)).flat.pointer == shared.flat.pointer
    heads, angles = rng.standard_normal((1, 2, 3, 4), np.float32), rng.standard_normal((1, 3, 2), np.float32)
    turned = ops.rotate(heads, angles, angles, interleaved=True)
    assert np.abs(turned - reference.rotate(heads, angles, angles, True)).max() <= 1e-6


def test_the_gpu_and_its_kernels_are_described(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_CACHE_DIR", str(tmp_path))
    machine()
    first, second = numba_cuda.BACKEND.describe().splitlines()
    assert first == "A GPU, compute capability 8.0; say precision='bfloat16' for its tensor cores"
    assert second.startswith("kernels: this installation has ")
    assert second.endswith(f"0 compiled ones in {tmp_path}")


def test_stored_kernels_need_no_compiler(tmp_path):
    """A child with stored kernels of all that a model launches imports neither Numba nor LLVM nor NVVM."""
    done = subprocess.run([sys.executable, "-m", "tests.tools.stored_pass", tmp_path], cwd=TESTS.parent,
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "right, no compiler\n"), done.stderr
