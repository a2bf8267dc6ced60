"""Time calls of one text from several threads beside one call of all texts.

    python asv_bench/threads.py MODEL [--precision int8] [--threads 1 2 8 32] [--turns 5]

Each turn times a call with 512 texts before and after the threads, and prints medians: texts a second, as a share of
those of the call, and with how many batches. It runs with older commits, too, which count no batches.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import defaultdict
from statistics import median
from typing import Any

from engine import Engine

WORDS = ("the", "of", "a", "model", "text", "reads", "vector", "query", "engine", "thread", "data", "fast", "green")
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=8 + i % 24)) for i in range(512)]


def rate_of_threads(engine: Engine, count: int) -> float:
    """Return the texts a second of threads that take the next text each, until there is none."""
    texts, lock = iter(TEXTS), threading.Lock()

    def run() -> None:
        while True:
            with lock:
                text = next(texts, None)
            if text is None:
                return
            engine.encode(text)

    threads = [threading.Thread(target=run) for _ in range(count)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(TEXTS) / (time.perf_counter() - begun)


def rate_of_a_call(engine: Engine) -> float:
    begun = time.perf_counter()
    engine.encode(TEXTS)
    return len(TEXTS) / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--precision")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 8, 32])
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    engine: Any = Engine.load(given.model, precision=given.precision)
    engine.encode(TEXTS)
    counts = getattr(getattr(engine, "_queue", None), "counts", None)
    found = defaultdict(list)
    for _ in range(given.turns):
        for count in given.threads:
            before, first = rate_of_a_call(engine), 0 if counts is None else counts.batches
            rate = rate_of_threads(engine, count)
            batches = len(TEXTS) if counts is None else counts.batches - first
            found[count].append((rate, 2 * rate / (before + rate_of_a_call(engine)), batches))
    for count, turns in found.items():
        rate, share, batches = (median(column) for column in zip(*turns, strict=True))
        print(f"{count:3} threads: {rate:6.0f} texts a second, {share:.2f} of one call, {batches:.0f} batches")


if __name__ == "__main__":
    main()
