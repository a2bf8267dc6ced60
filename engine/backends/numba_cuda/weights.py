"""Upload a program's weights to the device, laid out once for the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...programs.operations import Embed, Linear, LinearPart, Norm, Table
from ...programs.program import Program
from ...weights.quantize import widen
from .device import Device, upload
from .support import buffers_of


@dataclass(frozen=True)
class DeviceAffine:
    """A weight and a bias: of a linear map [M,K] in the operands' dtype and float32 [M], of a norm float32 [D] each."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class Weights:
    """The weights that the operations of a program read.

    An absent bias is zeros. The entry None is a dummy for a table or a norm that the embeddings lack.
    """

    linears: dict[tuple[LinearPart, ...], DeviceAffine]
    """The parts of each Linear, joined to one linear map whose results lie side by side."""
    norms: dict[Norm | None, DeviceAffine]
    tables: dict[Table | None, Any]
    """float32 [V,D], [P,D] and [Y,D]."""


def upload_weights(device: Device, program: Program, weights: Mapping[str, np.ndarray],
                   convert: Callable[[np.ndarray], np.ndarray]) -> Weights:
    """Copy all weights to the device; `convert` converts the float32 weight of a linear map to the operands' dtype."""

    def bias(name: str | None, width: int) -> np.ndarray:
        return np.zeros(width, np.float32) if name is None else widen(weights, name)

    def affine(weight: np.ndarray, bias: np.ndarray) -> DeviceAffine:
        return DeviceAffine(upload(device, weight), upload(device, bias))

    buffers = buffers_of(program)
    dummy = np.zeros(1, np.float32)
    uploaded = Weights(linears={}, norms={None: affine(dummy, dummy)}, tables={None: upload(device, dummy[None])})
    for operation in program.operations:
        match operation:
            case Embed():
                for table in filter(None, (operation.word, operation.position, operation.token_type)):
                    uploaded.tables[table] = upload(device, widen(weights, table.name, program.parameters[table.name]))
            case Norm():
                shift = bias(operation.bias, buffers[operation.x].width)
                uploaded.norms[operation] = affine(widen(weights, operation.weight), shift)
            case Linear() if operation.parts not in uploaded.linears:
                weight = np.concatenate([widen(weights, part.weight, program.parameters[part.weight])
                                         for part in operation.parts])
                biases = np.concatenate([bias(part.bias, part.width) for part in operation.parts])
                uploaded.linears[operation.parts] = affine(convert(weight), biases)
    return uploaded
