"""Measure in turns all libraries of one precision on one case, so that other load on the machine affects them all."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

import numpy as np
from benchmarks.models import CONFIGS

from engine.backends.peak import forward_flops

from .libraries import LIBRARIES, tokenizer
from .machine import LIFTED, is_amd
from .work import CASES, SHAPES, TEXT, sentences
from .worker import Failed, Worker

PRECISIONS = ("float32", "bfloat16", "int8")
REFERENCE = "PyTorch"
"""The library whose float32 vectors all others are compared with."""

TURNS, QUICK_TURNS = 7, 2
SECONDS_A_TURN, MOST_CALLS = 0.5, 30
LONGEST = 20.0
"""A case is not run if it would take more than this many seconds, estimated from the case before."""


class Clock:
    """The machine's limits, measured in each turn; the highest count, because other load can only lower them."""

    def __init__(self, worker: Worker):
        self.worker = worker
        self.peak: dict[str, float] = worker.call("peak")

    def tick(self) -> None:
        self.peak = {precision: max(most, self.peak[precision]) for precision, most in self.worker.call("peak").items()}


def measure(root: Path, threads: int, models, precisions, cases, libraries, quick: bool) -> Iterator[tuple[list, dict]]:
    """Yield, repeatedly, the rows so far, one for each model, precision, case and library, and the machine's limits.

    A row has model, precision, case and library. Then it has either `why`, the reason why there are no numbers, or
    median and minimum in seconds, the number of calls, the median of each turn, cosine and least_cosine to `REFERENCE`
    in float32 (the mean over vectors, and the worst), and the fraction of the precision's limit, which is None if the
    limit is not measured.
    """
    rows: list[dict] = []
    turns, most_calls = (QUICK_TURNS, 2) if quick else (TURNS, MOST_CALLS)
    with closing(Worker("engine", "float32", root / models[0], threads)) as timer:
        clock = Clock(timer)
        for model in models:
            todo = {case: flops(root / model, model, case) for case in CASES[model] if case in cases}
            with closing(Worker(REFERENCE, "float32", root / model, threads)) as worker:
                worker.call("load")
                references = {case: worker.call("first", case) for case in todo}
            for precision in precisions:
                with ExitStack() as stack:
                    group = Group(root / model, precision, names(precision, libraries), threads, stack)
                    for case, work in todo.items():
                        cells = group.run(case, work, references[case], clock, turns, most_calls)
                        rows += [{"model": model, "precision": precision, "case": case, "library": name, **cell}
                                 for name, cell in cells.items()]  # fmt: skip
                        yield rows, clock.peak


def names(precision: str, libraries: list[str]) -> list[str]:
    """Return the libraries that support a precision; on AMD, those that use MKL in float32 also with MKL unlocked."""
    found = [name for name in libraries if precision in LIBRARIES[name].precisions]
    if precision == "float32" and is_amd():
        found += [name + LIFTED for name in found if name.startswith("PyTorch")]
    return found


class Group:
    """The libraries of one model and precision, each in a process that `stack` ends."""

    def __init__(self, folder: Path, precision: str, names: list[str], threads: int, stack: ExitStack):
        self.precision, self.names = precision, names
        self.workers: dict[str, Worker] = {}
        self.failed: dict[str, str] = {}
        self.speeds: dict[str, float] = {}
        for name in names:
            try:
                with closing(Worker(name, precision, folder, threads)) as maker:
                    maker.call("prepare")
                worker = stack.enter_context(closing(Worker(name, precision, folder, threads)))
                worker.call("load")
                self.workers[name] = worker
            except (Failed, OSError) as error:
                self.failed[name] = str(error)

    def run(self, case: str, flops: float, reference, clock: Clock, turns: int, most_calls: int) -> dict[str, dict]:
        """Measure all libraries on one case; return a cell for each."""
        cells: dict[str, dict] = {name: {"why": why} for name, why in self.failed.items()}
        calls: dict[str, int] = {}
        times: dict[str, list[list[float]]] = {}
        for name in self.workers:
            if case != TEXT and getattr(LIBRARIES[name.removesuffix(LIFTED)], "text_only", False):
                continue
            try:
                cells[name] = cosines(self.first(name, case, flops), reference)
                calls[name] = min(most_calls, 1 + int(SECONDS_A_TURN * self.speeds[name] / flops))
                times[name] = []
            except Failed as error:
                cells[name] = {"why": str(error)}
        order = list(calls)
        for _ in range(turns):
            clock.tick()
            for name in [name for name in order if name in times]:
                try:
                    times[name].append(self.workers[name].call("time", case, calls[name]))
                except Failed as error:
                    cells[name] = {"why": str(error)}
                    del times[name]
            order = order[1:] + order[:1]
        limit = clock.peak.get(self.precision, 0) * 1e9
        for name, rounds in times.items():
            seconds = [one for calls_of_a_turn in rounds for one in calls_of_a_turn]
            middle = median(seconds)
            cells[name] |= {"median": middle, "minimum": min(seconds), "calls": len(seconds),
                            "turns": [median(calls_of_a_turn) for calls_of_a_turn in rounds],
                            "fraction": flops / middle / limit if limit else None}  # fmt: skip
        cells = {name: cells[name] for name in self.names if name in cells}
        for name, cell in cells.items():
            print(f"{self.precision:<9}{case:<8}{name:<34}", cell, file=sys.stderr, flush=True)
        return cells

    def first(self, name: str, case: str, flops: float) -> np.ndarray:
        """Return the library's vectors, and store its speed, in operations per second, in `speeds`."""
        if name in self.speeds and flops / self.speeds[name] > LONGEST:
            raise Failed(f"would take over {LONGEST:.0f} s, going by the case before")
        answer = self.workers[name].call("first", case)
        self.speeds[name] = flops / self.workers[name].call("time", case, 1)[0]
        return answer


def cosines(answer: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Return the mean and the least cosine of vectors [..., D] with those of the reference."""
    a, b = (x.reshape(-1, x.shape[-1]).astype(np.float64) for x in (answer, reference))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return {"cosine": float(cosine.mean()), "least_cosine": float(cosine.min())}


def flops(folder: Path, model: str, case: str) -> float:
    """Return the operations of a case, counting real tokens only."""
    if case == TEXT:
        lengths = [len(encoding.ids) for encoding in tokenizer(folder).encode_batch_fast(sentences())]
    else:
        B, T = SHAPES[case]
        lengths = [T] * B
    return forward_flops(CONFIGS[model], lengths)
