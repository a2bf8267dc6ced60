"""Test the form of the results between two products: operands, or floats where the first product is deep."""

import numpy as np
import pytest

from engine.model.config import ModelConfig
from engine.programs import program_of

from ...tools.plans import isa, make_batch, make_plan, make_weights, placing

DEEPEST = 4096
"""Kernels that write operands of any depth are not tested beyond this one."""


@pytest.mark.parametrize("name", [name for name in isa.available() if isa.load(name).product("bfloat16").converts])
def test_products_up_to_a_depth_write_operands(name):
    product = isa.load(name).product("bfloat16")
    for width in (64, product.operands_depth, product.operands_depth + 16):
        if width > DEEPEST:
            continue
        config = ModelConfig("test", hidden_size=width, num_layers=1, num_heads=1, head_width=16, ffn_size=48,
                             vocab_size=20, max_positions=80)
        small = np.float32((64 / width) ** 0.5)     # keeps the scores of attention small
        weights = {key: array * small if key.startswith("layers.") and array.ndim == 2 else array
                   for key, array in make_weights(config).items()}
        placed = placing.place(program_of(config), product, placing.Packer(product, weights))
        between = set(placing.operands_only(program_of(config)))
        assert len(between) == 1
        assert between <= set(placed) if width > product.operands_depth else not between & set(placed)
        assert placing.operands_of(*between) in placed
        batch = make_batch(config, [70, 3])
        exact = make_plan(config, weights, name=name).forward(batch)
        found = make_plan(config, weights, name=name, precision="bfloat16").forward(batch)
        cosine = (exact * found).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(found, axis=1)
        assert cosine.min() > 0.999, width
