"""A decoder ready for the CPU kernels: weights packed once, and one pass of the interpreter for each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ...base.errors import InputError
from ...base.stop import NEVER, Stop
from ...model.config import ModelConfig
from ...model.run_config import RunConfig
from ...programs import cross_program, program_of, step_program
from ...programs.observe import AttentionHead, cross_queries_program
from ...programs.operations import Attend
from ...weights.parameters import kept_finer
from ..choice import scores_of
from ..forest import Forest, Node
from ..requests import Requests
from ..step_checks import cap_logits, check_attention_heads, check_scored, check_sources, check_vectors, finite_rows
from ..steps import CacheStatistics, Chosen, Row, Scores, Words
from ..wants import ALL, LineWants
from .cache import Cache, CellTable
from .lowering import lower
from .native.layout import CELL, STORAGE
from .native.native import Executor, Kernels, cell_bytes, read_keys, write_cells
from .native_ops import NativeOps
from .packer import Packer, product_of
from .schedule import PassSchedule, make_schedule, schedule_of_single_tokens

SINGLE_TOKEN_ROWS = 64
"""Up to this many rows of one token each run as one group, so that the weights are read once."""
_OBSERVED_TOKENS = 512
"""The most tokens of a pass for attention weights, which limits its memory."""


@dataclass(frozen=True)
class _SingleTokens:
    """The schedule of all passes with R rows of one new token each, which differ in tokens and positions alone."""

    schedule: PassSchedule
    cu_seqlens: NDArray[np.int32]
    """[R+1]: 0, 1, ..., R."""


@dataclass(frozen=True)
class _NewRows:
    """The rows of a pass, which become hypotheses of the forest when the pass has ended (`_add_hypotheses`)."""

    rows: Sequence[Row]
    parents: list[Node[CellTable] | None]
    tables: list[CellTable]
    """The cells of each hypothesis, with those of the new tokens."""
    cu_seqlens: NDArray[np.int32]
    """[R+1]: where the tokens of each row begin in the batch."""
    single: _SingleTokens | None = None
    """None unless each row has one token, as in most steps, and there are `SINGLE_TOKEN_ROWS` rows at most."""


@dataclass(eq=False)
class _Memory:
    """The keys and values for cross-attention of a source, in cells of all layers and heads."""

    memory: np.ndarray
    """The bytes that hold the cells."""
    cells: NDArray[np.uintp]
    """The address of each cell."""
    length: int
    """The tokens of the source."""
    run_bytes: int
    """Bytes from the keys of a head to its values, and from there to the keys of the next head: a run is the keys, or
    the values, of one head in all cells."""


class CpuDecoder(Requests[CellTable]):
    """A decoder as `engine.backends.interfaces.Decoder` describes it; any thread may call it, and calls take turns.

    Linear maps are in the plan's precision, keys and values in that of the cache. Everything else is float32.
    """

    def __init__(self, kernels: Kernels, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig):
        """Pack the weights, by name, lower the programs, and make an empty cache; raises `UnsupportedError`."""
        self._run, self._config, self.portable = run, config, run.portable
        self.vocab_size = config.logits_width
        self.longest = config.longest_sequence
        if config.attention_bias is not None:   # the packer makes biases of max_tokens distances alone
            self.longest = min(self.longest or run.max_tokens, run.max_tokens)
        product = product_of(kernels, run, decodes=True)
        packer = self._packer = Packer(product, weights, run.max_tokens, kept_finer(config))
        self._product, self._ops = product, NativeOps(kernels, run.threads, run.portable)
        self._storage = STORAGE[run.cache_precision]
        self._executor = lower(step_program(config), product, packer, run.threads, self._storage)
        cross = cross_program(config)
        self._cross = lower(cross, product, packer, run.threads) if cross else None
        self._padded_width = packer.padded(config.head_width, 1)
        self._vocab_width = packer.padded(config.logits_width)
        self._cell_bytes = cell_bytes(self._storage, self._padded_width)
        self._cache = Cache(self._cell_bytes, config.num_layers * config.kv_heads, run.cache_tokens)
        super().__init__(Forest(config.vocab_size, self.longest))
        self._program = program_of(config)
        self._scales = {operation.layer: operation.scale for operation in self._program.operations
                        if isinstance(operation, Attend) and operation.keys == "cross"}
        """The factor of the scores of cross-attention, by layer."""
        self._querying: tuple[tuple[int, ...], Executor] | None = None
        """The layers of the last call of `attention_weights`, and the lowered program that computes their queries."""
        self._single: dict[int, _SingleTokens] = {}     # by the number of rows
        packer.release()

    def statistics(self) -> CacheStatistics:
        """Return how many tokens and bytes the cache holds; frees first what has ended, if no call has the turn."""
        self._settle_if_free()
        sources = sum(source.memory.nbytes for source in list(self._sources.values()))
        return CacheStatistics(cache_tokens=self._cache.taken * CELL, cache_bytes=self._cache.nbytes + sources)

    @property
    def held(self) -> int:
        """The tokens that the cells in use have room for; frees first what has ended, if no call has the turn."""
        self._settle_if_free()
        return self._cache.taken * CELL

    def cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32],
                      stop: Stop = NEVER) -> None:
        """Compute the keys and values of each request's source; see `interfaces.Decoder`."""
        check_vectors(vectors, self._config.memory_size)
        self._in_turn(stop, lambda: self._cache_sources(requests, vectors, cu_seqlens, stop))

    def _cache_sources(self, requests: Sequence[int], vectors: np.ndarray, cu_seqlens: NDArray[np.int32],
                       stop: Stop) -> None:
        """Compute the keys and values of each source as arrays, and pack them in cells; the caller has the turn."""
        assert self._cross is not None
        sources, groups, sequences = [], [], []     # each sequence is a group of its own
        token_floats = self._config.num_layers * 2 * self._config.kv_heads * self._padded_width
        for request, (first, last) in zip(requests, pairwise(cu_seqlens.tolist()), strict=True):
            self._forest.check(request)
            if first == last:
                raise InputError(f"the source of request {request} has no vectors; a source needs one at least")
            sources.append((request, np.empty(token_floats * (last - first), np.float32), last - first))
            groups.append((1, last - first))                # one sequence, its tokens
            sequences.append((first, last - first, 0))      # the first token, the tokens, row 0 of the group
        addresses = np.array([rows.ctypes.data for _, rows, _ in sources], np.uintp)
        vectors = np.ascontiguousarray(vectors, np.float32)
        self._cross.forward(np.array(sequences), np.array(groups), bundles=False, ids=None, embeds=vectors,
                            position_ids=None, type_ids=None, arrays=[], stop=stop, results=addresses)
        self._sources |= {request: self._pack_in_cells(rows, length) for request, rows, length in sources}

    def _pack_in_cells(self, rows: np.ndarray, length: int) -> _Memory:
        """Return a source's keys and values, written as [layers, keys and values, heads, S, width], in cells.

        The cells of one head lie one after the other, from an address that is a multiple of 64 bytes.
        """
        rows = rows.reshape(2 * self._config.num_layers, self._config.kv_heads, length, self._padded_width)
        count = -(-length // CELL)
        run = count * self._cell_bytes      # bytes of the keys, or of the values, of a head
        memory = np.zeros(2 * self._config.num_layers * self._config.kv_heads * run + 64, np.uint8)     # 64: to align
        start = -(-memory.ctypes.data // 64) * 64
        cells = start + np.arange(count, dtype=np.uintp) * np.uintp(self._cell_bytes)
        write_cells(self._storage, rows, self._config.head_width, cells, run)
        return _Memory(memory, cells, length, run)

    def step(self, rows: Sequence[Row], stop: Stop = NEVER) -> Scores:
        """Compute the scores that each row wants, as `engine.backends.interfaces.Decoder` describes."""
        return self._in_turn(stop, lambda: self._step(rows, stop))

    def _step(self, rows: Sequence[Row], stop: Stop) -> Scores:
        """Compute a step; the caller has the turn."""
        new = self._new_rows(rows)
        check_scored(rows)
        wanted = LineWants.of(rows, self.vocab_size)
        if self._config.logits_softcap:
            return self._step_capped(rows, wanted, new, stop)
        written = sum(row.scored for row in rows if row.wants_logits)
        logits, arrays = np.empty((written, self._vocab_width), np.float32), _empty_chosen(wanted)
        self._run_pass(self._executor, new, [logits] if written else [], stop, picked=_picked(rows, written),
                       wanted=wanted, chosen=arrays)
        logits, chosen = logits[:, : self.vocab_size], _as_chosen(arrays)
        return Scores(self._add_hypotheses(new), finite_rows(rows, logits, chosen.log_sum_exp), logits, chosen)

    def _step_capped(self, rows: Sequence[Row], wanted: LineWants, new: _NewRows, stop: Stop) -> Scores:
        """Return the scores of a step with a cap of the logits, which needs them all: no kernel applies it."""
        lines = np.empty((sum(row.scored for row in rows), self._vocab_width), np.float32)
        full_rows = [replace(row, wants=ALL) for row in rows]
        self._run_pass(self._executor, new, [lines] if len(lines) else [], stop, picked=_picked(full_rows, len(lines)))
        with np.errstate(invalid="ignore"):
            lines = cap_logits(lines[:, : self.vocab_size], self._config.logits_softcap)
        return scores_of(rows, wanted, self._add_hypotheses(new), lines)

    def attention_weights(self, request: int, tokens: NDArray[np.int64], heads: Sequence[AttentionHead],
                          stop: Stop = NEVER) -> np.ndarray:
        """Return weights of cross-attention, as `engine.backends.interfaces.Decoder` describes.

        The plan keeps the instructions and the workspace of the last layers that were asked for.
        """
        check_attention_heads(heads, None if self._cross is None else self._config)
        row = Row(request, parent=None, tokens=tokens)
        return self._in_turn(stop, lambda: self._attention_weights(row, heads, stop))

    def _attention_weights(self, row: Row, heads: Sequence[AttentionHead], stop: Stop) -> np.ndarray:
        """Compute the weights [heads, n, S] for the n tokens of a row, from the queries of all layers that are asked
        for and the keys in the source's cells; the caller has the turn.
        """
        self._forest.parents([row])                 # raises for a request that is not open
        check_sources([row], self._sources)
        layers = tuple(sorted({layer for layer, _ in heads}))
        source = self._sources[row.request]
        weights = np.empty((len(heads), len(row.tokens), source.length), np.float32)
        keys = np.zeros((source.length, self._padded_width), np.float32)
        key_heads = self._config.kv_heads       # of a layer
        queries = dict(zip(layers, self._queries(row, layers, stop), strict=True))
        for out, (layer, head) in zip(weights, heads, strict=True):
            scaled = queries[layer][:, head] * np.float32(self._scales[layer])
            shared = self._config.num_heads // key_heads        # query heads of a key head
            key_head = layer * key_heads + head // shared       # counted over all layers
            read_keys(self._storage, source.cells, source.run_bytes, key_head, keys[:, : self._config.head_width])
            scores = self._ops.linear(scaled, keys, bias=None, activation=None, residual=None)
            out[:] = self._ops.softmax(scores)
        return weights

    def _queries(self, row: Row, layers: tuple[int, ...], stop: Stop) -> list[np.ndarray]:
        """Return the queries [n,H,width] of cross-attention of each of the layers, for the tokens of a row.

        Passes of up to `_OBSERVED_TOKENS` tokens compute them; the cells of these tokens are freed at the end.
        """
        if self._querying is None or self._querying[0] != layers:
            self._querying = None       # frees the workspace of the other layers first
            self._querying = layers, lower(cross_queries_program(self._program, layers), self._product, self._packer,
                                         self._run.threads, self._storage)
        table, passes = None, []
        size, H, width = min(_OBSERVED_TOKENS, self._run.max_tokens), self._config.num_heads, self._padded_width
        for first in range(0, len(row.tokens), size):
            tokens = row.tokens[first : first + size]
            longer_table = self._cache.extend(table, len(tokens))
            self._cache.free([table] if table else [])      # the longer table keeps the cells that both have
            table = longer_table
            arrays = [np.empty((len(tokens), H, width), np.float32) for _ in layers]
            block = Row(row.request, parent=None, tokens=tokens)
            new = _NewRows([block], parents=[None], tables=[table], cu_seqlens=np.array([0, len(tokens)], np.int32))
            self._run_pass(self._querying[1], new, arrays, stop)
            passes.append(arrays)
        self._cache.free([table] if table else [])
        return [np.concatenate(of_layer) for of_layer in zip(*passes, strict=True)]

    def _cut_rows(self, node: Node[CellTable], length: int) -> CellTable:
        """Return the cells of the first `length` tokens of a hypothesis; see `Requests`."""
        return self._cache.cut(node.rows, length)

    def _free_rows(self, rows: list[CellTable]) -> None:
        """Free the cells of hypotheses, and then give memory back to the system if much of it is free."""
        self._cache.free(rows)
        if rows:
            self._cache.shrink()

    def _repair_rows(self) -> None:
        """Free all cells but those of hypotheses that may become parents."""
        self._cache.keep(self._forest.possible_parents())

    def _new_rows(self, rows: Sequence[Row]) -> _NewRows:
        """Check the rows of a step, and take cells for their tokens, which a repair frees if the pass fails."""
        parents = self._forest.parents(rows)
        if self._cross is not None:
            check_sources(rows, self._sources)
        counts = [len(row.tokens) for row in rows]
        if max(counts) > self._run.max_tokens:
            raise InputError(f"a row of {max(counts)} tokens exceeds max_batch_tokens={self._run.max_tokens}, which "
                             "bounds the workspace; load the model with a larger max_batch_tokens")
        ends = [0, *accumulate(counts)]
        tables = [self._cache.extend(parent.rows if parent else None, count)
                  for parent, count in zip(parents, counts, strict=True)]
        if len(rows) == ends[-1] <= SINGLE_TOKEN_ROWS:       # one token each, and few rows
            single = self._single_tokens(len(rows))
            return _NewRows(rows, parents, tables, single.cu_seqlens, single)
        return _NewRows(rows, parents, tables, np.array(ends, np.int32))

    def _add_hypotheses(self, new: _NewRows) -> NDArray[np.int64]:
        """Add a hypothesis to the forest for each row of a pass that has ended, and return their numbers [R]."""
        return np.array([self._forest.add(row, parent, table)
                         for row, parent, table in zip(new.rows, new.parents, new.tables, strict=True)])

    def _run_pass(self, executor: Executor, new: _NewRows, arrays: list[np.ndarray], stop: Stop,
                  picked: Sequence[tuple[int, int]] = (), wanted: LineWants | None = None,
                  chosen: Sequence[np.ndarray] = ()) -> None:
        """Run a program for new tokens, which fills `arrays` and `chosen`.

        picked: the pairs of `_picked`, for a program that computes logits. wanted, chosen: what is chosen by the
        logits that are not written, and the arrays of `_empty_chosen` for it.
        """
        rows, tables, single = new.rows, new.tables, new.single
        past = [table.length - len(row.tokens) for row, table in zip(rows, tables, strict=True)]
        starts = [0, *accumulate(len(table.cells) for table in tables)]
        # row_of: the index of the row of each scheduled sequence; the arrays below are in the order of the schedule.
        schedule, row_of = (single.schedule, range(len(rows))) if single else self._schedule_pass(new.cu_seqlens)
        sources = [self._sources.get(row.request) for row in rows]
        memories = [(source.cells.ctypes.data, source.length, source.run_bytes) if source else (0, 0, 0)
                    for source in sources]
        addresses = self._cache.addresses
        copied = [0 if table.copied is None else int(addresses[table.copied]) for table in tables]
        # int64 [R, 6], as `Executor.forward` in executor.pxi reads it: the first cell, the tokens before, the address
        # of the copied cell (0: none), and the source's cells, tokens and bytes of a run (0: none).
        row_states = np.array([(starts[i], past[i], copied[i], *memories[i]) for i in row_of], np.int64)
        state = addresses[np.concatenate([table.cells for table in tables])], self._cache.run_bytes, row_states
        in_schedule = np.array([picked[i] for i in row_of], np.int64) if picked else None
        ids, positions, types = self._inputs(rows, past, single is not None)
        self._packer.fill_angles(positions)
        executor.forward(schedule.sequences, schedule.groups, schedule.bundles, ids, embeds=None,
                         position_ids=positions, type_ids=types, arrays=arrays, stop=stop, state=state,
                         picked=in_schedule, wanted=wanted if wanted and wanted.count else None, chosen=chosen)

    def _inputs(self, rows: Sequence[Row], past: list[int],
                single: bool) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return the ids, positions and token types of all new tokens, int32 [N] each.

        past: the tokens before each row. single: whether each row has one token, for which one array is faster.
        """
        first = self._config.position_offset
        if not single:
            ids = np.concatenate([row.tokens for row in rows]).astype(np.int32)
            positions = np.concatenate([np.arange(first + begin, first + begin + len(row.tokens), dtype=np.int32)
                                        for row, begin in zip(rows, past, strict=True)])
            return ids, positions, np.zeros(len(ids), np.int32)
        lines = np.array([[row.tokens.item() for row in rows], [first + begin for begin in past], [0] * len(rows)],
                         np.int32)
        return lines[0], lines[1], lines[2]

    def _schedule_pass(self, cu_seqlens: NDArray[np.int32]) -> tuple[PassSchedule, Sequence[int]]:
        """Return the schedule of a pass, and for each of its sequences the index of the row."""
        schedule = make_schedule(cu_seqlens, self._run.threads, self._run.max_tokens, self._product.bundle)
        return schedule, schedule.numbers(cu_seqlens).tolist()

    def _single_tokens(self, count: int) -> _SingleTokens:
        """Return the schedule for `count` rows of one token each, which is made once for each count."""
        if count not in self._single:
            schedule = schedule_of_single_tokens(count, self._run.threads)
            self._single[count] = _SingleTokens(schedule, np.arange(count + 1, dtype=np.int32))
        return self._single[count]


def _empty_chosen(wanted: LineWants) -> list[np.ndarray]:
    """Return empty arrays for native code to fill, in the order in which it takes them, which `LineWants` states:
    log_sum_exp [L]; the best words; the likely words; the logits of given ids; the drawn words.

    Words are three arrays, as `Words` has them: ids, changed logits, own logits.
    """
    def words(n: int) -> list[np.ndarray]:
        return [np.empty(n, np.int32), np.empty(n, np.float32), np.empty(n, np.float32)]

    return [np.empty(wanted.count, np.float32), *words(wanted.best_at[-1]), *words(wanted.likely_at[-1]),
            np.empty(wanted.given_at[-1], np.float32), *words(wanted.drawn_at[-1])]


def _as_chosen(arrays: Sequence[np.ndarray]) -> Chosen:
    """Name the arrays of `_empty_chosen`, which native code has filled, with ids in int64."""
    best, likely, drawn = (Words(ids.astype(np.int64), values, own)
                           for ids, values, own in (arrays[1:4], arrays[4:7], arrays[8:]))
    return Chosen(log_sum_exp=arrays[0], best=best, likely=likely, given=arrays[7], drawn=drawn)


def _picked(rows: Sequence[Row], written: int) -> list[tuple[int, int]]:
    """Return for each row how many of its last tokens are picked, and the place of the first among all picked tokens.

    The picked tokens of rows that want all logits come first: `written` of them, whose logits the program writes.
    """
    picked, next_written, next_other = [], 0, written
    for row in rows:
        picked.append((row.scored, next_written if row.wants_logits else next_other))
        if row.wants_logits:
            next_written += row.scored
        else:
            next_other += row.scored
    return picked
