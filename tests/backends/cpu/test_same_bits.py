"""Instruction sets with fused multiply-adds give the same bits: float32, and every integer format of decoders.

So do sets that widen bfloat16 weights. Numba's kernels for this CPU are among them. `amx` multiplies floats in another
way, and its tiles add exact integers.
"""

import numpy as np
import pytest

from engine.model.run_config import RunConfig

from ...tools.decoders import DECODERS, make_weights, open_requests, row
from ..kernels.tools import available, load

decoder_module = pytest.importorskip("engine.backends.cpu.decoder")

FLOATS, INTEGERS = ("float32", "bfloat16"), ("int8", "int4", "q8_0", "q4_0", "q4_1")


def fused(name, precision):
    """Return whether the product of a kernel table adds by fused multiply-adds, or exactly beside those of norms."""
    product = load(name).product("float32" if precision in INTEGERS else precision)
    exact = name.startswith("amx") and precision in INTEGERS
    return exact or product.instruction.startswith(("vfmadd231ps", "fused"))


def logits(name, precision, config):
    """Return the logits after each token of a prompt of 70 tokens, and after one more token, on 2 threads."""
    decoder = decoder_module.CpuDecoder(load(name), config, make_weights(config), RunConfig(2, precision, 2048))
    text = np.random.default_rng(1).integers(0, 50, 71)
    [request] = open_requests(decoder, config, [9])
    first = decoder.step([row(request, None, text[:70], every=True)])
    second = decoder.step([row(request, first.hypotheses[0], text[70:])])
    return np.concatenate([first.logits, second.logits])


@pytest.mark.parametrize("precision", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("model", DECODERS)
def test_decoders_have_the_same_bits_on_all_instruction_sets(model, precision):
    names = [name for name in available() if load(name).product(precision).exists and fused(name, precision)]
    first, *others = [logits(name, precision, DECODERS[model]) for name in names]
    for name, other in zip(names[1:], others, strict=True):
        assert (first == other).all(), f"{names[0]} and {name}"
