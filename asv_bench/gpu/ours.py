"""Prepare the engine's contenders: single kernels as the plan launches them, and the whole plan."""

import math
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from engine.backends.numba_cuda import stored
from engine.backends.numba_cuda.bucket import groups, largest_shape, stage
from engine.backends.numba_cuda.device import Device, upload
from engine.backends.numba_cuda.kernels import attention_hopper, linear, linear_hopper
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.numba_cuda.products import BFloat16Products, HopperProducts, Products, ScoreRule, choose_products
from engine.backends.numba_cuda.weights import DeviceAffine
from engine.model.run_config import RunConfig
from engine.programs.program import Program
from engine.weights.bfloat16 import to_bfloat16

from .cases import MODELS, Attention, Encoder, Linear
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
    batch = packed([case.T] * case.B)
    group, = groups(batch, batch.tokens)
    staging = np.zeros(largest_shape(batch.tokens).size, np.int32)
    shape = stage(batch, group, ways["engine mma"].tile_rows(case.T, case.d), staging)
    _, _, _, cu_seqlens, tiles = shape.views(upload(device, staging))
    qkv = upload(device, to_bfloat16(normal(0, shape.tokens, 3 * case.width)))
    out = device.allocate((shape.tokens, case.width), np.uint16)
    arguments = qkv, out, case.H, ScoreRule(1 / math.sqrt(case.d)), cu_seqlens, tiles, shape.tile_rows
    return {name: _recorded(device, partial(products.attention, *arguments)) for name, products in ways.items()}


def linear_maps(device: Device, wgmma: bool, case: Linear) -> Contenders:
    """Return linear maps with each kernel and tile."""
    ways: dict[str, Products] = {f"mma {tile.rows}x{tile.columns}": BFloat16Products(device, tile)
                                 for tile in (linear.LARGE, linear.SMALL)}
    if wgmma:
        ways |= {f"wgmma {tile.rows}x{tile.columns}": HopperProducts(device, tile)
                 for tile in (linear_hopper.LARGE, linear_hopper.ALTERNATE, linear_hopper.SMALL)}
    x = upload(device, to_bfloat16(normal(1, case.N, case.K)))
    w, bias = normal(2, case.M, case.K), upload(device, normal(3, case.M))
    residual = device.allocate((case.N, case.M), np.float32) if case.epilogue == "residual" else None
    out = device.allocate((case.N, case.M), np.uint16 if residual is None else np.float32)
    activation = "gelu" if case.epilogue == "gelu" else None
    found = {}
    for name, products in ways.items():
        weights = DeviceAffine(upload(device, products.convert(w)), bias)
        found[f"engine {name}"] = _recorded(device, partial(products.linear, x, weights, out, activation, residual))
    return found


def encoder(device: Device, wgmma: bool, case: Encoder) -> Contenders:
    """Return the forward pass from token ids on the host to complete token vectors on the device."""
    plan = make_plan(device, wgmma, case.model)
    batch = packed([case.T] * case.B, MODELS[case.model])
    return {"engine": timed(lambda: plan.forward_on_device(batch), lambda: device.mark()())}


@cache
def make_plan(device: Device, wgmma: bool, model: str) -> CudaPlan:
    """Return a model ready to run, created once for all its cases."""
    config = MODELS[model]
    run = RunConfig(1, "bfloat16", max_tokens=65_536)
    return CudaPlan(device, config, model_weights(config), run, choose_products if wgmma else _without_wgmma)


def _without_wgmma(device: Device, program: Program, precision: str) -> Products:
    return BFloat16Products(device)


def _recorded(device: Device, work: Callable[[], None]) -> Callable[[int], float]:
    """Record `REPEATS` launches at once, and return a contender that replays them and scales the time.

    The contender holds `work`, and with it the arrays, because a recording holds only their addresses.
    """

    def several() -> None:
        for _ in range(REPEATS):
            work()

    replay = device.record(several)
    run = timed(replay, lambda: device.mark()())

    def contender(calls: int, held: Callable[[], None] = work) -> float:
        recordings = -(-calls // REPEATS)
        return run(recordings) * calls / (recordings * REPEATS)

    return contender
