"""The bits of forward passes are those on record, for each instruction set, precision, schedule and thread count.

All sets with fused multiply-adds have one record of float32, and one of widened bfloat16 weights.
"""

import json

import pytest

digests = pytest.importorskip("tests.tools.digests", reason="the compiled kernels are not built")

NAMES = digests.isa.available()


def stands_for_amx(name):
    """Return whether these are the emulated tiles, where real ones have the same record and are tried on all models."""
    return name == "amxemulated" and "amx" in NAMES


RECORDED = json.loads(digests.FILE.read_text())


# The baseline kernels round as the architecture's compiler does: with fused multiply-adds on AArch64.
@pytest.mark.skipif(digests.isa.ARCHITECTURE != "x86_64", reason="the bits on record are those of x86-64")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", digests.MODELS)
def test_bits_are_those_on_record(name, model):
    """On 1 to 4 threads by turns: each model has each of them in each precision, on one set or another.

    Emulated tiles take every second model where real ones are there, and the other models below.
    """
    if stands_for_amx(name) and list(digests.MODELS).index(model) % 2:
        return
    kernels = digests.isa.load(name)
    for precision in digests.PRECISIONS:
        record = digests.record_of(name, kernels.product(precision))
        if not kernels.product(precision).exists:
            continue
        expected = RECORDED[record][model]
        turn = NAMES.index(name) + digests.PRECISIONS.index(precision) + list(digests.MODELS).index(model)
        threads = digests.THREADS[turn % len(digests.THREADS)]
        assert digests.digest(kernels, model, precision, threads) == expected, f"{precision}, {threads} threads"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", digests.MODELS)
def test_portable_bits_are_those_of_all_sets(name, model):
    """On 1 to 4 threads by turns. Where a set has them in any case, the test above has seen them."""
    if stands_for_amx(name) and list(digests.MODELS).index(model) % 2 == 0:
        return
    kernels = digests.isa.load(name)
    if not kernels.fused:
        pytest.skip(f"{name} has no fused multiply-adds")
    for i, precision in enumerate(digests.PRECISIONS[:3]):
        record = digests.record_of(name, kernels.product(precision, portable=True))
        assert record in ("fma/float32", "fma/bfloat16_weights", "bounded/int8")
        if record == digests.record_of(name, kernels.product(precision)):
            continue
        threads = digests.THREADS[(NAMES.index(name) + i + list(digests.MODELS).index(model)) % len(digests.THREADS)]
        found = digests.digest(kernels, model, precision, threads, digests.PORTABLE)
        assert found == RECORDED[record][model], f"{precision}, {threads} threads"
