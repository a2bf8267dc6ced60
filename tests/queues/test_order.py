"""Batches are fair: by priority, owner and work, in tokens, whatever the sizes of works are."""

import random
import weakref

import pytest

from engine.queues.order import Order
from engine.queues.rows import RowsEntry
from engine.queues.work import Work

from ..tools.batches import batches

MOST = 1024


class Asked(RowsEntry):
    """A work of pieces with some tokens each, which is told by its job."""

    def __init__(self, costs, owner="", job="one", priority=0, most=None):
        super().__init__(0, Work(job, costs, most=most), priority, owner, None)


def order_of(*asked):
    order = Order()
    for one in asked:
        order.add(one)
    return order


def taken(order, most=MOST):
    """Return the tokens of each work in the next batch."""
    before = {one: one.left for one in order}
    batch = order.take(most)
    found = {one: before[one] - one.left for one in batch.taken}
    assert sum(found.values()) == batch.tokens
    assert sum(batch.taken.values()) == batch.pieces
    return found


def taken_whole(order, most=MOST):
    """Take everything, and return the tokens of each batch."""
    found = []
    while len(order):
        found.append(taken(order, most))
    assert order.tokens == 0
    assert not order.take(most).taken
    assert order._levels == {}
    return found


def test_every_piece_is_taken_once():
    asked = [Asked([30] * n, owner) for n in (1, 7, 200) for owner in "ab"]
    found = taken_whole(order_of(*asked))
    assert all(sum(batch.values()) <= MOST for batch in found)
    assert all(sum(batch.get(one, 0) for batch in found) == sum(one.work.costs) for one in asked)


@pytest.mark.parametrize("most", [None, 1, 7])
def test_a_work_alone_has_the_batches_of_a_call(most):
    rng = random.Random(5)
    costs = [rng.randrange(0, 90) for _ in range(300)] + [2000]
    asked = Asked(costs, most=most)
    order, found = order_of(asked), []
    while len(order):
        before = asked.taken
        order.take(MOST)
        found.append(asked.work.order[before : asked.taken])
    assert found == [*batches(costs, MOST, most)]


def test_a_long_list_delays_a_single_piece_by_no_batch_that_begins_later():
    order = order_of(Asked([30] * 2000))
    for _ in range(5):
        order.take(MOST)
        single = Asked([30])
        order.add(single)
        assert order.before_first("", 30) <= 30
        assert single in taken(order)


@pytest.mark.parametrize("lists", [8, 40])
def test_many_long_lists_delay_it_by_two_batches_at_most(lists):
    order = order_of(*(Asked([30] * 2000) for _ in range(lists)))
    for _ in range(20):
        order.take(MOST)
    single = Asked([30])
    order.add(single)
    assert any(single in taken(order) for _ in range(3))


def test_single_pieces_without_end_leave_a_list_its_share():
    whole = Asked([30] * 400)
    order = order_of(whole)
    found = 0
    for _ in range(60):
        for _ in range(40):     # more than a batch holds
            order.add(Asked([30]))
        found += taken(order).get(whole, 0)
    assert 150 <= found < 60 * MOST / 4      # not only its first turn


def test_owners_get_equal_shares_whatever_they_send():
    order = order_of(*(Asked([8] * 5000, "many") for _ in range(50)), Asked([200] * 400, "one"), Asked([31] * 900, "b"))
    found = {}
    for _ in range(40):
        for one, tokens in taken(order).items():
            found[one.owner] = found.get(one.owner, 0) + tokens
    assert max(found.values()) - min(found.values()) <= 2 * MOST
    assert sum(found.values()) > 40 * MOST * 0.8


def test_an_owner_with_very_many_works_delays_another_one_by_no_batch():
    order = order_of(*(Asked([20]) for _ in range(10_000)))
    for _ in range(3):
        order.take(MOST)
    other = Asked([20], "other")
    order.add(other)
    assert other in taken(order)


def test_works_of_an_owner_get_equal_shares():
    asked = [Asked([n] * 3000) for n in (5, 40, 250)]
    order = order_of(*asked)
    for _ in range(40):
        order.take(MOST)
    got = [sum(one.work.costs) - one.left for one in asked]
    assert max(got) - min(got) <= 600


def test_a_piece_that_is_longer_than_a_batch_is_one_by_itself():
    found = [sum(batch.values()) for batch in taken_whole(order_of(Asked([20]), Asked([5000, 20]), Asked([20])))]
    assert sorted(found) in ([20, 20, 20, 5000], [20, 40, 5000], [60, 5000])


def test_a_batch_has_one_job_and_the_other_is_next():
    rank, embed = Asked([30] * 100, job="rank"), Asked([30] * 100, job="embed")
    found = taken_whole(order_of(rank, embed))
    jobs = [{one.job for one in batch} for batch in found]
    assert all(len(own) == 1 for own in jobs)
    assert jobs[:4] in ([{"rank"}, {"embed"}] * 2, [{"rank"}, {"embed"}, {"embed"}, {"rank"}])


def test_jobs_of_one_owner_share_its_time():
    """An owner with works of many jobs gets no more than one with a single job."""
    order = order_of(*(Asked([30] * 2000, "many", job) for job in "abcdef"), Asked([30] * 9000, "one", "a"))
    found = {}
    for _ in range(60):
        for one, tokens in taken(order).items():
            found[one.owner] = found.get(one.owner, 0) + tokens
    assert max(found.values()) - min(found.values()) <= 2 * MOST


def test_a_higher_priority_is_first_and_a_lower_one_fills_the_batch():
    low, high, other = Asked([30] * 100, "a"), Asked([30] * 50, "b", priority=5), Asked([30], job="two", priority=9)
    found = [[one.priority for one in batch] for batch in taken_whole(order_of(low, high, other))]
    assert found[:4] == [[9], [5], [5, 0], [0]]


def test_a_lower_priority_does_not_pass_a_long_piece_of_a_higher_one():
    order = order_of(Asked([600, 600], priority=1), Asked([10]))
    assert [[*batch.values()] for batch in taken_whole(order)] == [[600], [600, 10]]


def test_a_work_with_few_pieces_a_batch_limits_those_that_it_is_in():
    few, many = Asked([10] * 9, most=3), Asked([10] * 40)
    order = order_of(few, many)
    while len(order):
        batch = order.take(MOST)
        assert few not in batch.taken or batch.pieces <= 3


def test_what_comes_before_a_new_work():
    order = order_of(Asked([30] * 2000, "a"), *(Asked([50], "a") for _ in range(10)), Asked([20] * 3, "b"))
    assert order.before_first("a", 40) == 30 + 10 * 50 + 60
    assert order.before_first("b", 40) == 20 + 60
    assert order.before_first("c", 40) == 40 + 40
    assert order.before_first("c", 40, priority=1) == 0
    assert order.before_first("c", 40, priority=-1) == order.tokens == 60_560
    for _ in range(3):
        order.take(MOST)
    assert order.before_first("a", 40) == 0
    assert order.before_first("c", 40) == 40


def test_what_comes_before_the_end_of_a_new_work():
    order = order_of(Asked([30] * 2000, "a"), *(Asked([50], "a") for _ in range(10)), Asked([20] * 3, "b"))
    assert order.before_last("a", 300) == 300 + 10 * 50 + 60
    assert order.before_last("b", 300) == 60 + 360
    assert order.before_last("c", 30) == 30 + 30


def test_what_is_dropped_leaves_nothing():
    asked = [Asked([30] * 50, owner, job, priority) for owner in "ab" for job in "xy" for priority in (0, 1)
             for _ in range(100)]
    order = order_of(*asked)
    order.take(MOST)
    for one in asked[5:]:
        assert order.drop(one)
        assert not order.drop(one)
    assert len(order) == 5
    assert order.tokens == sum(one.left for one in asked[:5])
    assert {one for batch in taken_whole(order) for one in batch} == set(asked[:5])


def test_works_that_come_and_go_beside_a_job_that_is_busy_leave_nothing():
    order = order_of(Asked([30] * 5000, job="busy"))
    for i in range(2000):
        one = Asked([30], f"owner {i}", job="dropped")
        order.add(one)
        if i % 5 == 0:
            order.take(MOST)
        order.drop(one)
    [level] = order._levels.values()
    assert [*level.owners] == [""]
    order.take(MOST)
    assert [*level._lines] == ["busy"]


def test_what_is_about_to_come_and_to_go_counts():
    leaves, large = Asked([50], "a"), Asked([40, 30], "b")
    order = order_of(leaves, Asked([20] * 3, "a"), large)
    changes = [(Asked([90, 10], "c"), 1), (Asked([5], "a"), 1), (leaves, -1), (Asked([7], "b", priority=3), 1)]
    after = order_of(*order, *(work for work, sign in changes if sign > 0))
    after.drop(leaves)
    for owner in "abcd":
        for size in (1, 30, 500):
            for priority in (0, 3, 5):
                assert order.before_first(owner, size, priority, changes) == after.before_first(owner, size, priority)
                assert order.before_last(owner, size, priority, changes) == after.before_last(owner, size, priority)


def test_a_work_that_was_dropped_is_not_kept():
    order, work = order_of(Asked([30] * 9)), Asked([40])
    order.add(work)
    kept = weakref.ref(work.work)
    order.drop(work)
    del work
    assert kept() is None
