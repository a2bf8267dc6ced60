"""The random numbers that draw tokens, which do not depend on a batch; `backends/wants.py` says how a number draws.

A request draws the number u of each step from the generator Philox (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011), four numbers from each block of it. The key is the hash of seed, source and prompt, and the counter is
(1 + step // 4, 0, 0, sample).
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray


def stream_of_numbers(seed: int, source: NDArray[np.int64] | None, prompt: NDArray[np.int64], sample: int
                      ) -> np.random.Generator:
    """Return the generator of uniform numbers for one sample (from 0) of a request. source, prompt: its ids."""
    hashed = [f"{seed} {-1 if source is None else len(source)} {len(prompt)}".encode()]
    hashed += [np.asarray(ids, "<i8").tobytes() for ids in (source, prompt) if ids is not None]
    key = int.from_bytes(hashlib.blake2b(b" ".join(hashed), digest_size=16).digest(), "little")
    # A counter has 256 bits in four words. The highest one is the sample; NumPy adds 1 to the lowest one before each
    # block of four numbers.
    return np.random.Generator(np.random.Philox(key=key, counter=sample << 192))
