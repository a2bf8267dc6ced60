"""Add operations to a program that store hidden states, attention weights, their entropy or queries for the caller.

Plans of backends run these programs, for the outputs in `encoding/outputs.py` and the times of words in speech.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .operations import Attend, ObservedHead, Operation, Store, writes
from .program import Program

AttentionHead = tuple[int, int]
"""(layer, head), both counted from 0."""


@dataclass(frozen=True)
class Observed:
    """The arrays that a pass returns beside the token vectors, in the order of the fields. No entry occurs twice."""

    hidden: tuple[int, ...] = ()
    """Layers from 0 to L-1: the hidden states [N,D] that the layer reads."""
    weights: tuple[AttentionHead, ...] = ()
    """The attention weights of each head: [T,T] of each sequence, one after the other in a flat array."""
    entropy: tuple[AttentionHead, ...] = ()
    """The entropy in nats of each token's attention weights, for each head: [N]."""

    def arrays(self, cu_seqlens: np.ndarray, width: int, dtype: type[np.floating] = np.float32) -> list[np.ndarray]:
        """Return empty arrays for a plan to fill, in the order of the fields; `width` is D."""
        tokens, weights = int(cu_seqlens[-1]), int(attention_offsets(cu_seqlens)[-1])
        shapes = ([(tokens, width)] * len(self.hidden) + [(weights,)] * len(self.weights)
                  + [(tokens,)] * len(self.entropy))
        return [np.empty(shape, dtype) for shape in shapes]


def attention_offsets(cu_seqlens: np.ndarray) -> np.ndarray:
    """Return where the attention weights [T,T] of each sequence begin in a flat array, and its length: int64 [B+1].

    cu_seqlens: [B+1], where the tokens of each sequence begin, and the number of all tokens.
    """
    lengths = np.diff(cu_seqlens).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths * lengths)])


def with_observed(program: Program, observed: Observed) -> Program:
    """Return the program with the operations that write the arrays of `observed`; array 0 is its result, as before."""
    return Program(tuple(_with_observed(program, observed)))


def cross_queries_program(program: Program, layers: tuple[int, ...]) -> Program:
    """Return the first part of a decoder's program, which stores the queries of cross-attention of these layers.

    Array i gets the queries of layer layers[i], [tokens, H * d]. The part ends with the last of these layers.
    """
    writer: dict[str, int] = {}     # the index of the operation that wrote each buffer last
    stored: dict[int, int] = {}     # the array of the queries, by the index of the operation that writes them
    for index, operation in enumerate(program.operations):
        writer |= dict.fromkeys(writes(operation), index)
        if isinstance(operation, Attend) and operation.keys == "cross" and operation.layer in layers:
            stored[writer[operation.q]] = layers.index(operation.layer)
    operations: list[Operation] = []
    end = max(stored) + 2       # behind the Attend that reads the last queries
    for index, operation in enumerate(program.operations[:end]):
        operations.append(operation)
        if index in stored:
            operations.append(Store(writes(operation)[0], operation.layer, array=stored[index]))
    return Program(tuple(operations), program.inputs)


def _with_observed(program: Program, observed: Observed) -> Iterator[Operation]:
    """Yield a program's operations, and the Stores and observed heads that fill the arrays of `Observed`, from 1 on."""
    stream = next(operation.x for operation in program.operations if isinstance(operation, Store))      # the residual
    hidden = {layer: i for i, layer in enumerate(observed.hidden, 1)}
    weights = {head: i for i, head in enumerate(observed.weights, 1 + len(hidden))}
    entropy = {head: i for i, head in enumerate(observed.entropy, 1 + len(hidden) + len(weights))}
    for operation in program.operations:
        if operation.layer in hidden:   # the first operation of the layer
            yield Store(stream, array=hidden.pop(operation.layer))
        if isinstance(operation, Attend):
            heads = sorted({entry for entry in (*weights, *entropy) if entry[0] == operation.layer})
            yield replace(operation, observed=tuple(
                ObservedHead(head, weights.get((layer, head)), entropy.get((layer, head))) for layer, head in heads))
        else:
            yield operation
