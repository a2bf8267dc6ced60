"""Measure the time of the forward pass, and compare it with the limits of the machine."""

from time import perf_counter

from engine.backends.peak import forward_flops, measure_peak, weight_bytes
from engine.model.precision import LOADABLE

from .models import CONFIGS, RandomModels, load, mixed_lengths, random_ids

WORK = {
    "BERT-base 8x128": ("BERT-base", [128] * 8),
    "BERT-base 1x512": ("BERT-base", [512]),
    "BERT-base 1x128": ("BERT-base", [128]),
    "BERT-base 1x16": ("BERT-base", [16]),
    "MiniLM 32x128": ("MiniLM", [128] * 32),
    "MiniLM 1x128": ("MiniLM", [128]),
}
REPEATS = 5


class Forward(RandomModels):
    params = (list(WORK), [1, 2])
    param_names = ("work", "threads")

    def setup(self, paths, work, threads):
        name, self.lengths = WORK[work]
        self.engine = load(paths[name], threads)
        self.batch = random_ids(self.lengths)
        self.engine.forward(self.batch)

    def time_forward(self, paths, work, threads):
        self.engine.forward(self.batch)

    def track_fraction_of_peak(self, paths, work, threads):
        """Return the least possible time, of the arithmetic or of reading the weights once, over the measured time."""
        times, peaks = [], []
        for _ in range(REPEATS):  # in turns, so that other load on the machine slows both
            peaks.append(measure_peak(threads, repeats=1))
            times += [seconds(self.engine, self.batch) for _ in range(3)]
        compute = forward_flops(self.engine.config, self.lengths) / (max(p.gops for p in peaks) * 1e9)
        read = weight_bytes(self.engine.config) / (max(p.dram_read_gbs for p in peaks) * 1e9)
        return max(compute, read) / min(times)

    track_fraction_of_peak.unit = "fraction"


class Precisions(RandomModels):
    """The forward pass in each precision; bfloat16x3 is skipped where the kernels lack it."""

    params = (list(LOADABLE), ["BERT-base 8x128", "BERT-base 1x16"])
    param_names = ("precision", "work")

    def setup(self, paths, precision, work):
        name, lengths = WORK[work]
        self.engine = load(paths[name], 1, precision)
        self.batch = random_ids(lengths)
        self.engine.forward(self.batch)

    def time_forward(self, paths, precision, work):
        self.engine.forward(self.batch)


class MixedLengths(RandomModels):
    params = (list(CONFIGS), [1, 2])
    param_names = ("model", "threads")

    def setup(self, paths, model, threads):
        self.engine = load(paths[model], threads)

    def track_tokens_per_second_over_uniform(self, paths, model, threads):
        """Return tokens/s of 256 sequences of 3..200 tokens over tokens/s of 256 sequences of their mean length."""
        mixed = mixed_lengths()
        uniform = [sum(mixed) // len(mixed)] * len(mixed)
        batches = random_ids(mixed), random_ids(uniform)
        mixed_times, uniform_times = zip(*([seconds(self.engine, b) for b in batches] for _ in range(3)), strict=True)
        return (sum(mixed) / min(mixed_times)) / (sum(uniform) / min(uniform_times))

    track_tokens_per_second_over_uniform.unit = "ratio"


def seconds(engine, batch):
    """Return the seconds that one forward pass takes."""
    start = perf_counter()
    engine.forward(batch)
    return perf_counter() - start
