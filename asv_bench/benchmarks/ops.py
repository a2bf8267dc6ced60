"""Measure single operations: the time, the arithmetic rate and the memory of every kind of attention."""

from time import perf_counter

from engine.backends.peak import measure_rate

from .attention import KINDS, LIBRARIES, THREADS, extra_memory, numpy_bytes, prepare

REPEATS = 5
MOST_NUMPY_BYTES = 2**30


class Attention:
    """Attention with 12 heads of one sequence, in float32, on up to two threads."""

    params = (list(LIBRARIES), list(KINDS), [128, 512, 2048, 4096], [32, 64, 128])
    param_names = ("library", "kind", "length", "head_width")
    timeout = 300

    def setup(self, library, kind, length, head_width):
        if kind != "full" and head_width != 64:
            raise NotImplementedError("head widths are compared on full attention only")
        if library == "numpy" and numpy_bytes(length) > MOST_NUMPY_BYTES:
            raise NotImplementedError("the plain formula would take more than 1 GiB")
        self.case, self.attend = prepare(library, kind, length, head_width)

    def time_attention(self, *params):
        self.attend()

    def track_gflops(self, *params):
        """Return GFLOP/s, counting only the (query, key) pairs that the query sees."""
        return self.case.flops() / min(seconds(self.attend) for _ in range(REPEATS)) / 1e9

    track_gflops.unit = "GFLOP/s"

    def track_fraction_of_peak(self, *params):
        """Return the same rate as a fraction of the machine's peak."""
        times, peaks = [], []
        for _ in range(REPEATS):  # in turns, so that a busy neighbour slows both alike
            peaks.append(measure_rate(THREADS, repeats=1))
            times.append(seconds(self.attend))
        return self.case.flops() / min(times) / (max(peaks) * 1e9)

    track_fraction_of_peak.unit = "fraction"

    def track_memory_beyond_arrays(self, *params):
        """Return the peak memory beyond the inputs and the result."""
        return extra_memory(self.attend) / 2**20

    track_memory_beyond_arrays.unit = "MiB"


def seconds(work):
    """Return the seconds that one call takes."""
    start = perf_counter()
    work()
    return perf_counter() - start
