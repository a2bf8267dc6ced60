"""`Prefixes`: what a decoder has read, by its ids, so that no sequence reads what another one has read or is reading.

Runs of blocks of ids lie in a tree, one for each key: those who may share. A block is a cell of the cache.

    root --+-- [system prompt, 64 ids] --+-- [a question, 32 ids]
           |                             +-- [another question, 16 ids]
           +-- [a document, 512 ids]

An open sequence has its place at the end of the run with the last block that it may share. Each run up to a place has
a reader, the sequence that reads it for all, or a hypothesis, which a request of the tree holds after the reader left.
Whoever needs a run takes a cut of the hypothesis of either, which copies nothing. A run that no place needs is kept
until it has to go.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .encoder_decoder import SourceStepper
from .works import Sequence, StepWork

BLOCK = 16
"""The ids of a block: the tokens of a cell, so that no child of a prefix has to copy a part of one."""
ITEM = 8
"""The bytes of an id."""


@dataclass(eq=False, slots=True)
class _Run:
    """Blocks of ids that follow those of the parent."""

    ids: bytes
    """Its ids as the bytes of int64 numbers, which Python compares fast."""
    parent: _Run | None
    length: int
    """The number of ids from the root to its end."""
    reader: Sequence | None = None
    """The open sequence that has read it, or will read it."""
    hypothesis: int | None = None
    """The hypothesis of the ids from the root to its end, which the request of the tree holds."""
    users: int = 0
    """The places at its end or below it."""
    children: dict[bytes, _Run] = field(default_factory=dict)
    """The next runs, by their first blocks."""
    key: Hashable = None
    """The `cache_key` of the sequences that share the tree, at its root; None for other runs."""

    @property
    def count(self) -> int:
        """The number of its ids."""
        return len(self.ids) // ITEM


class Prefixes:
    """The prefixes that the sequences of one decoder share. It belongs to the thread that has the queue's turn."""

    def __init__(self, stepper: SourceStepper, most: int):
        """most: the most tokens of all runs without a place, between two calls."""
        self._stepper, self.most = stepper, most
        self.found = 0
        """The tokens that sequences have got without reading them."""
        self.clear()

    def clear(self) -> None:
        """Forget everything, after the stepper has ended all requests."""
        self.kept = 0
        """The tokens of the runs without a place."""
        self.beyond = 0
        """How many more than `most` may be kept, while sequences wait that had to give way."""
        self._roots: dict[Hashable, _Run] = {}
        self._places: dict[StepWork, dict[Sequence, _Run | None]] = {}
        """The place of each sequence of each open request: a run, or None for a sequence that shares nothing yet."""
        self._shared: dict[StepWork, list[_Run]] = {}
        """The last runs of the prompts that all hypotheses of open requests go on from."""
        self._idle: dict[_Run, None] = {}
        """The runs without a place, the least recently used first."""
        self._request: int | None = None        # the request of the tree, while it holds hypotheses

    def enter(self, sequence: Sequence) -> None:
        """Give a sequence its place, at the end of the last block that it may share: it reads its last id itself.

        One with a source has none, because its cells depend on the source; nor has one whose work has steps of its own.
        """
        work = sequence.work
        end = min(sequence.first_scored, sequence.length - 1) // BLOCK * BLOCK
        if work.packed is None and not work.entry.alone and (end or work.makes_tokens):
            self._places.setdefault(work, {})[sequence] = self._add_user(sequence, end)

    def catch_up(self, sequence: Sequence) -> Sequence:
        """Let a sequence have what others have read; return who reads next: it, or another one that it waits for.

        If it reads itself, it becomes the reader of the runs of its place that nobody else reads.
        """
        found: tuple[int, int] | None = None        # the hypothesis that has read most of it, and the ids of that
        reads = sequence
        path = _runs_to(self._places.get(sequence.work, {}).get(sequence))
        for i, run in enumerate(path):
            if run.length <= sequence.read:
                continue
            if run.hypothesis is not None:
                found = run.hypothesis, run.length
            elif run.reader is None or run.reader is sequence:
                for each in path[i:]:       # its next part may end in any of them
                    each.reader = each.reader or sequence
                break
            elif run.reader.read >= run.length:
                assert run.reader.hypothesis is not None
                found = run.reader.hypothesis, run.length
            else:
                reads = run.reader
                break
        if found is not None:
            self.found += found[1] - sequence.read
            before, work = sequence.hypothesis, sequence.work
            sequence.hypothesis, sequence.read = self._stepper.cut(*found, work.number), found[1]
            if work.move(before, sequence.hypothesis) and before is not None:
                self._stepper.release([before])
        return reads

    def ahead(self, sequence: Sequence) -> int:
        """Return how many of a sequence's first ids the cache has, or has promised to others that read them."""
        length = 0
        for run in _runs_to(self._places.get(sequence.work, {}).get(sequence)):
            if run.hypothesis is None and (run.reader is None or run.reader is sequence):
                break
            length = run.length
        return length

    def known(self, ids: NDArray[np.int64], key: Hashable) -> int:
        """Return how many of the first ids of a prompt the cache has, or others read. Any thread may ask.

        key: the `cache_key` of the prompt. Meanwhile the thread with the turn may change it: it is an estimate.
        """
        data, run, length = ids.tobytes(), self._roots.get(key), 0
        while run is not None:
            run = run.children.get(data[length * ITEM : (length + BLOCK) * ITEM])
            if run is not None:
                same = _count_common(run.ids, data[length * ITEM :])
                length += same
                if same < run.count:
                    break
        return length

    def leave(self, sequence: Sequence, keeps: bool = True, soon: bool = False, forks: bool = False) -> None:
        """Keep what a sequence has read, which is about to lose its hypothesis, and take its place away.

        A sequence that waits for it becomes the reader of the rest when it catches up. keeps: False to keep nothing.
        soon: for a sequence that gives way: what is kept is the next to go, and is kept whatever the bound between
        calls is. forks: several hypotheses go on from what was read, so that it is in use until the request ends.
        """
        places = self._places.get(sequence.work, {})
        if sequence not in places:
            return
        place = places.pop(sequence)
        if not places:
            del self._places[sequence.work]
        for each in _runs_to(place):
            if each.reader is sequence:
                each.reader = None
        # While this works, it uses all that it has read, so that nothing of that goes.
        last = run = self._add_user(sequence, sequence.read // BLOCK * BLOCK if keeps else 0)
        self._drop_user(place)
        known = place.length if place else 0
        for each in _runs_to(last):        # `run` becomes the last one that is kept
            # Another sequence has read the same tokens into other cells, or reads them: only one of both is kept.
            if each.length > known and (each.hypothesis is not None or each.reader is not None):
                run = each.parent
                break
        if forks and run is not None:
            self._shared.setdefault(sequence.work, []).append(run)
            for each in _runs_to(run):
                each.users += 1
        while run is not None and run.parent is not None:
            self._join(run)
            if run.hypothesis is None and (soon or self.most or run.users > 1):
                run.hypothesis = self._held(sequence.hypothesis, run.length)
            run = run.parent
        kept_before = self.kept
        self._drop_user(last, soon)
        if soon:
            self.beyond += self.kept - kept_before
        self.let_go(self.kept - self.most - self.beyond)

    def leave_all(self, work: StepWork, keeps: bool) -> None:
        """Keep what all sequences of a request that ends have read. keeps: False to keep nothing."""
        for sequence in [*self._places.get(work, ())]:
            self.leave(sequence, keeps)
        for run in self._shared.pop(work, ()):
            self._drop_user(run)
        self.let_go(self.kept - self.most - self.beyond)

    def trim(self) -> None:
        """Keep no more than between two calls, because no sequence waits that had to give way."""
        self.beyond = 0
        self.let_go(self.kept - self.most)

    def let_go(self, tokens: int) -> None:
        """Free this number of kept tokens, or all if there are fewer: the least recently used runs, from their ends."""
        while tokens > 0 and self._idle:
            run = next(run for run in self._idle if not run.children)
            assert run.hypothesis is not None
            old, size = run.hypothesis, min(run.count, cells_of(tokens) * BLOCK)
            tokens -= size
            self.kept -= size
            if size == run.count:
                del self._idle[run]
                self._remove(run)
            else:
                run.ids, run.length = run.ids[: -size * ITEM], run.length - size
                run.hypothesis = self._held(old, run.length)
            self._stepper.release([old])
        if not self._roots and self._request is not None:
            self._stepper.close(self._request)
            self._request = None

    def _held(self, hypothesis: int | None, length: int) -> int:
        """Return a hypothesis of the tree's own request with the first tokens of another one."""
        assert hypothesis is not None
        if self._request is None:
            self._request = self._stepper.open(None)
        return self._stepper.cut(hypothesis, length, self._request)

    def _add_user(self, sequence: Sequence, end: int) -> _Run | None:
        """Count a user more of the runs with the first `end` ids of a sequence; return the last run, None for no ids.

        Runs that are not there are made, and one that has other ids behind is split.
        """
        if not end:
            return None
        ids, key = sequence.ids[:end].tobytes(), sequence.work.cache_key
        run = self._roots.get(key)
        if run is None:
            run = self._roots[key] = _Run(b"", None, 0, key=key)
        while run.length < end:
            at = run.length * ITEM
            first = ids[at : at + BLOCK * ITEM]
            child = run.children.get(first)
            if child is None:
                child = run.children[first] = _Run(ids[at:], run, end)
            elif not ids.startswith(child.ids, at):
                child = self._split(child, _count_common(child.ids, ids[at:]))
            run = child
        for each in _runs_to(run):
            if not each.users and each in self._idle:
                del self._idle[each]
                self.kept -= each.count
            each.users += 1
        return run

    def _drop_user(self, run: _Run | None, soon: bool = False) -> None:
        """Count a user less of a run and those above it. Runs that nobody uses any more are kept, if they were read.

        soon: what is kept is the next to go.
        """
        idle: dict[_Run, None] = {}
        for each in _runs_to(run)[::-1]:
            each.users -= 1
            if not each.users and each.hypothesis is None:
                self._remove(each)
            elif not each.users:
                idle[each] = None
                self.kept += each.count
        if soon:
            self._idle = idle | self._idle
        else:
            self._idle |= idle

    def _split(self, run: _Run, at: int) -> _Run:
        """Divide a run after some of its ids, and return the first part."""
        begin = run.length - run.count
        upper = _Run(run.ids[: at * ITEM], run.parent, begin + at, run.reader, users=run.users)
        assert run.parent is not None
        run.parent.children[_first_block(upper.ids)] = upper
        run.ids, run.parent = run.ids[at * ITEM :], upper
        upper.children[_first_block(run.ids)] = run
        if run.hypothesis is not None:
            upper.hypothesis = self._held(run.hypothesis, upper.length)
        if run in self._idle:
            self._idle[upper] = None
        return upper

    def _join(self, run: _Run) -> None:
        """Let a run begin where its parent begins, if nobody uses the parent alone."""
        parent = run.parent
        if parent is None or parent.parent is None or parent.users > run.users or len(parent.children) > 1:
            return
        parent.parent.children[_first_block(parent.ids)] = run
        run.ids, run.parent = parent.ids + run.ids, parent.parent
        if parent.hypothesis is not None:
            self._stepper.release([parent.hypothesis])
        self._join(run)

    def _remove(self, run: _Run) -> None:
        """Take a run without children out of the tree, and the root if that has no other child."""
        parent = run.parent
        assert parent is not None
        del parent.children[_first_block(run.ids)]
        if parent.parent is None and not parent.children:
            del self._roots[parent.key]


def cells_of(tokens: int) -> int:
    """Return the number of cells that so many tokens take."""
    return -(-tokens // BLOCK)


def _runs_to(run: _Run | None) -> list[_Run]:
    """Return the runs from below the root to this one."""
    runs = []
    while run is not None and run.parent is not None:
        runs.append(run)
        run = run.parent
    return runs[::-1]


def _first_block(ids: bytes) -> bytes:
    """Return the first block of a run's ids, which is its key among the children of its parent."""
    return ids[: BLOCK * ITEM]


def _count_common(first: bytes, second: bytes) -> int:
    """Return how many first ids two runs share, in whole blocks."""
    n = min(len(first), len(second)) // ITEM
    differs = np.frombuffer(first, np.int64, n) != np.frombuffer(second, np.int64, n)
    return int(differs.argmax()) // BLOCK * BLOCK if differs.any() else n
