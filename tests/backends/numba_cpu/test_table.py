"""Compare Numba's kernels with the compiled ones of the same vector size: equal to the last bit."""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from engine.backends import numba_cpu
from engine.backends.cpu.native import native
from engine.backends.cpu.native.layout import ACTIVATIONS, PRODUCT_PLACES
from engine.backends.cpu.native_ops import NativeOps
from engine.backends.cython_cpu import isa
from engine.model.positions import relative_rows

from ...tools.paths import TESTS
from ..kernels.table import function
from ..kernels.tools import Cells, convert, load, operands_of, pack, random_int8, round_up
from ..kernels.vocabulary import Vocabulary
from .peers import BFLOAT16_PEER, PEER, WITHOUT

table, target = (pytest.importorskip(f"engine.backends.numba_cpu.{name}", reason=WITHOUT)
                 for name in ("table", "target"))

KERNEL_TESTS = TESTS / "backends" / "kernels"


def beside(peer):
    if reason := isa.why_not(peer):
        pytest.skip(reason)
    return load("numba"), isa.load(peer)


@pytest.fixture(scope="module")
def both():
    """(Numba's table, the compiled one)"""
    return beside(PEER)


@pytest.fixture(scope="module")
def both_bfloat16():
    """The same for bfloat16"""
    return beside(BFLOAT16_PEER)


def test_every_kernel_is_there():
    own = table.KernelTable(None)
    for precision, decoding, portable in (("float32", True, False), ("bfloat16", False, False),
                                          ("bfloat16", False, True), ("int8", False, False), ("int8", True, False)):
        own.fill(precision, decoding=decoding, portable=portable)
    unset = {name for name, _ in own.memory._fields_ if name != "products" and not getattr(own.memory, name)}
    assert unset == {"read"} | ({"fused"} if not target.FUSED else set())       # nobody measures with these kernels
    assert table.ROWS.keys() == table.PRODUCTS.keys() == own.instructions().keys() < PRODUCT_PLACES.keys()
    attention = own.functions["attention"].address
    for name, place in PRODUCT_PLACES.items():
        row = own.memory.products[place]
        if name not in table.ROWS:      # compiled kernels alone have it
            assert not row.multiply
            continue
        optional = {"begin", "end", "beside", "bounded", "code_zero", "fresh_depth", "hidden_columns", "operands_depth",
                    "approximates", "attend_rows", "attend_rows_scratch"}       # 0 here
        absent = {field for field, *_ in row._fields_ if not getattr(row, field)} - optional
        assert absent == {"convert", "rounds"} - table.PRODUCTS[name].keys()
        assert row.attention == attention


def test_portable_bits_need_fused_multiply_adds():
    """Which `test_on_a_cpu_without_avx` has not."""
    assert load("numba").fused == target.FUSED == (numba_cpu.BACKEND.no_portable_bits() is None)


def test_kernels_of_decoders_wait_for_a_decoder():
    own = table.KernelTable(None)
    own.fill("float32", decoding=False, portable=False)
    assert not table.DECODING.keys() & own.functions.keys()
    assert table.KERNELS.keys() <= own.functions.keys()
    own.fill("float32", decoding=True, portable=False)
    assert all(getattr(own.memory, field) for field in table.DECODING)


def test_it_is_compiled_once():
    with ThreadPoolExecutor(4) as pool:
        assert len({id(kernels) for kernels in pool.map(lambda _: table.load(), range(8))}) == 1


def test_shapes_agree(both):
    ours, theirs = both
    assert (ours.isa, ours.VL, ours.NR, ours.MR) == ("numba", theirs.VL, theirs.NR, theirs.MR)


@pytest.mark.parametrize("decodes", [False, True])
@pytest.mark.parametrize(("precision", "peer"), [
    ("float32", PEER), ("bfloat16", BFLOAT16_PEER), ("int8", PEER)])
def test_rows_agree(precision, peer, decodes):
    ours, theirs = (kernels.product(precision, decodes) for kernels in beside(peer))
    for field in ("name", "depth_step", "operand_bytes", "converts", "strip", "fresh_depth", "code_zero",
                  "needs_bound", "block", "shared", "bundle"):
        assert getattr(ours, field) == getattr(theirs, field), field


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_linear(both, activation):
    rng = np.random.default_rng(0)
    for M, N, K in ((1, 5, 3), (13, 2 * both[0].NR + 3, 800), (6, 40, 1100), (130, 80, 33)):
        a, w, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (N, K), N))
        results = []
        for kernels in both:
            packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0))
            out = np.zeros((M, -(-N // kernels.VL) * kernels.VL), np.float32)
            product = kernels.product("float32")
            operands = operands_of(product, a)
            product.multiply(packed, operands, out, np.ones_like(out))
            results.append((packed.arrays[0], operands, out))
        for ours, theirs in zip(*results, strict=True):
            assert np.array_equal(ours, theirs)


def test_fma(both):
    """The product of floats on vectors, which is also there where float32 is on tiles."""
    rng, N = np.random.default_rng(0), 2 * both[0].NR
    a, w, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((13, 1100), (N, 1100), N))
    results = []
    for kernels in both:
        packed, out = pack(kernels, w, bias, product=kernels.fma), np.empty((13, N), np.float32)
        kernels.fma.multiply(packed, a, out)
        results.append((packed.arrays[0], out))
    for ours, theirs in zip(*results, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_linear_int8(both, activation):
    rng = np.random.default_rng(0)
    for M, N, K in ((1, 5, 3), (13, 2 * both[0].NR + 3, 800), (6, 40, 1101), (70, 80, 130)):
        x, bias, scale = (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), N, N))
        x[:, 1:2], x[M // 2, 0] = x[:, :1], np.inf if M == 6 else 3
        w = random_int8(rng, N, K)
        results = []
        for kernels in both:
            product, ranges = kernels.product("int8"), np.empty((M, 2), np.float32)
            codes = convert(product, x, ranges)
            packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), "int8", scale)
            out = np.zeros((M, round_up(N, kernels.VL)), np.float32)
            product.multiply(packed, codes, out, np.ones_like(out), ranges)
            results.append((*(array for array in packed.arrays if array is not None), codes, ranges, out))
        for ours, theirs in zip(*results, strict=True):
            assert np.array_equal(ours, theirs, equal_nan=ours.dtype != np.uint8)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_linear_bfloat16(both_bfloat16, activation):
    rng = np.random.default_rng(0)
    for M, N, K in ((1, 5, 1), (13, 2 * both_bfloat16[0].NR + 3, 800), (6, 40, 2101), (70, 80, 130)):
        x, w, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (N, K), N))
        results = []
        for kernels in both_bfloat16:
            product = kernels.product("bfloat16")
            operands = convert(product, x) if product.converts else x
            packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0), "bfloat16")
            out = np.zeros((M, round_up(N, kernels.VL)), np.float32)
            product.multiply(packed, operands, out, np.ones_like(out))
            results.append((packed.arrays[0], operands, out))
        for ours, theirs in zip(*results, strict=True):
            assert np.array_equal(ours, theirs)


ATTENTION = {
    "plain": lambda rng, T, S: {},
    "band": lambda rng, T, S: {"low": -50, "high": 3},
    "mask": lambda rng, T, S: {"mask": (rng.random((T, S)) < 0.7).astype(np.uint8)},
    "columns of a mask": lambda rng, T, S: {"mask": (rng.random((S, T)) < 0.7).astype(np.uint8).T},
    "bias": lambda rng, T, S: {"bias": rng.standard_normal((T, S), dtype=np.float32)},
    "columns of a bias": lambda rng, T, S: {"bias": rng.standard_normal((S, T), dtype=np.float32).T},
    "softcap": lambda rng, T, S: {"softcap": 2.0},
    "all of it": lambda rng, T, S: {"low": -50, "high": 3, "softcap": 2.0, "bias": rng.random((T, S), np.float32),
                                    "mask": (rng.random((T, S)) < 0.7).astype(np.uint8)},
}


@pytest.mark.parametrize("kind", ATTENTION)
@pytest.mark.parametrize(("T", "S", "d", "e"), [(1, 1, 1, 1), (70, 600, 64, 64), (9, 300, 33, 43)])
def test_attention(both, kind, T, S, d, e):
    rng = np.random.default_rng(T)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((T, d), (S, d), (S, e)))
    options = ATTENTION[kind](rng, T, S)
    results = []
    for kernels in both:
        out = np.empty((T, e), np.float32)
        product = kernels.product("float32")
        product.attention(q, k, v, out, 0.2, np.empty(product.attention_scratch(d, e), np.float32), **options)
        results.append(out)
    assert np.array_equal(*results)


@pytest.mark.parametrize("kind", ["plain", "band", "bias", "softcap"])
@pytest.mark.parametrize("storage", [0, 1, 2])
@pytest.mark.parametrize(("T", "heads", "d", "e"), [(1, 1, 1, 1), (1, 3, 64, 64), (4, 9, 33, 43)])
def test_cached_attention(both, kind, storage, T, heads, d, e):
    S, rng = 600, np.random.default_rng(T)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((T, heads, d), (S, d), (S, e)))
    cache, options = Cells(rng, k, v, storage, both[0].VL), ATTENTION[kind](rng, T, S)
    if "bias" in options:
        options["bias"] = np.tile(options["bias"], (heads, 1, 1))
    results = []
    for kernels in both:
        out = np.empty((T, heads, e), np.float32)
        scratch = np.empty(function(kernels, "cached_attention_scratch")(d, e), np.float32)
        cache.attend(kernels, q, out, S, 0.2, scratch, **options)
        results.append(out)
    assert np.array_equal(*results)


def test_logits(both):
    for M, V, D in ((1, 5, 3), (70, 1000, 40)):
        ours, theirs = (Vocabulary(kernels, "float32", M, V, D) for kernels in both)
        assert np.array_equal(ours.mixed(1, M)[0], theirs.mixed(1, M)[0])
        for found, expected in zip(ours.best(min(9, V)), theirs.best(min(9, V)), strict=True):
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("terms", [("c2p",), ("p2c",), ("c2p", "p2c")])
def test_attention_with_relative_positions(both, terms):
    T, S, d, row = 70, 600, 33, relative_rows(np.arange(-90, 91), 90, 40)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, d), dtype=np.float32) for n in (T, S, S))
    shape = (1, round_up(80, both[0].NR) // both[0].NR, d, both[0].NR)
    keys, queries = (rng.standard_normal(shape, dtype=np.float32) if term in terms else None for term in ("c2p", "p2c"))
    relative = native.RelativeWeights(keys, queries, row, 80)
    results = []
    for kernels in both:
        out, product = np.empty((T, d), np.float32), kernels.product("float32")
        scratch = np.empty(product.attention_scratch(d, d, relative.columns), np.float32)
        product.attention(q, k, v, out, 0.1, scratch, relative=relative, query=130, high=300)
        results.append(out)
    assert np.array_equal(*results)


def turn(ops, x, interleaved):
    angles = x[None, :, : x.shape[1] // 3]
    return ops.rotate(x[None, None], angles, angles, interleaved)


ROWS = {
    "layer_norm": lambda ops, x: ops.layer_norm(x, x[0], x[1], 1e-12),
    "rms_norm": lambda ops, x: ops.rms_norm(x, x[0], 1e-6),
    "softmax": lambda ops, x: ops.softmax(x),
    "rotate halves": lambda ops, x: turn(ops, x, False),
    "rotate neighbours": lambda ops, x: turn(ops, x, True),
    **{name: lambda ops, x, name=name: ops.activate(name, x) for name in ACTIVATIONS},
    **{f"gate {name}": lambda ops, x, name=name: ops.gate(name, x, x[::-1]) for name in ACTIVATIONS},
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(both, name):
    for D in [3, 7, 64, 771]:
        x = np.random.default_rng(D).standard_normal((5, D), dtype=np.float32) * np.float32(4)
        assert np.array_equal(*(ROWS[name](NativeOps(kernels, 1), x) for kernels in both))


def run_pytest(*arguments, **environment):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "skipped" not in run.stdout


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="for x86 without AVX2")
def test_on_a_cpu_without_avx():
    """Run tests above as Numba compiles for the oldest x86 CPUs: four lanes, no fused multiply-add.

    They have every kind of arithmetic; the kernels of decoders have no other, and take as long to compile.
    """
    tests = "portable or test_linear or test_rows or (test_attention and not cached)"
    run_pytest("-p", f"{__package__}.some_kernels", "-k", f"({tests}) and not agree", __file__,
               NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="",
               SOME_KERNELS="linear,int8,bfloat16,attention,norm,softmax,rotary,elementwise")


@pytest.mark.skipif(target.VL == 16, reason="all other tests have these shapes here")
def test_in_the_shapes_of_a_cpu_with_avx512():
    names = "linear", "bfloat16", "int8", "attention"
    files = [str(KERNEL_TESTS / f"test_{name}.py") for name in names]
    plugins = "-p", f"{__package__}.as_avx512", "-p", f"{__package__}.some_kernels"
    run_pytest(*plugins, "-k", "numba", *files, SOME_KERNELS=",".join(names))
