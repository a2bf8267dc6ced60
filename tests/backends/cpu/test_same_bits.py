"""Instruction sets with fused multiply-adds give the same bits: float32 and bfloat16 weights, and every integer format of decoders.

Numba's kernels for this CPU are among them. `amx`'s tiles add exact integers, and multiply float32 in another way.
"""

import numpy as np
import pytest

from engine.model.run_config import RunConfig

from ...tools.decoders import DECODERS, make_weights, open_requests, row
from ..kernels.tools import available, load

decoder_module = pytest.importorskip("engine.backends.cpu.decoder")

INTEGERS = ("int8", "int4", "q8_0", "q4_0", "q4_1")


def fused(name):
    """Return whether a kernel table computes a float32 norm with fused multiply-adds."""
    return load(name).product("float32").instruction.startswith(("vfmadd231ps", "fused")) or name.startswith("amx")


def logits(name, precision, config):
    """Return the logits after each token of a prompt of 70 tokens, and after one more token, on 2 threads."""
    decoder = decoder_module.CpuDecoder(load(name), config, make_weights(config), RunConfig(2, precision, 2048))
    text = np.random.default_rng(1).integers(0, 50, 71)
    [request] = open_requests(decoder, config, [9])
    first = decoder.step([row(request, None, text[:70], every=True)])
    second = decoder.step([row(request, first.hypotheses[0], text[70:])])
    return np.concatenate([first.logits, second.logits])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", *INTEGERS])
@pytest.mark.parametrize("model", DECODERS)
def test_decoders_have_the_same_bits_on_all_instruction_sets(model, precision):
    names = [name for name in available() if fused(name) and load(name).product(precision).exists]
    if precision in ("float32", "bfloat16"):
        names = [name for name in names if load(name).product(precision).instruction.startswith(("vfmadd231ps", "fused"))]
    first, *others = [logits(name, precision, DECODERS[model]) for name in names]
    for name, other in zip(names[1:], others, strict=True):
        assert (first == other).all(), f"{names[0]} and {name}"
