"""The arithmetic of a refusal: tokens before the first answer, divided by the measured rate; and memory."""

import pytest

from engine.base.errors import Overloaded
from engine.queues.model_queue import ModelQueue
from engine.server.admission import LIKELY, Admission, Memory, Room, TextLoad
from engine.server.settings import Limit


def measured(rate=1000, max_wait=2.0):
    queue = ModelQueue(1024)
    queue._measured = 1024, 1024 / rate
    return Admission(max_wait, lambda: queue.rate)


def test_a_request_may_wait_as_long_as_is_said():
    admission = measured()
    admission.check_wait(2000, lambda: 2500)        # which nobody asks for
    admission.check_wait(9000, lambda: 2000)
    with pytest.raises(Overloaded, match=r"first answer would come after 2\.5 s.* wait 2 s; try again in 1 s") as error:
        admission.check_wait(9000, lambda: 2500)
    assert error.value.retry_after == pytest.approx(0.5)


def test_a_request_that_others_would_make_too_late():
    admission = measured()
    admission.check_end(lambda: 9000, 9000, 1000, 10.0)
    with pytest.raises(Overloaded, match=r"answer would come 1\.0 s after the deadline") as error:
        admission.check_end(lambda: 10000, 20000, 1000, 10.0)
    assert error.value.retry_after == pytest.approx(1)
    admission.check_end(lambda: 8000, 20000, 1000, 10.0)        # of what waits, others come later
    admission.check_end(lambda: 20000, 20000, 11000, 10.0)      # its own length alone makes it late: it may try


def test_memory_has_a_bound():
    memory = Memory(1000)
    rooms = [Room(memory) for _ in range(333)]
    for room in rooms:
        room.hold(3)
    with pytest.raises(Overloaded, match="999 of 1,000 bytes"), Room(memory) as other:
        other.hold(3)
    rooms[0].close()
    with Room(memory) as other:
        other.hold(3)
        other.hold(3)
        assert memory.used == 999
    assert memory.used == 996
    rooms[0].hold(3)        # a part of a request that has ended meanwhile
    assert memory.used == 996
    for room in rooms:
        room.close()
        room.close()
    assert memory.used == 0


def test_long_requests_leave_room_for_short_ones():
    memory = Memory(2**20)
    large, one = Room(memory), Room(memory)
    large.hold(2**18)
    large.hold(3 * 2**17)       # in place of what it had
    one.hold(2**18)
    one.hold(3 * 2**17)
    with pytest.raises(Overloaded):
        Room(memory).hold(2**13)
    for _ in range(2**6):
        Room(memory).hold(2**12)
    assert memory.used == 2**20
    with pytest.raises(Limit, match=r"1,000,000 bytes .* one request may need 393,216; send less"):
        large.hold(10**6)


def test_many_short_requests_of_a_key_leave_room_for_other_keys():
    memory = Memory(2**20)
    rooms = [Room(memory, "much") for _ in range(2**9)]
    for room in rooms[: 7 * 2**6]:
        room.hold(2**11)
    with pytest.raises(Overloaded):
        rooms[-1].hold(1)
    assert memory.used == 7 * 2**17
    for room in (rooms[0], Room(memory, "other")):
        room.hold(2**11)
        room.hold(2**12 if room.key == "other" else 2**11)
    with pytest.raises(Overloaded):
        rooms[0].hold(2**11 + 1)
    for room in rooms:
        room.close()
    assert memory.used == 2**12
    Room(memory, "much").hold(2**12)


def loaded(rows=4):
    """Return what is left of a model that reads 1,000 tokens and makes 100 in a second."""
    load = TextLoad(rows)
    load.measured(1, 0, 0.01)
    load.measured(0, 10, 0.01)
    load.lengths.extend([50] * 10)
    return load


def test_the_rates_of_prompts_and_of_new_tokens():
    load = TextLoad(4)
    assert load.cost(100, 100, 1) == (0.0, 0.0)
    for _ in range(300):
        load.measured(4, 0, 0.04)
        load.measured(4, 100, 0.14)
    assert load.write_rate == pytest.approx(100)
    assert load.read_rate == pytest.approx(1000)
    load.measured(4, 100, 0.0)      # a clock that stands still says nothing
    assert load.read_rate == pytest.approx(1000, rel=0.1)


def test_the_likely_length_of_an_answer():
    load = loaded()
    assert load.cost(200, 30, 2) == pytest.approx((0.2, 0.2 + 2 * 30 / 100))
    assert load.cost(200, 1000, 2) == pytest.approx((0.2, 0.2 + 2 * 50 / 100))
    load.leave("nobody", [250] * 100)
    assert load.cost(0, 1000, 1)[1] == pytest.approx(2.5)
    assert TextLoad(1).likely == LIKELY


def test_a_first_token_waits_for_prompts_and_for_rows():
    load = loaded()
    load.enter("a", "one", *load.cost(3000, 50, 1), 1)
    assert load.before_first("one", 0.1, 1) == pytest.approx(3.1)       # behind that of its own key
    assert load.before_first("two", 0.1, 1) == pytest.approx(0.2)       # beside that of another one
    assert load.begin("a")
    assert load.before_first("one", 0.1, 1) == pytest.approx(0.1)
    assert load.seconds == pytest.approx(0.5)
    for name in "bcd":
        load.enter(name, "one", *load.cost(0, 50, 1), 1)
        load.begin(name)
    assert load.before_first("two", 0.0, 1) == pytest.approx(0.5)       # until one of four answers ends
    load.enter("e", "one", *load.cost(0, 50, 2), 2)
    assert load.before_first("one", 0.0, 1) == pytest.approx(1.5)
    assert load.before_first("two", 0.0, 1) == pytest.approx(1.0)
    assert load.before_last("two", 0.1) == pytest.approx(0.1)
    load.leave("a")
    assert not load.begin("a")
    for name in "bcde":
        load.leave(name, [50])
    assert load.seconds == 0
