"""Prepare the engine's contenders: single kernels as the plan launches them, and the whole plan."""

import math
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from engine.backends.numba_cuda import stored
from engine.backends.numba_cuda.device import Device
from engine.backends.numba_cuda.kernels import attention_hopper, embedding, heads, linear, linear_hopper, norm
from engine.backends.numba_cuda.ops import CudaOps
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.numba_cuda.products import (
    BFloat16Products,
    HopperProducts,
    Products,
    ScoreRule,
    choose_products,
)
from engine.backends.numba_cuda.shared_array import SharedArray
from engine.backends.numba_cuda.weights import DeviceAffine
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import to_bfloat16

from .attention_checks import call_of, staged
from .cases import MODELS, Attention, Call, Encoder, Linear, Rows, Window
from .data import model_weights, normal, packed
from .timing import take_turns, timed

REPEATS = 10
"""Launches per recording, so that the host's share of the time is small."""

Contenders = dict[str, Callable[[int], float]]

COPIED = 1 << 30
"""Bytes of the copy that shows the bandwidth of the memory."""


def start(device: Any) -> dict[str, Any]:
    """Load the stored kernels of this GPU, and copy memory: returns how long that took, and the bandwidth."""
    before = time.perf_counter()
    loaded = 0
    for kernel in stored.catalogue():
        if kernel.arch[:2] <= device.capability and (len(kernel.arch) == 2 or kernel.arch[:2] == device.capability):
            device.load(kernel)
            loaded += 1
    seconds = time.perf_counter() - before
    source, target = (device.allocate((COPIED,), np.uint8) for _ in range(2))
    copied = _recorded(device, partial(device.copy, target, source))
    best = take_turns({"copy": copied})["copy"]
    return {"kernels": loaded, "seconds to load them": round(seconds, 2),
            "copy GB/s": round(2 * COPIED / best["minimum"] / 1e9)}


def attention(device: Device, wgmma: bool, case: Attention) -> Contenders:
    """Return attention of packed sequences of one length, with each kernel."""
    ways: dict[str, Products] = {"engine mma": BFloat16Products(device)}
    if wgmma and case.d in attention_hopper.WIDTHS:
        ways["engine wgmma"] = HopperProducts(device)
    rule = ScoreRule(1 / math.sqrt(case.d))
    return {name: _attention(device, case, products, rule) for name, products in ways.items()}


def _attention(device: Device, case: Attention, products: Products, rule: ScoreRule) -> Callable[[int], float]:
    shape, cu_seqlens, tiles = staged(packed([case.T] * case.B), products.tile_rows(case.T, case.d), device)
    qkv = device.upload(to_bfloat16(normal(0, shape.tokens, 3 * case.width)))
    out = device.allocate((shape.tokens, case.width), np.uint16)
    return _recorded(device, partial(products.attention, qkv, out, case.H, rule, cu_seqlens, tiles, shape.tile_rows))


def window(device: Device, wgmma: bool, case: Window) -> Contenders:
    """Return attention of packed sequences, with all keys and with a window."""
    products = choose(device, wgmma)
    rules = {"engine all keys": ScoreRule(1 / math.sqrt(case.d)),
             "engine window": ScoreRule(1 / math.sqrt(case.d), (case.side, case.side))}
    return {name: _attention(device, case, products, rule) for name, rule in rules.items()}


def call(device: Device, case: Call) -> Contenders:
    """Return what `engine.ops.attention` runs for arrays on the GPU, a launch at a time as its callers do."""
    operations, stored = CudaOps(device), to_bfloat16(normal(0, case.tokens * case.width))
    shape = case.B, case.H, case.T, case.d
    arrays: list[Any] = [SharedArray(device, device.upload(stored), shape, "bfloat16") for _ in range(3)]
    made = call_of(*arrays, causal=case.causal)
    return {"engine": timed(lambda: operations.attention(made), device.wait)}


def rows(device: Device, case: Rows) -> Contenders:
    """Return a kernel that works row by row, and a copy that reads and writes as many bytes."""
    source, target = (device.allocate((case.bytes // 2,), np.uint8) for _ in range(2))
    make = {"norm": _norm, "embedding": _embedding, "heads": _heads}[case.kind]
    return {"engine": _recorded(device, make(device, case)),
            "copy": _recorded(device, partial(device.copy, target, source))}


def _norm(device: Device, case: Rows) -> Callable[[], None]:
    x, affine, dummy, outs = _row_arrays(device, case)
    threads = norm.row_threads(case.D)
    return partial(device.launch, norm.norm_kernel("layer", threads), norm.row_grid(case.N, threads), x, *affine,
                   np.float32(1e-12), np.int32(case.D), dummy, np.int32(0), *outs)


def _embedding(device: Device, case: Rows) -> Callable[[], None]:
    table, affine, dummy, outs = _row_arrays(device, case)
    threads = norm.row_threads(case.D)
    ids = device.upload(np.random.default_rng(1).permutation(case.N).astype(np.int32))
    return partial(device.launch, embedding.embedding_kernel("layer", threads), norm.row_grid(case.N, threads), ids,
                   ids, ids, table, dummy, dummy, np.float32(1), np.int32(embedding.WORDS), *affine, np.float32(1e-12),
                   np.int32(case.D), *outs)


def _heads(device: Device, case: Rows) -> Callable[[], None]:
    d, H = 64, case.D // 64
    array = device.upload(to_bfloat16(normal(1, case.N, 3 * case.D)))
    tables = [device.upload(normal(2 + i, 512, d // 2)) for i in range(2)]
    positions = device.upload(np.arange(case.N, dtype=np.int32) % 512)
    return partial(device.launch, heads.heads_kernel(None, True), (case.N, 2), array, np.int32(H), np.int32(H),
                   np.int32(d), device.allocate((1, 1), np.float32), np.float32(0), *tables, np.int32(d // 2),
                   np.int32(0), positions)


def _row_arrays(device: Device, case: Rows) -> tuple[Any, list[Any], Any, list[Any]]:
    """Return rows, a weight and a bias, a dummy, and the arguments of a kernel from `outputs` on."""
    outs = [device.allocate((case.N, case.D), dtype) for dtype in (np.float32, np.uint16)]
    return (device.upload(normal(1, case.N, case.D)), [device.upload(normal(2 + i, case.D)) for i in range(2)],
            device.allocate((1, case.D), np.float32), [np.int32(norm.TO_FLOAT32 + norm.TO_BFLOAT16), *outs])


def linear_maps(device: Device, wgmma: bool, case: Linear) -> Contenders:
    """Return linear maps with each kernel and tile."""
    ways: dict[str, Products] = {f"mma {tile.rows}x{tile.columns}": BFloat16Products(device, tile)
                                 for tile in (linear.LARGE, linear.SMALL)}
    if wgmma:
        ways |= {f"wgmma {tile.rows}x{tile.columns}": HopperProducts(device, tile)
                 for tile in (linear_hopper.LARGE, linear_hopper.ALTERNATE, linear_hopper.SMALL)}
    x = device.upload(to_bfloat16(normal(1, case.N, case.K)))
    w, bias = normal(2, case.M, case.K), device.upload(normal(3, case.M))
    residual = device.allocate((case.N, case.M), np.float32) if case.epilogue == "residual" else None
    out = device.allocate((case.N, case.M), np.uint16 if residual is None else np.float32)
    activation = "gelu" if case.epilogue == "gelu" else None
    found = {}
    for name, products in ways.items():
        weights = DeviceAffine(device.upload(products.convert(w)), bias)
        found[f"engine {name}"] = _recorded(device, partial(products.linear, x, weights, out, activation, residual))
    return found


def encoder(device: Device, wgmma: bool, case: Encoder) -> Contenders:
    """Return the forward pass from token ids on the host to complete token vectors on the device."""
    plan = make_plan(device, wgmma, case.model)
    batch = packed(case.lengths, MODELS[case.model])
    return {"engine": timed(lambda: plan.forward_on_device(batch), device.wait)}


@cache
def make_plan(device: Device, wgmma: bool, model: str) -> CudaPlan:
    """Return a model ready to run, created once for all its cases."""
    config = MODELS[model]
    run = RunConfig(1, "bfloat16", max_tokens=65_536)
    return CudaPlan(device, config, model_weights(config), run,
                    choose_products if wgmma else lambda device, program, precision: BFloat16Products(device))


def choose(device: Device, wgmma: bool) -> Products:
    """Return the fastest kernels in bfloat16."""
    return HopperProducts(device) if wgmma else BFloat16Products(device)


def _recorded(device: Device, work: Callable[[], None]) -> Callable[[int], float]:
    """Record `REPEATS` launches at once, and return a contender that replays them and scales the time.

    The contender holds `work`, and with it the arrays, because a recording holds only their addresses.
    """

    def several() -> None:
        for _ in range(REPEATS):
            work()

    replay = device.record(several)
    run = timed(replay, device.wait)

    def contender(calls: int, held: Callable[[], None] = work) -> float:
        recordings = -(-calls // REPEATS)
        return run(recordings) * calls / (recordings * REPEATS)

    return contender
