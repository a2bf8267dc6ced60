"""Test embedding tables in fewer bits: the same result as float32 tables of the same numbers, and no copy."""

from dataclasses import replace

import numpy as np
import pytest

from engine.backends import get_backend
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import to_bfloat16
from engine.weights.quantize import quantize_rows, widen

from ..tools.damage import peak_of
from ..tools.plans import SHAPES, isa, make_batch, make_plan, make_weights

TABLES = ("embeddings.word", "embeddings.position")

STORED = {
    "bfloat16": lambda table: (to_bfloat16(table), None),
    "int8": quantize_rows,
    "float32": lambda table: (table, None),
}


def with_tables(weights, *stored):
    """Return the weights with the first tables in these precisions."""
    weights = dict(weights)
    for name, precision in zip(TABLES, stored, strict=False):
        if name in weights:
            weights[name], scale = STORED[precision](weights[name])
            if scale is not None:
                weights[f"{name}_scale"] = scale
    return weights


def widened(weights):
    """Return the same numbers in float32."""
    wide = {name: widen(weights, name) for name in TABLES if name in weights}
    return {name: array for name, array in weights.items() if not name.endswith("_scale")} | wide


STORED_TABLES = [("int8", "int8"), ("bfloat16", "bfloat16"), ("int8", "bfloat16"), ("bfloat16", "int8")]


@pytest.mark.parametrize("shape", ["awkward", "one of everything", "no tables but the words", "tanh"])
@pytest.mark.parametrize("name", isa.available())
def test_the_bits_of_float32_tables(name, shape):
    for stored in STORED_TABLES:
        config = SHAPES[shape]
        weights, batch = with_tables(make_weights(config), *stored), make_batch(config, [1, 70, 130])
        expected = make_plan(config, widened(weights), 2, name).forward(batch)
        assert np.array_equal(make_plan(config, weights, 2, name).forward(batch), expected), stored


@pytest.mark.parametrize("stored", [("int8", "int8"), ("bfloat16", "bfloat16")], ids="-".join)
def test_on_every_backend(backend, stored):
    config = SHAPES["awkward"]
    weights, batch = with_tables(make_weights(config), *stored), make_batch(config, [3, 20])
    plans = [get_backend(backend).prepare(config, each, RunConfig()) for each in (weights, widened(weights))]
    assert np.array_equal(*(plan.forward(batch) for plan in plans))


def test_a_scale_belongs_to_its_row():
    config = replace(SHAPES["no tables but the words"], hidden_size=24)
    weights, batch = with_tables(make_weights(config), "int8"), make_batch(config, [9])
    plan = make_plan(config, weights)
    before = plan.forward(batch)
    weights["embeddings.word_scale"][batch.input_ids[4]] *= 2
    assert not np.array_equal(plan.forward(batch), before), "the table is read where it lies"
    assert np.array_equal(plan.forward(batch), make_plan(config, widened(weights)).forward(batch))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("stored", ["int8", "bfloat16"])
def test_a_table_is_not_copied(stored, precision):
    config = ModelConfig("test", 16, 1, 1, 16, 16, vocab_size=50_000)
    weights = with_tables(make_weights(config), stored)
    assert peak_of(make_plan, config, weights, 1, None, 64, precision) < 50_000
