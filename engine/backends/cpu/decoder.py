"""A decoder ready for the CPU kernels: weights packed once, and one pass of the interpreter for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ...base.errors import EngineError, InputError
from ...base.stop import Stop
from ...model.config import ModelConfig
from ...model.run_config import RunConfig
from ...programs import cross_program, head_program, step_program
from ...programs.observe import Head, cross_queries, with_cross_queries
from ...programs.operations import Attend, Buffer, Linear
from ...weights.parameters import kept_finer
from ..hypotheses import Forest, check_heads, check_k, check_sources, check_vectors
from ..requests import Requests
from ..steps import CacheStatistics, Row, Scores, Top
from .cache import Cache, RowTable
from .lowering import lower
from .native.native import Executor, Kernels, PackedLinear, apply_maps, best_logits
from .native_ops import NativeOps
from .packer import Packer
from .schedule import Schedule, make_schedule

TOGETHER = 64
"""Up to this many rows of one token each run as one group, whose weights are read once."""
_CHUNK = 512
"""The most tokens of a pass for attention weights. It is fixed, so that the bits are, too."""


class CpuDecoder(Requests[RowTable]):
    """A decoder as `engine.backends.interfaces.DecoderPlan` describes it; any thread may call it, and calls take turns.

    Linear maps are in the plan's precision. Everything else is float32, the cache too.
    """

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        self._run, self._config = run, config
        self.vocab_size = config.vocab_size
        self.longest = config.longest_sequence
        if config.attention_bias is not None:   # the biases of longer distances are not there
            self.longest = min(self.longest or run.max_tokens, run.max_tokens)
        product = kernels.product(run.precision, decodes=True)
        packer = self._packer = Packer(product, weights, run.max_tokens, kept_finer(config))
        self._program, self._product, self._ops = step_program(config), product, NativeOps(kernels, run.threads)
        self._executor = lower(self._program, product, packer, run.threads)
        self._head = _maps(packer, head_program(config).operations, config.hidden_size)[0]
        memory = cross_program(config)
        self._cross = _maps(packer, memory.operations, config.memory_size) if memory else []
        self._head_width = packer.padded(config.head_width)
        self._vocab_width = packer.padded(config.vocab_size)
        self._cache = Cache(config.num_layers * 2 * config.kv_heads * self._head_width, run.cache_tokens)
        super().__init__(Forest(config.vocab_size, self.longest, run.cache_tokens))
        self._querying: tuple[tuple[int, ...], Executor] | None = None
        self._schedules: dict[int, Schedule] = {}
        packer.release()

    def statistics(self) -> CacheStatistics:
        """Count what is open and what the cache holds."""
        self._settle_if_free()
        sources = sum(memory.nbytes for memory, _ in list(self._sources.values()))
        return CacheStatistics(len(self._forest.requests), len(self._forest.line) + self._turn.waiting,
                               self._cache.taken, self._cache.nbytes + sources)

    def cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32],
                      stop: Stop | None = None) -> None:
        """Compute the keys and values of each request's source, as `engine.backends.interfaces.DecoderPlan`
        describes."""
        check_vectors(vectors, self._config.memory_size)
        self._in_turn(stop, lambda: self._cache_sources(requests, vectors, cu_seqlens))

    def _cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32]) -> None:
        width, heads = self._head_width, 2 * self._config.kv_heads
        maps, found = [], []
        for request, (first, last) in zip(requests, pairwise(cu_seqlens.tolist()), strict=True):
            self._forest.check(request)
            size = heads * (last - first) * width
            memory = np.empty(len(self._cross) * size, np.float32)
            maps += [(map_, first, last - first, memory[i * size : (i + 1) * size], width, (last - first) * width)
                     for i, map_ in enumerate(self._cross)]
            found.append((request, (memory, last - first)))
        apply_maps(np.ascontiguousarray(vectors, np.float32), maps, self._run.threads)
        self._sources |= found

    def step(self, rows: Sequence[Row], stop: Stop | None = None) -> Scores:
        """Compute the logits after each row, as `engine.backends.steps.Stepper` describes."""
        logits: list[np.ndarray] = []
        hypotheses = self._in_turn(stop, lambda: self._step(
            rows, lambda vectors: logits.append(self._logits(vectors)), stop))
        return Scores(hypotheses, logits[0])

    def step_top(self, rows: Sequence[Row], k: int, stop: Stop | None = None) -> Top:
        """Return the k best logits of each row, as `engine.backends.steps.Stepper` describes."""
        if any(row.every for row in rows):
            raise InputError("step_top gives the logits after each row, not after every token")
        check_k(k, self.vocab_size)
        values, ids, total = (np.empty((len(rows), k), np.float32), np.empty((len(rows), k), np.int32),
                              np.empty(len(rows), np.float32))
        hypotheses = self._in_turn(stop, lambda: self._step(
            rows, lambda vectors: self._choose(vectors, values, ids, total), stop))
        return Top(hypotheses, values, ids.astype(np.int64), total)

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[Head],
                          stop: Stop | None = None) -> np.ndarray:
        """Return weights of cross-attention, as `engine.backends.steps.Stepper` describes.

        The plan keeps the instructions and the workspace of the last layers that were asked for.
        """
        check_heads(heads, self._config if self._cross else None)
        row = Row(request, None, tokens)
        return self._in_turn(stop, lambda: self._attention_weights(row, heads, stop))

    def _attention_weights(self, row: Row, heads: Sequence[Head], stop: Stop | None) -> np.ndarray:
        self._forest.parents([row])
        check_sources([row], self._sources)
        layers = tuple(sorted({layer for layer, _ in heads}))
        inputs = self._query_inputs(row, layers, stop)
        weights = np.empty((len(heads), len(row.tokens), self._sources[row.request][1]), np.float32)
        for layer, vectors in zip(layers, inputs, strict=True):
            queries, keys, scale = self._operands(row.request, layer, vectors)
            for out, (_, head) in ((weights[i], own) for i, own in enumerate(heads) if own[0] == layer):
                shared = keys[head // (len(queries) // len(keys))]
                out[:] = self._ops.softmax(self._ops.linear(queries[head] * scale, shared, None, None, None))
        return weights

    def _query_inputs(self, row: Row, layers: tuple[int, ...], stop: Stop | None) -> list[np.ndarray]:
        """Return the vectors [n,D] from which each of the layers makes the queries of the tokens of a row."""
        if self._querying is None or self._querying[0] != layers:
            self._querying = None       # frees the workspace of the other layers first
            self._querying = layers, lower(with_cross_queries(self._program, layers), self._product, self._packer,
                                         self._run.threads)
        table, found, kept = RowTable(), [], self._cache.take(len(row.tokens))
        size = min(_CHUNK, self._run.max_tokens)
        for first in range(0, len(row.tokens), size):
            tokens = row.tokens[first : first + size]
            table = table.extended(kept[first : first + size])
            arrays = [np.empty((len(tokens), self._config.hidden_size), np.float32) for _ in range(1 + len(layers))]
            self._pass([Row(row.request, None, tokens)], [table], np.array([0, len(tokens)], np.int32),
                       self._querying[1], arrays, stop)
            found.append(arrays[1:])
        self._cache.give(kept)
        return [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _operands(self, request: int, layer: int, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.float32]:
        """Return queries [H,n,d], keys [G,S,d] and the scale of the scores; d is padded with zeros to whole vectors."""
        config, width = self._config, self._head_width
        memory, length = self._sources[request]
        keys = memory.reshape(2 * config.num_layers, -1, length, width)[2 * layer]
        queries = np.empty((config.num_heads, len(vectors), width), np.float32)
        map_ = self._packer.linear(cross_queries(self._program)[layer], Buffer(config.hidden_size))
        apply_maps(vectors, [(map_, 0, len(vectors), queries.reshape(-1), width, len(vectors) * width)],
                   self._run.threads)
        [scale] = [operation.scale for operation in self._program.operations
                   if isinstance(operation, Attend) and operation.layer == layer and operation.keys == "cross"]
        return queries, keys, np.float32(scale)

    def _free_rows(self, rows: list[RowTable]) -> None:
        for table in rows:
            self._cache.give(table.own)
        if rows:
            self._cache.shrink()

    def _repair_rows(self) -> None:
        self._cache.keep([node.rows.own for node in self._forest.nodes()])

    def _step(self, rows: Sequence[Row], finish: Callable[[np.ndarray], None],
              stop: Stop | None) -> NDArray[np.int64]:
        """Return the new hypotheses; `finish` gets the vectors whose logits the rows ask for, before they are added."""
        parents = self._forest.parents(rows)
        if self._cross:
            check_sources(rows, self._sources)
        counts = [len(row.tokens) for row in rows]
        if max(counts) > self._run.max_tokens:
            raise InputError(f"a row of {max(counts)} tokens exceeds max_batch_tokens={self._run.max_tokens}, which "
                             "bounds the workspace; load the model with a larger max_batch_tokens")
        cu_seqlens = np.cumsum([0, *counts]).astype(np.int32)
        new = self._cache.take(int(cu_seqlens[-1]))
        tables = [(parent.rows if parent else RowTable()).extended(new[first:last])
                  for parent, (first, last) in zip(parents, pairwise(cu_seqlens.tolist()), strict=True)]
        hidden = np.empty((int(cu_seqlens[-1]), self._config.hidden_size), np.float32)
        self._pass(rows, tables, cu_seqlens, self._executor, [hidden], stop)
        wanted = cu_seqlens[1:] - 1
        if any(row.every for row in rows):
            wanted = np.concatenate([np.arange(first if row.every else last - 1, last) for row, (first, last)
                                     in zip(rows, pairwise(cu_seqlens.tolist()), strict=True)])
        finish(hidden[wanted])
        added = [self._forest.add(row, parent, table) for row, parent, table in zip(rows, parents, tables, strict=True)]
        return np.array(added)

    def _pass(self, rows: Sequence[Row], tables: list[RowTable], cu_seqlens: NDArray[np.int32], executor: Executor,
              arrays: list[np.ndarray], stop: Stop | None) -> None:
        """Fill the arrays that the executor's program writes, the first with the vectors of the new tokens [N, D]."""
        past = [len(table) - len(row.tokens) for row, table in zip(rows, tables, strict=True)]
        starts = [0, *accumulate(map(len, tables))]
        first = self._config.position_offset
        if len(rows) == cu_seqlens[-1]:
            positions = np.array(past, np.int32) + np.int32(first)
        else:
            positions = np.concatenate([np.arange(first + begin, first + len(table), dtype=np.int32)
                                        for begin, table in zip(past, tables, strict=True)])
        schedule, members = self._schedule(cu_seqlens)
        sources = [self._sources.get(row.request) for row in rows]
        addresses = [(source[0].ctypes.data, source[1]) if source else (0, 0) for source in sources]
        kept = np.array([(starts[i], past[i], *addresses[i]) for i in members], np.int64)
        state = self._cache.addresses, np.concatenate([table.rows for table in tables]), kept
        ids = np.concatenate([row.tokens for row in rows]).astype(np.int32)
        executor.forward(schedule.sequences, schedule.groups, schedule.bundles, ids, None, positions,
                         np.zeros(len(ids), np.int32), arrays, stop=stop, state=state)

    def _schedule(self, cu_seqlens: NDArray[np.int32]) -> tuple[Schedule, Sequence[int]]:
        """Return the schedule of a step, and the row of each of its sequences."""
        count = len(cu_seqlens) - 1
        if cu_seqlens[-1] == count <= TOGETHER:
            return self._together(count), range(count)
        schedule = make_schedule(cu_seqlens, self._run.threads, self._run.max_tokens, self._head.product.bundle)
        return schedule, (np.searchsorted(cu_seqlens, schedule.sequences[:, 0], side="right") - 1).tolist()

    def _together(self, count: int) -> Schedule:
        """Return the schedule of a step of one token for each row, which most steps are; it is made once."""
        if count not in self._schedules:
            places = np.arange(count)
            sequences = np.column_stack([places, np.ones_like(places), places])
            self._schedules[count] = Schedule(self._run.threads == 1, sequences, np.array([[count, count]]))
        return self._schedules[count]

    def _logits(self, vectors: np.ndarray) -> np.ndarray:
        """Return the logits of rows of vectors [R, D]: a view [R, V]."""
        vectors = self._scaled(vectors)
        logits = np.empty((len(vectors), self._vocab_width), np.float32)
        apply_maps(vectors, [(self._head, 0, len(vectors), logits.reshape(-1), self._vocab_width, 0)],
                   self._run.threads)
        return logits[:, : self.vocab_size]

    def _choose(self, vectors: np.ndarray, values: np.ndarray, ids: np.ndarray, total: np.ndarray) -> None:
        """Find the best logits [R, k] of rows of vectors [R, D], their ids, and the log-sum-exp [R] of all logits.

        Raises `EngineError` for logits that are NaN.
        """
        operands, ranges, product = self._scaled(vectors), None, self._head.product
        if product.converts:
            rows, ranges = operands, np.empty((len(operands), 2), np.float32)
            width = product.operands_stride(rows.shape[1]) * product.operand_bytes
            operands = np.zeros((-(-len(rows) // product.strip) * product.strip, width), np.uint8)
            product.convert(rows, operands, ranges)
        best_logits(self._head, operands, self.vocab_size, values, ids, total, ranges, self._run.threads)
        if np.isnan(total).any():
            raise EngineError("the model gives logits that are NaN or infinite; its weights hold numbers that are too "
                              "large")

    def _scaled(self, vectors: np.ndarray) -> np.ndarray:
        scale = self._config.logits_scale
        return vectors if scale == 1.0 else vectors * np.float32(scale)


def _maps(packer: Packer, operations: Iterable[object], width: int) -> list[PackedLinear]:
    """Return the packed map of each Linear of a program whose only input has this width."""
    return [packer.linear(operation, Buffer(width)) for operation in operations if isinstance(operation, Linear)]
