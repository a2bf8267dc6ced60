"""Test which compiled kernels fill the places that Numba leaves, and the bits of models that run on both together."""

import os
import subprocess
import sys

import numpy as np
import pytest

from engine.backends import cython_cpu, numba_cpu
from engine.backends.cpu.native.native import PRODUCT_PLACES
from engine.backends.cpu.plan import CpuPlan
from engine.backends.cython_cpu import isa
from engine.base.errors import UnsupportedError
from engine.model.bits import PORTABLE
from engine.model.run_config import RunConfig

from ...tools.plans import SHAPES, SMALL, WEIGHTS, make_batch, make_weights
from .other_cpus import run_for
from .peers import WITHOUT, attending_in_float32

compiled, rows, table, target = (pytest.importorskip(f"engine.backends.numba_cpu.{name}", reason=WITHOUT)
                                 for name in ("compiled", "rows", "table", "target"))

IN_BLOCKS = {"codes", "int16_vectors"}
ON_TILES = {"float32", "bfloat16", "int8", "int16", "bfloat16x3"}
FUNCTIONS = ("begin", "end", "pack", "convert", "multiply", "rounds")
TABLES = [name for name in isa.INSTRUCTION_SETS if compiled.why_not(name) is None]
"""The compiled kernels that can stand beside Numba's here, the emulation of AMX's tiles among them."""


@pytest.mark.parametrize("name", TABLES)
def test_the_places_that_compiled_kernels_fill(name):
    """They are those of the blocks, and those of tiles if there are tiles. Attention is Numba's in all of them."""
    own, theirs = table.KernelTable(name), compiled.rows_of(name)
    own.fill("float32", decoding=False, portable=False)
    tiles = name in ("amx", "amxemulated")
    pairs = {"bfloat16"} if target.PAIRS and name == "avx512bf16" else set()
    assert own.from_compiled == IN_BLOCKS | (ON_TILES if tiles else pairs)
    assert own.instructions().keys() == IN_BLOCKS | set(rows.ROWS) | (ON_TILES if tiles else set())
    for product in own.from_compiled:
        ours, peer = own.memory.products[PRODUCT_PLACES[product]], theirs[PRODUCT_PLACES[product]]
        for field in (*FUNCTIONS, "name", "instruction"):
            assert getattr(ours, field) == getattr(peer, field), (product, field)
        for field in ("depth_step", "operand_bytes", "beside", "strip", "fresh_depth", "bounded", "code_zero"):
            assert getattr(ours, field) == getattr(peer, field), (product, field)
        assert not any(getattr(ours, field) for field in rows.OF_COMPILED)
        assert (ours.block, ours.shared, ours.bundle) == ((128, 128, 512) if ours.strip > 1 else (64, 64, 192))
    attention = own.functions["attention"].address
    own.fill("int4", decoding=True, portable=False)
    own.fill("int8", decoding=False, portable=False)
    for product in ("float32", "codes", "int8"):
        assert own.memory.products[PRODUCT_PLACES[product]].attention == attention
    assert not {"pack_integers", "linear_int8"} & own.functions.keys() or not tiles


WITH_TILES = [name for name in TABLES if "amx" in name] or TABLES[:1]


@pytest.mark.parametrize(("name", "precision"), [
    (WITH_TILES[i % len(WITH_TILES)], precision)
    for i, precision in enumerate(("float32", "bfloat16x3", "int8", "bfloat16", "q8_0", "int4"))])
def test_models_have_the_bits_of_the_compiled_kernels(name, precision):
    """But for attention, which is in float32 here; and results between products are floats here."""
    own, peer = table.KernelTable(name), attending_in_float32(name)
    own.fill(precision, decoding=False, portable=False)
    if not peer.product(precision).exists:
        assert not own.kernels.product(precision).exists
        return
    check_bits(own, peer, precision)


def check_bits(own, peer, precision):
    for shape in ("awkward", "a head of 256", "deep"):
        config, weights = SHAPES[shape], make_weights(SHAPES[shape])
        batch = make_batch(config, [3, 64, 1, 130])
        ours, theirs = (CpuPlan(kernels, config, weights, RunConfig(2, precision, max_tokens=2048)).forward(batch)
                        for kernels in (own.kernels, peer))
        assert np.array_equal(ours, theirs)


@pytest.mark.skipif("avx512bf16" not in TABLES, reason="needs the avx512bf16 kernels, and vectors of 16 floats")
def test_pairs_of_bfloat16_are_those_of_the_compiled_kernels(monkeypatch):
    monkeypatch.setattr(table, "PAIRS", True)
    own = table.KernelTable("avx512bf16")
    assert own.from_compiled == IN_BLOCKS | {"bfloat16"}
    own.fill("bfloat16", decoding=False, portable=False)
    assert not {"linear_widened", "pack_bfloat16"} & own.functions.keys()
    check_bits(own, attending_in_float32("avx512bf16"), "bfloat16")
    assert table.KernelTable("avx512vnni" if "avx512vnni" in TABLES else None).from_compiled.isdisjoint({"bfloat16"})


@pytest.mark.skipif(target.ARM, reason="for x86 alone")
def test_pairs_of_bfloat16_are_multiplied_on_cpus_of_amd():
    features = "+avx2,+fma,+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512bf16"
    printed = run_for("from engine.backends.numba_cpu import target; print(target.PAIRS)",
                      [("znver4", features, []), ("sapphirerapids", features, []), ("znver4", "+avx2,+fma", [])])
    assert printed == ["True\n", "False\n", "False\n"]


@pytest.mark.skipif(not target.FUSED, reason="portable bits need fused multiply-adds")
@pytest.mark.parametrize("precision", ["q8_0", "int4"])
def test_portable_bits_of_weights_in_blocks_are_those_of_the_backend_cython(precision):
    run, batch = RunConfig(2, precision, max_tokens=2048, bits=PORTABLE), make_batch(SMALL, [3, 64, 1, 130])
    ours, theirs = (module.BACKEND.prepare(SMALL, WEIGHTS, run).forward(batch) for module in (numba_cpu, cython_cpu))
    assert np.array_equal(ours, theirs)


@pytest.fixture
def choose(monkeypatch):
    """Return a function that chooses where these sets are built and run, for vectors of this many floats."""

    def chosen(*able, vectors=target.VL, features="", asked=None):
        monkeypatch.setattr(isa, "why_not", lambda name: asked_for.append(name) or (
            None if name in able else f"no {name} here"))
        monkeypatch.setattr(isa, "load", lambda name: SHAPES_OF[name])
        monkeypatch.setattr(compiled, "FEATURES", features)
        for field, value in zip(("VL", "NR", "FUSED"), (vectors, {16: 64, 8: 16, 4: 8}[vectors], vectors > 4),
                                strict=True):
            monkeypatch.setattr(compiled, field, value)
        monkeypatch.delenv("ENGINE_ISA", raising=False)
        if asked:
            monkeypatch.setenv("ENGINE_ISA", asked)
        asked_for.clear()
        return compiled.chosen.__wrapped__()

    class Shape:
        def __init__(self, VL, NR, fused):
            self.VL, self.NR, self.fused = VL, NR, fused

    SHAPES_OF = dict.fromkeys(("amx", "avx512bf16", "avx512vnni", "avx512", "wide", "amxemulated"), Shape(16, 64, True))
    SHAPES_OF |= dict.fromkeys(("avxvnni", "avx2"), Shape(8, 16, True)) | {"baseline": Shape(4, 8, False)}
    asked_for = chosen.asked_for = []
    monkeypatch.setattr(isa, "fastest_first", lambda: ["amx", "avx512vnni", "avx512bf16", "avx512", "avxvnni", "avx2",
                                                       "baseline", "wide", "amxemulated"])
    monkeypatch.setattr(isa, "INSTRUCTION_SETS", tuple(isa.fastest_first()))
    return chosen


AMX = "".join(f"+{name}," for name in compiled.TILE_FEATURES)


def test_the_fastest_set_with_these_vectors(choose):
    everything = tuple(isa.fastest_first())
    assert choose(*everything, vectors=16, features=AMX) == "amx"
    assert choose(*everything[1:], vectors=16, features=AMX) == "avx512vnni"        # the system refuses the tiles
    assert choose(*everything, vectors=8, features="") == "avxvnni"
    assert choose(*everything, vectors=4, features="") == "baseline"
    assert choose("avx2", "baseline", vectors=16) is None                           # other panels
    assert choose("baseline", "wide", "amxemulated", vectors=16, features=AMX) is None      # slow ones, for tests


@pytest.mark.parametrize("missing", compiled.TILE_FEATURES)
def test_without_one_of_the_features_of_tiles(choose, missing):
    """Nobody is asked for permission then, which would hold until the process ends."""
    assert choose("amx", "avx512", vectors=16, features=AMX.replace(missing, "")) == "avx512"
    assert "amx" not in choose.asked_for
    assert compiled.why_not("amx") == f"Numba compiles for a CPU without {missing}"


def test_the_set_that_the_user_names(choose):
    assert choose("amx", "avx512", vectors=16, features=AMX, asked="avx512") == "avx512"
    assert choose("amx", "amxemulated", vectors=16, features=AMX, asked="amxemulated") == "amxemulated"
    assert choose("amx", "avx2", vectors=16, features=AMX, asked="avx2") is None
    assert compiled.explain() == ("ENGINE_ISA=avx2, but the avx2 kernels have vectors of 8 floats and panels of 16 "
                                  "columns, and Numba's have 16 and 64 here; unset ENGINE_ISA")
    assert choose("avx512", vectors=16, asked="amx", features=AMX) is None
    assert compiled.explain() == "ENGINE_ISA=amx, but no amx here; unset ENGINE_ISA"


def test_portable_bits_need_the_same_rounding(choose, monkeypatch):
    assert choose("baseline", vectors=4) == "baseline"
    monkeypatch.setattr(compiled, "FUSED", True)
    assert compiled.why_not("baseline") == "only the kernels of Numba fuse multiply-adds"


def test_without_compiled_kernels(choose, monkeypatch):
    """Models with weights in blocks are refused with the remedy, and all others run on Numba's kernels alone."""
    assert choose("baseline", vectors=16) is None
    monkeypatch.setattr(compiled, "chosen", lambda: None)
    alone = table.KernelTable(None)
    monkeypatch.setattr(table, "table", lambda: alone)
    for precision in ("q8_0", "int4"):
        with pytest.raises(UnsupportedError) as caught:
            numba_cpu.BACKEND.prepare(SMALL, WEIGHTS, RunConfig(precision=precision))
        assert str(caught.value).startswith(
            f"precision {precision!r} of the backend numba runs on kernels that are compiled ahead of time: none of "
            "this build that run here have Numba's vectors of 16 floats; to build the others, run pip install . in a")
        assert str(caught.value).endswith(', or use backend="cython"')
    with pytest.raises(UnsupportedError, match=r"'bfloat16x3' needs kernels on AMX's tiles, and the numba kernels"):
        numba_cpu.BACKEND.prepare(SMALL, WEIGHTS, RunConfig(precision="bfloat16x3"))
    assert numba_cpu.BACKEND.describe().splitlines()[2].startswith("no q8_0, int4, q4_0, q4_1, which run on ")
    numba_cpu.BACKEND.prepare(SMALL, WEIGHTS, RunConfig(precision="int8")).forward(make_batch(SMALL, [3, 1]))


def test_what_info_says():
    """The first line tells which arithmetic there is, because jobs record it."""
    first, products, second, *_ = numba_cpu.BACKEND.describe().splitlines()
    chosen = compiled.chosen()
    assert first.endswith(f", beside {chosen} kernels")
    from_compiled = ", ".join(sorted(table.table().from_compiled))
    assert second == f"{from_compiled} on the {chosen} kernels, which are compiled ahead of time"
    floats = "six tdpbf16ps" if chosen == "amx" else rows.ROWS["float32"]["instruction"].decode()
    assert products.startswith(f"float32 by {floats}, bfloat16 by ")


REFUSED = """
import ctypes

class SignalStack(ctypes.Structure):
    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))

memory = ctypes.create_string_buffer(8192)
before, small = SignalStack(), SignalStack(ctypes.addressof(memory), 0, len(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.sigaltstack(ctypes.byref(small), ctypes.byref(before)) == 0
from engine.backends.cython_cpu import isa
from engine.backends.numba_cpu import BACKEND, compiled, table
print(compiled.chosen(), isa.chosen().isa)
assert libc.sigaltstack(ctypes.byref(before), None) == 0
print(table.load().product("float32").strip, BACKEND.describe().splitlines()[-1])
"""


@pytest.mark.skipif("amx" not in TABLES, reason=f"no tiles here: {compiled.why_not('amx')}")
def test_without_permission_for_tiles():
    """Linux refuses them while a thread has a signal stack that is too small for them. The first answer holds."""
    run = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True,
                         env={name: value for name, value in os.environ.items() if name != "ENGINE_ISA"})
    names, rest = run.stdout.splitlines()
    assert names == " ".join([isa.fastest_first()[1]] * 2)
    assert rest == "1 Linux does not let this process use amx: the signal stack of a thread is smaller than 12 KB"
