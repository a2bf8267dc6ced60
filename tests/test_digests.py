"""The bits of forward passes are those on record, for each instruction set, precision, schedule and thread count."""

import json

import pytest

digests = pytest.importorskip("tests.digests", reason="the compiled kernels are not built")

RECORDED = json.loads(digests.FILE.read_text())


# Portable kernels round as the architecture's compiler does: with fused multiply-adds on AArch64.
@pytest.mark.skipif(digests.isa.ARCHITECTURE != "x86_64", reason="the bits on record are those of x86-64")
@pytest.mark.parametrize("name", digests.isa.available())
@pytest.mark.parametrize("precision", digests.PRECISIONS)
@pytest.mark.parametrize("model", digests.MODELS)
def test_bits_are_those_on_record(name, precision, model):
    kernels = digests.isa.load(name)
    expected = RECORDED[f"{name}/{kernels.product(precision).name}"][model]
    for threads in digests.THREADS:
        assert digests.digest(kernels, model, precision, threads) == expected, f"{threads} threads"
