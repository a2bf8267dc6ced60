"""What is packed beside the weights needs no memory far beyond the bytes of a model."""

import numpy as np

from engine import ModelConfig, Transformer, expected_shapes
from engine.model.attention import RelativePositions

from ...tools.encoders import engine_of
from ...tools.limited import outcome


def test_vectors_of_relative_positions_that_take_gigabytes_are_refused():
    """The weights have 5 MB, and the vectors of 131,072 distances in 4 layers would have 8 GB."""
    config = ModelConfig(family="x", hidden_size=8, ffn_size=8, vocab_size=20, position_table=False, num_layers=4,
                         num_heads=16, head_width=64, relative=RelativePositions(limit=65536))
    weights = {name: np.zeros(shape, np.float32) for name, shape in expected_shapes(config).items()}
    found = outcome(lambda: engine_of(Transformer(config, weights, None), threads=1).forward([[1]]))
    assert found.startswith("EngineError: the vectors of relative positions of the model would take more than 1,073,")
