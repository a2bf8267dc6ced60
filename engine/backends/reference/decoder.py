"""Run a decoder step by step in NumPy, one row after the other, with the cache in lists of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...base.stop import NEVER, Stop
from ...model.config import ModelConfig
from ...programs import cross_program, program_of, step_program
from ...programs.observe import AttentionHead
from ...programs.operations import Attend, Embed, Operation, Pick, Store
from ...programs.program import Program
from ...weights.bfloat16 import from_bfloat16, to_bfloat16
from ...weights.parameters import parameters_of
from ...weights.quantize import widen
from ..choice import scores_of
from ..execute import Execution
from ..forest import Forest, Node, path
from ..ops_interface import Ops
from ..requests import Requests
from ..step_checks import cap_logits, check_attention_heads, check_scored, check_sources, check_vectors
from ..steps import CacheStatistics, Row, Scores
from ..wants import LineWants
from .attention import attention_weights
from .plan import add_positions

Heads = tuple[np.ndarray, np.ndarray]
"""Keys [1,G,T,d] and values [1,G,T,d] of one layer."""


@dataclass(eq=False)
class _RowCache:
    """The keys and values of the tokens of one row."""

    layers: list[Heads]
    """Those of each layer."""


Rows = list[tuple[_RowCache, int]]
"""What a hypothesis adds to the cache: pairs (keys and values, how many of their first tokens belong to it).

There is one pair, for its own row; a hypothesis that was cut from another shares pairs for all rows up to the cut.
"""


@dataclass
class _Pass:
    """The state of a pass over one row: the keys and values before it, and the ones that it adds, layer by layer."""

    before: Rows
    added: list[Heads]
    """Those of the row's tokens, of each layer that has run."""
    heads: tuple[AttentionHead, ...] = ()
    """The heads whose weights of cross-attention are wanted."""
    weights: dict[AttentionHead, np.ndarray] = field(default_factory=dict)
    """The weights [n,S] of each of them."""


def round_to_cache(x: np.ndarray, precision: str) -> np.ndarray:
    """Round keys or values [..., d] as a cache of this precision stores them; the dtype stays.

    int8 has a scale for each vector of d numbers, its largest magnitude / 127.
    """
    if precision == "float32":
        return x
    if precision == "bfloat16":
        return from_bfloat16(to_bfloat16(x.astype(np.float32))).astype(x.dtype)
    rows = x.astype(np.float32)
    scales = np.abs(rows).max(axis=-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)
    return (np.clip(np.rint(rows * inverse), -127, 127) * scales.astype(x.dtype)).astype(x.dtype)


class ReferenceDecoder(Requests[Rows]):
    """A decoder as `engine.backends.interfaces.Decoder` describes it. All arithmetic is in the dtype, float32 or
    float64. Keys and values, those of sources too, are rounded to the precision of the cache."""

    portable = False

    def __init__(self, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: type[np.floating], ops: Ops,
                 cache: str = "float32"):
        """Convert the weights, by name, to the dtype. cache: the precision to which keys and values are rounded."""
        self.vocab_size = config.logits_width
        self.longest = config.longest_sequence
        self._program, self._vectors, self._cross = step_program(config), program_of(config), cross_program(config)
        self._offset, self._dtype, self._ops, self._cache_precision = config.position_offset, dtype, ops, cache
        self._config, self._width = config, config.memory_size
        self.weights = {name: np.asarray(widen(weights, name, parameter), dtype)
                        for name, parameter in parameters_of(config).items()}
        super().__init__(Forest(config.vocab_size, self.longest))

    def statistics(self) -> CacheStatistics:
        """Return how many tokens and bytes the cache holds."""
        self._settle_if_free()
        tokens: dict[_RowCache, int] = {}       # the most that a hypothesis has of each, as cut hypotheses share them
        for row_cache, count in [entry for node in self._forest.nodes() for entry in node.rows]:
            tokens[row_cache] = max(count, tokens.get(row_cache, 0))
        arrays = [array for row_cache in tokens for heads in row_cache.layers for array in heads]
        arrays += [array for source in list(self._sources.values()) for array in source.values()]
        return CacheStatistics(cache_tokens=sum(tokens.values()), cache_bytes=sum(array.nbytes for array in arrays))

    @property
    def held(self) -> int:
        """The tokens of all hypotheses, once each."""
        return self.statistics().cache_tokens

    def cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32],
                      stop: Stop = NEVER) -> None:
        """Compute the keys and values of each request's source; see `interfaces.Decoder`."""
        check_vectors(vectors, self._width)
        self._in_turn(stop, lambda: self._cache_sources(requests, vectors, cu_seqlens, stop))

    def _cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32],
                       stop: Stop) -> None:
        """Compute `cache_sources`, one source after the other; the caller has the turn."""
        assert self._cross is not None
        for i, request in enumerate(requests):
            self._forest.check(request)
            buffers = {"x": np.asarray(vectors[cu_seqlens[i] : cu_seqlens[i + 1]], self._dtype)[None]}
            arrays = self._run(self._cross.operations, Execution(self._ops, self.weights), buffers, stop)
            self._sources[request] = {name: round_to_cache(arrays[j], self._cache_precision)
                                      for j, (name, _) in enumerate(self._program.inputs)}

    def step(self, rows: Sequence[Row], stop: Stop = NEVER) -> Scores:
        """Compute the scores that each row wants, as `engine.backends.interfaces.Decoder` describes."""
        wanted = LineWants.of(rows, self.vocab_size)
        return scores_of(rows, wanted, *self.step_unrounded(rows, stop))

    def step_unrounded(self, rows: Sequence[Row], stop: Stop = NEVER) -> tuple[NDArray[np.int64], np.ndarray]:
        """Return the new hypotheses, and all logits of each scored token in the decoder's own dtype."""
        return self._in_turn(stop, lambda: self._step(rows, stop))

    def _step(self, rows: Sequence[Row], stop: Stop) -> tuple[NDArray[np.int64], np.ndarray]:
        """Compute `step_unrounded`; the caller has the turn. A stop between rows adds no hypothesis."""
        parents = self._forest.parents(rows)
        check_scored(rows)
        if self._cross is not None:
            check_sources(rows, self._sources)
        results = []
        for row, parent in zip(rows, parents, strict=True):
            results.append(self._run_row(row, parent, stop))
        hypotheses = [self._forest.add(row, parent, added)
                      for row, parent, (added, _) in zip(rows, parents, results, strict=True)]
        return np.array(hypotheses), np.concatenate([logits for _, logits in results])

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[AttentionHead],
                          stop: Stop = NEVER) -> np.ndarray:
        """Return weights of cross-attention, as `engine.backends.interfaces.Decoder` describes."""
        return self.attention_weights_unrounded(request, tokens, heads, stop).astype(np.float32)

    def attention_weights_unrounded(self, request: int, tokens: NDArray[np.int64], heads: Sequence[AttentionHead],
                                    stop: Stop = NEVER) -> np.ndarray:
        """Return the result of `attention_weights` in the decoder's own dtype."""
        check_attention_heads(heads, self._config if self._cross is not None else None)
        row = Row(request, parent=None, tokens=tokens)
        return self._in_turn(stop, lambda: self._attention_weights(row, heads, stop))

    def _attention_weights(self, row: Row, heads: Sequence[AttentionHead], stop: Stop) -> np.ndarray:
        """Compute `attention_weights_unrounded` for the tokens of a row, as a pass; the caller has the turn."""
        self._forest.parents([row])         # raises for a request that is not open
        check_sources([row], self._sources)
        state = _Pass(before=[], added=[], heads=tuple(heads))
        self._run_program(self._vectors, row, past=0, state=state, stop=stop)
        return np.stack([state.weights[head] for head in heads])

    def _cut_rows(self, node: Node[Rows], length: int) -> Rows:
        """Return the rows of the first `length` tokens of a hypothesis, as `Requests._cut_rows` describes."""
        rows: Rows = []
        for row_cache, count in [entry for ancestor in path(node) for entry in ancestor.rows]:
            if length > 0:
                rows.append((row_cache, min(count, length)))
            length -= count
        return rows

    def _run_row(self, row: Row, parent: Node[Rows] | None, stop: Stop) -> tuple[Rows, np.ndarray]:
        """Return what a new hypothesis adds to the cache, and the logits [scored, V] of its row."""
        state = _Pass(before=[entry for node in path(parent) for entry in node.rows], added=[])
        logits = self._run_program(self._program, row, parent.length if parent else 0, state, stop)[0]
        return [(_RowCache(state.added), len(row.tokens))], logits

    def _run_program(self, program: Program, row: Row, past: int, state: _Pass, stop: Stop) -> np.ndarray:
        """Return array 0 of a program for the row's tokens, which follow `past` others, and fill the state."""
        positions = np.arange(past, past + len(row.tokens)) + self._offset
        execution = Execution(self._ops, self.weights, positions[None])
        execution.attend = lambda q, k, v, operation: self._attend(execution, state, past, (q, k, v), operation)
        buffers = dict(self._sources[row.request]) if program.inputs else {}
        return self._run(program.operations, execution, buffers, stop, row, positions)[0]

    def _attend(self, execution: Execution, state: _Pass, past: int, heads: tuple[np.ndarray, ...],
                operation: Attend) -> np.ndarray:
        """Return the attention of q [1,H,T,d] to k [1,G,S,d] and v [1,G,S,e] of cache or source, and fill the state."""
        q, k, v = heads
        if operation.keys == "cache":
            layer = len(state.added)        # layers come one after the other
            state.added.append((round_to_cache(k, self._cache_precision), round_to_cache(v, self._cache_precision)))
            k, v = (np.concatenate([*(row_cache.layers[layer][i][:, :, :count] for row_cache, count in state.before),
                                    state.added[layer][i]], axis=2) for i in range(2))      # 0: keys, 1: values
        call = execution.attention_call(q, k, v, operation, past)
        if operation.keys == "cross":
            state.weights |= {head: attention_weights(call, b=0, h=head[1]) for head in state.heads
                              if head[0] == operation.layer}
        return self._ops.attention(call)

    def _run(self, operations: Iterable[Operation], execution: Execution, buffers: dict[str, np.ndarray], stop: Stop,
             row: Row | None = None, positions: np.ndarray | None = None) -> dict[int, np.ndarray]:
        """Return the arrays that operations store, by number: [1,T,width] or [1,T,heads,width of a head].

        row, positions: of the tokens, for operations that embed or pick them. stop: is checked between operations.
        """
        arrays = {}
        for operation in operations:
            stop.check()
            match operation:
                case Embed():
                    assert operation.word is not None
                    assert row is not None
                    assert positions is not None
                    x = self.weights[operation.word.name][row.tokens] * self._dtype(operation.scale)
                    x = add_positions(operation, self.weights, x, positions, np.zeros_like(positions))
                    buffers[operation.out] = x[None]
                case Pick():
                    assert row is not None
                    buffers[operation.out] = buffers[operation.x][:, len(row.tokens) - row.scored :]
                case Store():
                    arrays[operation.array] = cap_logits(buffers[operation.x], operation.softcap)
                case _:
                    execution.run([operation], buffers)
        return arrays
