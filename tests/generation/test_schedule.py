"""What a step reads, by arrival, priority, owner and time, without a model and without a clock."""

import math
import random
from dataclasses import dataclass

import numpy as np
import pytest

from engine.backends.wants import ALL, GREEDY
from engine.base.errors import InputError
from engine.base.stop import NEVER
from engine.generation.schedule import FEWEST, FRESH, MOST_SCORES, Budget, Pace, Schedule
from engine.generation.works import Sequence
from engine.queues.entry import Entry

STEP, IDLE = Pace().step_seconds, Pace().idle_seconds


@dataclass(eq=False)
class Request:
    """What a schedule knows of a request."""

    source: int
    entry: Entry
    waits: bool = False


def prompt(number, length, *, priority=0, owner="", source=0, scored=None, wants=GREEDY):
    """Return an unread sequence of a request."""
    work = Request(source, Entry(number, priority, owner, NEVER))
    return Sequence(work, np.zeros(length, np.int64), length, length - 1 if scored is None else scored, wants)


def schedule_of(sequences, *, pace=None, rows=64, tokens=4096, vocab_size=1000):
    schedule = Schedule(Budget(rows, tokens), vocab_size, pace)
    for sequence in sequences:
        schedule.add(sequence.work)
        schedule.admit(sequence.work)
    return schedule


def read(schedule, decoding, sequences):
    """Return (number, tokens) of each sequence that the next step reads, and let it be read."""
    found = schedule.plan(decoding, [sequence for sequence in sequences if sequence.unread])
    for sequence, n in found:
        sequence.read += n
    return [(sequence.work.entry.number, n) for sequence, n in found]


def test_a_call_of_its_own_reads_all_that_fits():
    sequences = [prompt(0, 30), prompt(1, 50), prompt(2, 100)]
    schedule = schedule_of(sequences, tokens=100)
    assert read(schedule, 10, sequences) == [(0, 30), (1, 50), (2, 10)]
    assert read(schedule, 12, sequences) == [(2, 88)]
    assert read(schedule, 12, sequences) == [(2, 2)]
    assert read(schedule, 12, sequences) == []


def test_something_is_always_read():
    """A prompt goes on by a token at least, whatever else fills the step."""
    sequences = [prompt(0, 30)]
    assert read(schedule_of(sequences, tokens=1, rows=1), 5, sequences) == [(0, 1)]
    paced = schedule_of(sequences, pace=Pace())
    paced.measured(5, 0, 1.0)
    for _ in range(3):
        paced.measured(5, 16, 100.0)
    assert paced.prompt_tokens(5) == FEWEST


def test_priority_comes_before_arrival():
    sequences = [prompt(0, 10), prompt(1, 10, priority=5), prompt(2, 10, priority=-1), prompt(3, 10, priority=5)]
    schedule = schedule_of(sequences, tokens=25)
    assert read(schedule, 0, sequences) == [(1, 10), (3, 10), (0, 5)]


def test_owners_take_turns():
    sequences = [*(prompt(i, 100, owner="a") for i in range(3)), prompt(3, 100, owner="b"), prompt(4, 50, owner="c")]
    schedule = schedule_of(sequences, tokens=50)
    order = [read(schedule, 0, sequences)[0][0] for _ in range(9)]
    assert order == [0, 3, 4, 0, 3, 1, 1, 2, 2]
    assert schedule.first() is None


@pytest.mark.parametrize("comes", ["c", "d"])
def test_nobody_makes_up_for_a_time_in_which_he_asked_for_nothing(comes):
    """Owner c has one request, which decodes for ever, while 5,000 tokens are read for a.

    Neither what c asks for then, nor what a new owner asks for, comes before all that a goes on to ask for.
    """
    answer, long = prompt(0, 10, owner="c"), prompt(1, 10_000, owner="a")
    schedule = schedule_of([answer, long], tokens=100)
    for _ in range(50):
        read(schedule, 1, [answer, long])
    late = prompt(2, 5000, owner=comes)
    schedule.add(late.work)
    schedule.admit(late.work)
    order = [number for _ in range(40) for number, _ in read(schedule, 1, [answer, long, late])]
    assert abs(order.count(1) - order.count(2)) < 3
    for sequence in (answer, long, late):
        schedule.leave(sequence.work, 7)
    assert not schedule._owners


@pytest.mark.parametrize("seconds", [0.0, -5.0, math.nan, math.inf, 1e-300])
@pytest.mark.parametrize("decoding", [0, 3])
def test_a_clock_that_says_nonsense_stops_no_prompt(seconds, decoding):
    sequences = [prompt(0, 10_000)]
    schedule = schedule_of(sequences, pace=Pace())
    for _ in range(20):
        if sequences[0].unread:
            chosen = read(schedule, decoding, sequences)
            schedule.measured(decoding, sum(n for _, n in chosen), seconds)
    assert sequences[0].read >= 18 * FEWEST


def test_requests_enter_in_the_same_order():
    works = [prompt(number, 5, priority=priority, owner=owner).work
             for number, (priority, owner) in enumerate([(0, "a"), (0, "a"), (0, "b"), (1, "a")])]
    schedule = Schedule(Budget(), 1000)
    for work in works:
        schedule.add(work)
    order = []
    while (first := schedule.first()) is not None:
        schedule.admit(first)
        schedule.leave(first, 10)
        order.append(first.entry.number)
    assert order == [3, 2, 0, 1]


@pytest.mark.parametrize("cost", [1e-4, 5e-4, 2e-3, 1e-2])
@pytest.mark.parametrize("decoding", [0, 1, 16, 60])
def test_a_step_takes_no_longer_than_the_pace_allows(cost, decoding):
    """A machine of a given cost for a token: the steps come near the pace from below, and change with the cost."""
    base, allowed = 0.01 + 0.001 * decoding if decoding else 0.0, STEP if decoding else IDLE
    sequences = [prompt(0, 10**9)]
    schedule, rng = schedule_of(sequences, pace=Pace(), tokens=8192), random.Random(1)
    if decoding:
        schedule.measured(decoding, 0, base)
    sizes = []
    for step in range(400):
        token = cost * (1 if step < 200 else 4)
        n = sum(n for _, n in read(schedule, decoding, sequences))
        assert n >= FEWEST or (decoding and not n)
        if step > 30 and not 200 <= step < 220 and n > FEWEST:
            assert n * token < allowed * 1.25
        sizes.append(n)
        schedule.measured(decoding, n, (base + n * token) * rng.uniform(0.95, 1.05))
    for tokens, sized in ((cost, sizes[100:200]), (4 * cost, sizes[300:])):
        most = allowed / tokens
        assert sorted(sized)[len(sized) // 2] > min(0.7 * most - FEWEST, 4000)


@pytest.mark.parametrize(("decoding", "prompts", "length", "allowed"), [
    (4, 1, 20, IDLE / 4), (40, 16, 20, IDLE * 16 / 40), (40, 2, 20, STEP), (4, 9, 20, IDLE), (4, 9, 10**6, STEP),
    (64, 9, 10**6, 0.08), (64, 90, 20, IDLE), (0, 1, 10**6, IDLE)])
def test_a_pace_that_weighs_lets_a_step_take_longer_where_that_costs_little(decoding, prompts, length, allowed):
    """Many have their first token after the step, or the rows that decode take as long themselves."""
    schedule = schedule_of([], pace=Pace(weighs=True), tokens=8192)
    base = 0.08 * decoding / 64
    for _ in range(30):
        sequences = [prompt(i, length) for i in range(prompts)]
        n = schedule.prompt_tokens(decoding, sum(map(schedule._is_short, sequences)))
        schedule.measured(decoding, n, base + n * 1e-3)
    assert abs(n - allowed / 1e-3) <= 1


def test_a_long_prompt_takes_no_longer_beside_short_ones():
    """It is the first in order, and the short ones have what they need besides."""
    sequences = [prompt(0, 10**6, owner="a"), *(prompt(i, 20, owner=str(i)) for i in range(1, 5))]
    schedule = schedule_of(sequences, pace=Pace(weighs=True))
    schedule.measured(4, 0, 0.01)
    for _ in range(20):
        schedule.measured(4, 1000, 0.01 + 1000 * 1e-3)
    assert read(schedule, 4, sequences) == [(0, STEP / 1e-3), *((i, 20) for i in range(1, 5))]
    assert read(schedule, 4, sequences) == [(0, STEP / 1e-3)]


def test_what_the_cache_has_makes_a_prompt_short():
    sequences = [prompt(i, 10**6, owner=str(i)) for i in range(3)]
    schedule = schedule_of(sequences, pace=Pace(weighs=True))
    schedule.measured(4, 0, 0.01)
    for _ in range(20):
        schedule.measured(4, 1000, 0.01 + 1000 * 1e-3)

    def catch_up(sequence):
        sequence.read = 10**6 - 60
        return sequence

    assert [n for _, n in schedule.plan(4, sequences, catch_up)] == [60, 60, 60]


def test_the_time_of_a_step_follows_from_steps_with_fewer_and_with_more_rows():
    """Rows that come and go one by one do not stop the prompts at each number of rows."""
    sequences = [prompt(0, 10**9)]
    schedule = schedule_of(sequences, pace=Pace())
    schedule.measured(0, 100, 0.1)
    for decoding in (4, 40):
        schedule.measured(decoding, 0, 0.01 + decoding * 1e-3)
    for decoding in range(4, 41):
        n = sum(n for _, n in read(schedule, decoding, sequences))
        assert n >= FEWEST, decoding
        schedule.measured(decoding, n, 0.01 + decoding * 1e-3 + n * 1e-3)
    assert abs(n - STEP / 1e-3) <= 3
    schedule.measured(16, 0, 0.02)
    assert schedule._seconds_without_prompts(16) == 0.02        # what was measured, without what was not
    assert [read(schedule, decoding, sequences) for decoding in (3, 60)] == [[], []]


def test_steps_without_a_prompt_are_measured_anew():
    """While prompts come without a pause, a step without them shows from time to time how long the others take."""
    sequences = [prompt(0, 10**9)]
    schedule = schedule_of(sequences, pace=Pace())
    sizes = []
    for step in range(6 * FRESH):
        base = 0.02 if step < 3 * FRESH else 0.08
        n = sum(n for _, n in read(schedule, 20, sequences))
        sizes.append(n)
        schedule.measured(20, n, base + n * 1e-3)
    assert sizes.count(0) == 6
    for part in (sizes[2 * FRESH : 3 * FRESH], sizes[-FRESH:]):
        assert sorted(part)[FRESH // 2] in (49, 50), "the others take longer, and a token takes no longer"


def test_one_source_starts_in_a_step_while_others_wait_for_a_token():
    def sources():
        return [prompt(i, 2, source=30) for i in range(4)]

    sequences = sources()
    schedule = schedule_of(sequences, pace=Pace())
    schedule.measured(3, 0, 0.01)
    assert [read(schedule, 3, sequences) for _ in range(5)] == [[(0, 2)], [(1, 2)], [(2, 2)], [(3, 2)], []]
    sequences = sources()
    assert read(schedule_of(sequences), 3, sequences) == [(0, 2), (1, 2), (2, 2), (3, 2)]
    sequences = [*sources(), prompt(4, 200)]
    assert read(schedule_of(sequences, tokens=70), 3, sequences) == [(0, 2), (1, 2), (4, 3)]
    sequences = [prompt(0, 2, source=500)]
    assert read(schedule_of(sequences, tokens=70), 3, sequences) == [(0, 2)], "a long source starts alone"


def test_rows_and_logits_are_bounded():
    V = MOST_SCORES // 100
    for wants, vocab_size in ((ALL, V), (GREEDY, 64 * V), (ALL, MOST_SCORES * 2)):
        sequences = [prompt(i, 80, scored=10, wants=wants) for i in range(5)]
        schedule = schedule_of(sequences, vocab_size=vocab_size)
        if vocab_size > MOST_SCORES:
            assert read(schedule, 0, sequences) == [(0, 11), (1, 10), (2, 10), (3, 10), (4, 10)]
            continue
        assert read(schedule, 0, sequences) == [(0, 80), (1, 10 + 30), (2, 10), (3, 10), (4, 10)]
        assert read(schedule, 0, sequences) == [(1, 40), (2, 60)]
    sequences = [prompt(0, 80, scored=10, wants=ALL), prompt(1, 80, scored=10)]
    assert read(schedule_of(sequences, vocab_size=V), 0, sequences) == [(0, 80), (1, 80)], "of few numbers"
    sequences = [prompt(i, 5) for i in range(9)]
    assert len(read(schedule_of(sequences, rows=6), 4, sequences)) == 2
    assert len(read(schedule_of(sequences, rows=6), 6, sequences)) == 1


@pytest.mark.parametrize("options", [{"step_seconds": 0}, {"idle_seconds": -1.0}, {"step_seconds": True},
                                     {"step_seconds": "1"}, {"idle_seconds": float("nan")}])
def test_a_wrong_pace(options):
    with pytest.raises(InputError, match=f"{next(iter(options))} must be a number of seconds above 0, not"):
        Pace(**options)
