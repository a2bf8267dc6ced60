"""`Prefixes`: a tree of the ids that a decoder has read, so that no sequence reads what another one has or is reading.

Each key (`StepWork.cache_key`) has a tree, whose nodes are runs of blocks of ids. A block fills one cell of the cache.

    root --+-- [system prompt, 64 ids] --+-- [a question, 32 ids]
           |                             +-- [another question, 16 ids]
           +-- [a document, 512 ids]

An open sequence has its place at the end of the run with the last block that it may share. Each run up to a place has
a reader, the sequence that reads it for all, or a hypothesis, which a request of the tree holds after the reader left.
A sequence that needs a run gets a cut of that hypothesis or of the reader's, which copies nothing. A run that no place
needs is idle: it is kept until its cells are needed. `StepQueue` and `CacheRoom` call this.
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
    """A node of the tree: one or more blocks of ids, which follow those of the parent."""

    ids: bytes
    """Its ids as the bytes of int64 numbers, which Python compares fast."""
    parent: _Run | None
    """The run before it; None for the root of a tree, which has no ids."""
    length: int
    """The number of ids from the root to its end."""
    reader: Sequence | None = None
    """The open sequence that has read it, or will read it."""
    hypothesis: int | None = None
    """The hypothesis of the ids from the root to its end, which the request of the tree holds; None before."""
    users: int = 0
    """How many places are at its end or below it."""
    children: dict[bytes, _Run] = field(default_factory=dict)
    """The next runs, by their first blocks."""
    key: Hashable = None
    """Of a root, the `cache_key` of the sequences that share the tree; None for other runs."""

    @property
    def count(self) -> int:
        """The number of its ids."""
        return len(self.ids) // ITEM


class Prefixes:
    """The prefixes that the sequences of one decoder share. It belongs to the thread that has the queue's turn."""

    def __init__(self, stepper: SourceStepper, most: int):
        """most: the most tokens that idle runs keep between two calls of users."""
        self._stepper, self.most = stepper, most
        self.found_tokens = 0
        """The tokens that sequences have got without reading them, for statistics."""
        self.clear()

    def clear(self) -> None:
        """Forget everything, after the stepper has ended all requests."""
        self.kept = 0
        """The tokens of the idle runs."""
        self.beyond = 0
        """How many more tokens than `most` may be kept, while sequences wait that had to give way."""
        self._roots: dict[Hashable, _Run] = {}
        """The root of each tree, by its key."""
        self._places: dict[StepWork, dict[Sequence, _Run | None]] = {}
        """The place of each sequence of each open request: a run, or None for a sequence that shares nothing yet."""
        self._shared: dict[StepWork, list[_Run]] = {}
        """The last runs of the prompts of open requests with several hypotheses, which all go on from these."""
        self._idle: dict[_Run, None] = {}
        """The idle runs, the least recently used first; a dict, because a set has no order."""
        self._request: int | None = None        # the request of the tree, while it holds hypotheses

    def enter(self, sequence: Sequence) -> None:
        """Give a sequence its place, at the end of the last block that it may share: ids before the first scored one.

        A sequence with a source gets none, because its cells depend on the source; nor does one whose work has steps of
        its own.
        """
        work = sequence.work
        end = min(sequence.first_scored, sequence.length - 1) // BLOCK * BLOCK
        if work.packed is None and not work.entry.alone and (end or work.makes_tokens):
            self._places.setdefault(work, {})[sequence] = self._add_user(sequence, end)

    def catch_up(self, sequence: Sequence) -> Sequence:
        """Give a sequence the ids that others have read; return which sequence reads next: this one, or the one that
        this one waits for. If this one reads next, it becomes the reader of the runs up to its place that have none.
        """
        source: tuple[int, int] | None = None       # (the hypothesis that has read most of its ids, how many of them)
        next_reader = sequence
        path = _runs_to(self._places.get(sequence.work, {}).get(sequence))
        for i, run in enumerate(path):
            if run.length <= sequence.read:
                continue
            if run.hypothesis is not None:
                source = run.hypothesis, run.length
            elif run.reader is None or run.reader is sequence:
                for each in path[i:]:       # it goes on to read all of them
                    each.reader = each.reader or sequence
                break
            elif run.reader.read >= run.length:
                assert run.reader.hypothesis is not None
                source = run.reader.hypothesis, run.length
            else:
                next_reader = run.reader
                break
        if source is not None:
            hypothesis, length = source
            self.found_tokens += length - sequence.read     # for statistics
            before, work = sequence.hypothesis, sequence.work
            sequence.hypothesis, sequence.read = self._stepper.cut(hypothesis, length, work.number), length
            is_unused = work.move(before, sequence.hypothesis)      # no other sequence of the work has `before` now
            if is_unused and before is not None:
                self._stepper.release([before])
        return next_reader

    def ahead(self, sequence: Sequence) -> int:
        """Return how many first ids of a sequence need no cells of its own: the cache has them, or others read them."""
        length = 0
        for run in _runs_to(self._places.get(sequence.work, {}).get(sequence)):
            if run.hypothesis is None and (run.reader is None or run.reader is sequence):
                break
            length = run.length
        return length

    def known(self, ids: NDArray[np.int64], key: Hashable) -> int:
        """Return how many of the first ids of a prompt the cache has, or others read. Any thread may ask.

        key: the `cache_key` of the prompt. It is an estimate: the thread with the turn may change the tree meanwhile.
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
        """Take away the place of a sequence that is about to lose its hypothesis, and keep the blocks that it has read.

        A sequence that waits for it becomes the reader of the other blocks when it catches up. keeps: False to keep
        nothing. soon: True for a sequence that gives way: its blocks are kept beyond the bound `most`, but are the next
        ones to be freed. forks: whether several hypotheses go on from these blocks, which then stay in use until the
        request ends.
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
        # Add a user of all blocks that it has read, so that `_drop_user(place)` frees none of them.
        last = run = self._add_user(sequence, sequence.read // BLOCK * BLOCK if keeps else 0)
        self._drop_user(place)
        known = place.length if place else 0
        for each in _runs_to(last):        # `run` becomes the last run that is kept
            # Behind its place, another sequence may have read the same ids into other cells: keep only those cells.
            if each.length > known and (each.hypothesis is not None or each.reader is not None):
                run = each.parent
                break
        if forks and run is not None:
            self._shared.setdefault(sequence.work, []).append(run)
            for each in _runs_to(run):
                each.users += 1
        while run is not None and run.parent is not None:       # give each run that is kept a hypothesis of the tree
            self._join(run)
            if run.hypothesis is None and (soon or self.most or run.users > 1):
                run.hypothesis = self._hold(sequence.hypothesis, run.length)
            run = run.parent
        kept_before = self.kept
        self._drop_user(last, soon)
        if soon:
            self.beyond += self.kept - kept_before
        self.let_go(self.kept - self.most - self.beyond)

    def leave_all(self, work: StepWork, keeps: bool) -> None:
        """Take away the places of a request that ends, and keep the blocks that it has read if `keeps` is True."""
        for sequence in [*self._places.get(work, ())]:
            self.leave(sequence, keeps)
        for run in self._shared.pop(work, ()):
            self._drop_user(run)
        self.let_go(self.kept - self.most - self.beyond)

    def trim(self) -> None:
        """Keep no more than `most` tokens again, because no sequence waits any more that had to give way."""
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
                run.hypothesis = self._hold(old, run.length)
            self._stepper.release([old])
        if not self._roots and self._request is not None:       # no run is left, so the request of the tree ends
            self._stepper.close(self._request)
            self._request = None

    def _hold(self, hypothesis: int | None, length: int) -> int:
        """Return a new hypothesis of the tree's own request, with the first `length` tokens of another hypothesis."""
        assert hypothesis is not None
        if self._request is None:
            self._request = self._stepper.open(source=None)
        return self._stepper.cut(hypothesis, length, self._request)

    def _add_user(self, sequence: Sequence, end: int) -> _Run | None:
        """Count one more user of the runs with the first `end` ids of a sequence; return the last run, None for no ids.

        It makes the runs that are missing, and splits a run of which only the first blocks are these ids.
        """
        if not end:
            return None
        ids, key = sequence.ids[:end].tobytes(), sequence.work.cache_key
        run = self._roots.get(key)
        if run is None:
            run = self._roots[key] = _Run(b"", parent=None, length=0, key=key)
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
        """Count one user less of a run and of the runs above it. A run without users becomes idle, if it was read.

        soon: whether these idle runs are the next ones to be freed.
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
        """Divide a run after `at` ids; return a new run with these, the parent of the old run with the others."""
        begin = run.length - run.count
        upper = _Run(run.ids[: at * ITEM], run.parent, begin + at, run.reader, users=run.users)
        assert run.parent is not None
        run.parent.children[_first_block(upper.ids)] = upper
        run.ids, run.parent = run.ids[at * ITEM :], upper
        upper.children[_first_block(run.ids)] = run
        if run.hypothesis is not None:
            upper.hypothesis = self._hold(run.hypothesis, upper.length)
        if run in self._idle:
            self._idle[upper] = None
        return upper

    def _join(self, run: _Run) -> None:
        """Merge the parents of a run into it, as long as a parent is no root, and has no other users and children."""
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
    """Return the number of cells that this number of tokens takes."""
    return -(-tokens // BLOCK)


def _runs_to(run: _Run | None) -> list[_Run]:
    """Return the runs on the way from the root to this run, it included and the root not; none for None."""
    runs = []
    while run is not None and run.parent is not None:
        runs.append(run)
        run = run.parent
    return runs[::-1]


def _first_block(ids: bytes) -> bytes:
    """Return the first block of a run's ids, which is its key among the children of its parent."""
    return ids[: BLOCK * ITEM]


def _count_common(first: bytes, second: bytes) -> int:
    """Return how many first ids two runs (as bytes) have in common, rounded down to whole blocks."""
    n = min(len(first), len(second)) // ITEM
    differs = np.frombuffer(first, np.int64, n) != np.frombuffer(second, np.int64, n)
    return int(differs.argmax()) // BLOCK * BLOCK if differs.any() else n
