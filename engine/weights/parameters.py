"""The parameters of a model: their names, shapes and dtypes, as its program asks for them.

The weight of a linear map is stored as PyTorch's `nn.Linear` stores it: [out, in]. Every parameter is float32, except
the matrices, which are the weights of linear maps and the tables of words and positions. A matrix may be uint16, which
holds the bits of bfloat16, or int8 with a float32 scale for each row under the same name and `_scale`:
w ~ weight * scale[:, None]. The weight of a linear map may also be uint8, the blocks of int4 (`engine.weights.int4`),
with two scales for each row, or blocks that hold their scales (`engine.weights.blocks`). Either all linear weights are
integers, in formats that `WeightFormat.beside` allows beside each other, or none is; apart from that, each matrix has a
dtype of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain

import numpy as np

from ..base.errors import WeightsError, listed
from ..model.config import ModelConfig
from ..model.precision import BLOCKS, FORMATS, INTEGERS, STORABLE, STORED
from ..programs import programs_of
from ..programs.operations import Linear, Parameter
from .blocks import impossible_blocks
from .int4 import impossible_int4
from .packed import PACKED_PREFIX, PackedFormat

SLAB = 2**20
"""How many numbers of a large matrix are computed at a time, so that temporary arrays stay small."""


@lru_cache(maxsize=16)
def parameters_of(config: ModelConfig) -> dict[str, Parameter]:
    """Return every parameter of a model by its name, in the order of use; do not change the dictionary.

    A word table that is also the weight of the logits counts as a table.
    """
    merged: dict[str, Parameter] = {}
    for program in programs_of(config):
        merged |= {name: parameter for name, parameter in program.parameters.items() if name not in merged}
    return merged


def linear_maps(config: ModelConfig) -> list[str]:
    """Return the names of a model's linear maps, such as `layers.0.ffn.up` for the weight `layers.0.ffn.up.weight`."""
    parameters = parameters_of(config)
    return [name.removesuffix(".weight") for name in parameters if parameters[name].kind == "linear"]


def matrices(config: ModelConfig) -> list[str]:
    """Return the names of all parameters that may be stored in fewer bits than float32."""
    return [name for name, parameter in parameters_of(config).items() if parameter.kind != "small"]


@lru_cache(maxsize=16)
def kept_finer(config: ModelConfig) -> frozenset[str]:
    """Return the names of the matrices with more bits in a model of 4 bits: tables, and the weight of the logits."""
    head = programs_of(config)[-1].parameters if config.decodes else {}
    return frozenset(name for name in matrices(config) if parameters_of(config)[name].kind == "table" or name in head)


def input_heads(config: ModelConfig, name: str) -> int:
    """Return how many heads the inputs of a linear map come from, by the name of its weight.

    Groups of int8 weights begin anew with each head (`engine.weights.int8_bound`): kernels pad the inputs of each.
    """
    return parameters_of(config)[name].heads


def precision_of(config: ModelConfig, weights: Mapping[str, np.ndarray]) -> str:
    """Return the coarsest of `INTEGERS` that a linear weight is in; "float32" if none is.

    bfloat16 weights count as float32.
    """
    names = (f"{name}.weight" for name in linear_maps(config))
    stored = {STORED.get(weights[name].dtype) for name in names if name in weights}
    return next((name for name in INTEGERS if name in stored), "float32")


def expected_shapes(config: ModelConfig, stored: Mapping[str, np.ndarray] | None = None) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array that a model of this configuration has, by its name.

    stored: weights, whose dtypes tell which matrices are integers; None for a model in float32. int8 and int4 have
    scales beside them.
    """
    parameters = parameters_of(config)
    shapes = {name: parameter.shape for name, parameter in parameters.items()}
    formats = {} if stored is None else stored_formats(config, stored)
    for name, (present, *_) in formats.items():
        shapes[name] = FORMATS[present].shape(parameters[name].shape, parameters[name].heads)
        if FORMATS[present].scales:
            shapes[f"{name}_scale"] = FORMATS[present].scale_shape(parameters[name].shape)
    return shapes


def stored_formats(config: ModelConfig, stored: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """Return the formats that each matrix may be stored in, by its name; the format that it has comes first.

    If one linear weight is in integers, all must be in the model's precision (`precision_of`) or in a format that
    `WeightFormat.beside` allows beside it. Any other matrix may have any format of its own.
    """
    any_format = [name for name in STORABLE if not FORMATS[name].only_linear]
    precision = precision_of(config, stored)
    of_linear = any_format if precision == "float32" else [precision, *FORMATS[precision].beside]
    formats = {}
    for name in matrices(config):
        allowed = of_linear if parameters_of(config)[name].kind == "linear" else any_format
        present = STORED.get(stored[name].dtype) if name in stored else None
        formats[name] = [*(form for form in allowed if form == present), *(form for form in allowed if form != present)]
    return formats


def row_slabs(matrix: np.ndarray) -> list[slice]:
    """Cut the rows of a matrix into slices of about `SLAB` numbers, each of one row at least."""
    step = max(1, SLAB // matrix.shape[1])
    return [slice(i, i + step) for i in range(0, len(matrix), step)]


def packed_arrays(config: ModelConfig, layout: PackedFormat) -> dict[str, str]:
    """Return the dtype of each array of packed linear maps, by its name; all of them are vectors."""
    arrays = {}
    for operation in chain.from_iterable(program.operations for program in programs_of(config)):
        if isinstance(operation, Linear):
            name = f"{PACKED_PREFIX}{operation.parts[0].weight}"
            arrays[name] = "uint8"
            arrays |= dict.fromkeys((name + suffix for suffix in layout.suffixes), "float32")
    return arrays


def check(config: ModelConfig, weights: Mapping[str, np.ndarray], source: str, *, numbers: bool = True,
          layout: PackedFormat | None = None) -> None:
    """Raise one `WeightsError` that lists every problem: missing, unexpected, shape, dtype, impossible numbers.

    source: the beginning of the message. numbers: whether to check the numbers as well; the rest takes less than a
    millisecond for 12 layers. layout: of packed linear maps, whose sizes backends check, and whose bytes may be any.
    """
    if others := [name for name, array in weights.items() if not isinstance(array, np.ndarray)]:
        raise WeightsError(f"{source}: weights must be NumPy arrays, which {listed(others)} are not")
    shapes, formats = expected_shapes(config, weights), stored_formats(config, weights)
    packed = {} if layout is None else packed_arrays(config, layout)
    if packed:      # vectors of any length stand in place of all linear weights and their scales
        linear = {f"{name}.weight" for name in linear_maps(config)}
        shapes = {name: shape for name, shape in shapes.items() if name.removesuffix("_scale") not in linear}
        shapes |= {name: weights[name].reshape(-1).shape if name in weights else (0,) for name in packed}
    problems = [f"missing {name}, shape {list(shape)}" for name, shape in shapes.items() if name not in weights]
    others = [name for name in weights if name not in shapes]
    problems += [f"unexpected {listed([name])}, shape {list(weights[name].shape)}" for name in others]
    for name, shape in shapes.items():
        if name not in weights:
            continue
        array = weights[name]
        stored = [np.dtype(packed.get(name, "float32"))]
        if name in formats:
            stored = [FORMATS[form].dtype for form in formats[name]]
        if array.shape != shape:
            problems.append(f"{name} has shape {list(array.shape)}, expected {list(shape)}")
        elif array.dtype not in stored:
            expected = " or ".join(map(_name_of_dtype, stored))
            problems.append(f"{name} has dtype {_name_of_dtype(array.dtype)}, expected {expected}")
        elif numbers and packed.get(name) != "uint8" and (problem := _impossible(name, array)):
            problems.append(f"{name} holds {problem}")
    if problems:
        shown = problems[:20] + ([f"... and {len(problems) - 20} more"] if len(problems) > 20 else [])
        raise WeightsError(f"{source}: weights do not fit the configuration:\n  " + "\n  ".join(shown))


def _name_of_dtype(dtype: np.dtype) -> str:
    """Return the name of a dtype, or of the format if it is a struct of blocks."""
    return str(dtype) if dtype.names is None else STORED.get(dtype, "that of unknown structs")


def _impossible(name: str, array: np.ndarray) -> str | None:
    """Return a description of forbidden numbers in an array of the right dtype; None if it holds none."""
    if array.dtype == np.int8:
        return "-128, expected -127 to 127" if array.min() == -128 else None
    if array.dtype == np.uint8:
        return impossible_int4(array)
    if STORED.get(array.dtype) in BLOCKS:
        return impossible_blocks(array)
    if not _all_finite(array):
        return "NaN or infinity"
    if name.endswith("_scale") and array.min() <= 0:
        return "a scale that is not above 0"
    return None


def _all_finite(array: np.ndarray) -> bool:
    """Return True if no entry, float32 or bfloat16, is NaN or infinite."""
    flat = array.reshape(-1)
    slabs = (flat[i : i + SLAB] for i in range(0, flat.size, SLAB))
    if array.dtype == np.uint16:
        return all(bool((slab & 0x7F80 != 0x7F80).all()) for slab in slabs)     # not all bits of the exponent are set
    return all(bool(np.isfinite(slab).all()) for slab in slabs)


def take_arrays(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Remove the arrays whose names begin with a prefix, and return them by their names without it."""
    return {name.removeprefix(prefix): arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}
