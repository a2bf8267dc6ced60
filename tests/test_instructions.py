"""Test that no instruction runs which the CPU lacks: every kernel variant but the plain ones is asked for first."""

import re
import runpy
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.errors import BackendUnavailable

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")

SETUP = Path(__file__).parents[1] / "setup.py"
PACKAGE = "engine.backends.cython_cpu"


def registers(module):
    """Return the kinds of vector registers that a compiled module's code uses."""
    spec = find_spec(f"{PACKAGE}.{module}")
    if spec is None or shutil.which("objdump") is None:
        pytest.skip(f"no {module} module here, or no objdump to look into it")
    command = ["objdump", "-d", "--no-show-raw-insn", spec.origin]
    code = subprocess.run(command, check=True, capture_output=True, text=True)
    if "file format elf64-x86-64" not in code.stdout:
        pytest.skip("for x86-64 alone")
    return set(re.findall(r"%([xyz]mm)\d", code.stdout))


@pytest.mark.parametrize("module", ["native", "kernels_portable"])
def test_any_cpu_can_run_it(module):
    assert registers(module) == {"xmm"}


@pytest.mark.parametrize(("module", "widest"), [("kernels_avx2", "ymm"), ("kernels_avxvnni", "ymm"),
                                                ("kernels_avx512", "zmm"), ("kernels_avx512vnni", "zmm"),
                                                ("kernels_avx512bf16", "zmm")])
def test_the_others_use_what_they_are_named_for(module, widest):
    assert max(registers(module)) == widest


def test_a_variant_runs_only_if_its_name_is_confirmed(monkeypatch):
    """A module that is there is not enough: a name without a check in features.pxi must not be imported."""
    monkeypatch.setattr(isa, "INSTRUCTION_SETS", ("amx", "neon", "avx9", "avx5120", *isa.INSTRUCTION_SETS))
    monkeypatch.setattr(isa, "find_spec", lambda name: object())
    for name in ("amx", "neon", "avx9", "avx5120"):
        assert not isa.supports(name)
        assert "lacks" in isa.why_not(name)
        assert name not in isa.available()
        with pytest.raises(BackendUnavailable, match=name):
            isa.load(name)


def test_every_variant_needs_a_check_or_runs_anywhere():
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isa, "supports", lambda name: asked.append(name) or True)
        patch.setattr(isa, "find_spec", lambda name: object())
        assert isa.available() == list(isa.INSTRUCTION_SETS)
    assert {*isa.INSTRUCTION_SETS} - {*asked} == {"portable", "wide"}


def test_supports_agrees_with_what_linux_lists():
    built_by = runpy.run_path(str(SETUP))
    features = built_by["cpu_features"]()
    if features is None:
        pytest.skip("Linux lists no features of this CPU")
    known = [name for name in built_by["INSTRUCTION_SETS"] if name not in isa.ANY_CPU]
    assert [name for name in known if isa.supports(name)] == [name for name in built_by["runnable"](features)
                                                              if name not in isa.ANY_CPU]


def test_no_kernels_for_this_cpu_is_an_error_that_says_so(monkeypatch):
    """As in a tree that was built for the demo on one machine and is used on another."""
    monkeypatch.delenv("ENGINE_ISA", raising=False)
    monkeypatch.setattr(isa, "supports", lambda name: False)
    monkeypatch.setattr(isa, "find_spec", lambda name: object() if name.endswith("avx512") else None)
    with pytest.raises(BackendUnavailable, match=r"none of the kernels that were built \(avx512\).*pip install"):
        isa.chosen()
