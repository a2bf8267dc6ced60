"""Let time pass: threads work on items, meet at barriers, and share the bandwidth of wires.

A thread is a generator. It yields an `Item` of work, or a `Barrier` at which it waits for its team. Whenever an item
starts or ends, each wire is divided again: a wire that is asked for more than it has gives each item the same share, or
less where the item asks for less. An item is as slow as the slowest of its wires.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from .caches import Bytes


@dataclass
class Item:
    """Work of one thread that takes `seconds` if no wire is short, and moves bytes evenly over this time."""

    seconds: float
    moved: Bytes = field(default_factory=dict)
    useful: bool = True
    """False for the time in which a thread is woken."""


@dataclass
class Barrier:
    """A place where `size` threads meet; all go on `seconds` after the last has come."""

    size: int
    seconds: float
    waiting: list[int] = field(default_factory=list)


@dataclass
class Run:
    """The result of a simulation."""

    seconds: float
    waited: float
    """Seconds for which threads were woken, waited at barriers, or had nothing left to do; of all threads together."""
    short: float
    """Seconds by which items took longer because wires were short, of all threads together."""
    moved: dict[tuple[str, int], float]
    """Bytes over each wire."""


def simulate(threads: Iterable[Iterator[Item | Barrier]], capacity: dict[tuple[str, int], float]) -> Run:
    """Run all threads to their end and return the times. capacity: bytes a second of each wire."""
    return _Simulation(list(threads), capacity).run()


class _Simulation:
    def __init__(self, threads: list[Iterator[Item | Barrier]], capacity: dict[tuple[str, int], float]):
        self._threads = threads
        self._wires = {wire: i for i, wire in enumerate(capacity)}
        self._capacity = np.array(list(capacity.values()))
        n = len(threads)
        self._left = np.full(n, np.inf)             # seconds of the item if no wire is short; infinite: no item
        self._demand = np.zeros((len(capacity), n))  # bytes a second at full speed
        self._works = np.zeros(n, bool)             # whether the item is work, not the end of a barrier
        self._now = 0.0
        self._busy = 0.0
        self._short = 0.0
        self._moved = dict.fromkeys(capacity, 0.0)

    def run(self) -> Run:
        for rank in range(len(self._threads)):
            self._advance(rank)
        while np.isfinite(self._left).any():
            speed = self._speeds()
            times = self._left / speed
            step = times.min()
            self._now += step
            self._busy += step * self._works.sum()
            self._short += step * (1 - speed[self._works]).sum()
            running = np.isfinite(self._left)
            self._left[running] -= step * speed[running]
            for rank in np.flatnonzero(times <= step * (1 + 1e-9) + 1e-15):
                self._advance(int(rank))
        return Run(self._now, self._now * len(self._threads) - self._busy, self._short, self._moved)

    def _advance(self, rank: int) -> None:
        """Give a thread its next item, or let it wait."""
        self._left[rank], self._works[rank] = np.inf, False
        self._demand[:, rank] = 0
        for step in self._threads[rank]:
            if isinstance(step, Barrier):
                step.waiting.append(rank)
                if len(step.waiting) == step.size:
                    waiting, step.waiting = step.waiting, []
                    for other in waiting:
                        self._start(other, Item(step.seconds))
                return
            if step.seconds > 0:
                self._start(rank, step)
                self._works[rank] = step.useful
                return

    def _start(self, rank: int, item: Item) -> None:
        self._left[rank] = max(item.seconds, 1e-12)
        for wire, size in item.moved.items():
            self._demand[self._wires[wire], rank] = size / self._left[rank]
            self._moved[wire] += size

    def _speeds(self) -> np.ndarray:
        """Return the speed of each thread, from 0 to 1."""
        speed = np.ones(len(self._threads))
        for wire in np.flatnonzero(self._demand.sum(axis=1) > self._capacity):
            asked = self._demand[wire]
            share = fair_share(asked, self._capacity[wire])
            slowed = asked > share
            speed[slowed] = np.minimum(speed[slowed], share / asked[slowed])
        return speed


def fair_share(asked: np.ndarray, capacity: float) -> float:
    """Return the share s for which the sum of min(asked, s) is the capacity, where more than that is asked for."""
    order = np.sort(asked)
    before = np.cumsum(order) - order
    shares = (capacity - before) / np.arange(len(order), 0, -1)
    return float(shares[np.argmax(shares <= order)])
