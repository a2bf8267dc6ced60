"""A language model without weights: its logits are an integer hash of the last tokens and of the source.

transformers (generation.py) and the tests of engine.generation run the same function, so that they can be compared
token by token. Without a bias, every value is a multiple of 2^-21 from -4 to 4, which float32 holds exactly.
"""

import numpy as np

MEMORY = 3
"""The number of last tokens that the logits depend on."""

_M = [np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]


def _mixed(x: np.ndarray) -> np.ndarray:
    """Return the finalizer of SplitMix64 of uint64 values."""
    with np.errstate(over="ignore"):
        x = x + _M[0]
        x = (x ^ (x >> np.uint64(30))) * _M[1]
        x = (x ^ (x >> np.uint64(27))) * _M[2]
    return x ^ (x >> np.uint64(31))


def table_logits(tokens, vocab_size: int, bias: dict[int, float], source=()) -> np.ndarray:
    """Return the logits after a sequence of ids: float32 [V]. bias: numbers to add to the logits of some ids."""
    state = np.array(len(source), np.uint64)
    for token in [*source, *([0] * MEMORY + [int(t) + 1 for t in tokens])[-MEMORY:]]:
        state = _mixed(state ^ np.uint64(token))
    hashed = _mixed(state ^ (np.arange(vocab_size, dtype=np.uint64) << np.uint64(32)))
    logits = ((hashed >> np.uint64(40)).astype(np.float32) - np.float32(2**23)) / np.float32(2**21)
    for token, extra in bias.items():
        logits[int(token)] += np.float32(extra)
    return logits
