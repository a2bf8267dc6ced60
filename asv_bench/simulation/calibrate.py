"""Measure the kernels on one core of the machine at hand, and what threads, caches and memory cost.

Each time of a kernel is the lower quartile of many measurements of the processor's time, which does not run while
other processes have the core. The times of threads that meet or wake are the best of many, and want a quiet machine.
Everything is measured in several rounds, because the memory of a shared machine can be three times as slow for some
minutes.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from engine.backends import get_backend
from engine.backends.batch import Batch
from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cpu.native.native import Kernels, NormWeights, PackedLinear, Product, layer_norm, padded_stride
from engine.backends.cpu.packer import allocate
from engine.backends.cpu.plan import CpuPlan
from engine.backends.cython_cpu import isa
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from engine.weights.parameters import expected_shapes

from .hardware import CALIBRATIONS

DEPTHS = (384, 768, 1536, 3072)
ROWS = (1, 2, 4, 6, 8, 16, 24, 32, 48, 64, 128, 256)
WIDTHS = (32, 64)
TOKENS = (16, 32, 64, 128, 256, 512)
NEAR, FAR = 4 * 2**20, 192 * 2**20
"""Bytes of weights that go through the second-level cache but stay in the third, and that no cache keeps."""
KINDS = ("plain", "activation", "residual")
FEW_OR_MANY = (16, 64)
HEADS = 12
"""Heads of a sequence in measured attention."""
BARRIERS_OF_A_LAYER = 7
"""Of BERT in float32 by columns; a test compares it with the instructions."""
SECONDS = 0.1
"""Time of each measurement."""
TURNS = 9
"""How often a difference of two times is measured in a round."""
ROUNDS = 5
"""Number of rounds; each of them measures everything once."""


def calibrate() -> dict:
    """Measure everything, in about eight minutes, and return what `Rates` and `with_measured` read."""
    kernels = isa.chosen()
    rounds = []
    for number in range(ROUNDS):
        rounds.append(_measure_round(kernels))
        print(f"round {number + 1} of {ROUNDS}: {json.dumps(rounds[-1]['read_bandwidth'])} bytes a second", flush=True)
    return {"machine": get_backend("auto").describe(), "date": date.today().isoformat(), "VL": kernels.VL,
            "NR": kernels.NR, **middle(rounds)}  # fmt: skip


def _measure_round(kernels: Kernels) -> dict:
    products = {precision: kernels.product(precision) for precision in ("float32", "bfloat16", "int8")}
    precisions = {name: measure_kernels(product) for name, product in products.items() if product.exists}
    barrier, signal, wake = _meeting()
    times = {"barrier_seconds": barrier, "signal_seconds": signal, "wake_seconds": wake}
    buffer = np.ones(FAR // 8, np.float32)
    read = {str(n): buffer.nbytes / best(partial(kernels.read, buffer, n), 2.0) for n in (1, 2)}
    return {"times": times, "read_bandwidth": read, "precisions": precisions}


def middle(rounds: list[Any]) -> Any:
    """Return dictionaries, lists and numbers of one shape with the median of each measured number."""
    first = rounds[0]
    if isinstance(first, dict):
        return {key: middle([each[key] for each in rounds]) for key in first}
    if isinstance(first, list | tuple):
        return [middle(list(each)) for each in zip(*rounds, strict=True)]
    return float(np.median(rounds)) if isinstance(first, float) else first


def written(calibration: dict) -> str:
    """Return the text of a file with these times: numbers of four digits, and a line for each list of numbers."""
    rounded = json.loads(json.dumps(calibration), parse_float=lambda digits: float(f"{float(digits):.4g}"))
    return re.sub(r"\[[^][{}]*\]", lambda found: " ".join(found[0].split()), json.dumps(rounded, indent=1)) + "\n"


def best(work: Callable[[], object], seconds: float = 1.0) -> float:
    """Return the shortest time of `work`, repeated for some seconds."""
    return min(_times(work, time.perf_counter, seconds))


def usual(work: Callable[[], object]) -> float:
    """Return the lower quartile of the processor's time for `work`, on this thread."""
    return float(np.quantile(_times(work, time.thread_time, SECONDS), 0.25))


def _times(work: Callable[[], object], clock: Callable[[], float], seconds: float) -> list[float]:
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < stop:
        start = clock()
        work()
        times.append(clock() - start)
    return times


def measure_kernels(product: Product) -> dict:
    """Return the measured times of one precision, as `Rates` reads them."""
    # Hardly any work: the time of a call from Python.
    call = usual(_multiplication(product, 16, product.kernels.NR, 1, "plain"))
    panels = []
    for kind in KINDS:
        for K in DEPTHS:
            times = [_seconds_of_panel(product, K, M, kind, call) for M in ROWS]
            panels.append({"K": K, "kind": kind, "rows": ROWS, "seconds": times})
    attention = [{"d": d, "T": TOKENS, "seconds": [_attention(product, d, T, call) for T in TOKENS]} for d in WIDTHS]
    waits = {"rows": FEW_OR_MANY, "seconds": [_seconds_of_byte(product, M) for M in FEW_OR_MANY]}
    return {"converts": product.converts, "weight_bytes": product.row_bytes(1), "panels": panels,
            "attention": attention, "numbers": _numbers(product), "byte": waits}  # fmt: skip


def _columns(K: int, kind: str) -> int:
    """Return the columns of a map of this depth, as encoders have them."""
    if max(WIDTHS) * HEADS < K:
        return K // 4       # from the feed-forward width
    return {"plain": 3 * K, "activation": 4 * K, "residual": K}[kind]


def _seconds_of_panel(product: Product, K: int, M: int, kind: str, call: float) -> float:
    N = _columns(K, kind)
    return (usual(_multiplication(product, K, N, M, kind)) - call) / (N / product.kernels.NR)


def _packed(product: Product, K: int, N: int, activation: bool) -> PackedLinear:
    scale = np.ones(N, np.float32) if product.precision == "int8" else None
    size = product.packed_bytes(N, K)
    panels = allocate(-(-size // 4)).view(np.uint8)[:size]
    panels[:] = np.random.default_rng(0).integers(0, 60, size, np.uint8)      # finite in each precision
    return PackedLinear(product, panels, K, np.zeros(N, np.float32), scale, ACTIVATIONS["gelu"] if activation else 0)


def _multiplication(product: Product, K: int, N: int, M: int, kind: str, size: int = NEAR) -> Callable[[], object]:
    """Return a call that multiplies M rows by one map after the other, which together have about `size` bytes.

    A model finds some rows in the third-level cache, because it comes back to them after other work: the results of a
    plain map (queries, keys and values), the residual, and the context, which the square map reads.
    """
    count_of_maps = min(512, max(1, size // product.packed_bytes(N, K)))
    maps = [_packed(product, K, N, kind == "activation") for _ in range(count_of_maps)]
    operands = [_operands(product, M, K) for _ in range(_copies(M, K) if kind == "residual" and N == K else 1)]
    outs = [_rows(M, N) for _ in range(_copies(M, N) if kind == "plain" else 1)]
    residuals = [_rows(M, N) for _ in range(_copies(M, N))] if kind == "residual" else [None]
    turn = count()

    def multiply() -> None:
        i = next(turn)
        rows, ranges = operands[i % len(operands)]
        product.multiply(maps[i % len(maps)], rows, outs[i % len(outs)], residuals[i % len(residuals)], ranges)

    return multiply


def _copies(M: int, width: int) -> int:
    """Return how many arrays of M rows go through the second-level cache."""
    return min(64, max(1, NEAR // (4 * M * width)))


def _rows(M: int, width: int) -> np.ndarray:
    return allocate(M * padded_stride(width)).reshape(M, -1)[:, :width]


def _operands(product: Product, M: int, K: int) -> tuple[np.ndarray, np.ndarray | None]:
    x = _rows(M, K)
    x[:] = np.random.default_rng(0).standard_normal((M, K), np.float32)
    if not product.converts:
        return x, None
    operands = _rows_of_operands(product, M, K)
    ranges = np.zeros((M, 2), np.float32) if product.precision == "int8" else None
    product.convert(x, operands, ranges)
    return operands, ranges


def _rows_of_operands(product: Product, M: int, K: int) -> np.ndarray:
    """Return memory for operands: whole strips of rows."""
    floats = product.operands_stride(K) * product.operand_bytes // 4
    rows = -(-M // product.strip) * product.strip
    dtype = np.uint8 if product.operand_bytes == 1 else np.uint16
    return allocate(rows * floats).view(dtype).reshape(rows, -1)


def _attention(product: Product, d: int, T: int, call: float) -> float:
    """Return the seconds for each block of queries and key of one head."""
    rng = np.random.default_rng(0)
    sequences = [rng.standard_normal((3 * HEADS, T, d), np.float32) for _ in range(_copies(3 * HEADS, T * d))]
    outs, scratch = [_rows(T, HEADS * d) for _ in sequences], allocate(product.attention_scratch(d, d))
    turn = count()

    def attend() -> None:
        i, h = divmod(next(turn), HEADS)
        heads, out = sequences[i % len(sequences)], outs[i % len(outs)]
        product.attention(heads[h], heads[HEADS + h], heads[2 * HEADS + h], out[:, h * d : h * d + d], d**-0.5, scratch)

    return (usual(attend) - call) / (-(-T // product.kernels.NR) * T)


def _numbers(product: Product) -> dict[str, float]:
    """Return the seconds for each number of the instructions that work row by row, on 64 rows of 768."""
    M, D = 64, 768
    xs, out, ones = [_rows(M, D) for _ in range(_copies(M, D))], _rows(M, D), np.ones(D, np.float32)
    norm, turn = NormWeights(ones, ones, 1e-12), count()
    times = {"NORM": usual(lambda: layer_norm(product.kernels, norm, xs[next(turn) % len(xs)], out)) / (M * D)}
    # The sum of three table rows and a copy are bound by loads and stores, as a norm is.
    times |= {"EMBED": times["NORM"], "STORE": times["NORM"]}
    if product.converts:
        operands, ranges = _rows_of_operands(product, M, D), np.zeros((M, 2), np.float32)
        given = ranges if product.precision == "int8" else None
        times["CONVERT"] = usual(lambda: product.convert(xs[next(turn) % len(xs)], operands, given)) / (M * D)
    return times


def _seconds_of_byte(product: Product, M: int) -> float:
    """Return the seconds that a product of M rows takes longer for each byte of weights that comes from memory."""
    K, N = 768, 3072
    far, near = (_multiplication(product, K, N, M, "activation", size) for size in (FAR, NEAR))
    # In turns, because a core's speed changes in the meantime, and the difference is small.
    waits = [usual(far) - usual(near) for _ in range(TURNS)]
    return max(float(np.median(waits)), 0.0) / product.packed_bytes(N, K)


def _meeting() -> tuple[float, float, float]:
    """Return the seconds of a barrier for each thread, of waking a thread for the caller, and until it runs.

    A model of hardly any work has little but barriers: the second thread of a team adds their time.
    """
    config = ModelConfig(family="bert", hidden_size=16, num_layers=60, num_heads=1, head_width=16, ffn_size=16,
                         vocab_size=8, max_positions=8, token_types=1)  # fmt: skip
    batch = batch_of(config, [2])
    one, two = (plan_of(config, "float32", threads) for threads in (1, 2))
    for plan in (one, two):
        plan.forward(batch)
    awake = best(lambda: two.forward(batch))
    barriers = BARRIERS_OF_A_LAYER * config.num_layers
    barrier = max(awake - best(lambda: one.forward(batch)), 0.0) / barriers / 2
    asleep = []
    for _ in range(200):
        time.sleep(0.002)
        start = time.perf_counter()
        two.forward(batch)
        asleep.append(time.perf_counter() - start)
    mask = os.sched_getaffinity(0)

    def keep_off() -> None:      # as pool.c does for each sleeping thread
        os.sched_getaffinity(0)
        os.sched_setaffinity(0, mask)

    return barrier, best(keep_off), max(min(asleep) - awake, 0.0)


def plan_of(config: ModelConfig, precision: str, threads: int) -> CpuPlan:
    """Return a plan of a model with random weights."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape, np.float32) * np.float32(0.03)
               for name, shape in expected_shapes(config).items()}  # fmt: skip
    return CpuPlan(isa.chosen(), config, weights, RunConfig(threads, precision))


def batch_of(config: ModelConfig, lengths: list[int]) -> Batch:
    """Return a batch of sequences of these lengths, with random words."""
    ids = np.random.default_rng(0).integers(0, config.vocab_size, sum(lengths), np.int32)
    positions = np.concatenate([np.arange(T, dtype=np.int32) for T in lengths])
    return Batch(np.cumsum([0, *lengths]).astype(np.int32), ids, None, positions, np.zeros_like(ids))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of this CPU, such as zen5: the times go to calibrations/NAME.json")
    path = CALIBRATIONS / f"{parser.parse_args().name}.json"
    path.write_text(written(calibrate()))
