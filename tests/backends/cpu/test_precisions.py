"""The encoder in bfloat16 and int8 agrees with its definition, and its bits do not depend on the batch."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from engine.backends import get_backend
from engine.backends.reference import ReferenceBackend
from engine.base.errors import UnsupportedError
from engine.model.config import ModelConfig
from engine.model.precision import LOADABLE, WAYS
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import to_bfloat16
from engine.weights.parameters import input_heads, linear_maps
from engine.weights.quantize import is_bounded, quantize_balanced, quantize_bounded, widen

from ...tools.plans import (
    EVERY_PRODUCT,
    SHAPES,
    SMALL,
    WEIGHTS,
    make_batch,
    make_plan,
    make_weights,
    one_sequence,
    plan_module,
    rounds_queries,
)
from ...tools.rounded import rounded_plan

tools = pytest.importorskip("tests.backends.kernels.tools", reason="the compiled kernels are not built")

ROUNDING = [(name, precision) for name, precision in EVERY_PRODUCT if precision != "float32"]
WIDE = ModelConfig("test", 64, 1, 2, 32, 1600, vocab_size=50, max_positions=140)
"""On tiles its hidden columns go from one product to the other in parts, and its heads are rows of bfloat16."""


def turn(name, precision):
    """Return a number that is another one for the next kernels, and for the next precision."""
    return tools.available().index(name) + LOADABLE.index(precision)


def mean_square(x):
    return float((x * x).mean())


@cache
def results(shape, precision, rows, attention, bounded, queries):
    """Return the results in float64, without and with the roundings of some kernels, many of which have the same."""
    config = replace(SHAPES.get(shape, WIDE), num_layers=1)
    weights, batch = make_weights(config), make_batch(config, [2, 70, 130])
    return (ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch),
            rounded_plan(config, weights, precision, rows=rows, attention=attention, bounded=bounded,
                         queries=queries).forward_unrounded(batch))


DEFINED = ("awkward", "a head of 256", "no tables but the words", "tanh", "relu", "deep", "wide")


@pytest.mark.parametrize("name", tools.available())
@pytest.mark.parametrize("precision", LOADABLE[1:])
def test_as_defined(name, precision):
    if not tools.load(name).product(precision).exists:
        pytest.skip("these kernels lack it")
    for shape in DEFINED[turn(name, precision) % 2 :: 2]:       # the others in the next precision
        # The model has one layer, because differences grow from layer to layer. About one number in some hundred lies
        # so close to the middle of two neighbours that the kernels round it to the other one, which costs 12 times the
        # mean square of a rounding. On tiles, 2^x and GELU are approximate where their results are rounded, which moves
        # more numbers over the middle. A kernel that leaves out a rounding differs by at least a quarter of the mean
        # square. In bfloat16x3 the steps of a second part are so fine that errors of 1 to 4 units in the last place of
        # a float32 input, which both sides may have, already move the definition by 0.05 to 0.2 of the mean square. The
        # kernels differ from it by 0.19 at most, and a kernel that leaves out the rounding of the second part of its
        # inputs by 0.28 at least, of its weights by 0.35. Tests of the kernels compare every bit.
        config = replace(SHAPES.get(shape, WIDE), num_layers=1)
        weights, batch = make_weights(config), make_batch(config, [2, 70, 130])
        kernels = tools.load(name)
        product = kernels.product(precision)
        exact, defined = results(shape, precision, product.converts, not product.attends_in_float32,
                                 product.needs_bound, rounds_queries(config, product))
        out = plan_module.CpuPlan(kernels, config, weights, RunConfig(2, precision, 2048)).forward(batch)
        rounding = mean_square(defined - exact)
        assert rounding > 0
        most = 0.25 if precision == "bfloat16x3" else 0.1 if product.strip > 1 else 0.05
        assert mean_square(out - defined) < most * rounding, shape


@pytest.mark.parametrize(("name", "precision"), ROUNDING)
def test_bits_depend_on_the_sequence_alone(name, precision):
    lengths = [40, 130, 1, 17, 64, 65]
    batch = make_batch(SMALL, lengths)
    alone = make_plan(SMALL, WEIGHTS, 1, name, precision=precision)
    expected = np.concatenate([alone.forward(one_sequence(batch, i)) for i in range(len(lengths))])
    for threads in ((2, 3), (1, 4))[turn(name, precision) % 2]:
        plan = make_plan(SMALL, WEIGHTS, threads, name, precision=precision)
        assert np.array_equal(plan.forward(batch), expected)
        assert np.array_equal(plan.forward(one_sequence(batch, 0)), expected[:40])
        assert np.array_equal(plan.forward(one_sequence(batch, 1)), expected[40:170])


@pytest.mark.parametrize(("name", "precision"), ROUNDING)
def test_bits_are_the_same_by_columns_and_by_rows(name, precision):
    """A team splits columns for up to a block of tokens, and rows for more; a thread alone always works by rows."""
    block = tools.isa.load(name).product(precision).block
    config = replace(SMALL, max_positions=block + 1)
    weights = make_weights(config)
    plans = [make_plan(config, weights, threads, name, precision=precision) for threads in (1, 2, 3)]
    for tokens in (block - 1, block, block + 1):
        batch = make_batch(config, [tokens])
        first, *others = (plan.forward(batch) for plan in plans)
        assert all(np.array_equal(first, other) for other in others), tokens


@pytest.mark.parametrize("name", tools.isa.available())
@pytest.mark.parametrize("gated", [False, True])
def test_a_wide_hidden_buffer_changes_no_bit(name, gated):
    """By rows, its columns may go from one product to the next in parts; by columns they never do."""
    config = replace(SMALL, num_layers=1, ffn_size=3100, gated=gated)
    weights, batch = make_weights(config), make_batch(config, [19])
    by_rows, by_columns = (make_plan(config, weights, threads, name, precision="bfloat16") for threads in (1, 2))
    assert np.array_equal(by_rows.forward(batch), by_columns.forward(batch))


@pytest.mark.parametrize(("name", "precision"), ROUNDING)
def test_heads_of_32_have_the_same_bits_in_any_batch(name, precision):
    """Kernels with tiles attend to such heads with queries in rows."""
    config = replace(SMALL, num_heads=2, head_width=32, num_kv_heads=1, max_positions=600)
    weights, lengths = make_weights(config), [33, 520, 1, 16]
    batch = make_batch(config, lengths)
    alone = make_plan(config, weights, 1, name, precision=precision)
    expected = np.concatenate([alone.forward(one_sequence(batch, i)) for i in range(len(lengths))])
    plans = [alone, make_plan(config, weights, 2 + turn(name, precision) % 2, name, precision=precision)]
    for plan in plans:
        assert np.array_equal(plan.forward(batch), expected)


def rounded_ahead(weights, rounding):
    """Return the weights with those of linear maps rounded by a function of a weight and its heads."""
    rounded = dict(weights)
    for name in (f"{name}.weight" for name in linear_maps(SMALL)):
        rounded[name], rounded[f"{name}_scale"] = rounding(weights[name], input_heads(SMALL, name))
    return rounded


def test_weights_rounded_to_bfloat16_ahead_give_the_same_bits():
    weights = WEIGHTS | {f"{name}.weight": to_bfloat16(WEIGHTS[f"{name}.weight"]) for name in linear_maps(SMALL)}
    batch = make_batch(SMALL, [9, 80])
    plans = [make_plan(SMALL, w, precision="bfloat16") for w in (WEIGHTS, weights)]
    assert np.array_equal(plans[0].forward(batch), plans[1].forward(batch))


@pytest.mark.parametrize("name", tools.available())
def test_integers_rounded_ahead_give_the_same_bits(name):
    """Bounded integers serve all kernels; integers of all 8 bits serve the kernels that need no bound."""
    batch, kernels = make_batch(SMALL, [9, 80]), tools.load(name)
    bounded = rounded_ahead(WEIGHTS, quantize_bounded)
    full = rounded_ahead(WEIGHTS, lambda weight, heads: quantize_balanced(weight))
    names = [f"{name}.weight" for name in linear_maps(SMALL)]
    assert not any(is_bounded(full[name], input_heads(SMALL, name)) for name in names)
    again = rounded_ahead(WEIGHTS | {name: widen(full, name) for name in names}, quantize_bounded)

    def bits(weights):
        return plan_module.CpuPlan(kernels, SMALL, weights, RunConfig(1, "int8", 2048)).forward(batch).tobytes()

    needs_bound = kernels.product("int8").needs_bound
    assert bits(WEIGHTS) == bits(bounded if needs_bound else full)
    assert bits(full) == bits(again) if needs_bound else bits(full) != bits(again)
    assert bits(bounded) != bits(full)


@pytest.mark.parametrize("precision", WAYS)
@pytest.mark.parametrize("name", tools.available())
def test_kernels_that_lack_a_product_say_so(name, precision):
    if tools.load(name).product(precision).exists:
        pytest.skip("these kernels have it")
    with pytest.raises(UnsupportedError, match=f"'{precision}' needs .* the {name} kernels.* use precision='float32'"):
        plan_module.CpuPlan(tools.load(name), SMALL, WEIGHTS, RunConfig(1, precision, 2048))


@pytest.mark.parametrize("precision", LOADABLE[1:])
def test_the_reference_has_none_and_says_so(precision):
    with pytest.raises(UnsupportedError, match=precision):
        get_backend("reference").prepare(SMALL, WEIGHTS, RunConfig(precision=precision))
