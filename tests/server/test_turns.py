"""Turns are fair: by key, and within a key by request, in tokens, whatever the sizes of requests are."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from engine.server.turns import Turns

MOST = 1024


@dataclass(eq=False)
class Asked:
    lengths: list[int]
    key: str = ""
    job: str = "one"
    taken: int = 0
    work: SimpleNamespace = field(init=False)

    def __post_init__(self):
        self.work = SimpleNamespace(lengths=self.lengths, computation=self.job)


def turns_of(*asked, most=MOST):
    turns = Turns(most)
    for one in asked:
        turns.add(one)
    return turns


def tokens_of(batch):
    found = {}
    for request, places in batch:
        found[request] = sum(request.lengths[i] for i in places)
    return found


def taken_whole(turns):
    """Take everything, and return the batches."""
    batches = []
    while batch := turns.take():
        batches.append(batch)
    assert len(turns) == turns.tokens == 0
    return batches


def test_every_sequence_is_taken_once_and_in_order():
    asked = [Asked([30] * n, key) for n in (1, 7, 200) for key in "ab"]
    batches = taken_whole(turns_of(*asked))
    assert all(sum(tokens_of(batch).values()) <= MOST for batch in batches)
    for one in asked:
        assert [i for batch in batches for request, places in batch if request is one for i in places] == [
            *range(len(one.lengths))]


def test_a_long_list_delays_a_single_text_by_no_batch_that_begins_later():
    turns = turns_of(Asked([30] * 2000))
    for _ in range(5):
        turns.take()
        single = Asked([30])
        turns.add(single)
        assert turns.before("", 30) <= 30
        assert single in tokens_of(turns.take())


@pytest.mark.parametrize("lists", [8, 40])
def test_many_long_lists_delay_it_by_two_batches_at_most(lists):
    turns = turns_of(*(Asked([30] * 2000) for _ in range(lists)))
    for _ in range(20):
        turns.take()
    single = Asked([30])
    turns.add(single)
    assert any(single in tokens_of(turns.take()) for _ in range(3))


def test_single_texts_without_end_leave_a_list_its_share():
    whole = Asked([30] * 400)
    turns = turns_of(whole)
    found = 0
    for _ in range(60):
        for _ in range(40):     # more than a batch holds
            turns.add(Asked([30]))
        found += tokens_of(turns.take()).get(whole, 0)
    assert 150 <= found < 60 * MOST / 4      # not only its first turn


def test_keys_get_equal_shares_whatever_they_send():
    turns = turns_of(*(Asked([8] * 5000, "many") for _ in range(50)), Asked([200] * 400, "one"), Asked([31] * 900, "b"))
    found = {}
    for _ in range(40):
        for request, tokens in tokens_of(turns.take()).items():
            found[request.key] = found.get(request.key, 0) + tokens
    assert max(found.values()) - min(found.values()) <= 2 * MOST
    assert sum(found.values()) > 40 * MOST * 0.8


def test_requests_of_a_key_get_equal_shares():
    asked = [Asked([n] * 3000) for n in (5, 40, 250)]
    turns = turns_of(*asked)
    for _ in range(40):
        turns.take()
    got = [sum(one.lengths[: one.taken]) for one in asked]
    assert max(got) - min(got) <= 600


def test_a_text_that_is_longer_than_a_batch_is_one_by_itself():
    batches = taken_whole(turns_of(Asked([20]), Asked([5000, 20]), Asked([20])))
    assert [{request.lengths[i] for request, places in batch for i in places} for batch in batches] == [
        {20}, {5000}, {20}]


def test_a_batch_has_one_job_and_the_other_is_next():
    rank, embed = Asked([30] * 100, job="rank"), Asked([30] * 100, job="embed")
    batches = taken_whole(turns_of(rank, embed))
    jobs = [{request.job for request, _ in batch} for batch in batches]
    assert all(len(own) == 1 for own in jobs)
    assert jobs[:4] in ([{"rank"}, {"embed"}] * 2, [{"rank"}, {"embed"}, {"embed"}, {"rank"}])


def test_what_comes_before_a_new_request():
    turns = turns_of(Asked([30] * 2000, "a"), *(Asked([50], "a") for _ in range(10)), Asked([20] * 3, "b"))
    assert turns.before("a", 40) == 30 + 10 * 50 + 60
    assert turns.before("b", 40) == 20 + 60
    assert turns.before("c", 40) == 40 + 40
    for _ in range(3):
        turns.take()
    assert turns.before("a", 40) == 0
    assert turns.before("c", 40) == 40


def test_what_comes_before_the_end_of_a_new_request():
    turns = turns_of(Asked([30] * 2000, "a"), *(Asked([50], "a") for _ in range(10)), Asked([20] * 3, "b"))
    assert turns.beside("a", 300) == 300 + 10 * 50 + 60
    assert turns.beside("b", 300) == 60 + 360
    assert turns.beside("c", 30) == 30 + 30


def test_what_is_dropped_leaves_nothing():
    asked = [Asked([30] * 50, key) for key in "ab" for _ in range(200)]
    turns = turns_of(*asked)
    turns.take()
    for one in asked[5:]:
        assert turns.drop(one)
        assert not turns.drop(one)
    assert len(turns) == 5
    assert turns.tokens == sum(sum(one.lengths[one.taken :]) for one in asked[:5])
    rest = {request for batch in taken_whole(turns) for request, _ in batch}
    assert rest == set(asked[:5])
