"""Measure rows of libraries in turns: each library in a process of its own, which stays alive between its turns.

A row is a dict of libraries by their names. A library is a class with `prepare`, which writes files in a process of its
own, so that no converter is in memory during the measurement, `load`, and `run`, which is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from .machine import environment
from .worker import Failed, settle, variables

TURNS, QUICK_TURNS = 7, 2
SECONDS_A_TURN = 1.0
PATIENCE = 1800.0


class Library(Protocol):
    """A library on one row."""

    def prepare(self) -> None:
        """Write what `load` reads."""

    def load(self) -> None:
        """Load the library and its model."""

    def run(self) -> np.ndarray:
        """Return the results, which are compared with those of other libraries."""


Make = Callable[..., Library]
"""A function of a module that returns a library: (row, name, *arguments)."""


class Process:
    """Calls the methods of a library, or `timed`, in a process of its own."""

    def __init__(self, make: Make, row: str, name: str, folder: Path, threads: int, arguments: tuple[Any, ...]):
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, make, (row, name, *arguments)), daemon=True)
        with variables(environment(name, threads, folder)):
            self.process.start()
        other.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method; raises `Failed` with its error."""
        try:
            self.connection.send((method, arguments))
            if not self.connection.poll(PATIENCE):
                raise Failed(f"no answer in {PATIENCE / 60:.0f} minutes")
            ok, result = self.connection.recv()
        except (EOFError, OSError):
            raise Failed("its process ended") from None
        if not ok:
            raise Failed(result)
        return result

    def close(self) -> None:
        self.connection.close()
        self.process.join(10)
        self.process.kill()
        self.process.join()


def serve(connection: Any, make: Make, arguments: tuple[Any, ...]) -> None:
    """Answer calls until the other end closes."""
    library = make(*arguments)
    while True:
        try:
            method, given = connection.recv()
        except EOFError:
            return
        try:
            reply = True, timed(library, *given) if method == "timed" else getattr(library, method)(*given)
        except Exception as error:
            reply = False, f"{type(error).__name__}: {error}".strip().splitlines()[0]
        connection.send(reply)


def timed(library: Library, calls: int) -> list[float]:
    """Return the seconds of each of some calls, and wait until no thread of this process spins."""
    times = []
    for _ in range(calls):
        start = perf_counter()
        library.run()
        times.append(perf_counter() - start)
    settle()
    return times


class Row:
    """The libraries of one row, measured in turns."""

    def __init__(self, make: Make, row: str, names: Iterable[str], folder: Path, threads: int,
                 arguments: tuple[Any, ...], stack: ExitStack):
        """arguments: of `make`, behind the row and the name of a library. folder: of the models."""
        self.names, self.cells, self.processes = [*names], {}, {}
        for name in self.names:
            try:
                with closing(Process(make, row, name, folder, threads, arguments)) as maker:
                    maker.call("prepare")
                process = stack.enter_context(closing(Process(make, row, name, folder, threads, arguments)))
                process.call("load")
                self.processes[name] = process
            except Failed as error:
                self.cells[name] = {"why": str(error)}

    def measure(self, quick: bool, operations: float = 0.0) -> dict[str, dict[str, Any]]:
        """Return for each library its times in seconds, and its largest difference from the first library's results.

        operations: of the row, where the engine's process has a `limit` to compare their rate with, or 0.
        """
        results, calls, times, limit = {}, {}, {}, 0.0
        for name, process in self.processes.items():
            results[name] = process.call("run")
            calls[name] = 1 if quick else max(1, int(SECONDS_A_TURN / min(process.call("timed", 2))))
            times[name] = []
        order = list(times)
        for _ in range(QUICK_TURNS if quick else TURNS):
            for name in order:
                times[name] += self.processes[name].call("timed", calls[name])
            if operations:
                limit = max(limit, self.processes["engine"].call("limit"))
            order = order[1:] + order[:1]
        first = next(iter(results.values()), None)
        for name, seconds in times.items():
            same = results[name].shape == first.shape
            self.cells[name] = {"median": median(seconds), "minimum": min(seconds), "calls": len(seconds),
                                "difference": float(np.abs(results[name] - first).max()) if same else None}
            if limit:
                self.cells[name]["fraction"] = operations / median(seconds) / limit
        return {name: self.cells[name] for name in self.names}


def tell(row: str, cells: dict[str, dict[str, Any]]) -> None:
    """Print a line about each library of a row on standard error."""
    for name, cell in cells.items():
        print(f"{row:<24} {name:<22}", why_or_times(cell), file=sys.stderr, flush=True)


def why_or_times(cell: dict[str, Any]) -> str:
    """Return a line about one library."""
    if "why" in cell:
        return str(cell["why"])
    difference = "results of another shape" if cell["difference"] is None else f"differs by {cell['difference']:.1e}"
    rate = f", {cell['fraction']:.2f} of the rate of products" if "fraction" in cell else ""
    middle, least = 1000 * cell["median"], 1000 * cell["minimum"]
    return f"{middle:9.1f} ms in the median, {least:9.1f} at least, {difference}{rate}"
