"""Run a model on a GPU: upload the weights once, and record a forward pass over packed tokens once for each shape.

The residual stream, norms and softmax are float32. Operands of GEMMs are in the plan's precision, and a norm writes its
result as float32 rows, as operands, or as both, as later operations read it. For each batch group, the plan copies the
integers to the device through pinned memory, replays the pass of the group's shape, and copies the token vectors back
through pinned memory. There are two such slots of pinned memory, so that the CPU fills or empties one of them while the
GPU works on the other group.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.stop import NEVER, Stop
from ...model.config import ModelConfig
from ...model.run_config import RunConfig
from ...programs import program_of
from ...programs.observe import Observed, with_observed
from ...programs.operations import Attend, Embed, Heads, Linear, Norm, Store, writes
from ...programs.program import Program
from ..batch import Batch
from .bucket import BucketGroup, Shape, groups, stage
from .device import Device
from .kernels import copy, embedding, heads, norm, pooling
from .observing import Observation
from .products import KINDS, PLAIN, Products, ScoreRule, choose_products
from .rotation import Rotations
from .shared_array import SharedArray
from .support import FLOAT32, OPERAND, Step, check, layouts, steps_of
from .weights import linear_key, score_weights, upload_weights
from .workspace import Slot, Workspace, WorkspaceRows

RECORDINGS = 128
"""Largest number of recorded passes that a plan keeps; beyond it, the least recently used pass is dropped."""

_embedding_kernel, _norm_kernel, _heads_kernel, _copy_kernel, _pooling_kernel = (
    cache(make) for make in (embedding.embedding_kernel, norm.norm_kernel, heads.heads_kernel, copy.copy_kernel,
                             pooling.pooling_kernel))


class CudaPlan:
    """A plan on a GPU that also pools and observes; see `interfaces.PoolingPlan` and `interfaces.ObservingPlan`.

    Any thread may call it; the plans of one device take turns.
    """

    def __init__(self, device: Device, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig,
                 choose: Callable[[Device, Program, str], Products] = choose_products):
        """Upload the weights, by name, and allocate the workspace; raises `UnsupportedError`.

        choose: returns the kernels for a program and a precision.
        """
        program = program_of(config)
        check(program)
        self._program, self._steps = program, steps_of(program)
        self._score_weights = score_weights(program, weights)
        self._device, self._max_tokens, self._bfloat16 = device, run.max_tokens, run.precision == "bfloat16"
        with device.turn:
            device.activate()
            self._products: Products = choose(device, program, run.precision)
            self._layouts = layouts(program, self._products.head_width)
            self._weights = upload_weights(device, program, weights, self._score_weights, self._products.convert,
                                           self._layouts, run.max_tokens, self._products.convert_table)
            self._workspace = Workspace(device, program, run.max_tokens, self._products.dtype, self._layouts,
                                        max((len(each.zeros) for each in self._weights.relatives.values()), default=0))
            self._embedded = self._layouts[writes(program.operations[0])[0]]
            attends = [operation for operation in program.operations if isinstance(operation, Attend)]
            self._head_width = max((self._layouts[operation.q].padded for operation in attends), default=0)
            self._kind = max((self._scores(operation).kind for operation in attends), key=KINDS.index, default=PLAIN)
            self._rotations = Rotations(device, program, run.max_tokens)
            self._result = self._workspace.result
            self._slots = [Slot(device, run.max_tokens, self._result.shape[1]) for _ in range(2)]
        self._recordings: OrderedDict[Shape, Callable[[], None]] = OrderedDict()

    @property
    def longest(self) -> int:
        """The most tokens of a sequence: those that the workspace on the device holds."""
        return self._max_tokens

    def forward(self, batch: Batch, stop: Stop = NEVER) -> np.ndarray:
        """Return token vectors, float32 [N, D]; raises `InputError` for a sequence longer than `max_tokens`.

        stop: is looked at between two launches; a recorded pass is one launch.
        """
        return self._fetch(batch, stop)

    def forward_on_device(self, batch: Batch) -> SharedArray:
        """Return the token vectors, which stay on the device; raises as `forward` does."""
        with self._device.turn:
            self._device.activate()
            shape = batch.tokens, self._result.shape[1]
            out = self._device.allocate(shape, np.float32)
            for _, group, _ in self._passes(batch):
                self._device.copy(out[group.tokens], self._result[: group.count])
            self._device.wait()
        return SharedArray(self._device, out.reshape(math.prod(shape)), shape)

    def pool(self, batch: Batch, modes: Sequence[str], skip: int | np.ndarray = 0, stop: Stop = NEVER) -> np.ndarray:
        """Return one vector for each sequence, float32 [B, len(modes)*D].

        Every mode runs on the device; only the results are copied from it. Raises `InputError` as `forward` does, and
        for an unknown mode.
        """
        for mode in modes:
            if mode not in pooling.MODES:
                raise InputError(f"modes must be some of {', '.join(pooling.MODES)}, not {mode!r}")
        D, lengths = self._result.shape[1], np.diff(batch.cu_seqlens)
        out, skips = np.zeros((batch.sequences, len(modes), D), np.float32), np.full(batch.sequences, skip, np.int32)
        with self._device.turn:
            for _, group, shape in self._passes(batch, stop):
                members = group.first + np.flatnonzero(lengths[group.first : group.last])   # an empty one keeps zeros
                pooled = self._device.allocate((len(modes), len(members), D), np.float32)
                starts, grid = self._workspace.cu_seqlens(shape), pooling.pooling_grid(len(members), D)
                sequence_skips = self._device.allocate((len(members),), np.int32)
                self._device.copy(sequence_skips, skips[members])
                for m, mode in enumerate(modes):
                    self._device.launch(_pooling_kernel(mode), grid, self._result,
                                        starts[: len(members) + 1], sequence_skips, pooled[m])
                out[members] = self._device.download(pooled).swapaxes(0, 1)
        return out.reshape(batch.sequences, len(modes) * D)

    def observe(self, batch: Batch, observed: Observed, stop: Stop = NEVER) -> list[np.ndarray]:
        """See `interfaces.ObservingPlan`; such a pass is not recorded, and waits for each copy."""
        arrays = observed.arrays(batch.cu_seqlens, self._result.shape[1])
        seen = Observation(self._device, self._layouts, self._score_weights, batch, arrays, stop)
        return [self._fetch(batch, stop, seen, steps_of(with_observed(self._program, observed))), *arrays]

    def _fetch(self, batch: Batch, stop: Stop, seen: Observation | None = None, steps: Sequence[Step] = ()
               ) -> np.ndarray:
        """Return the token vectors, float32 [N, D], of all passes of a batch; seen, steps: as for `_passes`."""
        out = np.empty((batch.tokens, self._result.shape[1]), np.float32)
        with self._device.turn:
            try:
                for slot, group, _ in self._passes(batch, stop, seen, steps):
                    slot.fetch(self._result, out[group.tokens])
            finally:
                for slot in self._slots:
                    slot.finish()       # writes the vectors of the last groups to `out`
        return out

    def _passes(self, batch: Batch, stop: Stop = NEVER, seen: Observation | None = None, steps: Sequence[Step] = ()
                ) -> Iterator[tuple[Slot, BucketGroup, Shape]]:
        """Queue the pass of each batch group; its result stays in the workspace until the caller asks for the next.

        The caller has the turn of the device. seen: the observation that passes fill, if any; steps: of its program.
        """
        self._device.activate()
        if self._rotations.hold(int(batch.position_ids.max(initial=-1)) + 1):
            self._recordings.clear()        # they hold the addresses of the old tables
        for slot, group in zip(cycle(self._slots), groups(batch, self._max_tokens)):
            slot.finish()
            stop.check()
            tile_rows = self._products.tile_rows(group.longest, self._head_width, self._kind)
            shape = stage(batch, group, tile_rows, slot.integers)
            self._workspace.upload_integers(shape, slot.integers)
            if batch.inputs_embeds is not None:
                rows = self._embedded.pad_parts(batch.inputs_embeds[group.tokens], 1)
                self._device.copy(self._workspace.embeds[: group.count], rows)
            try:
                if seen is None:
                    self._run(shape, stop)
                else:
                    seen.group = group
                    self._launch(shape, stop, steps, seen)
            finally:            # after a stop, too, copies that are queued still read the slot
                slot.queued()
            yield slot, group, shape

    def _scores(self, operation: Attend, terms: Any = None) -> ScoreRule:
        """Return the changes of an operation's scores; terms: memory for the terms of relative positions."""
        bias, relative = operation.bias, operation.relative
        return ScoreRule(operation.scale, operation.window, operation.softcap,
                      self._weights.biases[bias, operation.scale] if bias else None,
                      self._weights.relatives[relative] if relative else None, terms)

    def _run(self, shape: Shape, stop: Stop) -> None:
        """Queue a pass, and record it if its shape is new."""
        if shape in self._recordings:
            self._recordings.move_to_end(shape)
            self._recordings[shape]()
            return
        self._recordings[shape] = self._device.record(lambda: self._launch(shape, stop, self._steps))
        if len(self._recordings) > RECORDINGS:
            self._recordings.popitem(last=False)

    def _launch(self, shape: Shape, stop: Stop, steps: Sequence[Step], seen: Observation | None = None) -> None:
        """Queue all launches of a pass, in the order of the program's operations."""
        work = self._workspace.rows(shape)
        for step in steps:
            stop.check()
            match step.operation:
                case Embed():
                    self._embed(step.operation, step, shape, work)
                case Norm():
                    self._norm(step.operation, step, work)
                case Linear():
                    self._linear(step.operation, step, work)
                case Heads():
                    self._heads(step.operation, work)
                case Attend():
                    self._attend(step.operation, shape, work)
                    if seen is not None and step.operation.observed:
                        seen.attend(step.operation, work)
                case Store() if seen is not None and step.operation.array:
                    seen.store(step.operation, work)
                case Store():
                    self._store(step.operation, shape, work)

    def _embed(self, operation: Embed, step: Step, shape: Shape, work: WorkspaceRows) -> None:
        """Queue the kernel of the embeddings, and of the norm that follows them if `step` has it."""
        tables, affine = self._weights.tables, self._weights.norms[step.norm]       # dummies for what is missing
        layout = self._layouts[operation.out]
        threads = norm.row_threads(layout.columns)
        kernel = _embedding_kernel(step.norm and step.norm.kind, threads)
        parts = (embedding.WORDS * (not shape.embeds) + embedding.POSITIONS * (operation.position is not None)
                 + embedding.TOKEN_TYPES * (operation.token_type is not None))
        word, scale = (work.embeds, 1.0) if shape.embeds else (tables[operation.word], operation.scale)
        self._device.launch(kernel, norm.row_grid(shape.tokens, threads), work.ids, work.positions, work.types, word,
                            tables[operation.position], tables[operation.token_type], np.float32(scale),
                            np.int32(parts), affine.weight, affine.bias, np.float32(step.norm.eps if step.norm else 0),
                            np.int32(layout.width), *work.outputs(operation.out, step.forms))

    def _norm(self, operation: Norm, step: Step, work: WorkspaceRows) -> None:
        """Queue the kernel of a norm, which writes the forms of `step`."""
        x, affine = work.arrays[FLOAT32, operation.x], self._weights.norms[operation]
        threads = norm.row_threads(x.shape[1])
        adds = operation.residual is not None
        residual = work.arrays[FLOAT32, operation.residual] if operation.residual else work.dummies[FLOAT32]
        self._device.launch(_norm_kernel(operation.kind, threads), norm.row_grid(len(x), threads), x, affine.weight,
                            affine.bias, np.float32(operation.eps), np.int32(self._layouts[operation.x].width),
                            residual, np.int32(adds), *work.outputs(operation.out, step.forms))

    def _linear(self, operation: Linear, step: Step, work: WorkspaceRows) -> None:
        """Queue the kernels of a linear map, and of a copy if its result is read in two forms."""
        name, residual = writes(operation)[0], operation.residual
        results = [work.arrays[form, name] for form in (FLOAT32, OPERAND) if form in step.forms]
        self._products.linear(work.arrays[OPERAND, operation.x], self._weights.linears[linear_key(operation)],
                              results[0], operation.activation, gate=operation.gate,
                              residual=None if residual is None else work.arrays[FLOAT32, residual])
        if results[0].dtype != results[-1].dtype:       # read in both forms, which are two arrays
            self._device.launch(_copy_kernel(True), copy.copy_grid(*results[1].shape), *results)

    def _heads(self, operation: Heads, work: WorkspaceRows) -> None:
        """Queue the kernel that norms and rotates queries and keys, in place."""
        x, rotary = work.arrays[OPERAND, operation.buffers[0]], operation.rotary
        layouts = [self._layouts[name] for name in operation.buffers]
        cos, sin = self._rotations[rotary] if rotary else [work.dummies[FLOAT32]] * 2
        kind = None if not operation.norms else "joint" if operation.joint else "each"
        query_heads = layouts[0].parts
        key_heads = (x.shape[1] // layouts[0].padded - query_heads) // 2        # x has as many heads of values
        self._device.launch(
            _heads_kernel(kind, self._bfloat16), (len(x), len(layouts)), x, np.int32(query_heads),
            np.int32(key_heads), np.int32(layouts[0].width), self._weights.head_norms[operation.norms],
            np.float32(operation.eps), cos, sin,
            np.int32(rotary.width // 2 if rotary else 0), np.int32(rotary.interleaved if rotary else 0),
            work.positions)

    def _attend(self, operation: Attend, shape: Shape, work: WorkspaceRows) -> None:
        """Queue the kernel of attention over the heads of a buffer [N, (H + 2 G) d]."""
        qkv, out = work.arrays[OPERAND, operation.q], work.arrays[OPERAND, operation.out]
        self._products.attention(qkv, out, self._layouts[operation.q].parts, self._scores(operation, work.terms),
                                 work.cu_seqlens, work.tiles, shape.tile_rows)

    def _store(self, operation: Store, shape: Shape, work: WorkspaceRows) -> None:
        """Copy the token vectors to the result if zeros follow each of them."""
        x, out = work.arrays[FLOAT32, operation.x], self._result[: shape.tokens]
        if x.shape != out.shape:
            self._device.launch(_copy_kernel(False), copy.copy_grid(*out.shape), x, out)
