"""Measure the memory of forward passes: weights and one workspace, whatever the shapes and the number of batches."""

import resource

import numpy as np

from .models import RandomModels, load, random_ids

MOST_SEQUENCES, LONGEST = 8, 128


def random_batches(count):
    """Yield batches of random shapes up to `MOST_SEQUENCES` sequences of `LONGEST` tokens; the largest comes first."""
    rng = np.random.default_rng(0)
    yield random_ids([LONGEST] * MOST_SEQUENCES)
    for _ in range(count - 1):
        yield random_ids(rng.integers(1, LONGEST + 1, rng.integers(1, MOST_SEQUENCES + 1)))


class PeakMemory(RandomModels):
    params = (1, 50, 500)
    param_names = ("batches",)

    def peakmem_forward(self, paths, batches):
        engine = load(paths["MiniLM"], threads=1)
        for batch in random_batches(batches):
            engine.forward(batch)


class Growth(RandomModels):
    def track_growth_over_500_batches(self, paths):
        """Return the growth of the process's peak memory after the first, largest batch: 0 if nothing is kept."""
        engine = load(paths["MiniLM"], threads=1)
        peaks = []
        for batch in random_batches(500):
            engine.forward(batch)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return (peaks[-1] - peaks[0]) / 1024

    track_growth_over_500_batches.unit = "MiB"
