"""Check attention of every kind, in the packed sequences of models and in arrays of callers."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from engine import ops
from engine.backends.batch import Batch
from engine.backends.numba_cuda.bucket import groups, largest_shape, stage
from engine.backends.numba_cuda.device import Device
from engine.backends.numba_cuda.kernels import attention, attention_hopper
from engine.backends.numba_cuda.ops import CudaOps
from engine.backends.numba_cuda.products import Float32Products, HopperProducts, Products, ScoreRule
from engine.backends.numba_cuda.shared_array import SharedArray
from engine.backends.numba_cuda.weights import DeviceBias, DeviceRelative
from engine.backends.ops_interface import UNBOUNDED, AttentionCall
from engine.weights.bfloat16 import to_bfloat16

from .check import BFLOAT16, FLOAT32, Check, download, widened
from .data import normal, packed

RADIUS, ROWS = 5, 8
"""The distances with a bias or a row of their own, and the rows of relative positions."""
CHANGED = 6e-3
"""The bound in bfloat16 for relative positions, whose terms are rounded, too."""


@dataclass(frozen=True)
class Kind:
    """What attention does to its scores."""

    window: tuple[int | None, int | None] = (None, None)
    fewer_keys: int = 0
    """Number of tokens at the end of each sequence that are no keys."""
    cap: float = 0.0
    biased: bool = False
    relative: bool = False


KINDS = {
    "causal": Kind((None, 0)), "window": Kind((5, 3)), "wide window": Kind((64, 64)),
    "fewer keys": Kind(fewer_keys=3), "cap": Kind(cap=1.5), "biases": Kind(biased=True),
    "cap, biases and a window": Kind((70, 0), cap=1.5, biased=True), "relative": Kind(relative=True)}


def attention_checks(make: Callable, bound: float, small: bool) -> Iterator[Check]:
    """Yield checks of every head width with both tiles, then of every kind of scores, and of the bits of each kind."""
    lengths = [1, 63, 64, 65, 127, 128, 129, 512, 1000]
    if small:       # a second tile of tensor cores, and a second one of float32
        lengths = [9, 1, 12] if make is Float32Products else [9, 1, 70]
    widths = attention_hopper.WIDTHS if make is HopperProducts else attention.WIDTHS
    for d in widths[1:2] if small else widths:
        for longest in (64,) if small else (64, 65):
            yield Check(f"attention d={d}, tiles for {longest} tokens", bound,
                        partial(run_attention, make, lengths, Kind(), d, longest))
    for name, kind in KINDS.items():
        if kind.relative and make is HopperProducts:
            continue        # which has no kernel for them
        for d in widths[:1] if small else widths:
            yield Check(f"attention d={d}, {name}", CHANGED if kind.relative and bound == BFLOAT16 else bound,
                        partial(run_attention, make, lengths, kind, d, max(lengths)))
        yield Check(f"bits of attention, {name}", 0.0, partial(run_company, make, lengths[-3:], kind, widths[0]))
    yield Check("bits of attention", 0.0, partial(run_company, make, lengths[-3:], Kind(), widths[0]))


def operand_checks(small: bool) -> Iterator[Check]:
    """Yield checks of `engine.ops.attention` on arrays that lie on the GPU."""
    T, S = (40, 70) if small else (1000, 1100)
    options: dict[str, dict[str, Any]] = {
        "full": {}, "causal": {"causal": True}, "window": {"window": (9, 4)}, "cap": {"softcap": 2.0}}
    for d in (64,) if small else (64, 128):
        for name, chosen in options.items():
            yield Check(f"ops.attention d={d} {name} bfloat16", BFLOAT16,
                        partial(run_call, "bfloat16", T, S, d, chosen))
    yield Check("ops.attention d=24 window float32", FLOAT32,
                partial(run_call, "float32", 9, 11, 24, options["window"]))


def run_attention(make: Callable, lengths: list[int], kind: Kind, d: int, longest: int,
                  device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run attention of all sequences of a batch, with tiles for sequences of up to `longest` tokens."""
    H, products = 4, make(device)
    G = H if kind.relative else 2
    qkv = operands(products, sum(lengths), (H + 2 * G) * d)
    change = Change(kind, products, H, d, len(qkv), device)
    out = attend(products, qkv, lengths, change, H, d, longest, device)
    exact = []
    for begin, end in pairwise(np.cumsum([0, *lengths])):
        q, k, v = (part.transpose(1, 0, 2)[None] for part in
                   np.split(widened(qkv[begin:end]).reshape(end - begin, -1, d), [H, H + G], axis=1))
        keys = max(1, end - begin - kind.fewer_keys)
        found = ops.attention(q, k, v, window=kind.window, kv_lengths=keys, softcap=kind.cap,
                              bias=change.bias(q[0], k[0]), backend="reference")
        exact.append(found[0].transpose(1, 0, 2).reshape(end - begin, H * d))
    return out, np.concatenate(exact)


def run_company(make: Callable, lengths: list[int], kind: Kind, d: int,
                device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run sequences together and each alone, with tiles of its own length; the bits are the same."""
    H, products = 2, make(device)
    G = H if kind.relative else 1
    qkv = operands(products, sum(lengths), (H + 2 * G) * d)
    change = Change(kind, products, H, d, len(qkv), device)
    together = attend(products, qkv, lengths, change, H, d, max(lengths), device)
    alone = [attend(products, qkv[begin:end], [end - begin], change, H, d, end - begin, device)
             for begin, end in pairwise(np.cumsum([0, *lengths]))]
    return together, np.concatenate(alone)


def operands(products: Products, N: int, columns: int) -> np.ndarray:
    """Return queries, keys and values."""
    qkv = normal(4, N, columns)
    return to_bfloat16(qkv) if products.dtype == np.uint16 else qkv


def attend(products: Products, qkv: np.ndarray, lengths: list[int], change: "Change", H: int, d: int, longest: int,
           device: Device) -> np.ndarray:
    """Return what the device computes for packed sequences, [N, H d] in float32."""
    batch = packed(lengths)
    if change.kind.fewer_keys:
        keys = np.maximum(np.array(lengths) - change.kind.fewer_keys, 1).astype(np.int32)
        batch = replace(batch, keys=keys)
    rule = change.rule
    shape, cu_seqlens, tiles = staged(batch, products.tile_rows(longest, d, rule.kind), device)
    padded = np.zeros((shape.tokens, qkv.shape[1]), qkv.dtype)
    padded[: len(qkv)] = qkv
    out = device.allocate((shape.tokens, H * d), products.dtype)
    if rule.relative is not None:
        rule = replace(rule, terms=device.allocate((shape.tokens, 2 * H * ROWS), products.dtype))
    products.attention(device.upload(padded), out, H, rule, cu_seqlens, tiles, shape.tile_rows)
    return download(device, out)[: batch.tokens]


def staged(batch: Batch, rows: int, device: Device) -> tuple[Any, Any, Any]:
    """Return the shape of a batch, and the starts of its sequences and the work list of attention on the device."""
    group, = groups(batch, batch.tokens)
    staging = np.zeros(largest_shape(batch.tokens).size, np.int32)
    shape = stage(batch, group, rows, staging)
    *_, cu_seqlens, tiles = shape.views(device.upload(staging))
    return shape, cu_seqlens, tiles


class Change:
    """What changes the scores of H heads: on the device, and as a bias in float64."""

    def __init__(self, kind: Kind, products: Products, H: int, d: int, N: int, device: Device):
        self.kind, self.scale = kind, 1 / math.sqrt(d)
        line, slopes = normal(30, H, 2 * RADIUS + 1), normal(31, H) / 50
        table = normal(32, 2 * H * ROWS, d) / np.float32(math.sqrt(d))
        table = to_bfloat16(table) if products.dtype == np.uint16 else table
        numbers = np.random.default_rng(33).integers(0, ROWS, 2 * RADIUS + 1, np.int32)
        self._line, self._slopes, self._table, self._numbers = line, slopes, widened(table), numbers
        over = [device.upload((x / self.scale).astype(np.float32)) for x in (line, slopes)]
        relative = DeviceRelative(device.upload(table), device.upload(np.zeros(len(table), np.float32)),
                                  device.upload(numbers))
        self.rule = ScoreRule(self.scale, kind.window, kind.cap, DeviceBias(*over) if kind.biased else None,
                              relative if kind.relative else None)

    def bias(self, q: np.ndarray, k: np.ndarray) -> np.ndarray | None:
        """Return what is added to the scaled scores of queries [H,T,d] and keys [G,S,d], [H,T,S]."""
        distance = np.subtract.outer(np.arange(q.shape[1]), np.arange(k.shape[1]))
        near = np.clip(distance, -RADIUS, RADIUS) + RADIUS
        if self.kind.biased:
            return self._line[:, near].astype(np.float64) + self._slopes[:, None, None] * np.abs(distance)
        if not self.kind.relative:
            return None
        H, rows = len(q), self._numbers[near]
        of_queries, of_keys = self._table.reshape(2, H, ROWS, -1)
        by_query = np.einsum("htd,hrd->htr", q, of_queries)
        by_key = np.einsum("hsd,hrd->hsr", np.repeat(k, H // len(k), axis=0), of_keys)
        terms = (by_query[:, np.arange(q.shape[1])[:, None], rows] + by_key[:, np.arange(k.shape[1]), rows])
        return self.scale * terms


def call_of(q: Any, k: Any, v: Any, *, causal: bool = False, window: tuple[int | None, int | None] = (None, None),
            softcap: float = 0.0) -> AttentionCall:
    """Return the call that `engine.ops.attention` makes of arrays [B,H,T,d], [B,G,S,d] and [B,G,S,e]."""
    (B, _, _, d), S = q.shape, k.shape[2]
    left, right = (None, 0) if causal else window
    return AttentionCall(q, k, v, scale=1 / math.sqrt(d), softcap=softcap,
                         low=np.full(B, -UNBOUNDED if left is None else -left, np.int64),
                         high=np.full(B, UNBOUNDED if right is None else right + 1, np.int64),
                         lengths=np.full(B, S, np.int64))


def run_call(dtype: str, T: int, S: int, d: int, options: dict[str, Any],
             device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run `engine.ops.attention` as it is called for arrays on the GPU, with fewer heads of keys."""
    B, H, G = 2, 4, 2
    arrays = [normal(40 + i, B, heads, rows, d) for i, (heads, rows) in enumerate(((H, T), (G, S), (G, S)))]
    stored = [to_bfloat16(array) if dtype == "bfloat16" else array for array in arrays]
    shared = [SharedArray(device, device.upload(x.reshape(-1)), x.shape, dtype) for x in stored]
    out = CudaOps(device).attention(call_of(*shared, **options))
    exact = ops.attention(*map(widened, stored), backend="reference", **options)
    return out.numpy().reshape(-1, d), exact.reshape(-1, d)
