"""Create random numbers, batches and models, the same for all contenders."""

from functools import cache

import numpy as np

from engine.backends.batch import Batch
from engine.model.config import ModelConfig
from engine.weights.parameters import expected_shapes


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def packed(lengths: list[int], config: ModelConfig | None = None) -> Batch:
    """Return a batch of sequences with random ids."""
    N, rng = sum(lengths), np.random.default_rng(5)
    ids = rng.integers(0, config.vocab_size if config else 1, N, np.int32)
    positions = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    return Batch(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), ids, None, positions,
                 rng.integers(0, config.token_types if config and config.token_types else 1, N, np.int32))


@cache
def model_weights(config: ModelConfig) -> dict[str, np.ndarray]:
    """Return random weights of the scale of a trained model's."""
    rng = np.random.default_rng(17)
    weights = {}
    for name, shape in expected_shapes(config).items():
        weights[name] = rng.standard_normal(shape, np.float32) * np.float32(0.05)
        if name.endswith("norm.weight"):
            weights[name] += np.float32(1)
    return weights
