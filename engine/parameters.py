"""The one table of parameter names and shapes, in the letters of `engine.config`.

Linear weights are stored as PyTorch's `nn.Linear` stores them: [out, in]. Everything is float32, but for the
matrices, which are the weights of linear maps and the tables of words and positions. These may be uint16, the bits of
bfloat16, or int8 with a float32 scale for each row, under the same name and `_scale`: w ~ weight * scale[:, None]. All
linear maps are in int8 or none is; beyond that each matrix goes by its own dtype.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .config import ModelConfig
from .errors import WeightsError
from .groups import LIMIT, heads_of, integer_sums, to_groups

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

TABLES = ("embeddings.word", "embeddings.position")
"""The tables that may be in fewer bits. Not that of token types: it has few rows, and what rounding does to one of them
is added to every token.
"""

SLAB = 2**20
"""Numbers worked on together, so that a large matrix costs no large temporary."""

LINEAR = ("attention.query", "attention.key", "attention.value", "attention.output", "ffn.up", "ffn.down")
"""The linear maps of a layer."""


def linear_maps(config: ModelConfig) -> list[str]:
    """The names of a model's linear maps, such as `layers.0.ffn.up`, whose parameters are `.weight` and `.bias`."""
    return [f"layers.{i}.{name}" for i in range(config.num_layers) for name in LINEAR]


def matrices(config: ModelConfig) -> list[str]:
    """The names of all arrays of a model that may be in fewer bits than float32: tables, and weights of linear maps."""
    shapes = expected_shapes(config)
    return [name for name in TABLES if name in shapes] + [f"{name}.weight" for name in linear_maps(config)]


def precision_of(weights: Mapping[str, np.ndarray]) -> str:
    """What linear weights can be computed in: "int8" as soon as one is in int8, which `check` wants of all, else
    "float32", which bfloat16 is part of.
    """
    linear = tuple(f".{name}.weight" for name in LINEAR)
    return "int8" if any(a.dtype == np.int8 and name.endswith(linear) for name, a in weights.items()) else "float32"


def expected_shapes(config: ModelConfig, stored: Mapping[str, np.ndarray] | None = None) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter that a model of this configuration has.

    stored: weights whose dtypes say which matrices are in int8, and so have a scale beside them; None for none.
    """
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
    shapes = {name: tuple(letters[letter] for letter in shape) for name, shape in table.items()}
    if stored is not None:
        scaled = [name for name in TABLES if name in shapes and name in stored and stored[name].dtype == np.int8]
        if precision_of(stored) == "int8":
            scaled += [f"{name}.weight" for name in linear_maps(config)]
        shapes |= {f"{name}_scale": shapes[name][:1] for name in scaled}
    return shapes


def row_slabs(matrix: np.ndarray) -> list[slice]:
    """Neighbouring rows of a matrix, `SLAB` numbers at a time, or a row."""
    step = max(1, SLAB // matrix.shape[1])
    return [slice(i, i + step) for i in range(0, len(matrix), step)]


def check(config: ModelConfig, weights: Mapping[str, np.ndarray], source: str) -> None:
    """Raise one `WeightsError` that lists all that is wrong: missing, extra, shape, dtype, impossible numbers."""
    shapes, smaller = expected_shapes(config, weights), matrices(config)
    problems = [f"missing {name}, shape {list(shape)}" for name, shape in shapes.items() if name not in weights]
    problems += [f"unexpected {name}, shape {list(weights[name].shape)}" for name in weights if name not in shapes]
    for name, shape in shapes.items():
        if name not in weights:
            continue
        array = weights[name]
        dtypes = ["int8"] if f"{name}_scale" in shapes else ["float32", "uint16", "int8"][: 3 if name in smaller else 1]
        if array.shape != shape:
            problems.append(f"{name} has shape {list(array.shape)}, expected {list(shape)}")
        elif array.dtype not in dtypes:
            problems.append(f"{name} has dtype {array.dtype}, expected {' or '.join(dtypes)}")
        elif problem := _impossible(name, array) or _overfull(config, name, array):
            problems.append(f"{name} holds {problem}")
    if problems:
        shown = problems[:20] + ([f"... and {len(problems) - 20} more"] if len(problems) > 20 else [])
        raise WeightsError(f"{source}: weights do not fit the configuration:\n  " + "\n  ".join(shown))


def _impossible(name: str, array: np.ndarray) -> str | None:
    """Which numbers an array of the right dtype holds that it must not, if it does."""
    if array.dtype == np.int8:
        return "-128, expected -127 to 127" if array.min() == -128 else None
    if not _all_finite(array):
        return "NaN or infinity"
    if name.endswith("_scale") and array.min() <= 0:
        return "a scale that is not above 0"
    return None


def _overfull(config: ModelConfig, name: str, array: np.ndarray) -> str | None:
    """What int8 weights of a linear map come to in a group of inputs, if that is too much; see `engine.groups`."""
    if array.dtype != np.int8 or name in TABLES:
        return None
    heads = heads_of(config, name)
    most = max(int(np.max(integer_sums(to_groups(array[rows], heads)))) for rows in row_slabs(array))
    if most <= LIMIT:
        return None
    return f"weights of one sign that come to {most} in a group of inputs, expected {LIMIT} at most (see engine.groups)"


def _all_finite(array: np.ndarray) -> bool:
    """True if no entry, float32 or bfloat16, is NaN or infinite."""
    flat = array.reshape(-1)
    slabs = (flat[i : i + SLAB] for i in range(0, flat.size, SLAB))
    if array.dtype == np.uint16:
        return all(bool((slab & 0x7F80 != 0x7F80).all()) for slab in slabs)
    return all(bool(np.isfinite(slab).all()) for slab in slabs)
