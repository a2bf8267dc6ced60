"""`StepQueue`: the queue of a model that generates, which computes the works of all callers together, step by step.

A step lets works enter while there is room, asks the schedule what to read, computes one step of the model, hands each
group its scores, and gives tokens and results to the tickets.

Each work has the same results alone and beside any others, because a row of a step has the same bits in any step
(backends/steps.py), and because no work looks at another one. So a work that an interrupt or an error has broken off is
computed again from its beginning: it comes to the same tokens, and no token is given twice.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any

from ..backends.steps import Row, Scores
from ..base.errors import Cancelled, InputError, TimedOut
from ..base.stop import NEVER, Stop
from ..queues.entry import Entry, OwnStop
from ..queues.work_queue import WorkQueue
from .encoder_decoder import SourceStepper
from .prefixes import BLOCK, Prefixes, cells_of
from .room import CacheRoom
from .schedule import Budget, Pace, Schedule
from .tickets import DecoderTicket
from .works import DecoderEntry, DecoderWork, Group, Outcome, PassWork, Sequence, StepWork

SHARED = Pace(weighs=True)
"""The limits of a step's time while several callers share the queue, none of them in a session."""


@dataclass(frozen=True)
class SessionStatistics:
    """How much work of a session is open at the moment."""

    rows: int
    """Sequences of which each step reads the next token."""
    waiting: int
    """Requests that wait until they enter."""
    prompt_tokens: int
    """Tokens of the prompts of the requests that have entered, which the model has not read yet."""
    step_seconds: float
    """How long the last step took."""


class _OthersCame(Exception):
    """Another caller has come in the middle of a step."""


class _WhileAlone(Stop):
    """The stop of a step of one caller alone: it also comes when another caller submits a work."""

    __slots__ = ("_arrived", "_outer")

    def __init__(self, outer: Stop, arrived: Collection[object]):
        """outer: the stop of the caller. arrived: the queue's own list of works that no step has seen, which grows."""
        super().__init__(outer.deadline)
        self._outer, self._arrived = outer, arrived

    @property
    def has_come(self) -> bool:
        """Whether the stop of the caller has come, or another caller."""
        return self._outer.has_come or bool(self._arrived)

    def check(self) -> None:
        """Raise the error of the caller's stop if that has come; else `_OthersCame` if another caller has come."""
        self._outer.check()
        if self._arrived:
            raise _OthersCame


@dataclass
class _GroupRows:
    """The rows of one group in one step; a step has a list of these (`group_rows`)."""

    group: Group | None
    """None for parts of prompts after which no scores are wanted, of any groups."""
    sequences: list[Sequence]
    rows: list[Row]
    """One row for each of the sequences."""


class StepQueue(WorkQueue):
    """The works of one model that generates. Any thread may call its public methods.

    The private ones run in the thread that has the turn of the queue; the base class calls `_enter`, `_forget`,
    `_reset`, `_adopt` and `_compute_next`. A step admits works, plans which ids are read, runs each company of groups
    that may share a native call, and hands their tokens out. After an error, `_blame` finds the work that caused it.
    """

    def __init__(self, stepper: SourceStepper, budget: Budget | None = None, cache_tokens: int | None = None,
                 schedule: Schedule | None = None, keep_tokens: int = 0):
        """stepper: the steps of the model. budget: None for the default one.

        cache_tokens: the most tokens that the cells in use may have room for; None for any number. schedule: None for
        one with this budget. keep_tokens: the most tokens of prefixes that are kept for later works.
        """
        super().__init__()
        self.budget = budget or Budget()
        self.schedule = schedule or Schedule(self.budget, stepper.vocab_size)
        self.tokens_in = self.tokens_out = 0
        """Tokens of prompts and sources that entered, and new tokens."""
        self.tokens_read = 0
        """Tokens of prompts that the model has read."""
        self.prefixes = Prefixes(stepper, keep_tokens)
        """The prefixes that the model has read or reads now, so that no other sequence reads them again."""
        self.room = CacheRoom(stepper, self.prefixes, cache_tokens)
        """The cells of the cache, and the sequences that wait for some."""
        self._stepper = stepper
        self._active: set[StepWork] = set()
        """The works that have entered."""
        self._groups: dict[tuple[StepWork | None, Hashable], Group] = {}
        """The groups of works that compute alike, by `_key`; a work with steps of its own has a group of its own."""
        self._reading: list[Sequence] = []
        """The sequences that have more unread ids than the next token."""
        self._paused: list[Sequence] = []
        """The sequences that have given their rows to works of owners who had none."""
        self._freed: list[tuple[StepWork, int]] = []
        """The work and the number of each hypothesis that no sequence has any more; the end of a step releases them."""
        self._step_seconds = 0.0
        """How long the last step took."""
        self._given_up = 0      # tokens of a long step that another caller ended; short steps read them next
        self.watcher: Callable[[int, int, float], object] = lambda rows, read, seconds: None
        """Is called after each step with the number of rows that decode, of tokens of prompts, and of seconds."""

    @property
    def vocab_size(self) -> int:
        """V, the number of logits of a row."""
        return self._stepper.vocab_size

    def submit(self, work: DecoderWork, priority: int = 0, owner: Hashable = "", deadline: float = 0.0,
               stop: Stop = NEVER, session: object = None, pace: Pace | None = None) -> DecoderTicket:
        """Let a work wait until it is computed, and return its ticket at once.

        priority: a work of a higher one enters and is read first. owner: whose work it is; owners have equal shares of
        the tokens that are read. deadline: the `time.monotonic()` at which the work ends with `TimedOut`; 0 for none.
        stop: that of the caller; native code looks at it in steps in which no work of another caller takes part.
        session: the session that the work belongs to, and pace: what that session says of the length of steps. Raises
        `Closing` after `close`.
        """
        self._check_open()
        entry = DecoderEntry(next(self._numbers), work, priority, owner, OwnStop(stop, deadline), session, pace)
        return self._accept(DecoderTicket(self, entry))

    def step(self) -> bool:
        """Compute one step of all works, and return whether any work is open after it; raises an error that ends it."""
        self._check_thread()
        try:
            with self._turn.take():
                self._step()
        finally:
            self._hand_on()
        return bool(self._open or self._arrived)

    def entries(self, session: object) -> list[DecoderEntry]:
        """Return the works of a session that have not ended."""
        return [entry for entry in [*self._open.values(), *self._arrived]
                if entry.session is session and entry.end is None]

    def cancel_session(self, session: object) -> None:
        """End all works of a session with `Cancelled`."""
        for entry in self.entries(session):
            self.cancel(entry)

    def statistics(self, session: object) -> SessionStatistics:
        """Count the open works of a session. Any thread may ask, while the numbers change: it reads copies."""
        entries = self.entries(session)
        works = {entry.work for entry in entries}
        active = works & {*self._active}
        rows = sum(sequence.work in works for group in [*self._groups.values()] for sequence in [*group.live])
        unread = sum(sequence.unread for sequence in [*self._reading] if sequence.work in works)
        return SessionStatistics(rows, len(works) - len(active), unread, self._step_seconds)

    @property
    def counts(self) -> tuple[int, int]:
        """(works that have entered, works that wait); cancelled works are ended first, and are in neither number."""
        if self._departed or self._mark.torn:
            self._settle_departed()
        entered = len(self._active)
        return entered, max(0, len(self._open) + len(self._arrived) - entered)

    def _enter(self, entry: DecoderEntry) -> None:
        """Put a work into the schedule, where it waits, after it has arrived or when it has to begin again."""
        entry.restart()
        self.schedule.add(entry.work)

    def _forget(self, entry: DecoderEntry) -> None:
        """Forget a work that ends; the prefixes that it has read are kept, unless it ended with an error of its own."""
        work = entry.work
        if work is None:        # it has left before
            return
        if work in self._active:
            self.prefixes.leave_all(work, keeps=entry.end is True or isinstance(entry.end, (TimedOut, Cancelled)))
            self._active.discard(work)
            self.room.leave(work)
            self._stepper.close(work.number)
            self._reading = [sequence for sequence in self._reading if sequence.work is not work]
            self._paused = [sequence for sequence in self._paused if sequence.work is not work]
            if (group := self._groups.get(self._key(work))) is not None:    # None if an error came before it was made
                group.leave(work)
                if not group.works:
                    del self._groups[self._key(work)]
            work.sequences = []
        self.schedule.leave(work, len(entry.parts))
        entry.work = None       # the work refers to its entry: a cycle would keep both until a garbage collection

    def _reset(self) -> None:
        """Forget all works, and end all requests of the decoder."""
        self._stepper.reset()
        self.prefixes.clear()
        self.room.clear()
        self.schedule.forget()
        self._active, self._groups, self._reading, self._paused, self._freed = set(), {}, [], [], []

    def _adopt(self, entry: Entry) -> None:
        """Let a work of the parent go on in a forked child, from its beginning."""
        with self._turn.take(entry.stop):
            if entry.process != os.getpid():        # unless another thread of the child has done it
                entry.number = next(self._numbers)
                self._arrived.append(entry)
                entry.process = os.getpid()     # a step drops the entry if an interrupt comes before this line

    def _compute_next(self) -> bool:
        """Compute one step of all works; return False if no work is open after it."""
        self._admit()
        if self._active:
            self.schedule.pace = self._pace()
            self._compute()
        return bool(self._open)

    def _pace(self) -> Pace | None:
        """Return the limits of a step's time; None for no limit, while one caller is alone and outside a session.

        After another caller has ended a long step, the tokens of that step are read in short steps, even if the first
        caller is alone again. So callers who come again and again end only short steps.
        """
        if paces := {entry.pace for entry in self._open.values()} - {None}:
            return Pace(min(pace.step_seconds for pace in paces), min(pace.idle_seconds for pace in paces),
                        all(pace.weighs for pace in paces))
        return SHARED if self.schedule.owners > 1 or self._given_up else None

    def _admit(self) -> None:
        """Let sequences give way until the next step has room, then let those that wait come back, then works enter.

        A `PassWork` whose turn it is to enter is computed at once.
        """
        if self.room.cells is not None:
            decoding = self._decoding
            while (last := self.room.make_room(self._entered, decoding)) is not None:
                self._give_way(last)
        if self.room.waiting:
            self._reading += self.room.let_in(self._entered)
        if self._paused:
            self._resume()
        while (work := self._next_work()) is not None:
            if isinstance(work, PassWork):
                self._compute_pass(work)
            elif isinstance(work, StepWork) and not self._admit_one(work):
                return

    def _next_work(self) -> DecoderWork | None:
        """Return the work that enters next; None if none waits.

        It is the first of the schedule. While rows are missing, it is one of the highest priority, whose owner has the
        fewest rows; among equal ones, the first of the schedule and then the oldest.
        """
        if self.schedule.owners == 1 or (not self._paused and self._free_rows > 0):
            return self.schedule.first()
        rows = self._rows_of_owners()
        first = self.schedule.first()
        return min(self.schedule.heads(), default=None, key=lambda work: (
            -work.entry.priority, rows[work.entry.owner], work is not first, work.entry.number))

    def _admit_one(self, work: StepWork) -> bool:
        """Let a work enter, or end it with an error if it never can; return False if there is no room for it yet."""
        if self._active and work.rows > self._free_rows and not self._make_rows(work):
            return False
        if self.room.tokens is not None and cells_of(work.cached) > self.room.tokens // BLOCK:
            self._finish(work.entry, InputError(
                f"this request needs room for up to {cells_of(work.cached) * BLOCK:,} tokens, in cells of {BLOCK}, and "
                f"cache_tokens={self.room.tokens:,}; give it fewer tokens, beams or samples, or load the model with a "
                "larger cache_tokens"))
            return True
        if self.room.waiting and self.room.waiting[0].work.entry.priority >= work.entry.priority:
            return False
        try:
            return self._open_work(work)
        except BaseException as error:
            if self._must_leave(error):
                raise
            self._blame({work}, error)
        return True

    @property
    def _free_rows(self) -> int:
        """The number of rows that are left for works that enter; each paused sequence has given its row back."""
        return (min(self.budget.rows, self.budget.tokens) + len(self._paused)
                - sum(active.rows for active in self._active))

    def _rows_of_owners(self) -> Counter[Hashable]:
        """Return how many rows the works of each owner have, without those of paused sequences."""
        rows: Counter[Hashable] = Counter()
        for work in self._active:
            rows[work.entry.owner] += work.rows
        rows.subtract(sequence.work.entry.owner for sequence in self._paused)
        return rows

    def _make_rows(self, work: StepWork) -> bool:
        """Let the last sequences of the owner with the most rows pause for a work whose owner has no row.

        So a call that fills all rows keeps nobody waiting to its end. Returns False, and changes nothing, if there are
        too few sequences that may pause.
        """
        rows, missing = self._rows_of_owners(), work.rows - self._free_rows
        [(richest, most)] = rows.most_common(1)
        if rows[work.entry.owner] or self.room.waiting or most - missing < work.rows:
            return False
        may_pause = [sequence for sequence in self._entered if sequence.work.entry.owner == richest
                     and sequence.work.entry.priority <= work.entry.priority]
        paused: list[Sequence] = []
        while len(paused) < missing and (last := self.room.last(may_pause)) is not None:
            paused.append(last)
            may_pause.remove(last)
        if len(paused) < missing:
            return False
        for sequence in paused:
            self._give_way(sequence)
            self.room.waiting.remove(sequence)      # it waits in `_paused` for a row, not for cells
        self._paused += paused
        return True

    def _resume(self) -> None:
        """Let paused sequences go on while there are rows, unless a work waits whose owner has fewer."""
        rows, first = self._rows_of_owners(), self._next_work()
        while self._paused and self._free_rows > 0:
            owner = self._paused[0].work.entry.owner
            if first is not None and rows[first.entry.owner] < rows[owner]:
                break
            rows[owner] += 1
            self.room.wait([self._paused.pop(0)])
        self._reading += self.room.let_in(self._entered)

    @property
    def _decoding(self) -> int:
        """The number of sequences of which each step reads one token."""
        return sum(len(group.live) for group in self._groups.values())

    @property
    def _entered(self) -> list[Sequence]:
        """All sequences with cells in the cache: those with unread ids, and those of which a step reads one token."""
        return [*self._reading, *(sequence for group in self._groups.values() for sequence in group.live)]

    def _give_way(self, sequence: Sequence) -> None:
        """Take the cells of a sequence, which waits until there is room for it again."""
        self._reading = [other for other in self._reading if other is not sequence]
        group = self._groups[self._key(sequence.work)]
        group.live = [other for other in group.live if other is not sequence]
        self.room.give_way(sequence)

    def _open_work(self, work: StepWork) -> bool:
        """Let a work enter with its first sequence, and the others wait; return False if the first has no room."""
        if not work.sequences:      # otherwise the sequences have waited for room before
            work.sequences = work.begin()
        first, *others = work.sequences
        if not self.room.enter(first, self._entered):
            return False
        work.number = self._stepper.open(work.packed)
        self._active.add(work)
        self.schedule.admit(work)
        key = self._key(work)
        if key not in self._groups:
            self._groups[key] = work.group(self._stepper.vocab_size)
        self._groups[key].enter(work)
        self._reading.append(first)
        self.room.wait(others)
        self._reading += self.room.let_in(self._entered)
        if not work.entry.entered:
            self.tokens_in += work.tokens_in
        work.entry.entered, work.sequences = True, []
        return True

    def _key(self, work: StepWork) -> tuple[StepWork | None, Hashable]:
        """Return the key of a work's group: (the work itself if its rows have steps of their own, `StepWork.key`)."""
        return (work if work.entry.alone else None), work.key

    def _compute_pass(self, work: PassWork) -> None:
        """Compute a work that needs one pass, between two steps. After an error, `_run_apart` computes it up to twice
        more, as an error may come from outside; an error of its own ends this work alone."""
        def compute(entry: DecoderEntry) -> None:
            entry.results = work.compute(self._stepper, entry.stop)
            self._finish(entry, end=True)

        error = self._error_alone(work.entry, compute)
        if error is not None:
            self._run_apart([work.entry], error, compute)

    def _compute(self) -> None:
        """Let the model read what the schedule chooses, and hand the scores to the groups.

        It computes one step for all works together, and one for each work that has steps of its own, because a step
        with it and others failed. `company`, the first part of `_key`, is that work, or None for all others.
        """
        decoding = self._decoding
        chosen = self.schedule.plan(decoding, self._reading, self.prefixes.catch_up) if self._reading else []
        # The encoder reads a source in the step with the first token of its work, so its tokens count, too.
        read = sum(n + (0 if sequence.read else sequence.work.source) for sequence, n in chosen)
        self._step_seconds = 0.0
        for company in dict.fromkeys(key[0] for key in self._groups):
            group_rows = self._prepare_rows(company, chosen)
            if not group_rows:
                continue
            works = {sequence.work for each in group_rows for sequence in each.sequences}
            for work in works:
                work.steps += 1
            stop = self._stop_of(works)
            # A caller alone reads a whole prompt in one step, which another one who comes must not wait for.
            step_stop = _WhileAlone(stop, self._arrived) if read and not self.schedule.pace else stop
            try:
                self._run_step(group_rows, stop, step_stop)
            except _OthersCame:     # this company has computed nothing; the companies before it are done
                self._given_up = read
                return
            except BaseException as error:
                if self._must_leave(error):
                    raise
                if not (isinstance(error, MemoryError) and self._free_memory()):
                    self._blame(works, error)
                return
        self.tokens_read += sum(n for _, n in chosen)
        self._given_up = max(0, self._given_up - read)
        self.schedule.measured(decoding, read, self._step_seconds)
        self.watcher(decoding, read, self._step_seconds)

    def _free_memory(self) -> bool:
        """Free cells after a step failed for want of memory: those of kept prefixes or, if there are none, those of a
        sequence that is not the only one. Return whether any were freed."""
        if self.room.note_no_memory():
            return True
        entered = self._entered
        if len(entered) < 2:
            return False
        last = self.room.last(entered) or self.room.last(entered, even_safe=True)
        if last is not None:
            self._give_way(last)
        return last is not None

    def _stop_of(self, works: set[StepWork]) -> Stop:
        """Return the stop of a step of these works, which ends it only if all of them are of the caller who stops."""
        if self.schedule.pace is not None:      # there may be several callers
            return NEVER
        stop = next(iter(works)).entry.stop
        return stop if len(works) == 1 else stop.outer      # works of one call have the stop of this call in common

    def _blame(self, works: set[StepWork], fault: BaseException) -> None:
        """Find which works of a step fail when they are computed alone, and end each of these with its own error.

        fault: the error of the step. Nobody knows how far the step came, so `_mend` sets all works of the queue back to
        their beginning. Each open work of the step then repeats, alone, as many steps as it had made, and keeps steps
        of its own from then on.
        """
        steps = {work.entry: work.steps for work in works if not work.has_ended}       # before `_mend` forgets them
        self._mend()
        self._run_apart([*steps], fault, lambda entry: self._repeat_steps(entry, steps[entry]), self._mend)

    def _repeat_steps(self, entry: DecoderEntry, steps: int) -> None:
        """Compute a work that has begun anew in steps of its own, up to the step that failed: does it fail alone?

        steps: how many steps it had made, the failed one included.
        """
        work, entry.alone = entry.work, True
        if entry.end is not None or not self._open_work(work):
            return
        while entry.end is None and work.steps < steps:
            work.steps += 1
            unread = [sequence for sequence in self._reading if sequence.work is work]
            chosen = self.schedule.plan(len(self._groups[self._key(work)].live), unread)
            group_rows = self._prepare_rows(work, chosen)
            if not group_rows:       # all its sequences wait for room, and a later step goes on with them
                return
            self._run_step(group_rows, stop=NEVER, step_stop=NEVER)     # only an error of the work may end it

    def _run_step(self, group_rows: list[_GroupRows], stop: Stop, step_stop: Stop) -> None:
        """Compute one step of the model, hand the scores to the groups, and give tokens and results to the tickets.

        step_stop: ends the step of the model, before that has changed anything. stop: ends a pass of the model after
        the step, which completes results (`StepWork.completed`).
        """
        begun = time.perf_counter()
        scores = self._stepper.step([row for each in group_rows for row in each.rows], step_stop)
        self._step_seconds += time.perf_counter() - begun
        self._note_hypotheses(group_rows, scores)
        if self._reading:
            for sequence in self._reading:
                if sequence.work.reserves and not sequence.unread:      # from now on its hypothesis has new tokens
                    self.prefixes.leave(sequence, forks=True)
            self._reading = [sequence for sequence in self._reading if sequence.unread]
        if not scores.finite.all():
            scores = self._without_failed(group_rows, scores)
        outcome = Outcome()
        for each, group_scores in zip(group_rows, scores.split([each.rows for each in group_rows]), strict=True):
            if each.group is not None and each.sequences:
                each.group.advance(each.sequences, each.rows, group_scores, outcome)
        self._hand_out(outcome, stop)
        self._stepper.release([hypothesis for work, hypothesis in self._freed if not work.has_ended])
        self._freed = []

    def _prepare_rows(self, company: StepWork | None, chosen: list[tuple[Sequence, int]]) -> list[_GroupRows]:
        """Return the rows of a step, by groups: one token of each live sequence, and the chosen tokens of prompts.

        company: the work whose rows have a step of their own; None for the common step of all others. chosen:
        (sequence, how many of its tokens) of the whole plan, some of which may be of another company.
        """
        of_groups: dict[Any, list[tuple[Sequence, int]]] = {}
        silent = _GroupRows(group=None, sequences=[], rows=[])
        for sequence, n in chosen:
            key = self._key(sequence.work)
            if key[0] is not company:
                continue
            if sequence.read + n > sequence.first_scored:
                of_groups.setdefault(key, []).append((sequence, n))
            else:
                silent.sequences.append(sequence)
                silent.rows.append(sequence.row(n))
        group_rows: list[_GroupRows] = []
        for key, group in self._groups.items():
            new = of_groups.get(key, [])
            if key[0] is not company or (not new and not group.live):
                continue
            sequences = [*group.live, *(sequence for sequence, _ in new)] if new else group.live
            group.prepare(sequences)
            rows = [sequence.row(1) for sequence in group.live]
            rows += [sequence.row(n) for sequence, n in new]
            group_rows.append(_GroupRows(group, sequences, rows))
        return [*group_rows, silent] if silent.rows else group_rows

    def _note_hypotheses(self, group_rows: list[_GroupRows], scores: Scores) -> None:
        """Note how much the model has read of each sequence, and its new hypothesis; list old ones in `_freed`."""
        hypotheses = iter(scores.hypotheses.tolist())
        for each in group_rows:
            for sequence, row in zip(each.sequences, each.rows, strict=True):
                before, hypothesis = sequence.hypothesis, next(hypotheses)
                sequence.read += len(row.tokens)
                sequence.hypothesis = hypothesis
                if sequence.work.move(before, hypothesis):
                    self._freed.append((sequence.work, before))  # type: ignore[arg-type]

    def _without_failed(self, group_rows: list[_GroupRows], scores: Scores) -> Scores:
        """End the works of rows with NaN, take their rows out of `group_rows`, and return the scores of other rows."""
        sequences = [sequence for each in group_rows for sequence in each.sequences]
        rows = [row for each in group_rows for row in each.rows]
        for sequence, finite in zip(sequences, scores.finite.tolist(), strict=True):
            if not (finite or sequence.work.has_ended or sequence.work.takes_nan):
                self._finish(sequence.work.entry, sequence.work.failure(sequence))
        stays = [not sequence.work.has_ended for sequence in sequences]
        for each in group_rows:
            pairs = [(sequence, row) for sequence, row in zip(each.sequences, each.rows, strict=True)
                     if not sequence.work.has_ended]
            each.sequences, each.rows = [sequence for sequence, _ in pairs], [row for _, row in pairs]
        return scores.of(rows, stays)

    def _hand_out(self, outcome: Outcome, stop: Stop) -> None:
        """Give a step's tokens and results to the tickets, and end works that are done; stop: as for `_run_step`."""
        for work, sample, token in outcome.tokens:
            if work.entry.put(sample, token) and work.makes_tokens:
                self.tokens_out += 1
        for sequence in outcome.departed:
            self.prefixes.leave(sequence)
        for work, results in outcome.done.items():
            try:
                work.entry.results = work.completed(results, self._stepper, stop)
            except InputError as wrong:
                self._finish(work.entry, wrong)
                continue
            self.tokens_out += work.ends(results)
            self._finish(work.entry, end=True)
        for work, error in outcome.failed.items():
            self._finish(work.entry, error)
        for sequence in outcome.departed:
            if not sequence.work.has_ended and sequence.work.drop(sequence.hypothesis):
                assert sequence.hypothesis is not None
                self._freed.append((sequence.work, sequence.hypothesis))
