"""Measure single operations: the time, the share of the machine's peak and the memory of every kind of attention.

All of them take about two minutes. asv starts a process for each case, so that a case more is a second more.
"""

from importlib.util import find_spec
from time import perf_counter

from engine.backends.peak import measure_rate

from .attention import KINDS, LIBRARIES, THREADS, extra_memory, prepare

REPEATS = 3
INSTALLED = [name for name in LIBRARIES if "torch" not in name or find_spec("torch")]
"""The libraries that can run here."""


class Attention:
    """Attention of one sequence with 12 heads of width 64, in float32, on up to two threads."""

    params = (INSTALLED, list(KINDS), [512])
    param_names = ("library", "kind", "length")
    timeout = 300
    rounds, repeat, number, warmup_time = 1, 5, 1, 0.0

    def setup(self, library, kind, length):
        self.case, self.attend = prepare(library, kind, length, 64)

    def time_attention(self, *params):
        self.attend()

    def track_fraction_of_peak(self, *params):
        """Return the arithmetic rate as a fraction of the machine's peak, for the pairs that a query sees alone."""
        return fraction_of_peak(self.case, self.attend)

    track_fraction_of_peak.unit = "fraction"

    def track_memory_beyond_arrays(self, *params):
        """Return the peak memory beyond the inputs and the result."""
        return extra_memory(self.attend) / 2**20

    track_memory_beyond_arrays.unit = "MiB"


class Shapes:
    """Full attention of the engine with other lengths and other widths of a head."""

    params = ("128 of width 64", "2048 of width 64", "512 of width 32", "512 of width 128")
    param_names = ("shape",)

    def setup(self, shape):
        length, _, _, width = shape.split()
        self.case, self.attend = prepare("engine", "full", int(length), int(width))

    def track_fraction_of_peak(self, shape):
        """Return the arithmetic rate as a fraction of the machine's peak."""
        return fraction_of_peak(self.case, self.attend)

    track_fraction_of_peak.unit = "fraction"


def fraction_of_peak(case, attend):
    """Return the best rate of some calls as a fraction of the peak of the machine."""
    times, peaks = [], []
    for _ in range(REPEATS):  # in turns, so that a busy neighbour slows both alike
        peaks.append(measure_rate(THREADS, repeats=1))
        times.append(seconds(attend))
    return case.flops() / min(times) / (max(peaks) * 1e9)


def seconds(work):
    """Return the seconds that one call takes."""
    start = perf_counter()
    work()
    return perf_counter() - start
