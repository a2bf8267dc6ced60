"""Compare candidates for the attention kernel of Hopper with the kernel before; delete this file after the decision.

    python -m asv_bench.gpu.trial check NAME --d D [--small]   prints rows as JSON
    python -m asv_bench.gpu.trial attention FOLDER             compiles, waits for the files passed and ready, times
    python -m asv_bench.gpu.trial encoders FOLDER              compiles, writes ready, waits for best.json, times
"""

import argparse
import json
import sys
import time
from functools import cache, partial
from pathlib import Path

import numpy as np

from engine.backends.numba_cuda import products as products_module
from engine.backends.numba_cuda.bucket import groups, largest_shape, stage
from engine.backends.numba_cuda.device import upload
from engine.backends.numba_cuda.kernels import attention_hopper as now
from engine.backends.numba_cuda.kernels import linear_hopper
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.numba_cuda.products import BFloat16Products, HopperProducts
from engine.backends.numba_cuda.ptx.hopper import wgmma_wait
from engine.backends.numba_cuda.ptx.softmax import hide, soften
from engine.backends.numba_cuda.toolchain import cuda, device_function, types
from engine.base.stop import NEVER
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import to_bfloat16

from . import attention_before as before
from . import cases, checks, data, peers
from .ours import _recorded
from .report import grid
from .timing import Clock, take_turns, timed

KEYS = now.KEYS


def in_order(d, in_turns):
    """Make the consumer without overlap within a warpgroup: scores, softmax, values, one after the other."""
    (place, wait_full, release), (start_scores, start_sums) = now._ring(d), now._products(d)
    wait_for_scores, wait_for_sums, clear_rest = wgmma_wait(KEYS // 2, 0), wgmma_wait(d // 2, 0), now._clear_rest(d)
    hide_keys, weights_of = hide(1, KEYS), soften(1, KEYS, d)
    scores_shape, weights_shape = (1, KEYS // 8, 4), (1, KEYS // 16, 4)

    @device_function
    def consume(sums, totals, own_row, length, factor, turn, made, bars, thread, lane):
        scores = cuda.local.array(scores_shape, types.float32)
        weights = cuda.local.array(weights_shape, types.uint32)
        maxima = cuda.local.array((1, 2), types.float32)
        begins, counts = cuda.local.array((1, 2), types.uint32), cuda.local.array((1, 2), types.uint32)
        for j in range(d // 8):
            for e in range(4):
                sums[0, j, e] = types.float32(0)
        for h in range(2):
            maxima[0, h], totals[0, h] = types.float32(-np.inf), types.float32(0)
        elected, steps = thread % 128 == 0, types.int32((length + KEYS - 1) // KEYS)
        wait_full(now.QUERY, made, bars)
        queries = types.int64((place(now.QUERY, made) + own_row * 128) // 16) | now.BY_ROWS
        for step in range(steps):
            number = types.uint32(turn + step)
            start_scores(scores, queries, number, bars)
            wait_for_scores(scores)
            if elected:
                release(now.KEY, number, bars)
                if step == steps - 1:
                    release(now.QUERY, made, bars)
            room = types.int32(length - step * KEYS)
            if room < KEYS:
                for h in range(2):
                    begins[0, h], counts[0, h] = types.uint32(lane % 4 * 2), types.uint32(room)
                hide_keys(scores, begins, counts)
            weights_of(scores, weights, sums, maxima, totals, factor)
            wait_full(now.VALUE, number, bars)
            clear_rest(number, room, thread)
            start_sums(sums, weights, number)
            wait_for_sums(sums)
            if elected:
                release(now.VALUE, number, bars)

    return consume


def other(module, **changes):
    """Return a factory of kernels with some names of the module changed while it makes one."""

    def make(d, rows, **options):
        kept = {name: getattr(module, name) for name in changes}
        try:
            for name, value in changes.items():
                setattr(module, name, value)
            return module.attention_kernel(d, rows, **options)
        finally:
            for name, value in kept.items():
                setattr(module, name, value)

    return make


CANDIDATES = {
    "overlap": cache(now.attention_kernel),
    "overlap in turns": cache(partial(now.attention_kernel, in_turns=True)),
    "in order": cache(other(now, _consumer=in_order)),
    "overlap chunk 1": cache(other(now, _item=partial(now._item, 1))),
}
"""The persistent kernels; all give the bits of the kernel before."""
CHECKED = ("overlap", "overlap in turns", "in order")
"""The candidates whose code differs; the others differ in the order of items only."""
_before = cache(before.attention_kernel)


class Before(HopperProducts):
    """The kernel before, with a block for each item."""

    def attention(self, qkv, out, heads, scale, cu_seqlens, tiles, tile_rows):
        qkv_map = self._device.tensor_map(qkv, KEYS)
        self._device.launch(_before(out.shape[1] // heads, tile_rows), (len(tiles), heads), qkv_map, out, cu_seqlens,
                            tiles, np.int32(heads), np.float32(scale))


class Candidate(HopperProducts):
    def __init__(self, device, name):
        super().__init__(device)
        self.names = name if isinstance(name, dict) else dict.fromkeys(now.WIDTHS, name)

    def attention(self, qkv, out, heads, scale, cu_seqlens, tiles, tile_rows):
        d = out.shape[1] // heads
        if d not in now.WIDTHS:
            super().attention(qkv, out, heads, scale, cu_seqlens, tiles, tile_rows)
            return
        qkv_map, blocks = self._device.tensor_map(qkv, KEYS), min(self._device.multiprocessors, len(tiles) * heads)
        kernel = CANDIDATES[self.names[d]](d, tile_rows)
        self._device.launch(kernel, (blocks,), qkv_map, out, cu_seqlens, tiles, np.int32(heads), np.float32(scale))


def check_rows(device, name, d, small):
    """Return rows of one candidate: beside float64 at awkward and random lengths, and the bits of the kernel before."""
    rng, rows = np.random.default_rng(11), []
    awkward = [1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 384, 512, 1000]
    batches = [[9, 1, 70, 300]] if small else [awkward, *(rng.integers(1, 700, 9).tolist() for _ in range(3))]
    for longest in (64, 65):
        for i, lengths in enumerate(batches):
            check = checks.Check(f"{name} d={d} tiles for {longest} batch {i}", checks.BFLOAT16,
                                 partial(checks.run_attention, partial(Candidate, name=name), lengths, 2, d, longest))
            row = check.row(device)
            same = True
            if not small:
                old, _ = checks.run_attention(Before, lengths, 2, d, longest, device)
                same = bool(np.array_equal(old, check.run(device)[0]))
            rows.append(row | {"same bits": same})
    if not small:
        rows.append(large_row(device, name, d))
    return rows


def large_row(device, name, d):
    """Compare the bits of ten runs on a full GPU with the kernel before, on random lengths."""
    lengths = np.random.default_rng(d).integers(1, 1100, 60).tolist()
    arguments = attention_arguments(device, lengths, 2048, d)
    found = []
    for make in (Before, *[partial(Candidate, name=name)] * 10):
        out = device.allocate((arguments[0].shape[0], 2048), np.uint16)
        make(device).attention(arguments[0], out, *arguments[1:])
        found.append(checks.download(device, out)[: sum(lengths)])
    same = all(np.array_equal(found[0], one) for one in found[1:])
    return {"name": f"{name} d={d} large, ten times", "ok": bool(np.isfinite(found[0]).all()), "same bits": same}


@cache
def random_rows(tokens, columns):
    return to_bfloat16(data.normal(0, tokens, columns))


def attention_arguments(device, lengths, width, d):
    batch = data.packed(lengths)
    group, = groups(batch, batch.tokens)
    staging = np.zeros(largest_shape(batch.tokens).size, np.int32)
    shape = stage(batch, group, 64 if max(lengths) <= 64 else 128, staging)
    _, _, _, cu_seqlens, tiles = shape.views(upload(device, staging))
    qkv = upload(device, random_rows(shape.tokens, 3 * width))
    return qkv, width // d, d**-0.5, cu_seqlens, tiles, shape.tile_rows


def wait_for(path, seconds=110):
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(str(path))
        time.sleep(0.2)
    time.sleep(0.2)


def candidates(d):
    return [name for name in CANDIDATES if d == 64 or "chunk" not in name]


def time_attention(device, folder):
    todo = [*cases.ATTENTION, *(cases.Attention(256, d) for d in now.WIDTHS)]
    rows = []
    for d in now.WIDTHS:
        device._compile(_before(d, 128))
        for name in candidates(d):
            device._compile(CANDIDATES[name](d, 128))
            print("compiled", name, d, round(time.perf_counter(), 1), flush=True)
    random_rows(16_384, 3 * 2048)
    wait_for(folder / "passed")
    wait_for(folder / "ready")
    for case in todo:
        if case.d not in now.WIDTHS:
            continue
        qkv, *rest = attention_arguments(device, [case.T] * case.B, case.width, case.d)
        out = device.allocate((qkv.shape[0], case.width), np.uint16)
        ways = {"before": Before(device)} | {name: Candidate(device, name) for name in candidates(case.d)}
        found = {name: _recorded(device, partial(way.attention, qkv, out, *rest)) for name, way in ways.items()}
        rows.append({"case": str(case), "work": case.flops / 1e12, "cells": take_turns(found | torch_attention(case))})
    return rows


def torch_attention(case):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    bits = torch.from_numpy(random_rows(case.tokens, 3 * case.width).view(np.int16)).to("cuda").view(torch.bfloat16)
    q, k, v = bits.view(case.B, case.T, 3, case.H, case.d).permute(2, 0, 3, 1, 4)

    def contender(backend):
        def work():
            with sdpa_kernel(backend):
                scaled_dot_product_attention(q, k, v)

        return timed(work, torch.cuda.synchronize)

    return {"torch SDPA flash": contender(SDPBackend.FLASH_ATTENTION),
            "torch SDPA cuDNN": contender(SDPBackend.CUDNN_ATTENTION)}


def best(rows, passed):
    """Return the fastest candidate for each width, by the product of its times, of those that passed their checks."""
    names = {}
    for d in now.WIDTHS:
        mine = [row["cells"] for row in rows if row["case"].startswith(f"d={d} ")]
        able = [name for name in candidates(d) if name.split(" chunk")[0] in passed
                and all("median" in cells.get(name, {}) for cells in mine)]
        scores = {name: float(np.sum([np.log(cells[name]["median"]) for cells in mine])) for name in able}
        names[d] = min(scores, key=scores.get) if scores else None
    return names


def old_tile(N, M, processors, activation):
    if products_module._tiles(N, M, linear_hopper.LARGE) >= processors:
        return linear_hopper.LARGE
    busy = 2 * products_module._tiles(N, M, linear_hopper.ALTERNATE) >= processors
    return linear_hopper.ALTERNATE if busy else linear_hopper.SMALL


class BeforeBoth(Before):
    """The kernel of attention and the rule for tiles before."""

    def linear(self, x, weights, out, activation=None, residual=None):
        kept, products_module.hopper_tile = products_module.hopper_tile, old_tile
        try:
            super().linear(x, weights, out, activation, residual)
        finally:
            products_module.hopper_tile = kept

    def attention(self, qkv, out, heads, scale, cu_seqlens, tiles, tile_rows):
        if out.shape[1] // heads in now.WIDTHS:
            super().attention(qkv, out, heads, scale, cu_seqlens, tiles, tile_rows)
        else:
            BFloat16Products.attention(self, qkv, out, heads, scale, cu_seqlens, tiles, tile_rows)


def vectors_of(shared):
    return getattr(shared, "array", shared)


ENCODERS = [cases.Encoder(model, B, T) for model in ("BERT-base", "BERT-large", "MiniLM")
            for B, T in ((128, 128), (128, 512), (1, 128), (8, 128), (32, 128), (8, 512))]


def time_encoders(device, folder, seconds):
    """Time the engine before and now beside torch eager; the results before and now must have the same bits."""
    plans = cache(lambda model, make: CudaPlan(
        device, cases.MODELS[model], data.model_weights(cases.MODELS[model]), RunConfig(1, "bfloat16", 65_536),
        lambda device, program, precision: make(device)))
    batches = {case: data.packed([case.T] * case.B, cases.MODELS[case.model]) for case in ENCODERS}
    device._compile(CANDIDATES["overlap in turns"](64, 128))
    overlap, vectors = partial(Candidate, name="overlap"), {}
    for case, batch in batches.items():
        vectors[case] = checks.download(device, vectors_of(plans(case.model, BeforeBoth).forward_on_device(batch)))
        plans(case.model, overlap).forward_on_device(batch)      # compiles what the new rule for tiles takes
    for case in ENCODERS[::6]:
        peers.weights(case.model)
    (folder / "ready").write_text("")
    print("ready", round(time.perf_counter(), 1), flush=True)
    wait_for(folder / "best.json", 200)
    names = {int(d): name for d, name in json.loads((folder / "best.json").read_text()).items()}
    clock, rows = Clock(seconds), []
    candidate = partial(Candidate, name=names)
    for case, batch in batches.items():
        if clock.left() < 1:
            break
        plan = plans(case.model, candidate)
        same = np.array_equal(checks.download(device, vectors_of(plan.forward_on_device(batch))), vectors[case])
        found = {name: timed(partial(plans(case.model, make).forward_on_device, batch), lambda: device.mark()())
                 for name, make in (("engine before", BeforeBoth), ("engine", candidate))}
        rows.append({"case": str(case), "work": case.B, "cells": take_turns(found | peers.encoder(case)),
                     "same bits": bool(same)})
        (folder / "encoders.json").write_text(json.dumps(rows, indent=1))
    print("\n".join(grid(rows)), "same bits:", all(row["same bits"] for row in rows), flush=True)
    (folder / "parts.json").write_text(json.dumps(parts(device, names), indent=1))


def parts(device, names):
    """Return microseconds of each kernel of a pass, of whole passes, and of what surrounds them."""
    found = {}
    for model, B, T in (("BERT-base", 128, 128), ("BERT-base", 128, 512)):
        config, batch = cases.MODELS[model], data.packed([T] * B, cases.MODELS[model])
        plan = CudaPlan(device, config, data.model_weights(config), RunConfig(1, "bfloat16", 65_536),
                        lambda device, program, precision: Candidate(device, names))
        launches = []

        def log(kernel, grid, *arguments, launches=launches):
            launches.append((kernel, grid, arguments))

        plan.forward_on_device(batch)
        shape, replay = next(reversed(plan._recordings.items()))
        device.launch = log
        try:
            plan._launch(shape, NEVER)
        finally:
            del device.launch
        kinds = {}
        for kernel, grid, arguments in launches:
            key = f"{kernel.name} grid {grid} of {'x'.join(map(str, arguments[4].shape)) if 'linear' in kernel.name else ''}"
            kinds.setdefault(key, [0, kernel, grid, arguments])[0] += 1

        def microseconds(run, calls):
            run(calls)
            return round(min(run(calls) / calls for _ in range(3)) * 1e6, 1)

        row = found[f"{model} {B}x{T}"] = {}
        for key, (count, kernel, grid, arguments) in kinds.items():
            run = _recorded(device, partial(device.launch, kernel, grid, *arguments))
            row[key] = {"count": count, "each": microseconds(run, 50)}
        wait = lambda: device.mark()()  # noqa: E731
        row["sum of kernels"] = round(sum(v["count"] * v["each"] for v in row.values()), 1)
        row["replay"] = microseconds(timed(replay, wait), 10)
        row["forward_on_device"] = microseconds(timed(partial(plan.forward_on_device, batch), wait), 10)
        group, = groups(batch, 65_536)
        staging = plan._slots[0].integers
        row["stage"] = microseconds(timed(lambda: stage(batch, group, 128, staging), wait), 10)
        row["allocate"] = microseconds(timed(
            lambda: device.allocate((batch.tokens, config.hidden_size), np.float32), wait), 10)
        print(model, B, T, json.dumps(row, indent=1), flush=True)
    return found


def main():
    from engine.backends.numba_cuda.device import Gpu

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["check", "attention", "encoders"])
    parser.add_argument("name")
    parser.add_argument("--d", type=int)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, default=40)
    args = parser.parse_args()
    device, folder = Gpu(), Path(args.name)
    if args.what == "check":
        rows = check_rows(device, args.name, args.d, args.small)
        print(json.dumps(rows))
        return 0 if all(row["ok"] and row["same bits"] for row in rows) else 1
    if args.what == "encoders":
        time_encoders(device, folder, args.seconds)
        return 0
    rows = time_attention(device, folder)
    (folder / "attention.json").write_text(json.dumps(rows, indent=1))
    chosen = best(rows, (folder / "passed").read_text().split(","))
    print("\n".join(grid(rows)), chosen, sep="\n", flush=True)
    if all(chosen.values()):
        (folder / "best.json").write_text(json.dumps(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
