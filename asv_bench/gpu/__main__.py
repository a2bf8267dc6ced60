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
"""Time limit of the whole run, in seconds: below eight minutes, with imports and the last case."""
CHECK_SECONDS = 100.0
"""Time limit of each group of checks, and of each sanitizer tool on it, in seconds."""
LEAST_LEFT = 20.0
"""No case is started if less time than this is left, in seconds."""


def main() -> int:
    """Run everything and return the exit status: 0, or 1 if a check fails."""
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
    from engine.backends.numba_cuda.device import Gpu  # imported here, because it needs the extra [cuda]

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
        # A kernel that gives wrong results may also hang, so it is not timed.
        wgmma = hopper and all(row["ok"] for group in ONLY_HOPPER for row in checks[group])
        for section, run in sections(device, wgmma).items():
            numbers[section] = run(clock, numbers["left_out"])
            write(numbers, args.out)
    print(text(numbers))
    return 0 if all(row["ok"] for rows in checks.values() for row in rows) else 1


def sections(device: Any, wgmma: bool) -> dict[str, Callable[[Clock, list[str]], list[dict]]]:
    """Return the timed sections by name, the most important first; wgmma: whether kernels that use wgmma take part."""
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
    """Measure cases while there is time; a row has the case, its work (10^12 operations, or sequences) and its cells.

    makers: for each side, a function that returns the side's contenders for a case. A cell belongs to one contender.
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
            except Exception as error:  # not enough memory, or a shape that a library does not support
                cells[side] = {"why": f"{type(error).__name__}: {error}"[:200]}
        work = case.flops / 1e12 if hasattr(case, "flops") else case.B
        rows.append({"case": str(case), "work": work, "cells": cells | take_turns(contenders)})
    return rows


def machine(gpu: str) -> dict[str, str]:
    """Describe the machine and the software of the measurement."""
    packages = ("encoder-engine", "numba-cuda", "cuda-bindings", "torch", "numpy")
    return {"GPU": gpu, "date": date.today().isoformat()} | {name: installed(name) for name in packages}


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    raise SystemExit(main())
