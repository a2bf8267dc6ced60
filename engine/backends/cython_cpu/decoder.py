"""A decoder ready for the CPU kernels: weights packed once, and one pass of the interpreter for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...architectures import head_program, memory_program, step_program
from ...config import ModelConfig, RunConfig
from ...errors import EngineError, InputError
from ...generation.steps import Row, Scores, Top
from ...program import Buffer, Linear
from ..top import check_k
from ..tree import Forest, check_sources, check_vectors
from ..turns import Turn
from .cache import Cache, RowTable
from .lowering import lower
from .native import Kernels, PackedLinear, apply_maps, best_logits, padded_stride
from .panels import Packer
from .schedule import Schedule, make_schedule

TOGETHER = 64
"""Up to this many rows of one token each run as one group, whose weights are read once."""


class CythonDecoder:
    """A decoder as `engine.backends.DecoderPlan` describes it; any thread may call it, and calls take turns.

    Linear maps are in the plan's precision. Everything else is float32, the cache too.
    """

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        self._run, self._config = run, config
        self.vocab_size = config.vocab_size
        self.longest = config.longest_sequence
        if config.attention_bias is not None:   # the biases of longer distances are not there
            self.longest = min(self.longest or run.max_tokens, run.max_tokens)
        product = kernels.product(run.precision)
        packer = Packer(product, weights, run.max_tokens)
        self._executor = lower(step_program(config), product, packer, run.threads)
        self._head = _maps(packer, head_program(config).operations, config.hidden_size)[0]
        memory = memory_program(config)
        self._memory = _maps(packer, memory.operations, config.memory_size) if memory else []
        self._head_width = packer.padded(config.head_width)
        self._vocab_width = packer.padded(config.vocab_size)
        self._cache = Cache(config.num_layers * 2 * config.kv_heads * self._head_width)
        self._sources: dict[int, tuple[np.ndarray, int]] = {}
        self._forest: Forest[RowTable] = Forest(config.vocab_size, self.longest)
        self._turn = Turn()
        packer.release()

    def open(self) -> int:
        """Begin a request and return its number."""
        with self._turn.take():
            return self._forest.open()

    def remember(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32]) -> None:
        """Compute the keys and values of each request's source, as `engine.backends.DecoderPlan` describes."""
        check_vectors(vectors, self._config.memory_size)
        with self._turn.take():
            width, heads = self._head_width, 2 * self._config.kv_heads
            maps, found = [], []
            for request, (first, last) in zip(requests, pairwise(cu_seqlens.tolist()), strict=True):
                self._forest.check(request)
                size = heads * (last - first) * width
                memory = np.empty(len(self._memory) * size, np.float32)
                maps += [(map_, first, last - first, memory[i * size : (i + 1) * size], width, (last - first) * width)
                         for i, map_ in enumerate(self._memory)]
                found.append((request, (memory, last - first)))
            apply_maps(np.ascontiguousarray(vectors, np.float32), maps, self._run.threads)
            self._sources |= found

    def step(self, rows: Sequence[Row]) -> Scores:
        """Compute the logits after each row, as `engine.generation.steps.Stepper` describes."""
        logits: list[np.ndarray] = []
        with self._turn.take():
            hypotheses = self._step(rows, lambda vectors: logits.append(self._logits(vectors)))
        return Scores(hypotheses, logits[0])

    def step_top(self, rows: Sequence[Row], k: int) -> Top:
        """Return the k best logits of each row, as `engine.generation.steps.Stepper` describes."""
        if any(row.every for row in rows):
            raise InputError("step_top gives the logits after each row, not after every token")
        check_k(k, self.vocab_size)
        with self._turn.take():
            values, ids, total = (np.empty((len(rows), k), np.float32), np.empty((len(rows), k), np.int32),
                                  np.empty(len(rows), np.float32))
            hypotheses = self._step(rows, lambda vectors: self._choose(vectors, values, ids, total))
        return Top(hypotheses, values, ids.astype(np.int64), total)

    def release(self, hypotheses: Iterable[int]) -> None:
        """Note that these hypotheses become no parents."""
        with self._turn.take():
            self._free(self._forest.release(hypotheses))

    def close(self, request: int) -> None:
        """End a request."""
        with self._turn.take():
            self._free(self._forest.close(request))
            self._sources.pop(request, None)

    def _free(self, tables: Iterable[RowTable]) -> None:
        for table in tables:
            self._cache.give(table.own)

    def _step(self, rows: Sequence[Row], finish: Callable[[np.ndarray], None]) -> NDArray[np.int64]:
        """Return the new hypotheses; `finish` gets the vectors whose logits the rows ask for, before they are added."""
        parents = self._forest.parents(rows)
        if self._memory:
            check_sources(rows, self._sources)
        counts = [len(row.tokens) for row in rows]
        if max(counts) > self._run.max_tokens:
            raise InputError(f"a row of {max(counts)} tokens exceeds max_tokens={self._run.max_tokens}, which bounds "
                             f"the workspace; load the model with a larger max_tokens")
        cu_seqlens = np.cumsum([0, *counts]).astype(np.int32)
        new = self._cache.take(int(cu_seqlens[-1]))
        try:
            tables = [(parent.rows if parent else RowTable()).extended(new[first:last])
                      for parent, (first, last) in zip(parents, pairwise(cu_seqlens.tolist()), strict=True)]
            hidden = self._pass(rows, tables, cu_seqlens)
            wanted = cu_seqlens[1:] - 1
            if any(row.every for row in rows):
                wanted = np.concatenate([np.arange(first if row.every else last - 1, last) for row, (first, last)
                                         in zip(rows, pairwise(cu_seqlens.tolist()), strict=True)])
            finish(hidden[wanted])
        except BaseException:
            self._cache.give(new)
            raise
        added = [self._forest.add(row, parent, table) for row, parent, table in zip(rows, parents, tables, strict=True)]
        return np.array(added)

    def _pass(self, rows: Sequence[Row], tables: list[RowTable], cu_seqlens: NDArray[np.int32]) -> np.ndarray:
        """Return the vectors of the new tokens [N, D]."""
        counts = np.diff(cu_seqlens)
        lengths = np.array([len(table.rows) for table in tables])
        past = lengths - counts
        ids = np.concatenate([row.tokens for row in rows]).astype(np.int32)
        positions = np.repeat(past - cu_seqlens[:-1] + self._config.position_offset, counts) + np.arange(len(ids))
        schedule = self._schedule(cu_seqlens)
        members = np.searchsorted(cu_seqlens, schedule.sequences[:, 0], side="right") - 1
        sources = [self._sources.get(row.request) for row in rows]
        addresses = [(source[0].ctypes.data, source[1]) if source else (0, 0) for source in sources]
        kept = np.column_stack([np.cumsum(lengths) - lengths, past, np.array(addresses, np.int64)])[members]
        state = self._cache.addresses, np.concatenate([table.rows for table in tables]), np.ascontiguousarray(kept)
        hidden = np.empty((len(ids), self._config.hidden_size), np.float32)
        self._executor.forward(schedule.sequences, schedule.groups, schedule.bundles, ids, None,
                               positions.astype(np.int32), np.zeros(len(ids), np.int32), [hidden], state=state)
        return hidden

    def _schedule(self, cu_seqlens: NDArray[np.int32]) -> Schedule:
        count = len(cu_seqlens) - 1
        if cu_seqlens[-1] == count <= TOGETHER:
            places = np.arange(count)
            sequences = np.column_stack([places, np.ones_like(places), places])
            return Schedule(self._run.threads == 1, sequences, np.array([[count, count]]))
        return make_schedule(cu_seqlens, self._run.threads, self._run.max_tokens, self._head.product.bundle)

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
            width = padded_stride(rows.shape[1] + max(product.kernels.VL, product.depth_step)) * product.operand_bytes
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
