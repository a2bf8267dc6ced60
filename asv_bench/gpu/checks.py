"""Check every kernel, and whole models, against NumPy in float64, launched as the plan launches them.

    python -m asv_bench.gpu.checks GROUP [--small]      on a GPU: prints its rows as JSON
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from engine.backends.numba_cuda.device import Device
from engine.backends.numba_cuda.kernels import embedding, heads, linear, linear_few, linear_hopper, norm, pooling
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.numba_cuda.products import (
    BFloat16Products,
    Float32Products,
    HopperProducts,
    choose_products,
)
from engine.backends.numba_cuda.ptx.epilogue import interleave
from engine.backends.numba_cuda.support import LARGEST_ROW
from engine.backends.numba_cuda.weights import DeviceAffine
from engine.backends.reference import ReferenceBackend
from engine.backends.reference import formulas as ops
from engine.encoding.pooling import pool
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from .attention_checks import attention_checks, operand_checks
from .check import BFLOAT16, FLOAT32, MODEL, Check, download, widened
from .data import model_weights, normal, packed
from .family_checks import family_checks

EPILOGUES = ("bias", "gelu", "gelu_tanh", "relu", "silu", "residual", "gate")


def linear_checks(ways: list[Callable], bound: float, small: bool) -> Iterator[Check]:
    """Yield checks of every epilogue with the first kind of products, and of two epilogues with the others."""
    N, M, K = (21, 48, 40) if small else (3001, 1000, 776)
    for i, make in enumerate(ways):
        tile = make.keywords.get("tile") if isinstance(make, partial) else None
        name = f"linear {tile.rows}x{tile.columns}" if tile else "linear"
        for epilogue in EPILOGUES if i == 0 and not small else ("gelu", "residual", "gate"):
            yield Check(f"{name} {epilogue}", bound, partial(run_linear, make, N, M, K, epilogue))


def bit_checks(ways: list[Callable], small: bool) -> Iterator[Check]:
    """Yield checks of every tile, also with the operands exchanged: the sums have the bits of the emulator's."""
    N, M, K = (24, 48, 40) if small else (520, 1000, 776)
    for make in ways:
        tile = make.keywords["tile"]
        name = f"{tile.rows}x{tile.columns}{' alternate' * getattr(tile, 'alternate', False)}"
        for exchanged in (False, True):
            for epilogue in ("bias", "residual"):
                yield Check(f"bits of linear {name} {epilogue}{' exchanged' * exchanged}", 0.0,
                            partial(run_bits, make, N, M, K, epilogue, exchanged))


def few_checks(small: bool) -> Iterator[Check]:
    """Yield checks of the maps of few rows, for weights as both kinds of products lay them out."""
    M, K = (48, 72) if small else (1000, 776)
    for N in (5, 20) if small else (1, 16, 17, 64, linear_few.MOST_ROWS):
        for name, make in (("", BFloat16Products), (" laid out", HopperProducts)):
            yield Check(f"bits of linear, {N} rows{name}", 0.0, partial(run_bits, make, N, M, K, "residual", False))
        yield Check(f"linear, {N} rows gate", BFLOAT16, partial(run_linear, BFloat16Products, N, M, K, "gate"))


def row_checks(small: bool) -> Iterator[Check]:
    """Yield checks of the kernels that work row by row."""
    N, D = (21, 40) if small else (3001, 776)
    for kind in ("layer", "rms"):
        yield Check(f"{kind}_norm", FLOAT32, partial(run_norm, kind, N, D))
        if not small:
            yield Check(f"{kind}_norm of wide rows", FLOAT32, partial(run_norm, kind, 300, LARGEST_ROW))
    yield Check("embedding", FLOAT32, partial(run_embedding, N, D))
    for norm_kind in heads.NORMS:
        yield Check(f"heads, {norm_kind or 'no'} norm", BFLOAT16, partial(run_heads, norm_kind, N))
    for mode in pooling.MODES:
        yield Check(f"pooling {mode}", FLOAT32, partial(run_pooling, mode, [9, 1, 11], D))


def model_checks(small: bool) -> Iterator[Check]:
    """Yield checks of whole models."""
    lengths = [3, 1] if small else [1, 63, 64, 65, 127, 128, 129, 512, 1000]
    for precision, bound in (("bfloat16", MODEL), ("float32", FLOAT32)):
        yield Check(f"model {precision}", bound, partial(run_model, precision, lengths, small))


_MMA = [partial(BFloat16Products, tile=tile) for tile in (linear.LARGE, linear.SMALL)]
_WGMMA = [partial(HopperProducts, tile=tile)
          for tile in (linear_hopper.LARGE, linear_hopper.ALTERNATE, linear_hopper.SMALL)]

GROUPS: dict[str, Callable[[bool], Iterator[Check]]] = {
    "mma bits": partial(bit_checks, _MMA),
    "wgmma bits": partial(bit_checks, _WGMMA),
    "few rows": few_checks,
    "mma linear": partial(linear_checks, _MMA, BFLOAT16),
    "mma attention": partial(attention_checks, BFloat16Products, BFLOAT16),
    "float32 linear": partial(linear_checks, [Float32Products], FLOAT32),
    "float32 attention": partial(attention_checks, Float32Products, FLOAT32),
    "rows": row_checks,
    "model": model_checks,
    "wgmma linear": partial(linear_checks, _WGMMA, BFLOAT16),
    "wgmma attention": partial(attention_checks, HopperProducts, BFLOAT16),
    "operations": operand_checks,
    "families": partial(family_checks, False),
    "other encoders of the families": partial(family_checks, True),
}
"""The checks of each group, the most decisive first; called with True they are tiny, for the sanitizer and the
emulator."""

KERNELS = {"mma bits": ["linear"], "wgmma bits": ["linear_hopper"], "few rows": ["linear_few"],
           "mma linear": ["linear"], "mma attention": ["attention", "linear"], "float32 linear": ["float32"],
           "float32 attention": ["float32"],
           "rows": ["copy", "embedding", "heads", "norm", "pooling"], "wgmma linear": ["linear_hopper"],
           "wgmma attention": ["attention_hopper", "attention"]}
"""The modules of kernels that each group runs, on which its results depend; a group that is not here runs all."""

ONLY_HOPPER = ("wgmma bits", "wgmma linear", "wgmma attention")
"""Groups that run on compute capability 9.0 only."""


def run_linear(make: Callable, N: int, M: int, K: int, epilogue: str, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run one linear map."""
    products = make(device)
    half = products.dtype == np.uint16
    x, weight = ((to_bfloat16(a) if half else a) for a in operands(N, M, K))
    bias, residual = normal(2, M), normal(3, N, M)
    exact = widened(x) @ widened(weight).T + bias
    if epilogue == "gate":
        up = normal(19, M, K) / np.float32(K**0.5)
        up = from_bfloat16(to_bfloat16(up)) if half else up
        pair, zeros = interleave(from_bfloat16(weight) if half else weight, up), np.zeros(M, np.float32)
        weights = DeviceAffine(device.upload(products.convert(pair)), device.upload(interleave(bias, zeros)))
        out = device.allocate((N, M), products.dtype)
        products.linear(device.upload(x), weights, out, activation="silu", gate=True)
        return download(device, out), ops.ACTIVATIONS["silu"](exact) * (widened(x) @ up.T.astype(np.float64))
    out = linear_out(products, x, weight, bias, residual, epilogue, device)
    if epilogue == "residual":
        return out, exact + residual
    return out, exact if epilogue == "bias" else ops.ACTIVATIONS[epilogue](exact)


def operands(N: int, M: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x [N, K] and weights [M, K], of which a result has about the size of 1."""
    return normal(0, N, K), normal(1, M, K) / np.float32(K**0.5)


def linear_out(products: Any, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, residual: np.ndarray, epilogue: str,
               device: Device) -> np.ndarray:
    """Return what the device computes for operands of its products."""
    plain = from_bfloat16(weight) if weight.dtype == np.uint16 else weight
    weights = DeviceAffine(device.upload(products.convert(plain)), device.upload(bias))
    out = device.allocate(residual.shape, np.float32 if epilogue == "residual" else products.dtype)
    if epilogue == "residual":
        products.linear(device.upload(x), weights, out, residual=device.upload(residual))
    else:
        products.linear(device.upload(x), weights, out, activation=None if epilogue == "bias" else epilogue)
    return download(device, out)


def run_bits(make: Callable, N: int, M: int, K: int, epilogue: str, exchanged: bool,
             device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run one linear map, and add as the emulator says that tensor cores add; exchanged: x and the weights."""
    x, weight = (to_bfloat16(operand) for operand in operands(N, M, K))
    sums = emulated_sums(N, M, K)
    if exchanged:
        x, weight, sums = weight, x, sums.T
    bias, residual = normal(2, sums.shape[1]), normal(3, *sums.shape)
    out = linear_out(make(device), x, weight, bias, residual, epilogue, device)
    exact = sums + bias
    return out, exact + residual if epilogue == "residual" else from_bfloat16(to_bfloat16(exact))


@cache
def emulated_sums(N: int, M: int, K: int) -> np.ndarray:
    """Return the products of `operands` as tensor cores add them, float32 [N, M]."""
    from engine.backends.numba_cuda.ptx.tensor_cores import add_products

    sums = np.zeros((N, M), np.float32)
    add_products(*(from_bfloat16(to_bfloat16(operand)) for operand in operands(N, M, K)), sums)
    return sums


def run_norm(kind: str, N: int, D: int, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Normalise rows with a large mean and add a residual; compare the bfloat16 copy with the float32 result."""
    x, weight, bias, residual = normal(6, N, D) * 3 + 2, normal(7, D), normal(8, D), normal(18, N, D)
    out, half = device.allocate((N, D), np.float32), device.allocate((N, D), np.uint16)
    threads = norm.row_threads(D)
    device.launch(norm.norm_kernel(kind, threads), norm.row_grid(N, threads),
                  *(device.upload(a) for a in (x, weight, bias)), np.float32(1e-12), np.int32(D),
                  device.upload(residual), np.int32(1), np.int32(norm.TO_FLOAT32 + norm.TO_BFLOAT16), out, half)
    result = download(device, out)
    if not np.array_equal(download(device, half), from_bfloat16(to_bfloat16(result))):
        result[:] = np.nan
    wide = [a.astype(np.float64) for a in (x, weight, bias)]
    normed = ops.layer_norm(*wide, 1e-12) if kind == "layer" else ops.rms_norm(*wide[:2], 1e-12) + wide[2]
    return result, normed + residual


def run_embedding(N: int, D: int, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Add rows of three tables, of which the words are scaled, and normalise them."""
    rng = np.random.default_rng(9)
    tables = [normal(10 + i, rows, D) for i, rows in enumerate((100, 50, 2))]
    ids = [rng.integers(0, len(table), N, np.int32) for table in tables]
    weight, bias = normal(13, D), normal(14, D)
    out, half = device.allocate((N, D), np.float32), device.allocate((N, D), np.uint16)
    threads = norm.row_threads(D)
    parts = embedding.WORDS + embedding.POSITIONS + embedding.TOKEN_TYPES
    device.launch(embedding.embedding_kernel("layer", threads), norm.row_grid(N, threads),
                  *(device.upload(a) for a in (*ids, *tables)), np.float32(3), np.int32(parts),
                  device.upload(weight), device.upload(bias), np.float32(1e-12), np.int32(D),
                  np.int32(norm.TO_FLOAT32 + norm.TO_BFLOAT16), out, half)
    rows = sum(factor * table[i].astype(np.float64) for factor, table, i in zip((3, 1, 1), tables, ids, strict=True))
    return download(device, out), ops.layer_norm(rows, weight, bias, 1e-12)


def run_heads(norm_kind: str | None, N: int, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Norm and rotate the heads of queries and keys, in 40 of their 64 columns; values stay."""
    H, G, d, half = 3, 2, 64, 20
    x = normal(20, N, (H + 2 * G) * d)
    rng = np.random.default_rng(21)
    angles, positions = rng.standard_normal((50, half)), rng.integers(0, 50, N, np.int32)
    weights = normal(22, 2, H * d if norm_kind == "joint" else d)
    array = device.upload(to_bfloat16(x))
    device.launch(heads.heads_kernel(norm_kind, True), (N, 2), array, np.int32(H), np.int32(G), np.int32(d),
                  device.upload(weights), np.float32(1e-5), device.upload(np.cos(angles).astype(np.float32)),
                  device.upload(np.sin(angles).astype(np.float32)), np.int32(half), np.int32(0),
                  device.upload(positions))
    exact = from_bfloat16(to_bfloat16(x)).astype(np.float64).reshape(N, -1, d)
    cos, sin = np.cos(angles)[positions][None], np.sin(angles)[positions][None]
    for i, part in enumerate((slice(0, H), slice(H, H + G))):
        if norm_kind is not None:
            rows = exact[:, part].reshape((N, -1) if norm_kind == "joint" else (-1, d))
            normed = ops.rms_norm(rows, weights[i, : rows.shape[1]].astype(np.float64), 1e-5)
            exact[:, part] = normed.reshape(N, -1, d)
        exact[:, part] = ops.rotate(exact[:, part].transpose(1, 0, 2)[None], cos, sin, False)[0].transpose(1, 0, 2)
    return download(device, array), exact.reshape(N, -1)


def run_pooling(mode: str, lengths: list[int], D: int, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Pool all sequences without their first tokens, another number of each."""
    batch = packed(lengths)
    skips = np.arange(batch.sequences, dtype=np.int32) % 3
    x = normal(16, batch.tokens, D)
    out = device.allocate((batch.sequences, D), np.float32)
    device.launch(pooling.pooling_kernel(mode), pooling.pooling_grid(batch.sequences, D), device.upload(x),
                  device.upload(batch.cu_seqlens), device.upload(skips), out)
    return download(device, out), pool(x.astype(np.float64), batch.cu_seqlens, [mode], skips)


def run_model(precision: str, lengths: list[int], small: bool, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run a whole model twice, so that the second pass replays what the first has recorded."""
    D, L, F = (32, 1, 40) if small else (256, 3, 1024)
    config = ModelConfig("check", hidden_size=D, num_layers=L, num_heads=D // 32, head_width=32, ffn_size=F,
                         vocab_size=100, max_positions=max(lengths), token_types=2)
    weights = model_weights(config)
    plan = CudaPlan(device, config, weights, RunConfig(1, precision, 2048), choose_products)
    batch = packed(lengths, config)
    plan.forward(batch)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    return plan.forward(batch), exact


def main() -> None:
    """Run a group of checks on the GPU and print its rows."""
    from engine.backends.numba_cuda.device import Gpu

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    device = Gpu()
    print(json.dumps([check.row(device) for check in GROUPS[args.group](args.small)]))


if __name__ == "__main__":
    main()
