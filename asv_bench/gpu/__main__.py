"""Check every kernel on this machine's GPU, then time the engine beside PyTorch; print tables and write JSON.

    python -m asv_bench.gpu --stage encoders --seconds 720      from the root of the repository; PyTorch is optional

What decides most comes first, and each result is written at once. A later run skips what is there for the same sources
and GPU, so that several short runs add up; --again repeats it.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine import BackendUnavailable
from engine.backends import get_backend

from . import cases
from .record import Record, digest_of
from .timing import Clock, take_turns

SECONDS = 720.0
"""Time limit of the whole run, in seconds."""
CHECK_SECONDS = 120.0
"""Time limit of each group of checks, and of each sanitizer tool on it, in seconds."""
LEAST_LEFT = 20.0
"""No step is started if less time than this is left, in seconds."""
STAGES = ("encoders",)
AT_ONCE = 12
"""Number of sanitizers that run at the same time: most of their time is the host's."""


@dataclass(frozen=True)
class Step:
    """Something that is checked or timed, and what its result depends on."""

    section: str
    name: str
    run: Callable[[float], dict]
    """Returns the result within some seconds."""
    modules: Sequence[str] | None = None
    """The modules of kernels that the result depends on, or None for the whole backend."""

    @property
    def title(self) -> str:
        return f"{self.section}: {self.name}"


def main() -> int:
    """Run everything and return the exit status: 0, or 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=STAGES, default=STAGES[0], help="what is checked and timed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for everything")
    parser.add_argument("--out", type=Path, default=Path("docs/gpu.json"), help="file of the results")
    parser.add_argument("--again", action="store_true", help="repeat what is in the file already")
    parser.add_argument("--only-check", action="store_true", help="time nothing")
    args = parser.parse_args()
    try:
        backend = get_backend("cuda")
    except BackendUnavailable as error:
        print(f"python -m asv_bench.gpu needs a GPU: {error}", file=sys.stderr)
        return 1
    from engine.backends.numba_cuda.device import Gpu

    from .report import text

    clock, device = Clock(args.seconds), Gpu()
    record = Record(args.out, machine(device.name, backend.describe()))
    advance = partial(run_steps, record=record, clock=clock, again=args.again)
    done, left_out = advance(list(check_steps(device)))
    # A kernel that gives wrong results may also hang, so it is not timed.
    wgmma = device.capability == (9, 0) and all(result["ok"] for step, result in done.items() if "wgmma" in step.name)
    first, rest = (timed_steps(device, wgmma, todo) for todo in (cases.FIRST, cases.REST))
    for steps, at_once in ((first, 1), (list(sanitizer_steps(device)), AT_ONCE), (rest, 1)):
        if not args.only_check or at_once > 1:
            more, late = advance(steps, at_once=at_once)
            done, left_out = done | more, left_out + late
    print(text(numbers(record.machine, done, left_out)))
    return 0 if all(result.get("ok", True) for result in done.values()) else 1


def run_steps(steps: Sequence[Step], record: Record, clock: Clock, again: bool = False,
              at_once: int = 1) -> tuple[dict[Step, dict], list[str]]:
    """Run the steps that have no result yet, `at_once` at a time, and write each result as soon as it is there.

    Returns the results of all steps, and the titles of those for which no time was left.
    """
    digests = {step: digest_of(step.modules) for step in steps}
    done = {step: found for step in steps
            if not again and (found := record.find(step.title, digests[step])) is not None}
    left_out = []

    def run(step: Step) -> dict | None:
        return None if clock.left() < LEAST_LEFT else step.run(clock.left())

    def note(step: Step, result: dict | None) -> None:
        if result is None:
            left_out.append(step.title)
        else:
            record.put(step.title, digests[step], result)
            done[step] = result

    todo = [step for step in steps if step not in done]
    if at_once == 1:        # on this thread, where the GPU is current
        for step in todo:
            note(step, run(step))
    else:
        with ThreadPoolExecutor(at_once) as pool:
            running = {pool.submit(run, step): step for step in todo}
            for future in as_completed(running):
                note(running[future], future.result())
    return {step: done[step] for step in steps if step in done}, left_out


def check_steps(device: Any) -> Iterator[Step]:
    """Yield the start of the device, then the checks of each group, each in a process of its own."""
    from . import ours
    from .checks import KERNELS
    from .isolate import run_group

    def run(group: str, seconds: float) -> dict:
        rows = run_group(group, min(seconds, CHECK_SECONDS))
        return {"rows": rows, "ok": all(row["ok"] for row in rows)}

    yield Step("start", "device", lambda seconds: ours.start(device))
    for group in groups_of(device):
        yield Step("checks", group, partial(run, group), KERNELS.get(group))


def sanitizer_steps(device: Any) -> Iterator[Step]:
    """Yield each tool of compute-sanitizer on each group, or nothing where it is not installed."""
    from .checks import KERNELS
    from .isolate import TOOLS, sanitize, sanitizer

    if (program := sanitizer()) is None:
        return

    def run(tool: str, group: str, seconds: float) -> dict:
        verdict = sanitize(program, tool, group, min(seconds, CHECK_SECONDS))
        return {"verdict": verdict, "ok": verdict == "clean"}

    for tool in TOOLS:
        for group in groups_of(device):
            yield Step("sanitizer", f"{tool} {group}", partial(run, tool, group), KERNELS.get(group))


def groups_of(device: Any) -> list[str]:
    """Return the groups of checks that run on a device."""
    from .checks import GROUPS, ONLY_HOPPER

    return [group for group in GROUPS if device.capability == (9, 0) or group not in ONLY_HOPPER]


def timed_steps(device: Any, wgmma: bool, todo: Sequence[tuple[str, Sequence[Any]]]) -> list[Step]:
    """Return timed cases; wgmma: whether kernels that use wgmma take part; todo: cases by sections."""
    from . import ours, peers

    makers: dict[str, dict[str, Callable]] = {
        "attention": {"engine": partial(ours.attention, device, wgmma), "torch": peers.attention},
        "encoder": {"engine": partial(ours.encoder, device, wgmma), "torch": peers.encoder},
        "linear": {"engine": partial(ours.linear_maps, device, wgmma), "torch": peers.linear_maps,
                   "cuBLASLt": partial(peers.cublaslt_maps, device)},
        "rows": {"engine": partial(ours.rows, device)},
        "window": {"engine": partial(ours.window, device, wgmma)},
        "operation": {"engine": partial(ours.call, device), "torch": peers.attention},
    }
    if find_spec("torch") is None:
        for sides in makers.values():
            sides.pop("torch", None)
    return [Step(section, str(case), lambda seconds, case=case, sides=makers[section]: measure(case, sides))
            for section, some in todo for case in some]


def numbers(machine: dict[str, str], done: dict[Step, dict], left_out: list[str]) -> dict[str, Any]:
    """Return the results as the report shows them."""
    found: dict[str, Any] = {"machine": machine, "checks": {}, "sanitizer": {}, "left_out": left_out}
    for step, result in done.items():
        match step.section:
            case "checks":
                found["checks"][step.name] = result["rows"]
            case "sanitizer":
                found["sanitizer"][step.name] = result["verdict"]
            case "start":
                found["machine"] = machine | {name: value for name, value in result.items()
                                              if name not in ("date", "machine")}
            case _:
                found.setdefault(step.section, []).append(result)
    return found


def measure(case: Any, makers: dict[str, Callable]) -> dict:
    """Measure a case; returns it, its work (10^12 operations, 10^9 bytes, or sequences) and its cells.

    makers: for each side, a function that returns the side's contenders for a case. A cell belongs to one contender.
    """
    cells: dict[str, dict] = {}
    contenders: dict[str, Callable[[int], float]] = {}
    for side, make in makers.items():
        try:
            contenders |= make(case)
        except Exception as error:  # not enough memory, or a shape that a library does not support
            cells[side] = {"why": f"{type(error).__name__}: {error}"[:200]}
    work = (case.flops / 1e12 if hasattr(case, "flops") else case.bytes / 1e9 if isinstance(case, cases.Rows)
            else case.B)
    return {"case": str(case), "work": work, "cells": cells | take_turns(contenders)}


def machine(gpu: str, description: str) -> dict[str, str]:
    """Describe the GPU and the software of the measurement."""
    packages = ("encoder-engine", "numba-cuda", "cuda-core", "cuda-bindings", "torch", "numpy")
    return {"GPU": gpu, "backend": description} | {name: installed(name) for name in packages}


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    raise SystemExit(main())
