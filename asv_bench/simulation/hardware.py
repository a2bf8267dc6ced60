"""Describe the simulated machine: its cores, caches and wires, and the measured times of the kernels on one core."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

CALIBRATIONS = Path(__file__).with_name("calibrations")
"""The folder of the measured times, a file for each CPU; `python -m simulation.calibrate` writes them."""
CALIBRATED = "zen5"
"""The CPU whose times the simulation uses by default."""


@dataclass(frozen=True)
class Hardware:
    """A machine with one or more sockets. Bandwidths are in bytes a second."""

    cores: int
    """Cores that run a thread, spread evenly over the sockets."""
    sockets: int = 1
    domain_cores: int = 8
    """Cores that share one third-level cache."""
    domain_bytes: int = 32 * 2**20
    """Size of each third-level cache."""
    domain_bandwidth: float = 60e9
    """Of the wire between one third-level cache and the rest of the machine."""
    memory_bandwidth: float = 400e9
    """Of the memory of one socket."""
    link_bandwidth: float = 120e9
    """Of the wire between two sockets, in one direction."""
    remote: float = 2.0
    """How many times as long one core waits for bytes from the memory of another socket."""
    barrier_seconds: float = 1e-7
    """Time of a barrier for each thread that meets: the arrivals change one cache line, one after the other."""
    signal_seconds: float = 3e-6
    """Time for which the caller works to wake one sleeping thread."""
    wake_seconds: float = 2e-5
    """Time from there until the thread runs."""
    placement: str = "first"
    """Where packed weights lie: "first": all in the memory of the first socket, as the engine allocates them today;
    "interleaved": spread over the sockets; "copied": each socket has all of them."""

    def socket(self, core: int) -> int:
        """Return the socket of a core."""
        return core * self.sockets // self.cores

    def domain(self, core: int) -> int:
        """Return the third-level cache of a core."""
        return core // self.domain_cores

    @property
    def domains(self) -> int:
        """Return how many third-level caches the cores have."""
        return -(-self.cores // self.domain_cores)


MACHINES = {
    "epyc": Hardware(1),
    "one-cache": Hardware(1, domain_cores=64, domain_bytes=128 * 2**20, domain_bandwidth=1e12, memory_bandwidth=300e9),
    "apart": Hardware(1, domain_cores=1, domain_bytes=4 * 2**20),
}
"""Machines to simulate, by name. Their cores are as fast as the calibrated one, at any number of cores.

`epyc` is built as AMD's servers: eight cores share 32 MB; twelve channels of DDR5 make about 400 GB/s a socket.
`one-cache` is built as Intel's: all cores of a socket share one cache; eight channels make about 300 GB/s.
`apart` is `epyc` with its caches cut into one for each core, so that nothing is shared: the worst case for memory.
These sizes and bandwidths are round numbers of data sheets, not measurements.
"""


class Rates:
    """The measured times of kernels on one core, in one precision, with weights in the third-level cache."""

    def __init__(self, calibration: dict, precision: str):
        measured = calibration["precisions"][precision]
        self.precision = precision
        self.converts, self.weight_bytes = measured["converts"], measured["weight_bytes"]
        self.kernels = SimpleNamespace(VL=calibration["VL"], NR=calibration["NR"])
        self._panels, self._attention, self._numbers = measured["panels"], measured["attention"], measured["numbers"]
        self._byte = measured["byte"]
        self._known: dict[tuple[int, int, str], float] = {}

    def panel(self, K: int, rows: int, kind: str) -> float:
        """Return the seconds that one panel of depth K takes for `rows` rows.

        kind: "plain", or "activation" or "residual" where the result has one.
        """
        if (K, rows, kind) not in self._known:
            depths = sorted((row for row in self._panels if row["kind"] == kind), key=lambda row: row["K"])
            times = [np.interp(rows, [0, *row["rows"]], [0, *row["seconds"]]) for row in depths]
            self._known[K, rows, kind] = float(_through(K, [row["K"] for row in depths], times))
        return self._known[K, rows, kind]

    def byte(self, rows: int) -> float:
        """Return the seconds of waiting for a byte that is not in the third-level cache, if no wire is short.

        rows: the rows of the product that needs it.
        """
        return float(np.interp(rows, self._byte["rows"], self._byte["seconds"]))

    def attention(self, d: int, T: int) -> float:
        """Return the seconds for each block of NR queries and each key; T tokens in a sequence, heads of width d."""
        widths = sorted(self._attention, key=lambda row: row["d"])
        times = [np.interp(np.log(T), np.log(row["T"]), row["seconds"]) for row in widths]
        return float(_through(d, [row["d"] for row in widths], times))

    def number(self, kind: str) -> float:
        """Return the seconds for each number that an instruction of this kind reads or writes row by row."""
        return self._numbers[kind]


def _through(x: float, known: list[int], values: list) -> float:
    """Interpolate between known points; beyond them, keep the ratio to the nearest."""
    if len(known) == 1 or x <= known[0] or x >= known[-1]:
        nearest = 0 if x <= known[0] else -1
        return values[nearest] * x / known[nearest]
    return np.interp(x, known, values)


def load(name: str = CALIBRATED) -> dict:
    """Return the measured times of a CPU."""
    return json.loads((CALIBRATIONS / f"{name}.json").read_text())


def with_measured(hardware: Hardware, calibration: dict) -> Hardware:
    """Return the hardware with the measured times of threads that meet or wake."""
    return replace(hardware, **calibration["times"])
