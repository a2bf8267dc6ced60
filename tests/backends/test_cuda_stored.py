"""Test where the code of a kernel comes from: archives, the user's folder, the compiler; and what damages them."""

import subprocess
import sys
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine import load_model
from engine.backends import code_cache
from engine.backends.numba_cuda import stored
from engine.backends.numba_cuda.kernel import Code, Kernel
from engine.backends.numba_cuda.plan import CudaPlan
from engine.base.errors import BackendUnavailable
from engine.model.run_config import RunConfig

from ..families.table import cuda
from ..tools.batches import make_batch
from ..tools.emulated_device import EmulatedDevice
from ..tools.golden_models import ENCODERS as GOLDEN
from ..tools.golden_models import config_of
from ..tools.paths import ENCODERS, TESTS


def made(constant, name="test"):
    def body():
        return constant

    return Kernel(name, body, (), threads=32)


KERNEL = made(7)


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Keep archives and compiled kernels in empty folders; return the latter."""
    (tmp_path / "archives").mkdir()
    monkeypatch.setattr(stored, "ARCHIVES", tmp_path / "archives")
    monkeypatch.setenv("ENGINE_CACHE_DIR", str(tmp_path / "cache"))
    caches = stored.Archive.of, stored.sources, stored.versions, code_cache.warn_once
    for cached in caches:
        cached.cache_clear()
    yield tmp_path / "cache"
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def compiled(monkeypatch):
    """Return the architectures for which kernels are compiled, by a stand-in for the compiler."""
    done = []

    def cubin(kernel, arch):
        done.append(arch)
        return Code("cubin", f"entry{len(done)}", b"compiled\n" + bytes(len(done)))

    monkeypatch.setitem(sys.modules, "engine.backends.numba_cuda.compiler", SimpleNamespace(cubin=cubin))
    monkeypatch.setattr("engine.backends.numba_cuda.compiler", SimpleNamespace(cubin=cubin), raising=False)
    return done


def archive(name, kernel=KERNEL, kind="cubin", content=b"stored"):
    path = stored.ARCHIVES / f"{name}.zip"
    stored.write_archive(path, {kernel.name: (kernel, Code(kind, "entry", content))})
    stored.Archive.of.cache_clear()
    return path


@pytest.mark.parametrize(("capability", "name"), [
    ((8, 0), "sm_80.cubin"), ((8, 9), "sm_80.cubin"), ((9, 0), "sm_90a.cubin"), ((12, 0), "sm_80.ptx")])
def test_stored_code_is_taken(capability, name):
    path = archive(name, kind=name.partition(".")[2])
    assert stored.find(KERNEL, capability) == Code(name.partition(".")[2], "entry", b"stored", str(path))


def test_code_of_another_architecture_is_not_taken(compiled):
    archive("sm_80.cubin")
    archive("sm_80.ptx", kind="ptx")
    assert stored.find(KERNEL, (9, 0)).content.startswith(b"compiled")
    assert compiled == [(9, 0, "a")]


@pytest.mark.parametrize("changed", [made(8), replace(KERNEL, threads=64), made(7, "other")],
                         ids=["constant", "launch", "name"])
def test_another_kernel_is_compiled(compiled, changed):
    archive("sm_80.cubin")
    assert stored.find(changed, (8, 0)).content.startswith(b"compiled")


def test_a_changed_source_is_compiled(compiled, monkeypatch):
    archive("sm_80.cubin")
    monkeypatch.setattr(stored, "sources", lambda: "of later")
    assert stored.find(KERNEL, (8, 0)).content.startswith(b"compiled")
    monkeypatch.setattr(stored, "sources", lambda: "of even later")
    stored.find(KERNEL, (8, 0))
    assert len(compiled) == 2


def test_sources_are_all_that_the_code_depends_on(tmp_path, monkeypatch):
    before = stored.sources.__wrapped__()
    for name in ("kernels/norm.py", "ptx/mma.py", "compiler.py", "toolchain.py"):
        copy = tmp_path / name.replace("/", "_")
        for source in (stored.HERE / "kernels", stored.HERE / "ptx"):
            (copy / source.name).mkdir(parents=True)
            for path in source.glob("*.py"):
                (copy / source.name / path.name).write_bytes(path.read_bytes())
        for path in ("compiler.py", "toolchain.py"):
            (copy / path).write_bytes((stored.HERE / path).read_bytes())
        monkeypatch.setattr(stored, "HERE", copy)
        assert stored.sources.__wrapped__() == before
        with (copy / name).open("a") as file:
            file.write("\n")
        assert stored.sources.__wrapped__() != before
        monkeypatch.undo()


def test_compiled_code_is_kept_for_the_compiler_that_made_it(compiled, monkeypatch):
    first = stored.find(KERNEL, (8, 6))
    again = stored.find(KERNEL, (8, 0))
    assert (first.entry, first.content) == (again.entry, again.content)
    assert compiled == [(8, 0)]
    monkeypatch.setattr(stored, "versions", lambda: {"numba-cuda": "1.0"})
    assert stored.find(KERNEL, (8, 0)).entry == "entry2"


def test_code_with_a_function_of_the_user_is_not_kept(compiled, folders):
    for _ in range(2):
        stored.find(replace(KERNEL, stored=False), (8, 0))
    assert len(compiled) == 2
    assert not folders.exists()


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-1] + b"x"])
def test_a_damaged_file_is_compiled_anew(compiled, folders, damage):
    stored.find(KERNEL, (8, 0))
    [file] = folders.rglob("*.code")
    file.write_bytes(damage(file.read_bytes()))
    stored.find(KERNEL, (8, 0))
    assert len(compiled) == 2
    stored.find(KERNEL, (8, 0))
    assert len(compiled) == 2


def cut(path):
    path.write_bytes(path.read_bytes()[:-30])


def flip(path):
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        data[file.getinfo(KERNEL.name).header_offset + 30 + len(KERNEL.name) + 2] ^= 1      # in the code
    path.write_bytes(data)


def without_index(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(KERNEL.name, b"stored")


@pytest.mark.parametrize("damage", [cut, flip, without_index])
def test_a_damaged_archive_is_named(damage):
    path = archive("sm_80.cubin")
    damage(path)
    with pytest.raises(BackendUnavailable, match=rf"the stored kernels in {path} are damaged .*make cubins"):
        stored.find(KERNEL, (8, 0))


def test_a_folder_that_cannot_be_written_is_told(compiled, folders):
    folders.write_text("not a folder")
    with pytest.warns(UserWarning, match="cannot be kept.*ENGINE_CACHE_DIR"):
        assert stored.find(KERNEL, (8, 0)).content.startswith(b"compiled")


def test_without_code_and_compiler(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "engine.backends.numba_cuda.compiler", raising=False)
    with pytest.raises(BackendUnavailable, match=(
            r"kernel test for compute capability 8\.9 is not stored in this installation, which has no "
            r"sm_80\.cubin\.zip, which make cubins writes, and it cannot be compiled: .*cuda-compile")):
        stored.find(KERNEL, (8, 9))


CHILD = """
import sys
from types import SimpleNamespace
import engine.backends.numba_cuda
from engine.backends.numba_cuda import stored
from engine.backends.numba_cuda.kernel import Code
from tests.backends.test_cuda_stored import made

compiler = SimpleNamespace(cubin=lambda kernel, arch: Code("cubin", "entry", kernel.name.encode() * 100_000))
sys.modules["engine.backends.numba_cuda.compiler"] = engine.backends.numba_cuda.compiler = compiler
for number in range(5):
    code = stored.find(made(number, f"kernel {number}"), (8, 0))
    assert code.content == f"kernel {number}".encode() * 100_000, code.origin
"""


def test_processes_share_the_folder(folders):
    children = [subprocess.Popen([sys.executable, "-c", CHILD], cwd=TESTS.parent, stderr=subprocess.PIPE)
                for _ in range(4)]
    assert [child.communicate()[1].decode() or child.returncode for child in children] == [0] * 4
    assert len(list(folders.rglob("*"))) == 6


def test_what_is_there_is_described(compiled):
    assert stored.describe((8, 0)).startswith("kernels: this installation has no sm_80.cubin.zip, which make cubins")
    archive("sm_90a.cubin", made(7, "a"))
    stored.find(KERNEL, (8, 0))
    assert stored.describe((9, 0)) == ("kernels: this installation has 1 in sm_90a.cubin.zip (test_cuda_stored 1); 1 "
                                       f"compiled ones in {code_cache.cache_root('cuda')}")


def test_the_catalogue():
    """Every module lists its kernels, and no two have one name."""
    kernels = list(stored.catalogue())
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert {kernel.module for kernel in kernels} == {path.stem for path in (stored.HERE / "kernels").glob("[!_]*.py")}
    assert all(kernel.stored for kernel in kernels)


class ListingDevice(EmulatedDevice):
    """A device that lists the kernels that it is asked to launch, and launches none."""

    def __init__(self, capability):
        super().__init__(capability)
        self.listed = {}

    def launch(self, kernel, grid, *arguments):
        self.listed[kernel.name] = kernel


@pytest.mark.filterwarnings("ignore:.*does not run its head")
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=str)
def test_the_catalogue_has_what_the_golden_encoders_launch(capability, precision):
    device = ListingDevice(capability)
    for name in filter(lambda name: cuda(config_of(name)), GOLDEN):
        model = load_model(ENCODERS / name, kind="encode")
        encoder = model.encoder or next(iter(model.routes.values()))
        plan = CudaPlan(device, encoder.config, encoder.weights, RunConfig(1, precision, 200))
        plan.pool(make_batch(encoder.config, [3, 100]), ["mean", "cls"])
        plan.pool(make_batch(encoder.config, [3]), ["max"])
    there = {kernel.name: kernel.identity() for kernel in stored.catalogue()}
    assert len(device.listed) > 6
    assert {name: kernel.identity() for name, kernel in device.listed.items()}.items() <= there.items()
