"""Numba's kernels beside the compiled ones of the same vector: the same algorithms, to the last bit."""

import ctypes
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba: pip install 'encoder-engine[numba]'")
isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")

from engine.backends.cython_cpu import native
from engine.backends.cython_cpu.plan import ACTIVATIONS
from engine.backends.numba_cpu import structs, table, vector

from ..kernels.tools import pack

PEERS = {16: "avx512", 8: "avx2", 4: "portable"}
"""The compiled kernels with the vector and the tiles of Numba's, by lanes."""


@pytest.fixture(scope="module")
def both():
    """(Numba's table, the compiled one)"""
    name = PEERS[vector.VL]
    if reason := isa.why_not(name):
        pytest.skip(reason)
    return table.load(), isa.load(name)


def test_structs_are_as_large_as_in_c():
    assert {name: ctypes.sizeof(layout) for name, layout in structs.LAYOUTS.items()} == native.struct_sizes()


def test_every_kernel_is_there():
    fields = [name for name, _ in structs.LAYOUTS["KernelTable"]._fields_]
    assert fields == ["isa", "VL", "NR", "MR", *table.KERNELS]


def test_it_is_compiled_once():
    with ThreadPoolExecutor(4) as pool:
        assert len({id(kernels) for kernels in pool.map(lambda _: table.load(), range(8))}) == 1


def test_shapes_agree(both):
    ours, theirs = both
    assert (ours.isa, ours.VL, ours.NR, ours.MR) == ("numba", theirs.VL, theirs.NR, theirs.MR)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_linear(both, activation):
    rng = np.random.default_rng(0)
    for M, N, K in ((1, 5, 3), (13, 2 * both[0].NR + 3, 800), (6, 40, 1100)):
        a, w, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (N, K), N))
        results = []
        for kernels in both:
            packed = pack(kernels, w, bias, ACTIVATIONS.get(activation, 0))
            out = np.zeros((M, -(-N // kernels.VL) * kernels.VL), np.float32)
            kernels.linear(packed, a, out, np.ones_like(out))
            results.append(out)
        assert np.array_equal(*results)


@pytest.mark.parametrize("D", [1, 7, 64, 771])
def test_layer_norm(both, D):
    rng = np.random.default_rng(D)
    x, weight, bias = rng.standard_normal((5, D), dtype=np.float32), *rng.standard_normal((2, D), dtype=np.float32)
    results = [np.empty_like(x) for _ in both]
    for kernels, out in zip(both, results, strict=True):
        kernels.layer_norm(native.NormWeights(weight, bias, 1e-12), x, out)
    assert np.array_equal(*results)


@pytest.mark.parametrize(("T", "S", "d", "e"), [(1, 1, 1, 8), (70, 600, 64, 64), (9, 300, 33, 40)])
def test_attention(both, T, S, d, e):
    rng = np.random.default_rng(T)
    e = -(-e // both[0].VL) * both[0].VL
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((T, d), (S, d), (S, e)))
    results = []
    for kernels in both:
        out = np.empty((T, e), np.float32)
        kernels.attention(q, k, v, out, 0.2, np.empty(kernels.attention_scratch(d, e), np.float32))
        results.append(out)
    assert np.array_equal(*results)


def test_reading_and_peak(both):
    x = np.arange(4096, dtype=np.float32)
    ours, theirs = both
    assert ours.read(x) == theirs.read(x)
    assert ours.fma_rounds(100, 2) == theirs.fma_rounds(100, 2)


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="for x86 without AVX2")
def test_on_a_cpu_without_avx(tmp_path):
    """The tests above, as Numba compiles for the least of x86: four lanes, no fused multiply-add."""
    environment = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "", "ENGINE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not without_avx", __file__]
    run = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "skipped" not in run.stdout
