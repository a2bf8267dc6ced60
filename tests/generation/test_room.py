"""A bounded cache: the cells in use never exceed the bound, and whoever gives way comes back to the same result.

    ENGINE_BOUNDED_REQUESTS=10000 python -m pytest tests/generation/test_room.py -k many_requests
"""

import os
import random

import numpy as np
import pytest

from engine.base.errors import InputError
from engine.base.stop import NEVER
from engine.generation.prefixes import BLOCK, cells_of
from engine.generation.results import Request
from engine.generation.room import SAFE
from engine.generation.schedule import Budget
from engine.generation.scoring import LastLogits, Scoring
from engine.generation.step_queue import StepQueue
from engine.model.generation_config import GenerationConfig

from ..tools.step_queues import finish, generate, last_logits, queue_of, score, step_often, submit
from .table_stepper import TableStepper

REQUESTS = int(os.environ.get("ENGINE_BOUNDED_REQUESTS", "150"))
CONFIGS = [GenerationConfig(eos_token_id=2, max_new_tokens=60, **options) for options in (
    {}, {}, {"no_repeat_ngram_size": 3}, {"do_sample": True, "top_k": 4, "seed": 5}, {"do_sample": True, "top_k": 0},
    {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "num_return_sequences": 3})]
GREEDY = GenerationConfig(max_new_tokens=100)


class Bounded(TableStepper):
    """Fails when the cells in use exceed a bound, also while a step has the cells of parents and children."""

    def __init__(self, bound=None):
        super().__init__(bias={2: -2.0})
        self.bound, self.most = bound, 0

    def step(self, rows, stop=NEVER):
        scores = super().step(rows, stop)
        self.most = max(self.most, self.held)
        assert self.bound is None or self.held <= self.bound
        return scores


def prompt_of(rng):
    begin = [3 + rng.randrange(2)] * rng.choice([4, 32, 70])
    return [*begin, *(rng.randrange(3, 20) for _ in range(rng.randint(1, 9)))]


def what_of(rng):
    """Return a request of some kind, as the functions below take it."""
    request = Request(None, prompt_of(rng), rng.choice(CONFIGS))
    return rng.choice([request] * 5 + [(request, prompt_of(rng)), [np.array(prompt_of(rng)) for _ in range(4)]])


def work_of(stepper, what):
    return what if isinstance(what, Request) else (
        Scoring(stepper, *what) if isinstance(what, tuple) else LastLogits(what, [4]))


def alone(what):
    stepper = Bounded()
    if isinstance(what, Request):
        return generate(stepper, [what])[0]
    return score(stepper, [what[0]], [what[1]])[0] if isinstance(what, tuple) else (
        last_logits(stepper, [what], [4])[0].tolist())


def check_results(handles, whats, results=None):
    for i, (handle, what) in enumerate(zip(handles, whats, strict=True)):
        found = handle.result()
        assert (found.tolist() if isinstance(what, list) else found) == (results[i] if results else alone(what))


@pytest.mark.parametrize("keep", [0, 10**6])
@pytest.mark.parametrize("times", [1.0, 1.3, 2.0, 4.0])
def test_many_requests_in_a_small_cache(times, keep):
    """Of all kinds, some of which are pushed out at random moments: each has the result of the request alone."""
    rng = random.Random(int(10 * times) + bool(keep))
    stepper = Bounded()
    whats = [what_of(rng) for _ in range(REQUESTS // 8 + 1)]
    queue = queue_of(stepper, rng, Budget(rng.choice([6, 64]), rng.choice([40, 400])))
    needs = [submit(queue, work_of(stepper, what)) for what in whats]
    bound = int(times * BLOCK * max(cells_of(handle.entry.work.cached) for handle in needs))
    for handle in needs:
        handle.cancel()
    bound -= bound % BLOCK
    stepper = Bounded(bound)
    queue = queue_of(stepper, rng, Budget(rng.choice([6, 64]), rng.choice([40, 400])), cache_tokens=bound,
                     keep_tokens=min(keep, bound))
    handles = []
    for what in whats:
        handles.append(submit(queue, work_of(stepper, what), rng.randrange(2), key=rng.choice("xy")))
        for _ in range(rng.randrange(6)):
            queue.step()
            may = [one for one in queue._entered if not one.work.reserves]
            if may and rng.random() < 0.1:
                queue._give_way(rng.choice(may))
    finish(queue)
    check_results(handles, whats)
    assert queue.room.gave_way >= 2
    assert not queue.prefixes._places
    assert stepper.held == queue.prefixes.kept <= min(keep, bound)
    assert queue.prefixes.beyond == 0
    assert stepper.most > bound / 4


def test_half_of_the_cache_costs_less_than_three_times_the_reading():
    rng, reads = random.Random(4), []
    requests = [Request(None, [rng.randrange(3, 20) for _ in range(rng.randint(1, 120))], CONFIGS[i % 5])
                for i in range(24)]
    bound = None
    for _ in range(2):
        stepper = Bounded(bound)
        queue = queue_of(stepper, cache_tokens=bound, keep_tokens=0)
        handles = [submit(queue, request) for request in requests]
        finish(queue)
        reads.append(queue.tokens_read)
        results = [handle.result() for handle in handles]
        assert bound is None or queue.room.gave_way > 2
        bound = stepper.most // 2 // BLOCK * BLOCK
    assert results == [alone(request) for request in requests]
    assert reads[1] <= 3 * reads[0]


def test_a_sequence_enters_by_what_it_needs_now():
    """And the last one gives way when they have grown."""
    stepper = Bounded(160)
    queue = queue_of(stepper, cache_tokens=160)
    handles = [submit(queue, Request(None, [5 + i], GREEDY)) for i in range(8)]
    queue.step()
    assert queue.counts == (8, 0)
    order, give_way = [], queue._give_way
    queue._give_way = lambda one: (order.append(one.work.entry.number), give_way(one))
    finish(queue)
    assert order[:4] == [7, 6, 5, 4], "the last one was first"
    check_results(handles, [Request(None, [5 + i], GREEDY) for i in range(8)])


def test_the_lowest_priority_gives_way_first_and_the_rest_is_done_in_order():
    stepper = Bounded(96)
    queue = queue_of(stepper, cache_tokens=96)
    requests = [Request(None, [5 + i] * 20, GenerationConfig(max_new_tokens=60)) for i in range(3)]
    low, high, last = (submit(queue, request, priority) for request, priority in zip(requests, (0, 2, 1), strict=True))
    new = None
    while not high.done:
        queue.step()
        waiting = [one.work.entry for one in queue.room.waiting]
        assert high.entry not in waiting
        assert not waiting or waiting[-1] is low.entry
        if waiting and new is None:
            new = submit(queue, Request(None, [9], GREEDY), priority=0)
    while low.entry in [one.work.entry for one in queue.room.waiting]:
        assert not new.tokens(0)
        queue.step()
    finish(queue)
    check_results([low, high, last], requests)
    assert queue.room.gave_way <= 3


def test_who_has_come_back_makes_some_tokens_before_it_gives_way_again():
    stepper = Bounded(128)
    queue = queue_of(stepper, cache_tokens=128)
    handles = [submit(queue, Request(None, [5 + i], GREEDY)) for i in range(6)]
    lost, tokens = {}, {}
    give_way = queue._give_way

    def noted(sequence):
        made = sequence.length - 1
        if sequence.is_back:
            assert made - tokens[sequence] >= min(SAFE, 100 - tokens[sequence] - 1)
        tokens[sequence], lost[sequence] = made, lost.get(sequence, 0) + 1
        give_way(sequence)

    queue._give_way = noted
    finish(queue)
    assert len(lost) > 2
    check_results(handles, [Request(None, [5 + i], GREEDY) for i in range(6)])


def test_what_gave_way_is_read_again_only_where_it_had_to_go():
    stepper = Bounded(160)
    queue = queue_of(stepper, cache_tokens=160)
    handle = submit(queue, Request(None, [5] * 100, GenerationConfig(max_new_tokens=20)))
    step_often(queue, 5)
    read = queue.tokens_read
    queue._give_way(queue._entered[0])
    assert queue.prefixes.kept == 96
    finish(queue)
    assert queue.tokens_read - read < BLOCK
    assert handle.result() == alone(Request(None, [5] * 100, GenerationConfig(max_new_tokens=20)))
    stepper.assert_clean()


def test_scores_of_a_sequence_that_gave_way_are_added_once():
    stepper, rng = Bounded(160), random.Random(0)
    queue = queue_of(stepper, rng, most=12, cache_tokens=160)
    what = Request(None, [5] * 20, GREEDY), [rng.randrange(3, 20) for _ in range(90)]
    handle = submit(queue, Scoring(stepper, *what))
    while not handle.done:
        step_often(queue, 3)
        if queue._entered and queue.room.gave_way < 5:
            queue._give_way(queue._entered[0])
    assert handle.result() == alone(what)
    assert queue.room.gave_way == 5


def test_kept_prefixes_leave_before_anybody_gives_way():
    stepper = Bounded(320)
    queue = queue_of(stepper, cache_tokens=320, keep_tokens=320)
    generate(queue, [Request(None, [5 + i] * 90, GenerationConfig(max_new_tokens=1)) for i in range(3)])
    assert queue.prefixes.kept > 200
    generate(queue, [Request(None, [9] * 300, GenerationConfig(max_new_tokens=16))])
    assert queue.room.gave_way == 0


def test_a_prompt_that_open_beams_go_on_from_is_not_among_what_is_kept():
    """Nobody gives way while there is something else that can go."""
    stepper = Bounded(640)
    queue = queue_of(stepper, cache_tokens=640, keep_tokens=640)
    requests = [Request(None, [token] * n, GenerationConfig(max_new_tokens=new, num_beams=beams))
                for token, n, new, beams in ((5, 96, 60, 2), (6, 128, 1, 1), (7, 260, 90, 1))]
    handles = []
    for request, kept in zip(requests, (0, 128, 112), strict=True):      # the third one needs a cell of the second
        handles.append(submit(queue, request))
        step_often(queue, 4)
        assert queue.prefixes.kept == kept
    finish(queue)
    assert queue.room.gave_way == 0
    check_results(handles, requests)


@pytest.mark.parametrize("keep", [0, 40])
def test_no_more_is_kept_of_a_request_that_gave_way_once_nobody_waits(keep):
    stepper = Bounded(160)
    queue = queue_of(stepper, cache_tokens=160, keep_tokens=keep)
    handle = submit(queue, Request(None, [5] * 100, GenerationConfig(max_new_tokens=20)))
    step_often(queue, 5)
    queue._give_way(queue._entered[0])
    assert queue.prefixes.kept == 96
    handle.cancel()
    finish(queue)
    assert stepper.held == queue.prefixes.kept == keep // BLOCK * BLOCK


def test_what_never_fits_is_refused_with_both_numbers():
    queue = StepQueue(Bounded(48), cache_tokens=50)
    for request in (Request(None, [5] * 60, GenerationConfig(max_new_tokens=5)),
                    Request(None, [5], GenerationConfig(max_new_tokens=60))):
        handle = submit(queue, request)
        finish(queue)
        with pytest.raises(InputError, match="room for up to 64 tokens, in cells of 16, and cache_tokens=50;"):
            handle.result()
    handle = submit(queue, Request(None, [5], GenerationConfig(max_new_tokens=48)))
    finish(queue)
    assert len(handle.result()[0].ids) == 48


class Short(Bounded):
    """Has no memory for more than some cells, as its own bound, which no caller knows."""

    def step(self, rows, stop=NEVER):
        fresh = sum(cells_of(len(self.tokens[row.parent][1]) + len(row.tokens)) - len(self.cells[row.parent])
                    if row.parent is not None else cells_of(len(row.tokens)) for row in rows)
        if self.held + BLOCK * fresh > 160:
            raise MemoryError("no room")
        return super().step(rows, stop)


def test_an_allocation_that_fails_counts_like_a_full_cache():
    stepper = Short()
    queue = queue_of(stepper, keep_tokens=10**6)
    requests = [Request(None, [5 + i] * 10, GREEDY) for i in range(8)]
    handles = [submit(queue, request) for request in requests]
    wrong = submit(queue, Request(None, [4] * 400, GREEDY), priority=-1)
    finish(queue)
    check_results(handles, requests)
    assert queue.room.gave_way > 2
    with pytest.raises(MemoryError):
        wrong.result()
