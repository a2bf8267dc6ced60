"""The tile for 8-bit integers on CPUs that are not here: its inner loop, in their assembly."""

import os
import platform
import re
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="needs numba: pip install 'encoder-engine[numba]'")

AVX512 = "".join(f",+avx512{part}" for part in ("f", "bw", "dq", "vl"))

PRINT_THE_LARGEST_TILE = """
import sys
from llvmlite import binding, ir
from engine.backends.numba_cpu import target, tile
from engine.backends.numba_cpu.pointers import POINTER, SIZE
sizes = {"depth", "a_stride", "out_stride", "ahead_step"}
body = getattr(tile, sys.argv[1])
names = [name for name in body.__annotations__ if name not in ("b", "mr", "nv", "return")]
module = ir.Module()
kinds = [SIZE if name in sizes else POINTER for name in names]
tile._function(module, body, target.MR, target.NV, kinds).linkage = "external"
machine = binding.Target.from_triple(target.TRIPLE).create_target_machine(target.CPU, target.FEATURES, opt=3)
print(target.MR * target.NV, machine.emit_assembly(binding.parse_assembly(str(module))))
"""


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="for x86 alone")
@pytest.mark.parametrize(("cpu", "features", "instruction"), [
    ("haswell", "+avx2,+fma", r"vpmaddwd\t.*%ymm"),
    ("alderlake", "+avx2,+fma,+avxvnni", r"vpdpbusd\t.*%ymm"),
    ("skylake-avx512", f"+avx2,+fma{AVX512}", r"vpmaddwd\t.*%zmm"),
    ("icelake-server", f"+avx2,+fma{AVX512},+avx512vnni", r"vpdpbusd\t.*%zmm"),
])  # fmt: skip
def test_the_inner_loop_stays_in_registers(cpu, features, instruction):
    run = subprocess.run([sys.executable, "-c", PRINT_THE_LARGEST_TILE], check=True, capture_output=True, text=True,
                         env=os.environ | {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features})
    products, assembly = run.stdout.split(" ", 1)
    [loop] = [block for block in re.split(r"^\.LBB\w+:", assembly, flags=re.MULTILINE) if "prefetch" in block]
    body, jump, _ = re.split(r"^\t(j\w+)", loop, maxsplit=1, flags=re.MULTILINE)
    assert jump == "jg"
    assert len(re.findall(instruction, body)) == int(products)
    assert "%rsp" not in body
