"""A model on a GPU: weights uploaded once, and a forward pass over packed tokens that is recorded once for each shape.

The residual stream, norms and softmax are float32; operands of products are in the plan's precision, and norms
write them beside the float32 rows. For each group of sequences, its integers pass through pinned memory, the
pass of its shape is replayed, and the token vectors come back through pinned memory. There are two such slots, so that
one group is written down, or its result taken, while the other is under way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np

from ...batch import Batch
from ...config import ModelConfig, RunConfig
from ...errors import InputError
from .bucket import Group, Shape, groups, stage
from .device import Device
from .kernels import embedding, norm, pooling
from .products import Products, choose_products
from .weights import Norm, upload_weights
from .workspace import Rows, Slot, Workspace

RECORDINGS = 128
"""Most passes that a plan keeps; beyond, the one that was not used for longest goes."""

_embedding_kernel, _norm_kernel, _pooling_kernel = (
    cache(make) for make in (embedding.embedding_kernel, norm.layer_norm_kernel, pooling.pooling_kernel))


class CudaPlan:
    """See `engine.backends.PoolingPlan`. It may be called from any thread; the plans of one device take turns."""

    def __init__(self, device: Device, config: ModelConfig, weights: Mapping[str, np.ndarray], run: RunConfig,
                 choose: Callable[[Device, ModelConfig, str], Products] = choose_products):
        self._device, self._config, self._max_tokens = device, config, run.max_tokens
        with device.turn:
            device.activate()
            self._products: Products = choose(device, config, run.precision)
            self._bfloat16 = run.precision == "bfloat16"
            self._weights = upload_weights(device, config, weights, self._products.convert)
            self._workspace = Workspace(device, config, run.max_tokens, self._products.dtype)
            self._slots = [Slot(device, config, run.max_tokens) for _ in range(2)]
        self._recordings: OrderedDict[Shape, Callable[[], None]] = OrderedDict()

    def forward(self, batch: Batch) -> np.ndarray:
        """Token vectors, float32 [N, D]; raises `InputError` for a sequence longer than `max_tokens`."""
        out = np.empty((batch.tokens, self._config.hidden_size), np.float32)
        with self._device.turn:
            for slot, group, _ in self._passes(batch):
                slot.fetch(self._workspace.x32, out[group.tokens])
            for slot in self._slots:
                slot.finish()
        return out

    def forward_on_device(self, batch: Batch) -> Any:
        """As `forward`, with the vectors left on the device: a `device.SharedArray`."""
        with self._device.turn:
            self._device.activate()
            out = self._device.allocate((batch.tokens, self._config.hidden_size), np.float32)
            for _, group, _ in self._passes(batch):
                self._device.copy(out[group.tokens], self._workspace.x32[: group.count])
            self._device.mark()()
        return self._device.share(out)

    def pool(self, batch: Batch, modes: Sequence[str], skip: int = 0) -> np.ndarray:
        """One vector for each sequence, float32 [B, len(modes)*D], as `engine.backends.PoolingPlan` says.

        Every mode runs on the device; only the results are copied from it. Raises `InputError` as `forward` does, and
        for an unknown mode.
        """
        for mode in modes:
            if mode not in pooling.MODES:
                raise InputError(f"modes must be some of {', '.join(pooling.MODES)}, not {mode!r}")
        D, lengths = self._config.hidden_size, np.diff(batch.cu_seqlens)
        out = np.zeros((batch.sequences, len(modes), D), np.float32)
        with self._device.turn:
            for _, group, shape in self._passes(batch):
                members = group.first + np.flatnonzero(lengths[group.first : group.last])
                pooled = self._device.allocate((len(modes), len(members), D), np.float32)
                starts, grid = self._workspace.cu_seqlens(shape), pooling.pooling_grid(len(members), D)
                for m, mode in enumerate(modes):
                    self._device.launch(_pooling_kernel(mode), grid, self._workspace.x32,
                                        starts[: len(members) + 1], np.int32(skip), pooled[m])
                host = np.empty(pooled.shape, np.float32)
                self._device.copy(host, pooled)
                self._device.mark()()
                out[members] = host.swapaxes(0, 1)
        return out.reshape(batch.sequences, len(modes) * D)

    def _passes(self, batch: Batch) -> Iterator[tuple[Slot, Group, Shape]]:
        """Queue each group's pass; its result is in the workspace until the next one is asked for."""
        self._device.activate()
        for slot, group in zip(cycle(self._slots), groups(batch, self._max_tokens)):
            slot.finish()
            shape = stage(batch, group, self._products.tile_rows(group.longest), slot.integers)
            self._workspace.take(shape, slot.integers)
            if batch.inputs_embeds is not None:
                self._device.copy(self._workspace.embeds[: group.count], batch.inputs_embeds[group.tokens])
            self._run(shape)
            slot.queued()
            yield slot, group, shape

    def _run(self, shape: Shape) -> None:
        """Queue a pass, recording it when its shape is new."""
        if shape in self._recordings:
            self._recordings.move_to_end(shape)
            self._recordings[shape]()
            return
        self._recordings[shape] = self._device.record(lambda: self._launch(shape))
        if len(self._recordings) > RECORDINGS:
            self._recordings.popitem(last=False)

    def _launch(self, shape: Shape) -> None:
        """All launches of a pass, from token ids in the workspace to vectors in its `x32`.

        A post-norm layer: norm(x + attention(x)), then norm(x + ffn(x)). Vaswani et al. (2017), section 3.1.
        """
        products, activation = self._products, self._config.activation
        work = self._workspace.rows(shape)
        self._embed(shape, work)
        for layer in self._weights.layers:
            products.linear(work.x, layer.qkv, work.qkv)
            products.attention(work.qkv, work.heads, work.cu_seqlens, work.tiles, shape.tile_rows)
            products.linear(work.heads, layer.output, work.sum, residual=work.x32)
            self._norm(work, layer.attention_norm)
            products.linear(work.x, layer.up, work.up, activation=activation)
            products.linear(work.up, layer.down, work.sum, residual=work.x32)
            self._norm(work, layer.ffn_norm)

    def _embed(self, shape: Shape, work: Rows) -> None:
        config, tables = self._config, self._weights.embeddings
        kernel = _embedding_kernel(
            config.hidden_size, words=not shape.embeds, positions=config.max_positions > 0,
            token_types=config.token_types > 0, norm=config.embedding_norm, bfloat16=self._bfloat16)
        word = work.embeds if shape.embeds else tables.word
        self._device.launch(kernel, embedding.embedding_grid(shape.tokens), work.ids, work.positions, work.types, word,
                            tables.position, tables.token_type, tables.norm.weight, tables.norm.bias,
                            np.float32(config.norm_eps), work.x32, work.x16)

    def _norm(self, work: Rows, norms: Norm) -> None:
        kernel = _norm_kernel(self._config.hidden_size, bfloat16=self._bfloat16)
        self._device.launch(kernel, norm.norm_grid(len(work.sum)), work.sum, norms.weight, norms.bias,
                            np.float32(self._config.norm_eps), work.x32, work.x16)
