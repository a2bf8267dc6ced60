"""Find which bytes an instruction brings from memory or from another cache: third-level caches by least recent use.

A block is a panel of weights, or some rows of a buffer. First-level and second-level caches are part of the measured
times of kernels, and so is the third-level cache where it has the block.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable

from .hardware import Hardware

Bytes = dict[tuple[str, int], float]
"""Bytes by the wire that they pass: ("memory", socket), ("domain", number) or ("link", socket that sends)."""


class Caches:
    """The third-level caches of a machine, and the sockets whose memory has the blocks."""

    def __init__(self, hardware: Hardware):
        self._hardware = hardware
        self._lines: list[OrderedDict[Hashable, int]] = [OrderedDict() for _ in range(hardware.domains)]
        self._used = [0] * hardware.domains
        self._dirty: dict[Hashable, int] = {}
        self._homes: dict[Hashable, int] = {}

    def weights(self, core: int, key: Hashable, index: int, size: int, moved: Bytes) -> float:
        """Read a block of weights and return the bytes that the core waits for; index: of a panel, for interleaving."""
        h = self._hardware
        homes = {"first": 0, "interleaved": index % h.sockets, "copied": h.socket(core)}
        return self._touch(core, key, size, homes[h.placement], False, moved)

    def rows(self, core: int, key: Hashable, size: int, write: bool, moved: Bytes) -> float:
        """Read or write rows and return the bytes that the core waits for.

        Their memory is that of the socket that has written them first.
        """
        home = self._homes.setdefault(key, self._hardware.socket(core))
        return self._touch(core, key, size, home, write, moved)

    def _touch(self, core: int, key: Hashable, size: int, home: int, write: bool, moved: Bytes) -> float:
        """Use a block, which adds to `moved`; return the bytes that the core waits for.

        Bytes from another socket count `remote` times.
        """
        h, domain, waited = self._hardware, self._hardware.domain(core), 0.0
        lines = self._lines[domain]
        if key in lines:
            lines.move_to_end(key)
        else:
            if not write:       # rows that are overwritten are not brought first
                self._move(core, None if key in self._dirty else home, size, moved)
                waited = size * (h.remote if home != h.socket(core) else 1.0)
            lines[key] = size
            self._used[domain] += size
        if write:
            for other, theirs in enumerate(self._lines):
                if other != domain and key in theirs:
                    self._used[other] -= theirs.pop(key)
            self._dirty[key] = domain
        while self._used[domain] > self._hardware.domain_bytes and len(lines) > 1:
            old, old_size = lines.popitem(last=False)
            self._used[domain] -= old_size
            if self._dirty.get(old) == domain:
                del self._dirty[old]
                self._move(core, self._homes[old], old_size, moved)
        return waited

    def _move(self, core: int, home: int | None, size: int, moved: Bytes) -> None:
        """Add bytes between a core's cache and the memory of socket `home`, or another cache if it is None."""
        moved[("domain", self._hardware.domain(core))] += size
        if home is not None:
            moved[("memory", home)] += size
            if home != self._hardware.socket(core):
                moved[("link", home)] += size


def nothing_moved() -> Bytes:
    """Return a count of bytes that is empty."""
    return defaultdict(float)
