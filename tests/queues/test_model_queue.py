"""Callers that wait compute together, a fault stays with its work, and no interrupt, fork or thread leaves one waiting.

ENGINE_INTERRUPTS=10000 ENGINE_OPERATIONS=100000 python -m pytest tests/queues/test_model_queue.py
"""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from copy import deepcopy
from itertools import count
from linecache import getline
from types import SimpleNamespace

import numpy as np
import pytest

from engine.base.errors import Cancelled, Closing, EngineError, InputError, TimedOut
from engine.base.stop import Stop
from engine.queues import model_queue, work_queue
from engine.queues.entry import Bell
from engine.queues.model_queue import ModelQueue
from engine.queues.work import Work

from ..tools import outside
from ..tools.clocks import jumping_clock
from ..tools.interrupts import interruptible
from ..tools.limited import outcome
from ..tools.paths import ROOT
from ..tools.threads import begin, wait_for

pytestmark = pytest.mark.usefixtures("quick_collections")
INTERRUPTS = int(os.environ.get("ENGINE_INTERRUPTS", "300"))
OPERATIONS = int(os.environ.get("ENGINE_OPERATIONS", "2000"))
WAIT = 60 + OPERATIONS // 200
"""Seconds after which a test fails that waits."""


class Stepper:
    """Gives for each piece a row of ten times its number and the number of its work, and notes the batches.

    It has no `Event`, which an interrupt may leave locked.
    """

    def __init__(self):
        self.batches, self.threads = [], []
        self.begun, self.goes_on = False, True

    def compute(self, pieces, stop):
        self.threads.append(threading.current_thread())
        self.batches.append([(work.data, len(numbers)) for work, numbers in pieces])
        self.begun = True
        while not self.goes_on:
            stop.check()
            time.sleep(0.001)
        rows = []
        for work, numbers in pieces:
            if isinstance(work.data, BaseException):
                raise work.data
            if callable(work.data):
                work.data()
            stop.check()
            rows += [[10.0 * i, float(isinstance(work.data, int) and work.data)] for i in numbers]
        return np.array(rows)

    def work(self, data=0, costs=(5,), **options):
        return Work(self.compute, costs, data, **options)


def expected(work):
    return [[10.0 * i, float(work.data)] for i in range(len(work.costs))]


def is_empty(queue):
    """Return whether a queue keeps nothing."""
    return not (queue._open or queue._arrived or queue._departed or queue._served or queue._new or len(queue.order)
                or any(number in queue._open for _, number in queue._deadlines) or queue._turn.held)


def in_thread(call, *arguments):
    """Call a function in a thread; return the thread, and the list that gets its result or its error."""
    found = []

    def run():
        try:
            found.append(call(*arguments))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


@pytest.fixture
def held():
    """A stepper, a queue of 1024 tokens, and a thread that steps a first work until `goes_on` is set."""
    stepper = Stepper()
    queue = ModelQueue(1024)
    stepper.goes_on = False
    first, found = in_thread(lambda: queue.submit(stepper.work(1)).result())
    wait_for(lambda: stepper.begun)
    yield stepper, queue
    stepper.goes_on = True
    first.join(WAIT)
    assert found[0] is not None
    gc.collect()        # of errors that hold frames that hold them, and tickets
    queue._settle_departed()
    assert is_empty(queue)


def waiting(queue, *works, call=lambda ticket: [row.tolist() for row in ticket.result()], **options):
    """Submit works, one in a thread of its own each, and return these once all of them wait."""
    before = len(queue._asleep)
    threads = [in_thread(call, queue.submit(work, **options)) for work in works]
    wait_for(lambda: len(queue._asleep) >= before + len(works))
    return threads


def results(threads):
    for thread, _ in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    return [found[0] for _, found in threads]


def test_a_caller_alone_steps_in_its_own_thread_and_leaves_nothing():
    stepper, queue = Stepper(), ModelQueue(100)
    work = stepper.work(3, [30, 50, 10, 50, 40])
    ticket = queue.submit(work)
    assert not ticket.done
    parts = [([*numbers], rows.tolist()) for numbers, rows in ticket]
    assert [numbers for numbers, _ in parts] == [[1, 3], [4, 0, 2]]
    assert {i: row for numbers, rows in parts for i, row in zip(numbers, rows, strict=True)} == dict(
        enumerate(expected(work)))
    assert set(stepper.threads) == {threading.current_thread()}
    assert is_empty(queue)
    assert not queue._asleep
    with pytest.raises(InputError, match="one batch after the other"):
        ticket.result()
    assert [row.tolist() for row in queue.submit(work).result()] == expected(work)


@pytest.mark.parametrize(("costs", "most", "sizes"), [
    ([30], None, [1]), ([500], None, [1]), ([30, 40], None, [2]), ([60, 60], None, [1, 1]), ([30, 40], 1, [1, 1]),
    ([], None, [])])
def test_rows_of_a_caller_alone_need_no_ticket_for_one_batch(costs, most, sizes):
    stepper, queue = Stepper(), ModelQueue(100)
    work = stepper.work(3, costs, most=most)
    found = {i: row.tolist() for numbers, rows in queue.rows(work) for i, row in zip(numbers, rows, strict=True)}
    assert found == dict(enumerate(expected(work)))
    assert [size for [(_, size)] in stepper.batches] == sizes
    assert next(queue._numbers) == (len(sizes) != 1)     # of tickets
    assert queue.counts.sequences == len(costs)
    with pytest.raises(ValueError, match="bad"):
        next(queue.rows(stepper.work(ValueError("bad"))))
    assert queue.compute(lambda stop: 5, 1000) == 5
    assert is_empty(queue)


def test_rows_of_a_caller_alone_let_others_follow():
    stepper, queue, others = Stepper(), ModelQueue(100), []
    works = [stepper.work(i) for i in (2, 3)]
    [_] = queue.rows(stepper.work(lambda: others.extend(waiting(queue, *works))))
    assert results(others) == [expected(work) for work in works]
    assert stepper.batches[1:] == [[(2, 1), (3, 1)]]


def test_a_work_without_pieces_has_ended():
    ticket = ModelQueue(100).submit(Work(None, []))
    assert ticket.done
    assert ticket.result() == [*ticket] == []


def test_callers_that_wait_are_computed_together(held):
    stepper, queue = held
    works = [stepper.work(i, [5, 7]) for i in range(2, 10)]
    threads = waiting(queue, *works)
    stepper.goes_on = True
    assert results(threads) == [expected(work) for work in works]
    assert stepper.batches[1:] == [[(i, 2) for i in range(2, 10)]]
    assert (queue.counts.batches, queue.counts.sequences, queue.counts.mixed_batches) == (2, 17, 1)


def test_a_large_call_lets_others_join_its_next_batch():
    stepper, queue = Stepper(), ModelQueue(1024)
    joined = []
    small = [stepper.work(i) for i in (2, 3)]

    def join():
        if len(stepper.batches) == 3:
            joined.extend(waiting(queue, *small))

    large = stepper.work(join, [500] * 20)
    assert len(queue.submit(large).result()) == 20
    assert results(joined) == [expected(work) for work in small]
    sizes = [[size for _, size in batch] for batch in stepper.batches]
    assert sizes[:3] == [[2]] * 3       # as those of a call alone
    assert sorted(sizes[3]) == [1, 1, 2]
    assert sum(map(sum, sizes)) == 22


def test_batches_are_short_while_several_wait(held, monkeypatch):
    stepper, queue = held
    monkeypatch.setattr(model_queue, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(model_queue, "FEWEST_TOKENS", 300)
    threads = waiting(queue, *(stepper.work(i, [100] * 12) for i in (2, 3)))
    stepper.goes_on = True
    results(threads)
    sizes = [sum(size for _, size in batch) for batch in stepper.batches[1:]]
    assert max(sizes[:6]) == 3
    assert sum(sizes) == 24


def callers_of(monkeypatch, patience, **constants):
    """Return a stepper and a queue whose last batch took a second, and served two callers just now."""
    for name, value in constants.items():
        monkeypatch.setattr(model_queue, name, value)
    stepper, queue = Stepper(), ModelQueue(1024)
    queue._callers, queue._seconds, queue._ended, queue._patience = 2, 1.0, model_queue.time.perf_counter(), patience
    return stepper, queue


def test_a_caller_waits_a_moment_for_another_that_comes_again(monkeypatch):
    stepper, queue = callers_of(monkeypatch, 0.5 * WAIT, MOST_REST=WAIT)
    first = in_thread(lambda: [*queue.rows(stepper.work(2))])
    wait_for(lambda: queue._arrived)
    time.sleep(0.01)
    assert stepper.batches == []
    second = in_thread(lambda: [*queue.rows(stepper.work(3))])
    results([first, second])
    assert stepper.batches == [[(2, 1), (3, 1)]]
    assert queue._patience == 1.0


@pytest.mark.parametrize(("costs", "constants", "patience"), [([5], {"MOST_REST": 0.01}, 0.125), ([300], {}, 0.5)])
def test_it_waits_no_longer_than_it_gains(costs, constants, patience, monkeypatch):
    """The other caller does not come; nobody waits for it beside a work that is a good batch by itself.

    The clock of the queue moves by a millisecond at each look, so that a rest begins however slow the machine is.
    """
    looks = count(1)
    monkeypatch.setattr(model_queue, "time", SimpleNamespace(perf_counter=lambda: next(looks) / 1000))
    stepper, queue = callers_of(monkeypatch, 0.5, **constants)
    [_] = queue.rows(stepper.work(2, costs))
    assert (queue._patience, queue._callers) == (patience, 1)
    assert next(queue._numbers) == 1
    [_] = queue.rows(stepper.work(2))
    assert next(queue._numbers) == 2, "a caller alone needs no ticket"


def test_a_caller_waits_no_longer_while_those_who_were_served_wake_up(monkeypatch):
    """Their bells are there still, and none of them computes for it."""
    monkeypatch.setattr(work_queue, "LOOK_SECONDS", 2 * WAIT)
    stepper, queue = callers_of(monkeypatch, 0.5, MOST_REST=0.01)
    served = queue.submit(stepper.work(1)).entry
    queue._arrived.clear()
    served.end = True
    queue._asleep.append(Bell([served], None))
    results([in_thread(lambda: [*queue.rows(stepper.work(2))])])
    assert stepper.batches == [[(2, 1)]]


def test_the_next_batch_is_packed_before_those_who_were_served_wake_up(monkeypatch):
    monkeypatch.setattr(model_queue, "MOST_REST", 0.0)
    queue, seen, goes_on = ModelQueue(10), [], threading.Event()

    def pack(pieces):
        seen.append(("pack", len(queue._served)))
        return 7, pieces

    def compute(pieces, stop):
        seen.append(("job", len(queue._served)))
        assert goes_on.wait(WAIT)
        return np.zeros((1, 2))

    threads = [in_thread(queue.submit(Work(compute, [10], pack=pack)).result) for _ in range(4)]
    wait_for(lambda: len(queue._asleep) == 3)
    goes_on.set()
    results(threads)
    assert seen == [("pack", 0), ("job", 0)] + 3 * [("pack", 1), ("job", 0)]
    assert queue.counts.tokens == 4 * 7, "as it was packed"
    assert is_empty(queue)


def test_a_caller_leaves_with_its_own_end_and_hands_the_turn_on(held):
    stepper, queue = held
    long = stepper.work(2, [100] * 200)
    threads = waiting(queue, long, stepper.work(3))
    stepper.goes_on = True
    results(threads[1:])
    results(threads)
    first, *others = stepper.threads
    assert first not in others, "the first caller stepped beyond its own end"


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), MemoryError()])
def test_a_work_that_raises_fails_alone(held, error):
    stepper, queue = held
    works = [stepper.work(2), stepper.work(error), stepper.work(4)]
    threads = waiting(queue, *works)
    stepper.goes_on = True
    assert results(threads) == [expected(works[0]), error, expected(works[2])]
    assert error.__traceback__ is not None      # where the job raised it


def test_an_error_of_a_caller_alone_is_its_own():
    stepper, queue = Stepper(), ModelQueue(100)
    for error in (ValueError("bad"), MemoryError()):
        with pytest.raises(type(error)):
            queue.submit(stepper.work(error)).result()
        assert is_empty(queue)
    assert len(stepper.batches) == 2, "an error of the caller's own work is not tried again"
    with pytest.raises(KeyboardInterrupt), queue.submit(stepper.work(KeyboardInterrupt())) as ticket:
        ticket.result()
    assert queue.submit(stepper.work(7)).result()[0].tolist() == [0.0, 7.0]


def test_rows_of_several_works_keep_no_array_of_the_batch(held):
    stepper, queue = held
    threads = waiting(queue, *(stepper.work(i) for i in (2, 3)), call=lambda ticket: next(ticket)[1])
    stepper.goes_on = True
    assert all(rows.base is None for rows in results(threads))


def test_rows_that_are_nan_go_to_their_work_alone(held):
    stepper, queue = held

    def compute(pieces, stop):
        return [np.float32(work.data) for work, numbers in pieces for _ in numbers]

    threads = waiting(queue, *(Work(compute, [5], value) for value in (1.0, np.nan, 2.0)),
                      call=lambda ticket: ticket.result()[0])
    stepper.goes_on = True
    assert np.array_equal(results(threads), [1.0, np.nan, 2.0], equal_nan=True)


def test_a_ticket_that_nobody_holds_is_not_computed(held):
    stepper, queue = held
    kept, dropped, cancelled = (queue.submit(stepper.work(i)) for i in (2, 3, 4))
    del dropped
    cancelled.cancel()
    thread = in_thread(kept.result)
    stepper.goes_on = True
    results([thread])
    assert stepper.batches[1:] == [[(2, 1)]]
    with pytest.raises(Cancelled):
        cancelled.result()


def test_a_ticket_that_is_dropped_while_it_is_computed_keeps_nothing():
    stepper, queue = Stepper(), ModelQueue(1024)
    tickets = []
    tickets.append(queue.submit(stepper.work(tickets.clear)))
    data = weakref.ref(tickets[0].entry.work)
    other = stepper.work(5)
    assert [row.tolist() for row in queue.submit(other).result()] == expected(other)
    assert stepper.batches[0][0][1] == 1
    assert is_empty(queue)
    assert data() is None


def test_what_is_cancelled_is_forgotten_without_a_step():
    queue = ModelQueue(100)
    ticket = queue.submit(Stepper().work(1))
    ticket.cancel()
    assert is_empty(queue)
    with pytest.raises(Cancelled):
        ticket.result()


def test_a_deadline_ends_a_work_whoever_steps(held):
    stepper, queue = held
    late = queue.submit(stepper.work(2), deadline=time.monotonic() + 0.01)
    kept = in_thread(queue.submit(stepper.work(3)).result)
    time.sleep(0.02)
    stepper.goes_on = True
    results([kept])
    with pytest.raises(TimedOut, match="the request did not end before its deadline"):
        late.result()
    assert stepper.batches[1:] == [[(3, 1)]]


def test_a_caller_that_waits_looks_at_its_own_stop(held):
    stepper, queue = held
    stop = Stop()
    [cancelled] = waiting(queue, stepper.work(2), stop=stop)
    with pytest.raises(TimedOut, match="within the timeout of the wait, and the request goes on"):
        queue.submit(stepper.work(3)).result(timeout=0.01)
    with pytest.raises(TimedOut, match="the call did not finish within its timeout"):
        queue.submit(stepper.work(4), stop=Stop(time.monotonic() + 0.01)).result()
    stop.cancelled = True
    assert isinstance(results([cancelled])[0], Cancelled)
    assert not stepper.goes_on


@pytest.mark.parametrize("how", ["stop", "deadline", "cancel"])
def test_a_stop_ends_the_batch_of_a_work_alone(how, monkeypatch):
    stepper, queue, jump = Stepper(), ModelQueue(100), jumping_clock(monkeypatch)
    stepper.goes_on = False
    stop, deadline = Stop(), time.monotonic() + 1000 if how == "deadline" else 0.0
    ticket = queue.submit(stepper.work(1), stop=stop, deadline=deadline)
    thread = in_thread(ticket.result)
    wait_for(lambda: stepper.begun)
    if how == "stop":
        stop.cancelled = True
    elif how == "cancel":
        ticket.cancel()
    else:
        jump(2000)
    assert isinstance(results([thread])[0], TimedOut if how == "deadline" else Cancelled)
    assert is_empty(queue)


def test_a_stop_does_not_end_a_batch_with_others(held):
    stepper, queue = held
    stop = Stop()
    threads = waiting(queue, stepper.work(lambda: setattr(stop, "cancelled", True), [5, 6]), stop=stop)
    threads += waiting(queue, stepper.work(3))
    stepper.goes_on = True
    assert results(threads) == [[[0.0, 0.0], [10.0, 0.0]], [[0.0, 3.0]]]
    assert len(stepper.batches) == 2


def test_a_result_may_be_waited_for_by_many_threads(held):
    stepper, queue = held
    ticket = queue.submit(stepper.work(2, [5, 6]))
    threads = [in_thread(lambda: [row.tolist() for row in ticket.result()]) for _ in range(20)]
    wait_for(lambda: len(ticket.entry.end_bells) == 20)
    stepper.goes_on = True
    assert results(threads) == [[[0.0, 2.0], [10.0, 2.0]]] * 20


def test_a_thousand_threads(held):
    stepper, queue = held

    def call(i):
        for n in range(3):
            work = stepper.work(i, [1 + (i + k) % 9 for k in range(1 + n * (i % 3))])
            assert [row.tolist() for row in queue.submit(work, owner=str(i % 7)).result()] == expected(work)

    threads = [in_thread(call, i) for i in range(1000)]
    wait_for(lambda: len(queue._arrived) == 1000)
    stepper.goes_on = True
    assert results(threads) == [None] * 1000
    assert queue.counts.sequences == 1 + sum(1 + n * (i % 3) for n in range(3) for i in range(1000))
    assert max(map(len, stepper.batches)) > 100


def test_a_call_in_the_middle_of_a_step_is_refused():
    stepper, queue = Stepper(), ModelQueue(100)
    inner = stepper.work(2)
    with pytest.raises(EngineError, match="signal handler that interrupted a call of the same model"):
        queue.submit(stepper.work(lambda: queue.submit(inner).result())).result()
    assert [row.tolist() for row in queue.submit(inner).result()] == expected(inner)
    assert is_empty(queue)


def test_what_a_signal_handler_raises_is_for_its_caller(held):
    """The main thread steps for another caller when its handler raises, unless the other caller is first."""
    stepper, queue = held

    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    other = waiting(queue, stepper.work(2))
    before = signal.signal(signal.SIGALRM, handler)
    calls = []

    def raise_once():
        calls.append(threading.current_thread())
        if calls == [threading.main_thread()]:
            signal.raise_signal(signal.SIGALRM)

    try:
        own = queue.submit(stepper.work(raise_once))
        queue._asleep.clear()       # so that the turn comes to the main thread
        threading.Timer(0.05, lambda: setattr(stepper, "goes_on", True)).start()
        try:
            own.result()
        except Alarm:
            assert own.result()[0].tolist() == [0.0, 0.0]
        else:
            assert calls[0] is not threading.main_thread()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert results(other) == [[[0.0, 2.0]]]


@pytest.mark.parametrize(("how", "times"), [("from_handler", 1), ("from_thread", 1), ("from_thread", 2)])
@pytest.mark.parametrize("error", [TimedOut, ValueError])
@pytest.mark.parametrize("beside", [0, 3])
def test_an_error_that_is_set_from_outside_is_for_its_thread(error, how, times, beside):
    """It steps for itself and for others, or for one other work alone. A second error may come while it looks whose
    the first one is."""
    stepper, queue, calls = Stepper(), ModelQueue(10), []

    def once():
        calls.append(1)
        if len(calls) <= times:
            getattr(outside, how)(error)

    other = queue.submit(stepper.work(once, (5,)), priority=1)
    works = [stepper.work(i, (5 if beside else 10,)) for i in range(1 + beside)]
    tickets = [queue.submit(work) for work in works]
    with outside.raising(error), pytest.raises(error):
        tickets[0].result()
    assert [ticket.result()[0].tolist() for ticket in tickets] == [expected(work)[0] for work in works]
    assert other.result()[0].tolist() == [0.0, 0.0]
    assert len(calls) == 1 + times, "the work was computed again"
    assert is_empty(queue)


def test_an_error_of_a_handler_fails_no_request_that_two_threads_wait_for():
    stepper, queue, calls = Stepper(), ModelQueue(100), []

    def once():
        calls.append(1)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGALRM)

    ticket = queue.submit(stepper.work(once))
    with outside.raising(ValueError), pytest.raises(ValueError):  # noqa: PT011, because it has no text
        ticket.result()
    assert not ticket.done
    assert ticket.result()[0].tolist() == [0.0, 0.0]


def test_interrupts_at_any_moment_leave_nobody_waiting():
    """The main thread gets them, and calls beside others, for which it steps."""
    stepper, queue, rng, over = Stepper(), ModelQueue(64), random.Random(2), []

    def call(seed):
        own = random.Random(seed)
        while not over:
            work = stepper.work(seed, [own.randrange(1, 40) for _ in range(own.randrange(1, 9))])
            with queue.submit(work, owner=str(seed)) as ticket:
                assert [row.tolist() for row in ticket.result(WAIT)] == expected(work)

    threads = [in_thread(call, seed) for seed in (1, 2, 3)]
    arrived = 0
    try:
        with interruptible():
            while arrived < INTERRUPTS:
                work = stepper.work(9, [rng.randrange(1, 40) for _ in range(9)])
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 0.003))
                    with queue.submit(work) as ticket:
                        found = [row.tolist() for row in ticket.result()]
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    assert found == expected(work)
                except KeyboardInterrupt:
                    arrived += 1
    finally:
        over.append(True)
    assert results(threads) == [None] * 3
    del ticket
    last = stepper.work(4)
    assert [row.tolist() for row in queue.submit(last).result()] == expected(last)
    assert is_empty(queue)


@pytest.mark.parametrize("how", ["result", "submit", "cancel"])
def test_an_interrupt_at_each_line_leaves_nobody_waiting(how):
    """The n-th line that a caller runs in the queue raises, for every n, while another caller waits."""
    n, reached = 0, True
    run = {"result": lambda queue, ticket, work: ticket.result(),
           "submit": lambda queue, ticket, work: queue.submit(work).result(),
           "cancel": lambda queue, ticket, work: (queue.submit(work).cancel(), ticket.result())[1]}[how]
    while reached:
        n += 1
        stepper, queue = Stepper(), ModelQueue(64)
        works = [stepper.work(1, [30, 40, 50]), stepper.work(2, [30, 40])]
        tickets = [queue.submit(work) for work in works]
        lines = 0

        def trace(frame, event, argument, n=n):
            nonlocal lines
            if "/queues/" not in frame.f_code.co_filename:
                return None
            # At the end of a body, this event comes before the compiled `__exit__`, where no signal is looked at.
            if event == "line" and "with self._turn" not in getline(frame.f_code.co_filename, frame.f_lineno):
                lines += 1
                if lines == n:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            found = [row.tolist() for row in run(queue, tickets[0], works[0])]
        except KeyboardInterrupt:
            found = None
        finally:
            sys.settrace(None)
        reached = lines >= n
        assert queue.tokens <= 2 * 120 + 70, n
        other, own = (in_thread(lambda ticket=ticket: [row.tolist() for row in ticket.result(WAIT)])
                      for ticket in tickets[::-1])
        assert results([own, other]) == [expected(work) for work in works], n
        assert found is None or found == expected(works[0])
        del tickets, own, other
        queue._settle_departed()
        if not is_empty(queue):     # a ticket lies in a cycle
            gc.collect()
            queue._settle_departed()
        assert is_empty(queue), n
    assert n > 100


def test_random_operations_of_threads():
    """Calls, cancels, deadlines, drops and faults beside each other; every result is right, and nothing is kept."""
    stepper, queue = Stepper(), ModelQueue(256)

    def call(seed):
        rng = random.Random(seed)
        for _ in range(OPERATIONS // 8):
            work = stepper.work(rng.choice([seed, ValueError()]) if rng.random() < 0.1 else seed,
                                [rng.randrange(0, 60) for _ in range(rng.randrange(0, 12))],
                                most=rng.choice([None, 1, 3]))
            deadline = time.monotonic() + rng.uniform(0, 0.01) if rng.random() < 0.2 else 0.0
            ticket = queue.submit(work, rng.randrange(3), str(rng.randrange(3)), deadline)
            kind = rng.random()
            try:
                if kind < 0.1:
                    ticket.cancel()
                elif kind < 0.2:
                    continue
                rows = dict(pair for numbers, part in ticket for pair in zip(numbers, part.tolist(), strict=True))
                assert rows == dict(enumerate(expected(work)))
            except (TimedOut, Cancelled, ValueError) as error:
                allowed = {TimedOut: deadline, Cancelled: kind < 0.1, ValueError: not isinstance(work.data, int)}
                if not allowed[type(error)]:
                    raise

    assert results([in_thread(call, seed) for seed in range(8)]) == [None] * 8
    stepper.batches.clear()     # the errors in it hold frames, which hold tickets
    gc.collect()
    queue._settle_departed()
    assert is_empty(queue)
    assert queue.counts.mixed_batches > 0


def test_a_thread_of_the_queue_steps_and_calls_back():
    stepper, queue, called = Stepper(), ModelQueue(1024), []

    def bad(ticket):
        called.append(ticket)
        raise SystemExit

    with pytest.raises(InputError, match="thread of its own"):
        queue.submit(stepper.work(1)).add_done_callback(called.append)
    queue.start()
    stepper.goes_on = False
    tickets = [queue.submit(stepper.work(i)) for i in (1, 2, 3)]
    tickets[1].add_done_callback(bad)
    for ticket in tickets:
        ticket.add_done_callback(called.append)
    queue.submit(stepper.work(4)).add_done_callback(called.append)      # which holds the ticket
    stepper.goes_on = True
    assert [ticket.result(WAIT)[0].tolist() for ticket in tickets] == [[0.0, float(i)] for i in (1, 2, 3)]
    wait_for(lambda: len(called) == 5)
    assert {thread.name for thread in stepper.threads} == {"engine-queue"}
    tickets[0].add_done_callback(called.append)
    assert called[-1] is tickets[0]
    stepper.goes_on = False
    last = [queue.submit(stepper.work(i)) for i in range(50)]
    threading.Timer(0.02, lambda: setattr(stepper, "goes_on", True)).start()
    queue.close()
    assert all(ticket.done for ticket in last)
    with pytest.raises(Closing):
        queue.submit(stepper.work(1))
    assert is_empty(queue)
    assert not queue._asleep


def test_a_thread_that_was_started_twice_steps_until_both_are_stopped():
    stepper, queue = Stepper(), ModelQueue(100)
    queue.start(stepper, 60)
    queue.start(limit=40)
    assert [len(numbers) for numbers, _ in queue.submit(stepper.work(1, [20] * 6))] == [2, 2, 2]
    queue.stop()
    assert [len(numbers) for numbers, _ in queue.submit(stepper.work(1, [20] * 6))] == [3, 3]
    assert {thread.name for thread in stepper.threads} == {"engine-queue"}
    queue.stop(stepper)
    assert not queue.has_thread
    assert [len(numbers) for numbers, _ in queue.submit(stepper.work(1, [20] * 6))] == [5, 1]
    assert stepper.threads[-1] is threading.current_thread()
    queue.start()
    assert [len(numbers) for numbers, _ in queue.submit(stepper.work(1, [20] * 6))] == [5, 1]
    queue.stop()
    assert is_empty(queue)


def test_what_waits_goes_on_when_the_thread_is_stopped():
    stepper, queue = Stepper(), ModelQueue(100)
    queue.start()
    stepper.goes_on = False
    threads = [in_thread(queue.submit(stepper.work(i, [60])).result) for i in range(20)]
    wait_for(lambda: stepper.begun)
    threading.Timer(0.02, lambda: setattr(stepper, "goes_on", True)).start()
    queue.stop()
    assert [rows[0].tolist() for rows in results(threads)] == [[0.0, float(i)] for i in range(20)]
    assert is_empty(queue)


def test_what_comes_before_a_new_work(held):
    """The batch of 5 tokens that is computed, what has arrived since then, and not what was cancelled."""
    stepper, queue = held
    assert (queue.in_flight, queue.tokens, queue.before_first("a", 30), queue.before_last("a", 30)) == (5, 0, 5, 5)
    tickets = [queue.submit(stepper.work(2, [20, 30, 10]), owner=owner) for owner in "aab"]
    assert (queue.tokens, queue.before_first("a", 40), queue.before_last("a", 10)) == (180, 5 + 60 + 60, 5 + 20 + 30)
    assert all(ticket.waits for ticket in tickets)
    tickets[0].cancel()
    assert (queue.tokens, queue.before_first("a", 40), queue.before_first("c", 10)) == (120, 5 + 30 + 60, 5 + 10 + 10)
    stepper.goes_on = True
    assert [len(ticket.result()) for ticket in tickets[1:]] == [3, 3]
    assert not any(ticket.waits for ticket in tickets)
    assert isinstance(tickets[0].error, Cancelled)
    assert (queue.in_flight, queue.tokens, tickets[1].error) == (0, 0, None)


def test_the_rate_is_that_of_full_batches():
    queue = ModelQueue(1024)
    queue._note_batch([], 1, 1024, 1.024)
    for _ in range(500):
        queue._note_batch([], 1, 5, 1.0)     # a short text alone takes a pass of its own, which says nothing of a queue
    assert queue.rate == pytest.approx(1000)
    for _ in range(500):
        queue._note_batch([], 1, 1024, 1024 / 4000)
    assert queue.rate == pytest.approx(4000, rel=0.01)
    queue.forget_rate()
    assert queue.rate == 0


def test_counts_of_a_time():
    stepper, queue = Stepper(), ModelQueue(100)
    assert queue.submit(stepper.work(1, [20] * 6)).result()
    before = deepcopy(queue.counts)
    assert queue.submit(stepper.work(1, [30] * 4)).result()
    found = queue.counts.since(before)
    assert (found["batches"], found["sequences"], found["tokens"], sum(found["by_tokens"])) == (2, 4, 120, 2)
    assert found.keys() == vars(before).keys()


def test_a_deadline_far_away_keeps_no_rows_until_then():
    stepper, queue = Stepper(), ModelQueue(100)
    work = stepper.work(1)
    kept = weakref.ref(work)
    assert queue.submit(work, deadline=time.monotonic() + 1000).result()
    assert queue._deadlines
    del work
    assert kept() is None


def test_the_times_of_a_work_are_there_when_it_ends():
    stepper, queue, found = Stepper(), ModelQueue(100), []
    stepper.goes_on = False
    queue.start()
    begun = time.perf_counter()
    first, last = (queue.submit(stepper.work(1, [60])) for _ in range(2))
    for ticket in (first, last):
        ticket.add_done_callback(lambda ticket: found.append(ticket.times))
    time.sleep(0.02)
    stepper.goes_on = True
    assert [len(ticket.result()) for ticket in (first, last)] == [1, 1]
    queue.stop()
    whole = time.perf_counter() - begun
    [(_, computing), (waited, _)] = found
    assert 0 < computing < whole
    assert 0.02 < waited < whole


def test_a_close_without_drain_ends_what_waits():
    stepper, queue = Stepper(), ModelQueue(1024)
    queue.start()
    stepper.goes_on = False
    first = queue.submit(stepper.work(1))
    wait_for(lambda: stepper.begun)
    waits = queue.submit(stepper.work(2))

    def go_on_after_the_close():
        try:
            wait_for(lambda: queue._refusal)
        finally:
            stepper.goes_on = True

    opened = begin(go_on_after_the_close)
    queue.close(drain=False)
    opened.result(WAIT)
    assert first.result()[0].tolist() == [0.0, 1.0]
    with pytest.raises(Closing):
        waits.result()
    assert is_empty(queue)


@pytest.mark.parametrize("served", [False, True])
def test_a_forked_child_begins_with_an_empty_queue(held, served):
    stepper, queue = held
    parent = queue.submit(stepper.work(2))

    def call():
        with pytest.raises(InputError, match="forked child"):
            parent.result()
        stepper.goes_on = True
        work = stepper.work(3, [5, 6])
        assert [row.tolist() for row in queue.submit(work).result()] == expected(work)
        return is_empty(queue)

    if served:
        queue.start()
    assert outcome(call, seconds=30) == "ok: True"
    stepper.goes_on = True
    if served:
        queue.close()
    assert parent.result()[0].tolist() == [0.0, 2.0]


EXIT = f"""
    import sys, threading, time
    sys.path.append({str(ROOT)!r})  # behind an installed engine
    from engine.queues.model_queue import ModelQueue
    from engine.queues.work import Work

    queue = ModelQueue(100)
    begun = threading.Event()

    def compute(pieces, stop):
        begun.set()
        time.sleep(0.2)
        return [1]

    if sys.argv[1] == "thread":
        queue.start()
    for i in range(5):
        threading.Thread(target=lambda: queue.submit(Work(compute, [5])).result(), daemon=True).start()
    begun.wait()
    print("end")
"""


@pytest.mark.parametrize("how", ["thread", "callers"])
def test_an_interpreter_ends_while_callers_wait(how):
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(EXIT), how], check=True, timeout=60, text=True,
                           capture_output=True)
    assert (ended.stdout, ended.stderr) == ("end\n", "")


def test_what_a_look_at_rows_raises_ends_that_work_alone():
    stepper, queue, seen = Stepper(), ModelQueue(10), []

    def refuse(rows):
        seen.append(len(rows))
        if len(seen) == 2:
            raise InputError("too much")

    work = stepper.work(2)
    with queue.submit(stepper.work(1, (5, 5, 5, 5), look=refuse)) as looked, queue.submit(work) as other:
        assert [*map(list, other.result(WAIT))] == expected(work)
        with pytest.raises(InputError, match="too much"):
            looked.result(WAIT)
    assert len(seen) == 2
    assert is_empty(queue)
