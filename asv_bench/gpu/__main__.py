"""Check every kernel on this machine's GPU, then time the engine beside PyTorch; print a table and write JSON.

    python -m asv_bench.gpu        from the root of the repository; PyTorch is optional
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine import BackendUnavailable
from engine.backends import get_backend

from .timing import Clock, take_turns

SECONDS = 450.0
"""For everything: below eight minutes, imports and the last case included."""
CHECK_SECONDS = 100.0
"""For each group of checks, and each tool of the sanitizer on it."""
LEAST_LEFT = 20.0
"""Seconds: no case is begun with less."""


def main() -> int:
    """The exit status: 0, or 1 where a check does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/gpu.json"), help="file of the numbers")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for everything")
    parser.add_argument("--only-check", action="store_true", help="time nothing")
    args = parser.parse_args()
    try:
        backend = get_backend("cuda")
    except BackendUnavailable as error:
        print(f"python -m asv_bench.gpu needs a GPU: {error}", file=sys.stderr)
        return 1
    from engine.backends.numba_cuda.device import Gpu  # here, since it needs the extra [cuda]

    from .checks import GROUPS, ONLY_HOPPER
    from .isolate import run_all
    from .report import text, write

    clock, device = Clock(args.seconds), Gpu()
    hopper = device.capability == (9, 0)
    checks, sanitizer = run_all([group for group in GROUPS if hopper or group not in ONLY_HOPPER], CHECK_SECONDS)
    numbers: dict[str, Any] = {"machine": machine(backend.describe()), "checks": checks, "sanitizer": sanitizer,
                               "left_out": []}
    write(numbers, args.out)
    if not args.only_check:
        # A kernel that is wrong may hang as well.
        wgmma = hopper and all(row["ok"] for group in ONLY_HOPPER for row in checks[group])
        for section, run in sections(device, wgmma).items():
            numbers[section] = run(clock, numbers["left_out"])
            write(numbers, args.out)
    print(text(numbers))
    return 0 if all(row["ok"] for rows in checks.values() for row in rows) else 1


def sections(device: Any, wgmma: bool) -> dict[str, Callable[[Clock, list[str]], list[dict]]]:
    """What is timed, by name, in the order of its worth; wgmma: whether the kernels that use it take part."""
    from . import cases, ours, peers

    sides: dict[str, tuple[list, dict[str, Callable]]] = {
        "attention": (cases.ATTENTION, {"engine": partial(ours.attention, device, wgmma), "torch": peers.attention}),
        "encoder": (cases.ENCODER, {"engine": partial(ours.encoder, device, wgmma), "torch": peers.encoder}),
        "linear": (cases.LINEAR, {"engine": partial(ours.linear_maps, device, wgmma), "torch": peers.linear_maps,
                                  "cuBLASLt": partial(peers.cublaslt_maps, device)}),
    }
    if find_spec("torch") is None:
        for _, makers in sides.values():
            del makers["torch"]
    return {name: partial(measure, todo, makers) for name, (todo, makers) in sides.items()}


def measure(
    todo: Iterable[Any], makers: dict[str, Callable], clock: Clock, left_out: list[str]
) -> list[dict]:
    """A row for each case while there is time: case, work (10^12 operations, or sequences) and a cell by contender.

    makers: of a side's contenders for a case, by the name of the side.
    """
    rows = []
    for case in todo:
        if clock.left() < LEAST_LEFT:
            left_out.append(str(case))
            continue
        cells: dict[str, dict] = {}
        contenders: dict[str, Callable[[int], float]] = {}
        for side, make in makers.items():
            try:
                contenders |= make(case)
            except Exception as error:  # memory, or a shape that a library does not take
                cells[side] = {"why": f"{type(error).__name__}: {error}"[:200]}
        work = case.flops / 1e12 if hasattr(case, "flops") else case.B
        rows.append({"case": str(case), "work": work, "cells": cells | take_turns(contenders)})
    return rows


def machine(gpu: str) -> dict[str, str]:
    """What the numbers were measured on and with."""
    packages = ("encoder-engine", "numba-cuda", "cuda-bindings", "torch", "numpy")
    return {"GPU": gpu, "date": date.today().isoformat()} | {name: installed(name) for name in packages}


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    raise SystemExit(main())
