"""Test that modules imported before the CPU's features are known use no instructions that depend on them."""

import re
import shutil
import subprocess
from importlib.util import find_spec

import pytest

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
