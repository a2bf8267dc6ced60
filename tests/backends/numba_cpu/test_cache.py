"""Test the machine code on disk: it is found again and checked, and never makes anything fail."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.backends import code_cache

WITHOUT = "needs numba: pip install '.[numba]'"
CFunc = pytest.importorskip("numba.core.ccallback", reason=WITHOUT).CFunc
cache, compiling, cached_attention = (pytest.importorskip(f"engine.backends.numba_cpu.{name}", reason=WITHOUT)
                              for name in ("compiler.cache", "compiler.compiling", "kernels.cached_attention"))

COMPILE = """
import ctypes
from numba.core.ccallback import CFunc
from engine.backends.numba_cpu.compiler import cache
from engine.backends.numba_cpu.kernels.cached_attention import cached_attention_scratch
from engine.backends.numba_cpu.compiler.compiling import compile_kernel
compiled = []
original = CFunc._compile_uncached
CFunc._compile_uncached = lambda self: compiled.append(self) or original(self)
scratch = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_ssize_t, ctypes.c_ssize_t)(
    compile_kernel(cached_attention_scratch, cache.KernelCache("cached_attention_scratch")).address)
assert scratch(64, 30) == cached_attention_scratch(64, 30)
print("compiled" if compiled else "loaded")
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGINE_CACHE_DIR", str(tmp_path / "cache"))
    code_cache.warn_once.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch):
    """Return a list that grows by one for each kernel that is actually compiled."""
    done = []
    original = CFunc._compile_uncached

    def compile_and_count(self):
        done.append(self)
        return original(self)

    monkeypatch.setattr(CFunc, "_compile_uncached", compile_and_count)
    return done


def build():
    """Build one small kernel, and check that it works."""
    function = cached_attention.cached_attention_scratch
    address = compiling.compile_kernel(function, cache.KernelCache(function.__name__)).address
    assert ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_ssize_t, ctypes.c_ssize_t)(address)(64, 30) == function(64, 30)


def test_processes_at_once_and_one_after_them(root, compilations):
    started = [subprocess.Popen([sys.executable, "-c", COMPILE], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert "compiled\n" in [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["cached_attention_scratch.code"]
    build()
    assert not compilations, "this process loads what another one compiled"


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:100], lambda data: data[:-1],
                                    lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]])
def test_a_damaged_file_is_compiled_anew(root, compilations, damage):
    build()
    [file] = root.rglob("*.code")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    build()
    assert len(compilations) == 2
    build()
    assert len(compilations) == 2, "the file is whole again"


def test_a_folder_that_cannot_be_written_is_told_once(root, monkeypatch, compilations):
    root.write_text("not a folder")
    with pytest.warns(UserWarning, match="cannot be kept.*ENGINE_CACHE_DIR"):
        build()
    build()
    assert len(compilations) == 2


def test_a_folder_that_can_only_be_read_is_used(root, monkeypatch, compilations):
    build()

    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    build()
    assert len(compilations) == 1


def test_the_key_is_all_that_the_code_depends_on(tmp_path, monkeypatch):
    sources = Path(shutil.copytree(Path(cache.__file__).parents[1], tmp_path / "sources"))
    version = cache.generator_version.__wrapped__
    assert version(sources) == version()
    (sources / "kernels/tile.py").write_text((sources / "kernels/tile.py").read_text() + "\n")
    others = {version(sources)}
    for module, name in (
        (cache, "CPU"), (cache, "FEATURES"), (cache.numba, "__version__"), (cache.llvmlite, "__version__"),
        (cache, "TABLE_NAME"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, b"another" if name == "TABLE_NAME" else "another")
            others.add(version())
    assert len(others - {version()}) == 6


def test_a_full_disk_leaves_nothing_behind(root, monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(code_cache.os, "replace", refuse)
    with pytest.warns(UserWarning, match="No space left on device"):
        build()
    assert not [path for path in root.rglob("*") if path.is_file()]


def test_where_it_is(monkeypatch):
    assert code_cache.cache_root("numba") == Path(os.environ["ENGINE_CACHE_DIR"])
    monkeypatch.delenv("ENGINE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert code_cache.cache_root("numba") == Path("/somewhere/encoder-engine/numba")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert code_cache.cache_root("numba") == Path("/home/me/.cache/encoder-engine/numba")
