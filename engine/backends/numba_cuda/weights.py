"""Upload a program's weights to the device, laid out once for the kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model.positions import alibi_slopes, distance_bias, relative_rows
from ...programs.operations import Attend, DistanceBias, Embed, Heads, Linear, Norm, Relative, Table
from ...programs.program import Program, parameters_read
from ...weights.quantize import widen
from ..relative import relative_vectors
from .device import Device
from .ptx.epilogue import interleave
from .support import Layout


@dataclass(frozen=True)
class DeviceAffine:
    """A weight and a bias: of a linear map [M,K] in the operands' dtype and float32 [M], of a norm float32 [D] each."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class DeviceBias:
    """The biases of scores by distance, over the scale of the scores: `ptx.scores.cap_and_bias`."""

    line: Any
    """float32 [H, 2R+1]: of the distances -R to R of a query and a key."""
    slopes: Any
    """float32 [H]: added for each token of distance."""


@dataclass(frozen=True)
class DeviceRelative:
    """The table of relative positions for the heads of queries, then of keys, and the row of each distance."""

    table: Any
    """Operands [2 H L, d]: the key vectors of L rows for each head of queries, then the query vectors."""
    zeros: Any
    """float32 [2 H L]: the bias of the map that the table is."""
    numbers: Any
    """int32 [2R+1]: the row of each distance from -R to R."""


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
    biases: dict[tuple[DistanceBias, float], DeviceBias]
    """By the bias and the scale of the scores."""
    relatives: dict[Relative, DeviceRelative]


def linear_key(operation: Linear) -> tuple[Any, ...]:
    """Return the key of a linear map in `Weights.linears`; operations with equal keys share their weights."""
    return operation.parts, operation.gate, operation.scale


def score_weights(program: Program, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the float32 weights that scores of attention read: tables and maps of positions."""
    names = {name for operation, shapes in program.steps() if isinstance(operation, Attend)
             for name, _ in parameters_read(operation, shapes)}
    return {name: widen(weights, name, program.parameters[name]) for name in names}


def upload_weights(device: Device, program: Program, weights: Mapping[str, np.ndarray],
                   of_scores: Mapping[str, np.ndarray], convert: Callable[[np.ndarray], np.ndarray],
                   layouts: Mapping[str, Layout], longest: int, convert_table: Callable[[np.ndarray], np.ndarray],
                   ) -> Weights:
    """Copy all weights to the device.

    of_scores: `score_weights` of the program. convert: converts the float32 weight of a linear map to operands;
    convert_table: does so without laying them out for a kernel. longest: the most tokens of a sequence, of distances.
    """

    def affine(weight: np.ndarray, bias: np.ndarray) -> DeviceAffine:
        return DeviceAffine(device.upload(weight), device.upload(bias))

    def bias_of(name: str | None, layout: Layout) -> np.ndarray:
        return np.zeros(layout.columns, np.float32) if name is None else layout.pad_parts(widen(weights, name))

    def linear(operation: Linear) -> DeviceAffine:
        parts, x_layout = operation.parts, layouts[operation.x]
        rows = (x_layout.pad_parts(widen(weights, part.weight, program.parameters[part.weight]), 1) for part in parts)
        maps = [layouts[part.out].pad_parts(weight) for part, weight in zip(parts, rows, strict=True)]
        biases = [bias_of(part.bias, layouts[part.out]) for part in parts]
        weight, bias = (interleave(*each) if operation.gate else np.concatenate(each) for each in (maps, biases))
        if operation.scale != 1.0:
            weight = weight * np.float32(operation.scale)
        return affine(convert(weight), bias)

    dummy = np.zeros((1, 8), np.float32)
    uploaded = Weights(linears={}, norms={None: affine(dummy[0], dummy[0])}, tables={None: device.upload(dummy)},
                       head_norms={(): device.upload(dummy)}, biases={}, relatives={})
    for operation in program.operations:
        match operation:
            case Embed():
                for table in filter(None, (operation.word, operation.position, operation.token_type)):
                    rows = widen(weights, table.name, program.parameters[table.name])
                    uploaded.tables[table] = device.upload(layouts[operation.out].pad_parts(rows, 1))
            case Norm():
                layout = layouts[operation.x]
                uploaded.norms[operation] = affine(layout.pad_parts(widen(weights, operation.weight)),
                                                   bias_of(operation.bias, layout))
            case Linear() if linear_key(operation) not in uploaded.linears:
                uploaded.linears[linear_key(operation)] = linear(operation)
            case Heads() if operation.norms not in uploaded.head_norms:
                vectors = [widen(weights, name) for name in operation.norms]
                together = np.zeros((len(vectors), max(map(len, vectors))), np.float32)
                for i, vector in enumerate(vectors):
                    together[i, :len(vector)] = vector
                uploaded.head_norms[operation.norms] = device.upload(together)
            case Attend():
                heads = layouts[operation.q]
                if operation.bias is not None and (operation.bias, operation.scale) not in uploaded.biases:
                    line, slopes = _bias_lines(operation.bias, of_scores, heads.parts, longest)
                    uploaded.biases[operation.bias, operation.scale] = DeviceBias(
                        *(device.upload((each / operation.scale).astype(np.float32)) for each in (line, slopes)))
                if operation.relative is not None and operation.relative not in uploaded.relatives:
                    rows_of_heads, numbers = _relative_table(operation.relative, of_scores, heads, longest)
                    uploaded.relatives[operation.relative] = DeviceRelative(
                        device.upload(convert_table(rows_of_heads)),
                        device.upload(np.zeros(len(rows_of_heads), np.float32)),
                        device.upload(numbers))
    return uploaded


def _bias_lines(bias: DistanceBias, weights: Mapping[str, np.ndarray], heads: int, longest: int
                ) -> tuple[np.ndarray, np.ndarray]:
    """Return the biases [H, 2R+1] of the distances -R to R of a query and a key, and the slopes [H].

    weights: of `score_weights`.
    """
    if bias.table is None:
        return np.zeros((heads, 1)), -alibi_slopes(heads)
    radius = min(bias.max_distance, longest)        # all longer distances are in one bucket
    table = weights[bias.table.name]
    return distance_bias(radius + 1, heads, table, bias.max_distance, bias.one_sided), np.zeros(heads)


def _relative_table(relative: Relative, weights: Mapping[str, np.ndarray], heads: Layout, longest: int
                    ) -> tuple[np.ndarray, np.ndarray]:
    """Return the table of a `DeviceRelative` in float32, and the row of each distance. A missing term is zeros.

    weights: of `score_weights`.
    """
    radius = min(relative.limit, longest)
    numbers = relative_rows(np.arange(-radius, radius + 1), relative.limit, relative.buckets)
    first, count = int(numbers.min()), int(np.ptp(numbers)) + 1         # rows of longer distances are left out
    table = np.zeros((2, heads.parts, -(-count // 8) * 8, heads.padded), np.float32)
    for half, vectors in zip(table, relative_vectors(relative, weights), strict=True):     # for queries, then for keys
        if vectors is not None:     # [rows, H d]
            by_head = vectors[first : first + count].reshape(count, heads.parts, heads.width).swapaxes(0, 1)
            half[:, :count, : heads.width] = by_head
    return table.reshape(-1, heads.padded), numbers - np.int32(first)
