"""Test that no instruction runs which the CPU lacks: every kernel variant but the plain ones is asked for first."""

import re
import runpy
import shutil
import subprocess
from importlib.util import find_spec

import pytest

from engine.base.errors import BackendUnavailable

from ...tools.paths import ROOT

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")

SETUP = ROOT / "setup.py"
PACKAGES = {"native": "engine.backends.cpu.native"}
"""The package of each extension module that is not in cython_cpu."""


def registers(module):
    """Return the kinds of vector registers that a compiled module's code uses."""
    spec = find_spec(f"{PACKAGES.get(module, 'engine.backends.cython_cpu')}.{module}")
    if spec is None or shutil.which("objdump") is None:
        pytest.skip(f"no {module} module here, or no objdump to look into it")
    command = ["objdump", "-d", "--no-show-raw-insn", spec.origin]
    code = subprocess.run(command, check=True, capture_output=True, text=True)
    if "file format elf64-x86-64" not in code.stdout:
        pytest.skip("for x86-64 alone")
    return set(re.findall(r"%([txyz]mm)\d", code.stdout))


@pytest.mark.parametrize("module", ["native", "kernels_baseline"])
def test_any_cpu_can_run_it(module):
    assert registers(module) == {"xmm"}


@pytest.mark.parametrize("module", ["kernels_wide", "kernels_amxemulated"])
def test_emulations_use_no_vectors_of_what_they_emulate(module):
    """They are compiled with fused multiply-adds, which come with the vectors of 32 bytes, where the CPU has them."""
    assert registers(module) <= {"xmm", "ymm"}


@pytest.mark.parametrize(("module", "widest"), [("kernels_avx2", "ymm"), ("kernels_avxvnni", "ymm"),
                                                ("kernels_avx512", "zmm"), ("kernels_avx512vnni", "zmm"),
                                                ("kernels_avx512bf16", "zmm"), ("kernels_amx", "zmm")])
def test_the_others_use_what_they_are_named_for(module, widest):
    found = registers(module)
    assert max(found) == widest
    assert ("tmm" in found) == (module == "kernels_amx")


def test_a_variant_runs_only_if_its_name_is_confirmed(monkeypatch):
    """A module that is there is not enough: a name without a check in features.pxi must not be imported."""
    monkeypatch.setattr(isa, "INSTRUCTION_SETS", ("amx2", "neon9", "avx9", "avx5120", *isa.INSTRUCTION_SETS))
    monkeypatch.setattr(isa, "is_built", lambda name: True)
    for name in ("amx2", "neon9", "avx9", "avx5120"):
        assert f"lacks {name}" in isa.why_not(name)
        assert name not in isa.available()
        with pytest.raises(BackendUnavailable, match=name):
            isa.load(name)


def test_every_variant_needs_a_check_or_runs_anywhere():
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isa, "refusal", asked.append)
        patch.setattr(isa, "is_built", lambda name: True)
        patch.setattr(isa, "made_by_amd", lambda: True)
        assert isa.available() == list(isa.INSTRUCTION_SETS)
    assert {*isa.INSTRUCTION_SETS} - {*asked} == {"baseline", "wide", "amxemulated"}


@pytest.mark.skipif(isa.ARCHITECTURE != "x86_64", reason="for x86-64 alone")
@pytest.mark.parametrize(("amd", "first"), [(True, "avx512bf16"), (False, "avx512vnni")])
def test_the_maker_of_the_cpu_decides_on_bfloat16_products(monkeypatch, amd, first):
    """Only on AMD's CPUs are they faster than FMAs. Tiles come first everywhere; the other sets keep their order."""
    monkeypatch.setattr(isa, "refusal", lambda name: None)
    monkeypatch.setattr(isa, "is_built", lambda name: True)
    monkeypatch.setattr(isa, "made_by_amd", lambda: amd)
    assert isa.available() == ["amx", first, *(name for name in isa.INSTRUCTION_SETS if name not in ("amx", first))]


@pytest.mark.parametrize("architecture", isa.OF_ARCHITECTURE)
def test_another_architecture_has_none_of_these_sets(architecture):
    """No CPU has vectors of two architectures, whatever was built."""
    for name in isa.OF_ARCHITECTURE[architecture]:
        if architecture != isa.ARCHITECTURE:
            assert isa.why_not(name).startswith(f"no instruction set is called {name!r}; choose")
            assert isa.refusal(name).startswith(f"this CPU, or its operating system, lacks {name}")


def test_the_build_for_this_cpu_has_the_kernels_that_run():
    """`make demo` compiles only the fastest."""
    built_by = runpy.run_path(str(SETUP))
    features = built_by["cpu_features"]()
    if features is None or len(isa.available()) < len(built_by["runnable"](features)):
        pytest.skip("the features of this CPU are unknown, or not all kernels are built")
    assert built_by["best"](features) == isa.available()[:1]


def test_supports_agrees_with_what_linux_lists():
    built_by = runpy.run_path(str(SETUP))
    features = built_by["cpu_features"]()
    if features is None:
        pytest.skip("Linux lists no features of this CPU")
    known = [name for name in built_by["INSTRUCTION_SETS"] if name not in isa.ANY_CPU]
    assert [name for name in known if isa.refusal(name) is None] == [name for name in built_by["runnable"](features)
                                                              if name not in isa.ANY_CPU]


def test_no_kernels_for_this_cpu_is_an_error_that_says_so(monkeypatch):
    """As in a tree that was built for the demo on one machine and is used on another."""
    built = isa.INSTRUCTION_SETS[1]
    monkeypatch.delenv("ENGINE_ISA", raising=False)
    monkeypatch.setattr(isa, "refusal", lambda name: f"this CPU lacks {name}")
    monkeypatch.setattr(isa, "is_built", built.__eq__)
    with pytest.raises(BackendUnavailable, match=rf"none of the kernels that were built \({built}\).*pip install"):
        isa.chosen()
