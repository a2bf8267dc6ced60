"""Measure rows of libraries in turns: each library in a process of its own, which stays alive between its turns.

A row is a dict of libraries by their names. A library is a class with `prepare`, which writes files in a process of its
own, so that no converter is in memory during the measurement, `load`, and `run`, which is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from .machine import environment
from .worker import Child, Failed, settle

TURNS, QUICK_TURNS = 7, 2
SECONDS_A_TURN = 1.0


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


class Timed:
    """A library in its own process; it has the methods of the library, and `timed`."""

    def __init__(self, make: Make, *arguments: Any):
        self._library = make(*arguments)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._library, method)

    def timed(self, calls: int) -> list[float]:
        """Return the seconds of each of some calls, and wait until no thread of this process spins."""
        times = []
        for _ in range(calls):
            start = perf_counter()
            self._library.run()
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
            child = partial(Child, Timed, (make, row, name, *arguments), environment(name, threads, folder))
            try:
                with closing(child()) as maker:
                    maker.call("prepare")
                process = stack.enter_context(closing(child()))
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
