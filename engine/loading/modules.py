"""Read the modules of sentence-transformers that change vectors before and after pooling: Dense, LayerNorm, Normalize.

Each has a folder with a config.json and perhaps weights. An activation is known by the name of its class of torch.nn,
and no code of a folder runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, shown
from ..families.fields import boolean
from ..files.folder import ModelFolder
from ..weights.bfloat16 import widened
from ..weights.modules import SENTENCE, Dense, LayerNorm, Module, Normalize

Entry: TypeAlias = tuple[str, ModelFolder]
"""The class of a module, without its package, and its folder."""

_CONFIG = "config.json"
_ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu", "Sigmoid": "sigmoid"}
"""The engine's names of activations, by their classes in torch.nn."""
_LONGEST_NAME = 100        # characters of the name of vectors


def read_modules(entries: Sequence[Entry], name: str, memory: str, usual: str = SENTENCE) -> tuple[Module, ...]:
    """Return the modules of consecutive entries of modules.json.

    name: of the vectors that come in; a module may read these, or the result of one before it, and `UnsupportedError`
    is raised for others. usual: the name of the vectors that a module reads if its folder states none. Raises
    `WeightsError`, too.
    """
    read, names = [], {name: None}
    for kind, folder in entries:
        module = _read_module(kind, folder, memory, usual)
        if module.source not in names:
            raise UnsupportedError(f"{folder}: the module {kind} reads {module.source!r}; supported in its place are "
                                   f"{', '.join(map(repr, names))}")
        names[module.target] = None
        read.append(module)
    return tuple(read)


def _read_module(kind: str, folder: ModelFolder, memory: str, usual: str) -> Module:
    """Read one module; usual: the name of the vectors that it reads if its folder states none."""
    if kind == "Normalize":
        return Normalize(*_names(folder, usual))
    return _layer_norm(folder, memory) if kind == "LayerNorm" else _dense(folder, memory, usual)


def is_last_normalize(entry: Entry) -> bool:
    """Return whether a module scales the vectors of sentences to length 1, and does nothing else."""
    kind, folder = entry
    return kind == "Normalize" and _names(folder) == (SENTENCE, SENTENCE)


def _names(folder: ModelFolder, usual: str = SENTENCE) -> tuple[str, str]:
    """Return the name of the vectors that a module reads, and the name of those that it writes."""
    values = folder.read_object_or_empty(_CONFIG)
    source = usual if values.get("module_input_name") is None else values["module_input_name"]
    target = source if values.get("module_output_name") is None else values["module_output_name"]
    for key, name in (("module_input_name", source), ("module_output_name", target)):
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise WeightsError(f"{folder.label(_CONFIG)}: {key} must be a name of at most {_LONGEST_NAME} characters, "
                               f"not {shown(name)}")
    return source, target


def _dense(folder: ModelFolder, memory: str, usual: str) -> Dense:
    """Read a module Dense: a linear map with an activation, and perhaps a residual with a map of its own."""
    values, config = folder.read_object(_CONFIG), folder.label(_CONFIG)
    activation = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    name = activation.rpartition(".")[2] if isinstance(activation, str) else ""
    if name not in _ACTIVATIONS or not activation.startswith("torch.nn."):
        raise UnsupportedError(f"{config}: activation_function {shown(activation)} is not supported; supported are "
                               f"{', '.join(f'torch.nn.{name}' for name in _ACTIVATIONS)}")
    with folder.within(_CONFIG):
        residual = boolean(values, "use_residual", False)
    bias, sizes = values.get("bias") is not False, (values.get("out_features"), values.get("in_features"))
    shapes = {"linear.weight": sizes, **({"linear.bias": sizes[:1]} if bias else {}),
              **({"residual.weight": sizes} if residual and sizes[0] != sizes[1] else {})}
    arrays = _arrays(folder, shapes, memory)
    source, target = _names(folder, usual)
    return Dense(arrays["linear.weight"], arrays.get("linear.bias"), _ACTIVATIONS[name], use_residual=residual,
                 residual=arrays.get("residual.weight"), source=source, target=target)


def _layer_norm(folder: ModelFolder, memory: str) -> LayerNorm:
    """Read a module LayerNorm of the vectors of texts."""
    size = folder.read_object(_CONFIG).get("dimension")
    arrays = _arrays(folder, {"norm.weight": (size,), "norm.bias": (size,)}, memory)
    return LayerNorm(arrays["norm.weight"], arrays["norm.bias"])


def _arrays(folder: ModelFolder, shapes: dict[str, tuple[Any, ...]], memory: str) -> dict[str, np.ndarray]:
    """Return the tensors of a module in float32; raises `WeightsError` unless they have these names and shapes."""
    arrays = folder.tensors(memory=memory)
    if {name: array.shape for name, array in arrays.items()} != shapes:
        tensors = ", ".join(f"{name} {list(array.shape)}" for name, array in list(arrays.items())[:10])
        asked = ", ".join(f"{name} {shown(list(shape))}" for name, shape in shapes.items())
        raise WeightsError(f"{folder}: the weights are {shown(tensors)[1:-1]}; config.json asks for {asked}")
    return {name: widened(array) for name, array in arrays.items()}
