"""Use the engine from many threads for a long time; compare every result, and see whether anything grows.

    python -m tests.soak SECONDS [--duty SHARE] [--record FILE] [--seed SEED]
"""

import argparse
import faulthandler
import json
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import TextIO

from tests.soak.measure import Pace, Record, report, sample
from tests.soak.work import SLOTS, Worker, World

THREADS = 8
EVERY = 4.0
"""Seconds between two samples."""
STALLED = 600.0
"""Seconds after which a thread that finishes nothing counts as deadlocked."""


class Soak:
    """The state that the threads share."""

    def __init__(self, world: World, pace: Pace, seed: int):
        first = Worker(world, [], random.Random(seed))
        sources = [world.sources[i % len(world.sources)] for i in range(SLOTS)]
        self.engines = [(first.loaded(source), source) for source in sources]
        self.stop = threading.Event()
        self.problems: list[str] = []
        self.counts: list[Counter[str]] = [Counter() for _ in range(THREADS + 1)]
        self.progress = [time.monotonic()] * THREADS
        self._world, self._pace, self._seed = world, pace, seed

    def worker(self, number: int) -> Worker:
        return Worker(self._world, self.engines, random.Random(f"{self._seed} {number}"))

    def run_thread(self, number: int) -> None:
        worker = self.worker(number)
        while not self.stop.is_set():
            try:
                self.counts[number][worker.step()] += 1
            except Exception:
                self.note(traceback.format_exc())
            self.progress[number] = time.monotonic()
            self._pace.wait(self.stop)

    def run_main(self, worker: Worker, until: float) -> None:
        """Be interrupted until then."""
        while time.monotonic() < until:
            try:
                self.counts[THREADS][worker.interrupt()] += 1
            except Exception:
                self.note(traceback.format_exc())
            self._pace.wait(self.stop, until)
            self.stop.wait(random.uniform(0, 0.2))

    def note(self, problem: str) -> None:
        self.problems.append(problem)
        print(problem, file=sys.stderr, flush=True)


def main(seconds: float, *, duty: float = 1.0, record: Path | None = None, seed: int = 0, numba: bool = True) -> int:
    """Run for about `seconds`, print what happened, and return the number of problems."""
    print(f"seed {seed}, process {os.getpid()}", flush=True)
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # to fork with threads is the point
    with tempfile.TemporaryDirectory() as name:
        world = World(Path(name), seed, numba)
        soak = Soak(world, Pace(duty), seed)
        threads = [threading.Thread(target=soak.run_thread, args=(i,), daemon=True) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            samples = _sample_until(time.monotonic() + seconds, soak, world, record)
        finally:
            soak.stop.set()
            for thread in threads:
                thread.join(STALLED)
        if any(thread.is_alive() for thread in threads):
            faulthandler.dump_traceback(sys.__stderr__)
            soak.note("a thread did not end")
        else:
            try:
                print(world.generation.totals())
            except AssertionError as error:
                soak.note(str(error))
    faulthandler.cancel_dump_traceback_later()
    total = sum(soak.counts, Counter())
    print(f"{sum(total.values())} actions by {THREADS + 1} threads: " + ", ".join(
        f"{count} {action}" for action, count in total.most_common()))  # fmt: skip
    grown = report(samples, min(600.0, seconds / 4))
    for problem in grown:
        print(problem)
    print(f"{len(soak.problems)} wrong results or errors, {len(grown)} quantities that grew")
    return len(soak.problems) + len(grown)


def _sample_until(end: float, soak: Soak, world: World, record: Path | None) -> Record:
    """Take samples until then, and interrupt the main thread between them."""
    worker, samples = soak.worker(THREADS), Record()
    with open(record or os.devnull, "w", encoding="utf-8") as file:
        while (now := time.monotonic()) < end:
            if now - min(soak.progress) < STALLED:
                faulthandler.dump_traceback_later(2 * STALLED, exit=True, file=sys.__stderr__)
            with world.one_child:
                row = sample(world.folder)
            samples.add(time.monotonic(), row)
            _write(file, row | {"time": time.monotonic(), "actions": sum(sum(one.values()) for one in soak.counts)})
            soak.run_main(worker, min(time.monotonic() + EVERY, end))
    return samples


def _write(file: TextIO, row: dict[str, float]) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float)
    parser.add_argument("--duty", type=float, default=1.0, help="share of one core that all threads may use together")
    parser.add_argument("--record", type=Path, help="write each sample to this file, as a line of JSON")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--no-numba", dest="numba", action="store_false", help="leave out the backend numba")
    given = parser.parse_args()
    sys.exit(min(1, main(given.seconds, duty=given.duty, record=given.record, seed=given.seed, numba=given.numba)))
