"""Instruction sets with fused multiply-adds give the same bits: float32, and every integer format of decoders.

So do sets that widen bfloat16 weights. Numba's kernels for this CPU are among them. Tiles of `amx` add exact integers,
and multiply floats of encoders in another way.
"""

import hashlib
import json
from itertools import combinations

import numpy as np
import pytest

from engine.base.errors import UnsupportedError
from engine.model.config import ModelConfig
from engine.model.precision import FORMATS, INTEGERS
from engine.model.run_config import RunConfig
from engine.weights.parameters import parameters_of
from engine.weights.quantize import in_format

from ...tools.decoders import DECODERS, make_weights, open_requests, row
from ...tools.paths import ROOT
from ..kernels.tools import available, load, why_not

decoder_module = pytest.importorskip("engine.backends.cpu.decoder")
digests = pytest.importorskip("tests.tools.digests", reason="the compiled kernels are not built")
isa = digests.isa
RECORDED = json.loads(digests.FILE.read_text())

FLOATS = ("float32", "bfloat16")


def fused(name, precision):
    """Return whether the product of decoders of a kernel table adds by FMAs, or exactly beside norms that do."""
    product = load(name).product("float32" if precision in INTEGERS else precision, decodes=True)
    return product.instruction.startswith(("vfmadd231ps", "fused"))


def in_blocks_of_four_bits(config, precision):
    """Return random weights of a model whose linear maps are blocks q4_0 or q4_1, to which no numbers are rounded."""
    weights = make_weights(config)
    for name, parameter in parameters_of(config).items():
        if parameter.kind == "linear":
            eight, _ = in_format(weights, name, parameter, ("q8_0",))
            codes = (eight["codes"].astype(np.int16) + 128 >> 4).astype(np.uint8)       # 0 to 15
            weights[name] = blocks = np.empty(eight.shape, FORMATS[precision].dtype)
            blocks["codes"] = codes[..., :16] | codes[..., 16:] << 4
            blocks["scale"] = eight["scale"] * np.float16(16)
            if precision == "q4_1":
                blocks["minimum"] = blocks["scale"] * np.float16(-7.5)
    return weights


def logits(name, precision, config, bits="fastest"):
    """Return the logits after each token of a prompt of 70 tokens, and after one more token, on 2 threads."""
    run = RunConfig(2, precision, 2048, bits=bits)
    weights = make_weights(config) if FORMATS[precision].rounded else in_blocks_of_four_bits(config, precision)
    decoder = decoder_module.CpuDecoder(load(name), config, weights, run)
    text = np.random.default_rng(1).integers(0, 50, 71)
    [request] = open_requests(decoder, config, [9])
    first = decoder.step([row(request, None, text[:70], every=True)])
    second = decoder.step([row(request, first.hypotheses[0], text[70:])])
    return np.concatenate([first.logits, second.logits])


@pytest.mark.parametrize("precision", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("model", DECODERS)
def test_decoders_have_the_same_bits_on_all_instruction_sets(model, precision):
    """Every second set, and the others in the next precision, each with the first one."""
    first, *others = [name for name in available() if load(name).product(precision).exists and fused(name, precision)]
    names = [first, *others[(list(DECODERS).index(model) + (*FLOATS, *INTEGERS).index(precision)) % 2 :: 2]]
    first, *others = [logits(name, precision, DECODERS[model]) for name in names]
    for name, other in zip(names[1:], others, strict=True):
        assert (first == other).all(), f"{names[0]} and {name}"


@pytest.mark.parametrize("precision", FLOATS)
@pytest.mark.parametrize("model", DECODERS)
def test_portable_bits_of_decoders_are_the_same_on_every_instruction_set(model, precision):
    """Those whose fastest arithmetic is another one, too; of integers it is the same in any case."""
    names = [name for name in available() if load(name).fused]
    first, *others = [logits(name, precision, DECODERS[model], "portable") for name in names]
    for name, other in zip(names[1:], others, strict=True):
        assert (first == other).all(), f"{names[0]} and {name}"


def test_ranges_of_codes_hold_the_same_zeros_on_every_set():
    """Heads of 8 numbers, all of them above zero, which vectors of 16 pad and vectors of 8 do not."""
    config = ModelConfig("test", 24, 1, 3, 8, 30, vocab_size=120, max_positions=90, token_types=2)
    weights, bias = digests.weights_of(config), "layers.0.attention.value.bias"
    weights = weights | {bias: weights[bias] + np.float32(9)}
    run, batch, found = RunConfig(1, "int8", 512, bits="portable"), digests.batch_of(config, (5, 20)), {}
    for name in available():
        if load(name).fused:
            found[name] = digests.CpuPlan(load(name), config, weights, run).forward(batch).tobytes()
    assert len({*found.values()}) == 1, [*found]


def test_portable_bits_need_fused_multiply_adds():
    name = "baseline"
    if why_not(name) or load(name).fused:
        pytest.skip("the baseline kernels are not there, or this CPU fuses in them, too")
    with pytest.raises(UnsupportedError, match="the baseline kernels, which run here, have no fused multiply-adds"):
        logits(name, "float32", DECODERS["Llama"], "portable")


HEADING = "### The same bits on other CPUs"
ENCODERS_SHOWN = ("awkward", "tanh", "deep", "ModernBERT")
KERNELS_OF = {"amx": ("amx", "amxemulated")}
"""The kernels that have the bits of a column of the table, where they are not those of its name."""


def rows_of_document():
    """Return (precision, bits, {set: letter}) of each row of the table of docs/precision.md."""
    text = (ROOT / "docs/precision.md").read_text(encoding="utf-8").partition(HEADING)[2]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
             if line.startswith("| ")]
    sets = [name.strip("`") for name in lines[0][2:]]
    return [(what, bits, dict(zip(sets, letters, strict=True))) for what, bits, *letters in lines[1:]]


def measured(name, what, bits):
    """Return the digests of some models in the precisions that a row of the table names, as one text.

    Those of encoders on x86 are on record, and test_digests.py compares the record with what the sets compute.
    """
    if what.endswith("language models"):
        return " ".join(hashlib.sha256(logits(name, precision, DECODERS["Llama"], bits).tobytes()).hexdigest()
                        for precision in ("float32", *INTEGERS))
    precision = what.partition(" ")[0]
    if isa.ARCHITECTURE == "x86_64":
        product = load(name).product(precision, portable=bits == "portable")
        return " ".join(RECORDED[digests.record_of(name, product)].values())
    return " ".join(digests.digest(load(name), model, precision, 2, bits) for model in ENCODERS_SHOWN)


def test_the_table_of_the_document_is_what_the_sets_of_this_cpu_compute():
    rows = rows_of_document()
    assert [what for what, _, _ in rows[::2]] == [what for what, _, _ in rows[1::2]]
    assert {bits for _, bits, _ in rows} == {"fastest", "portable"}
    assert {*rows[0][2]} >= {*isa.available()} - {*isa.FOR_TESTS}
    found = {}
    for what, bits, letters in rows:
        for column, letter in letters.items():
            name = next((name for name in KERNELS_OF.get(column, (column,)) if why_not(name) is None), None)
            if name is None:
                continue
            if letter == "-":
                assert bits == "portable"
                assert not load(name).fused
            else:
                found.setdefault(what, []).append((letter, column, measured(name, what, bits)))
    for what, cells in found.items():
        for (letter, column, own), (other_letter, other, theirs) in combinations(cells, 2):
            assert (letter == other_letter) == (own == theirs), f"{what}: {column} {letter}, {other} {other_letter}"
