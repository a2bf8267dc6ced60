"""Upload a program's weights to the device, laid out once for the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...programs.operations import Embed, Heads, Linear, Norm, Table
from ...programs.program import Program
from ...weights.quantize import widen
from .device import Device, upload
from .ptx.epilogue import interleave
from .support import Layout


@dataclass(frozen=True)
class DeviceAffine:
    """A weight and a bias: of a linear map [M,K] in the operands' dtype and float32 [M], of a norm float32 [D] each."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class Weights:
    """The weights that the operations of a program read, with zeros where rows and heads have them (`Layout`).

    An absent bias is zeros. The entry None is a dummy for a table or a norm that the embeddings lack.
    """

    linears: dict[tuple[Any, ...], DeviceAffine]
    """The parts of each Linear by `linear_key`, joined to one linear map whose results lie side by side."""
    norms: dict[Norm | None, DeviceAffine]
    tables: dict[Table | None, Any]
    """float32 [V,P], [L,P] and [Y,P]."""
    head_norms: dict[tuple[str, ...], Any]
    """The weights of the norms of heads by their names: float32 [names, longest]."""


def linear_key(operation: Linear) -> tuple[Any, ...]:
    """Return what tells the weights of a linear map on the device from those of others."""
    return operation.parts, operation.gate, operation.scale


def upload_weights(device: Device, program: Program, weights: Mapping[str, np.ndarray],
                   convert: Callable[[np.ndarray], np.ndarray], layouts: Mapping[str, Layout]) -> Weights:
    """Copy all weights to the device; `convert` converts the float32 weight of a linear map to the operands' dtype."""

    def affine(weight: np.ndarray, bias: np.ndarray) -> DeviceAffine:
        return DeviceAffine(upload(device, weight), upload(device, bias))

    def bias_of(name: str | None, layout: Layout) -> np.ndarray:
        return np.zeros(layout.columns, np.float32) if name is None else layout.spread(widen(weights, name))

    def linear(operation: Linear) -> DeviceAffine:
        parts, own = operation.parts, layouts[operation.x]
        maps = [layouts[part.out].spread(own.spread(widen(weights, part.weight, program.parameters[part.weight]), 1))
                for part in parts]
        biases = [bias_of(part.bias, layouts[part.out]) for part in parts]
        weight, bias = (interleave(*each) if operation.gate else np.concatenate(each) for each in (maps, biases))
        if operation.scale != 1.0:
            weight = weight * np.float32(operation.scale)
        return affine(convert(weight), bias)

    dummy = np.zeros((1, 8), np.float32)
    uploaded = Weights(linears={}, norms={None: affine(dummy[0], dummy[0])}, tables={None: upload(device, dummy)},
                       head_norms={(): upload(device, dummy)})
    for operation in program.operations:
        match operation:
            case Embed():
                for table in filter(None, (operation.word, operation.position, operation.token_type)):
                    rows = widen(weights, table.name, program.parameters[table.name])
                    uploaded.tables[table] = upload(device, layouts[operation.out].spread(rows, 1))
            case Norm():
                layout = layouts[operation.x]
                uploaded.norms[operation] = affine(layout.spread(widen(weights, operation.weight)),
                                                   bias_of(operation.bias, layout))
            case Linear() if linear_key(operation) not in uploaded.linears:
                uploaded.linears[linear_key(operation)] = linear(operation)
            case Heads() if operation.norms not in uploaded.head_norms:
                vectors = [widen(weights, name) for name in operation.norms]
                together = np.zeros((len(vectors), max(map(len, vectors))), np.float32)
                for i, vector in enumerate(vectors):
                    together[i, :len(vector)] = vector
                uploaded.head_norms[operation.norms] = upload(device, together)
    return uploaded
