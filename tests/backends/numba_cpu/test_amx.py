"""Test the machine code of the products on AMX's tiles, which LLVM writes for any CPU that it knows."""

import itertools
import json
import platform
import re

import pytest

from .other_cpus import run_for

pytest.importorskip("numba", reason="needs numba: pip install '.[numba]'")

X86 = platform.machine().lower() in ("x86_64", "amd64")
TILES = [f"avx512{part}" for part in ("f", "bw", "dq", "vl", "vnni", "bf16")] + ["amx-tile", "amx-bf16", "amx-int8"]
SAPPHIRE_RAPIDS = "sapphirerapids", ",".join(f"+{name}" for name in ("avx2", "fma", *TILES))
"""The name of the CPU, and its features, for Numba."""

KERNELS = ("tiles_bfloat16", "tiles_int8", "tiles_int16", "tiles_float32", "tiles_two_parts", "begin_tiles",
           "end_tiles")

PRINT_THE_CODE = """
import json
import sys
from engine.backends.numba_cpu.compiler import compiling
from engine.backends.numba_cpu.kernels import parts, tiles

class NoCache:
    def load_overload(self, *args):
        return None

    save_overload = load_overload

# Activations lie outside of the loops, and would take the compiler a fifth of its time.
@compiling.inline
def nothing(activation, out, stride, rows, width):
    pass

tiles.activate_rows = parts.activate_rows = nothing
kernels = vars(tiles) | vars(parts)
print(json.dumps({name: compiling.compile_kernel(kernels[name], NoCache())._library.get_asm_str()
                  for name in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def functions():
    """Return for each kernel the lines of each function of it, by the function's symbol."""
    [printed] = run_for(PRINT_THE_CODE, [(*SAPPHIRE_RAPIDS, KERNELS)])
    found = {}
    for name, code in json.loads(printed).items():
        parts = re.split(r"^(_Z\w+):$", code, flags=re.MULTILINE)
        found[name] = dict(zip(parts[1::2], parts[2::2], strict=True))
    return found


@pytest.mark.skipif(not X86, reason="for x86 alone")
@pytest.mark.parametrize(("kernel", "product", "upper"), [
    ("tiles_bfloat16", "tdpbf16ps", "tdpbf16ps"), ("tiles_int8", "tdpbusd", "tdpbusd"),
    ("tiles_int16", "tdpbusd", "tdpbssd")])
def test_loops_have_the_tile_instructions_and_nothing_else(functions, kernel, product, upper):
    """A step has its loads and products in order, also where LLVM writes the loop twice. The epilogue stays outside."""
    blocks = [code for name, code in functions[kernel].items() if "multiply_block" in name]
    found = set()
    for code in blocks:
        sums = len(re.findall("tilezero", code))
        assert len(re.findall("tilestored", code)) == sums
        steps = re.findall(r"\s(tileload\w*|tdp\w+)\t(.*)", code)
        tiles = [(name, *(int(tile) for tile in re.findall(r"%tmm(\d)", rest))) for name, rest in steps]
        rows, columns = 1 + any(tile[1:] == (5,) for tile in tiles), 1 + any(tile[1:] == (7,) for tile in tiles)
        step = [("tileloaddt1", 4), ("tileloaddt1", 6), (upper, 6, 4, 0)]
        step += [("tileloaddt1", 7), (upper, 7, 4, 1)] if columns == 2 else []
        step += [("tileloaddt1", 5), (product, 6, 5, 2)] if rows == 2 else []
        step += [(product, 7, 5, 3)] if rows == columns == 2 else []
        assert tiles == step * (len(tiles) // len(step))
        assert "zmm" not in code
        found.add((rows, columns, sums))
    least = 1 if product == upper else 2     # the tiles of lower bytes take the places of lower rows
    assert found == {(rows, columns, rows * columns) for rows in range(least, 3) for columns in (1, 2)}


@pytest.mark.skipif(not X86, reason="for x86 alone")
@pytest.mark.parametrize(("kernel", "loads"), [("tiles_float32", "awaww"), ("tiles_two_parts", "aw")])
def test_the_loop_over_parts_has_its_products_in_their_order(functions, kernel, loads):
    """A product loads what the one before has not; after it, parts of weights of the next step are stored."""
    wanted = r"\s(tileload\w*|tdp\w+|vmov\w+\t%zmm\d+, [^%]*\()(.*)"
    found = set()
    for code in (code for name, code in functions[kernel].items() if "multiply_block" in name):
        sums = len(re.findall("tilezero", code))
        assert len(re.findall("tilestored", code)) == sums
        names = [int(re.search(r"%tmm(\d)", rest)[1]) if name.startswith("tileload") else name[:3]
                 for name, rest in re.findall(wanted, code)]
        columns = 1 + (7 in names)
        rows = sums // columns
        a, w = [4, 5][:rows], [6, 7][:columns]
        first = names.index(4)
        order = [name for name, _ in itertools.groupby(names[first:])]
        step = [*a, *w, "tdp", "vmo"]
        for side in loads:
            step += [*(a if side == "a" else w), "tdp", "vmo"]
        assert order == step * (len(order) // len(step))
        assert names.count("tdp") == order.count("tdp") * sums
        found.add((rows, columns))
    assert found == {(rows, columns) for rows in (1, 2) for columns in (1, 2)}


@pytest.mark.skipif(not X86, reason="for x86 alone")
@pytest.mark.parametrize(("kernel", "instruction"), [("begin_tiles", "ldtilecfg"), ("end_tiles", "tilerelease")])
def test_a_thread_configures_and_releases_its_tiles(functions, kernel, instruction):
    assert len(re.findall(rf"\s{instruction}\s", "".join(functions[kernel].values()))) == 1


MISSING = [name for name in TILES if name.startswith("amx") or name == "avx512bf16"]

WHY_NO_TILES = """
from engine.backends.cpu.native import native
asked = []
native.refusal = lambda isa: asked.append(isa) or f"no {isa} here"
from engine.backends.numba_cpu import table, target
print(asked, target.TILES, target.WHY_NO_TILES, target.PAIR_STEPS, "begin" in table.PRODUCTS["int8"])
"""


@pytest.fixture(scope="module")
def answers():
    """Return what is printed for a CPU that lacks one feature, by the feature, and for one that lacks none."""
    cpu, features = SAPPHIRE_RAPIDS
    printed = run_for(WHY_NO_TILES, [(cpu, features.replace(f"+{name}", f"-{name}") if name else features, [])
                                     for name in (*MISSING, None)])
    return dict(zip((*MISSING, None), printed, strict=True))


@pytest.mark.skipif(not X86, reason="for x86 alone")
@pytest.mark.parametrize("missing", MISSING)
def test_a_cpu_that_lacks_one_of_them_gets_no_tiles(answers, missing):
    """Nobody is asked for permission then."""
    assert answers[missing] == f"[] False Numba compiles for a CPU without {missing} 2 False\n"


@pytest.mark.skipif(not X86, reason="for x86 alone")
def test_a_system_that_refuses_gets_no_tiles(answers):
    assert answers[None] == "['amx'] False no amx here 2 False\n"
