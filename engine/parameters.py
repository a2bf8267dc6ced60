"""The one table of parameter names and shapes, in the letters of `engine.config`.

Linear weights are stored as PyTorch's `nn.Linear` stores them: [out, in]. Everything is float32.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .config import ModelConfig
from .errors import WeightsError

EMBEDDINGS = {
    "embeddings.word": ("V", "D"),
    "embeddings.position": ("P", "D"),
    "embeddings.token_type": ("Y", "D"),
    "embeddings.norm.weight": ("D",),
    "embeddings.norm.bias": ("D",),
}
"""Each is there exactly when its config entry (vocab_size, max_positions, token_types, embedding_norm) says so."""

LAYER = {
    "attention.query.weight": ("Hd", "D"),
    "attention.query.bias": ("Hd",),
    "attention.key.weight": ("Hd", "D"),
    "attention.key.bias": ("Hd",),
    "attention.value.weight": ("Hd", "D"),
    "attention.value.bias": ("Hd",),
    "attention.output.weight": ("D", "Hd"),
    "attention.output.bias": ("D",),
    "attention.norm.weight": ("D",),
    "attention.norm.bias": ("D",),
    "ffn.up.weight": ("F", "D"),
    "ffn.up.bias": ("F",),
    "ffn.down.weight": ("D", "F"),
    "ffn.down.bias": ("D",),
    "ffn.norm.weight": ("D",),
    "ffn.norm.bias": ("D",),
}
"""Of layer i, each under the prefix `layers.{i}.`"""


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter that a model of this configuration has."""
    letters = config.letters
    present = {
        "embeddings.word": config.vocab_size > 0,
        "embeddings.position": config.max_positions > 0,
        "embeddings.token_type": config.token_types > 0,
        "embeddings.norm.weight": config.embedding_norm,
        "embeddings.norm.bias": config.embedding_norm,
    }
    table = {name: shape for name, shape in EMBEDDINGS.items() if present[name]}
    table |= {f"layers.{i}.{name}": shape for i in range(config.num_layers) for name, shape in LAYER.items()}
    return {name: tuple(letters[letter] for letter in shape) for name, shape in table.items()}


def check(config: ModelConfig, weights: Mapping[str, np.ndarray], source: str) -> None:
    """Raise one `WeightsError` that lists all that is wrong: missing, extra, shape, dtype, NaN or infinity."""
    shapes = expected_shapes(config)
    problems = [f"missing {name}, shape {list(shape)}" for name, shape in shapes.items() if name not in weights]
    problems += [f"unexpected {name}, shape {list(weights[name].shape)}" for name in weights if name not in shapes]
    for name in shapes.keys() & weights.keys():
        array = weights[name]
        if array.shape != shapes[name]:
            problems.append(f"{name} has shape {list(array.shape)}, expected {list(shapes[name])}")
        elif array.dtype != np.float32:
            problems.append(f"{name} has dtype {array.dtype}, expected float32")
        elif not _all_finite(array):
            problems.append(f"{name} holds NaN or infinity")
    if problems:
        shown = problems[:20] + ([f"... and {len(problems) - 20} more"] if len(problems) > 20 else [])
        raise WeightsError(f"{source}: weights do not fit the configuration:\n  " + "\n  ".join(shown))


def _all_finite(array: np.ndarray) -> bool:
    """True if no entry is NaN or infinite; takes rows in slabs so that a large table costs no large temporary."""
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[i:i + 1_048_576]).all()) for i in range(0, flat.size, 1_048_576))
