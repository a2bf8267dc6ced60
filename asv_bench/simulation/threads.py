"""Run the schedules of schedule.pxi as threads of a simulation: bundles, by rows and by columns, with stealing.

The names are those of schedule.pxi and program.pxi. Besides the engine's schedules there are teams of some threads that
share a bundle, which are a proposal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np

from engine.backends.cpu import schedule

from .caches import Caches, nothing_moved
from .events import Barrier, Item, Run, simulate
from .hardware import Hardware, Rates
from .program import Instruction, Listing

PIECES = 4
"""The constant of machine.pxi."""
ROWS = 64
"""Rows of a buffer that the caches keep together."""


@dataclass(frozen=True)
class Rule:
    """The sizes that decide who computes what; the defaults are the engine's."""

    bundle: int = 192
    """Approximate tokens of a bundle, for each thread of its team."""
    block: int = 64
    """Rows that go through a segment together."""
    team: int = 1
    """Threads that share a bundle."""
    queries: int = 0
    """Queries of one block of attention; 0 for the NR queries of the kernels. Fewer are taken to cost as much each."""


ENGINES = Rule()


@dataclass
class Group:
    """A batch group: the first row and the tokens of each sequence."""

    sequences: list[tuple[int, int]]
    N: int


@dataclass
class Team:
    """Threads that work on one group at a time, and the groups that the team has taken from the queue so far."""

    number: int
    size: int
    barrier: Barrier
    taken: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    pieces: int = 0


def forward(listing: Listing, rates: Rates, hardware: Hardware, lengths: list[int], rule: Rule = ENGINES,
            max_tokens: int = 8192) -> Run:  # fmt: skip
    """Simulate one forward pass over sequences of these lengths, with a thread for each core."""
    job = _Job(listing, rates, hardware, lengths, rule, max_tokens)
    h = hardware
    wires = {("memory", i): h.memory_bandwidth for i in range(h.sockets)}
    wires |= {("domain", i): h.domain_bandwidth for i in range(h.domains)}
    wires |= {("link", i): h.link_bandwidth for i in range(h.sockets)}
    return simulate([job.work(rank) for rank in range(h.cores)], wires)


def efficiency(run: Run, alone: Run, cores: int) -> float:
    """Return how much of its cores a pass uses: the time of one core, over cores times the time of the pass."""
    return alone.seconds / (cores * run.seconds)


def scheduled(lengths: list[int], threads: int, max_tokens: int, bundle: int) -> schedule.PassSchedule:
    """Return the engine's schedule of a batch, with this size of bundles."""
    return schedule.make_schedule(np.cumsum([0, *lengths]).astype(np.int32), threads, max_tokens, bundle)


class _Job:
    def __init__(self, listing: Listing, rates: Rates, hardware: Hardware, lengths: list[int], rule: Rule,
                 max_tokens: int):  # fmt: skip
        self._code, self._buffers, self._rates = listing.code, listing.buffers, rates
        self._hardware, self._rule = hardware, rule
        self._caches = Caches(hardware)
        threads = hardware.cores
        size = rule.team if threads % rule.team == 0 else 1
        plan = scheduled(lengths, threads // size, max_tokens, rule.bundle * size)
        size = size if plan.bundles else threads
        self._teams = [Team(i, size, Barrier(size, hardware.barrier_seconds * size)) for i in range(threads // size)]
        for team in self._teams:
            team.begun = [0] * size
        self._groups, first = [], 0
        for n, tokens in plan.groups.tolist():
            self._groups.append(Group([(row, T) for _, T, row in plan.sequences[first : first + n].tolist()], tokens))
            first += n
        self._next = count()

    def work(self, rank: int) -> Iterator[Item | Barrier]:
        """Do one thread's part: the caller first wakes the others, one after the other."""
        h = self._hardware
        yield Item(h.signal_seconds * (rank or h.cores - 1) + (h.wake_seconds if rank else 0), useful=False)
        team = self._teams[rank // self._teams[0].size]
        for turn in count():
            if len(team.taken) == turn:
                team.taken.append(next(self._next))
            if team.taken[turn] >= len(self._groups):
                return
            group = self._groups[team.taken[turn]]
            by_columns = team.size > 1 and self._rule.block >= group.N
            yield from (self._by_columns if by_columns else self._by_rows)(rank, rank % team.size, group, team)
            yield from _meet(team)

    def _by_rows(self, core: int, rank: int, group: Group, team: Team) -> Iterator[Item | Barrier]:
        begin, pieces = 0, PIECES * team.size if team.size > 1 else 1
        for end in [i for i, op in enumerate(self._code) if op.kind == "ATTEND"] + [len(self._code)]:
            for turn in range(team.size):
                other = (rank + turn) % team.size
                while rows := self._block_of(group, team, other):
                    team.begun[other] += 1
                    for op in self._code[begin:end]:
                        yield self._item(core, op, group, team, *rows, 0, 1)
            yield from _meet(team)
            team.begun[rank] = 0
            if end == len(self._code):
                return
            if team.size == 1:
                yield self._attend(core, self._code[end], group, team, 0, 1)
            else:
                while team.pieces < pieces:
                    team.pieces += 1
                    yield self._attend(core, self._code[end], group, team, team.pieces - 1, pieces)
            yield from _meet(team)
            team.pieces = 0
            begin = end + 1

    def _block_of(self, group: Group, team: Team, rank: int) -> tuple[int, int] | None:
        """Return the rows of the next block of a thread's share that nobody has begun."""
        start = group.N * rank // team.size
        M = group.N * (rank + 1) // team.size - start
        blocks, i = -(-M // self._rule.block), team.begun[rank]
        return (start + M * i // blocks, start + M * (i + 1) // blocks) if i < blocks else None

    def _by_columns(self, core: int, rank: int, group: Group, team: Team) -> Iterator[Item | Barrier]:
        first, last = group.N * rank // team.size, group.N * (rank + 1) // team.size
        for op in self._code:
            if op.needs_barrier:
                yield from _meet(team)
            if op.kind == "ATTEND":
                yield self._attend(core, op, group, team, rank, team.size)
            elif op.kind == "MULTIPLY":
                yield self._item(core, op, group, team, 0, group.N, rank, team.size)
            elif first < last:
                yield self._item(core, op, group, team, first, last, 0, 1)

    def _item(self, core: int, op: Instruction, group: Group, team: Team, first: int, last: int, rank: int,
              size: int) -> Item:  # fmt: skip
        """Return the work of one instruction on rows [first, last), or of a share of its panels."""
        item = Item(0.0, nothing_moved())
        touch = partial(self._touch, core, group, team, item, shared=size > 1)
        for buffer in op.reads:
            touch(buffer, first, last, False)
        if op.map is not None:
            NR, map = self._rates.kernels.NR, op.map
            panels = -(-map.N // NR)
            first_panel, last_panel = panels * rank // size, panels * (rank + 1) // size
            columns = min(map.N, last_panel * NR) - first_panel * NR
            item.seconds += columns / NR * self._rates.panel(map.K, last - first, op.result)
            for panel in range(first_panel, last_panel):
                size_of_panel = min(NR, map.N - panel * NR) * map.K * self._rates.weight_bytes
                if waited := self._caches.weights(core, (map.name, panel), panel, size_of_panel, item.moved):
                    item.seconds += waited * self._rates.byte(last - first)
        else:
            item.seconds += (last - first) * op.width * self._rates.number(op.kind)
        for buffer in op.writes:
            touch(buffer, first, last, True)
        return item

    def _attend(self, core: int, op: Instruction, group: Group, team: Team, piece: int, pieces: int) -> Item:
        """Return the work of one piece of all (sequence, head, block of NR queries)."""
        item = Item(0.0, nothing_moved())
        touch = partial(self._touch, core, group, team, item, shared=False)
        NR, heads = self._rates.kernels.NR, self._buffers[op.reads[0]].heads
        queries = self._rule.queries or NR
        low, high = op.band
        seen = [(row, T, -(-T // queries), min(T, high - low + NR - 1)) for row, T in group.sequences]
        total = heads * sum(blocks * each for _, _, blocks, each in seen)
        start, stop, cost = total * piece // pieces, total * (piece + 1) // pieces, 0
        for row, T, blocks, each in seen:
            if not (cost + heads * blocks * each > start and cost < stop):     # another piece has all of this sequence
                cost += heads * blocks * each
                continue
            for h in range(heads):
                begin, end = (min(blocks, max(0, -(-(edge - cost) // each))) for edge in (start, stop))
                cost += blocks * each
                if begin < end:
                    item.seconds += (end - begin) * each * self._rates.attention(op.d, T) * queries / NR
                    first, last = row + begin * queries, row + min(T, end * queries)
                    for buffer, rows in zip(op.reads, ((first, last), (row, row + T), (row, row + T)), strict=True):
                        shared = heads // self._buffers[buffer].heads
                        touch(buffer, *rows, False, head=h // shared)
                    touch(op.writes[0], first, last, True)
        return item

    def _touch(self, core: int, group: Group, team: Team, item: Item, buffer: int, first: int, last: int, write: bool,
               *, shared: bool, head: int | None = None) -> None:  # fmt: skip
        """Use rows of a buffer; shared: by columns, where all threads use the rows of one block."""
        placed = self._buffers[buffer]
        if not (placed.in_pass or shared):
            return      # rows of a thread's block stay in its second-level cache
        for h in range(placed.heads) if placed.heads and head is None else [head or 0]:
            for i in range(first // ROWS, (last - 1) // ROWS + 1):
                size = min(ROWS, group.N - i * ROWS) * placed.stride * 4
                if waited := self._caches.rows(core, (team.number, buffer, h, i), size, write, item.moved):
                    item.seconds += waited * self._rates.byte(last - first)


def _meet(team: Team) -> Iterator[Barrier]:
    if team.size > 1:
        yield team.barrier
