"""Call one model from 32 threads, as a web program does: python examples/many_threads.py models/all-MiniLM-L6-v2.npz

The model computes the texts of all threads together, with the bits of each text alone.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import engine

TEXTS = [f"The {animal} {verb} near the {place}." for animal in ("cat", "dog", "old horse", "small bird")
         for verb in ("sleeps", "runs", "waits for somebody", "plays") for place in ("river", "house", "red barn")]


def main(path: str, repeats: int = 10) -> None:
    model, texts = engine.Engine.load(path), repeats * TEXTS
    begun = time.perf_counter()
    together, seconds = model.encode(texts), time.perf_counter() - begun
    with ThreadPoolExecutor(32) as threads:
        alone = np.stack([*threads.map(model.encode, texts)])
    print(f"one call: {len(texts) / seconds:.0f} texts a second; "
          f"32 threads: {len(texts) / (time.perf_counter() - begun - seconds):.0f}; "
          f"equal bits: {np.array_equal(alone, together)}")


if __name__ == "__main__":
    main(sys.argv[1])
