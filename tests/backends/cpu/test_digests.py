"""The bits of forward passes are those on record, for each instruction set, precision, schedule and thread count.

All sets with fused multiply-adds have one record of float32, and one of widened bfloat16 weights.
"""

import json

import pytest

digests = pytest.importorskip("tests.tools.digests", reason="the compiled kernels are not built")

if digests.isa.ARCHITECTURE != "x86_64":
    # Portable kernels round as the architecture's compiler does: with fused multiply-adds on AArch64.
    pytest.skip("the bits on record are those of x86-64", allow_module_level=True)

NAMES = digests.isa.available()
RECORDED = json.loads(digests.FILE.read_text())

NOT_RECORDED = {"avxvnni/int8"}
"""A CPU with AVX-VNNI has to record it; tests of the kernels compare each of its products with NumPy."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", digests.MODELS)
def test_bits_are_those_on_record(name, model):
    """Alone, and on 2, 3 or 4 threads: each model and each set has each of them, by turns.

    The emulation of tiles is slow, and runs once, on 1 to 4 threads by turns.
    """
    kernels = digests.isa.load(name)
    for precision in digests.PRECISIONS:
        record = digests.record_of(name, kernels.product(precision))
        if not kernels.product(precision).exists or record in NOT_RECORDED:
            continue
        expected = RECORDED[record][model]
        alone, *more = digests.THREADS
        turn = NAMES.index(name) + digests.PRECISIONS.index(precision) + list(digests.MODELS).index(model)
        emulated = digests.THREADS[turn % len(digests.THREADS)],
        for threads in emulated if name == "amxemulated" else (alone, more[turn % len(more)]):
            assert digests.digest(kernels, model, precision, threads) == expected, f"{precision}, {threads} threads"
