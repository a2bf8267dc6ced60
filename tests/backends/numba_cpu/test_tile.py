"""Test the assembly of the inner loops of int8 and bfloat16 tiles, for CPUs other than this one."""

import platform
import re

import pytest

from .other_cpus import run_for

pytest.importorskip("numba", reason="needs numba: pip install '.[numba]'")

AVX512 = "".join(f",+avx512{part}" for part in ("f", "bw", "dq", "vl"))

PRINT_THE_LARGEST_TILE = """
import sys
from llvmlite import binding, ir
from engine.backends.numba_cpu.kernels import depth, tile
from engine.backends.numba_cpu import target
from engine.backends.numba_cpu.compiler.pointers import POINTER, SIZE
sizes = {"depth", "a_stride", "out_stride", "ahead_step"}
body = getattr(tile, sys.argv[1])
names = [name for name in body.__annotations__ if name not in ("b", "mr", "nv", "return")]
module = ir.Module()
kinds = [SIZE if name in sizes else POINTER for name in names]
rows = target.DOT_MR if body is tile._dot else target.MR
tile._function(module, body, rows, target.NV, kinds).linkage = "external"
machine = binding.Target.from_triple(target.TRIPLE).create_target_machine(target.CPU, target.FEATURES, opt=3)
kind = {tile._dot: depth.INTEGERS, tile._widened: depth.WIDENED, tile._linear: depth.FLOATS}[body]
print(rows * target.NV * kind.steps * kind.pair_steps, machine.emit_assembly(binding.parse_assembly(str(module))))
"""


AVX2 = "+avx2,+fma"
ICE_LAKE = f"{AVX2}{AVX512},+avx512vnni"


CASES = [
    ("_linear", "haswell", AVX2, r"vfmadd\d+ps\t.*%ymm"),
    ("_linear", "icelake-server", ICE_LAKE, r"vfmadd\d+ps\t.*%zmm"),
    ("_dot", "haswell", AVX2, r"vpmaddwd\t.*%ymm"),
    ("_dot", "alderlake", f"{AVX2},+avxvnni", r"vpdpbusd\t.*%ymm"),
    ("_dot", "skylake-avx512", f"{AVX2}{AVX512}", r"vpmaddwd\t.*%zmm"),
    ("_dot", "icelake-server", ICE_LAKE, r"vpdpbusd\t.*%zmm"),
    ("_widened", "haswell", AVX2, r"vfmadd\d+ps\t.*%ymm"),
    ("_widened", "icelake-server", ICE_LAKE, r"vfmadd\d+ps\t.*%zmm"),
    ("_widened", "sapphirerapids", f"{ICE_LAKE},+avx512bf16", r"vfmadd\d+ps\t.*%zmm"),
]  # fmt: skip


@pytest.fixture(scope="module")
def printed():
    """Return what is printed in each of the cases."""
    found = run_for(PRINT_THE_LARGEST_TILE, [(cpu, features, [tile]) for tile, cpu, features, _ in CASES])
    return dict(zip(CASES, found, strict=True))


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="for x86 alone")
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_inner_loop_stays_in_registers(case, printed):
    instruction = case[-1]
    products, assembly = printed[case].split(" ", 1)
    blocks = re.split(r"^\.LBB\w+:", assembly, flags=re.MULTILINE)
    loop = max(blocks, key=lambda block: len(re.findall(instruction, block)))
    assert len(re.findall(instruction, loop)) == int(products)
    assert "%rsp" not in loop
