"""What one sequence has read, or reads, no other one with the same key reads; and it changes no result.

    ENGINE_PAIRS_OF_OWNERS=1000 python -m pytest tests/generation/test_prefixes.py -k owners
"""

import os
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engine.base.stop import NEVER
from engine.generation.prefixes import BLOCK
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.generation.scoring import LastLogits, Scoring
from engine.model.generation_config import GenerationConfig

from ..tools.step_queues import finish, generate, last_logits, queue_of, score, step_often, submit
from ..tools.threads import together
from .table_stepper import TableStepper

SHORT = GenerationConfig(max_new_tokens=1, eos_token_id=2)
CONFIGS = [GenerationConfig(eos_token_id=2, max_new_tokens=20, **options) for options in (
    {}, {"num_beams": 3, "num_return_sequences": 2}, {"do_sample": True, "num_return_sequences": 3},
    {"no_repeat_ngram_size": 3}, {"do_sample": True, "top_k": 4, "seed": 5})]
ENDLESS = 10**9
PAIRS = int(os.environ.get("ENGINE_PAIRS_OF_OWNERS", "100"))


class Counting(TableStepper):
    """Counts for each beginning of whole blocks how often its last token is read."""

    def __init__(self):
        super().__init__(bias={2: 1.0})
        self.blocks = Counter()

    def step(self, rows, stop=NEVER):
        for row in rows:
            before = [] if row.parent is None else self.tokens[row.parent][1]
            ids = (*before, *row.tokens.tolist())
            self.blocks.update(ids[:end] for end in range(BLOCK, len(ids) + 1, BLOCK) if end > len(before))
        return super().step(rows, stop)


def prompt_of(rng, depth=5):
    """Return a prompt that shares its beginning with many others."""
    ids = []
    for _ in range(rng.randrange(depth)):
        ids += [3 + rng.randrange(2)] * rng.choice([4, 16, 32, 40])
    return [*ids, *(rng.randrange(3, 20) for _ in range(rng.randint(1, 9)))]


def read(stepper):
    """Return the number of tokens that all steps have read."""
    return sum(len(row.tokens) for step in stepper.steps for row in step)


KNOWN = {}
"""The results of `alone`: some requests come in several tests."""


def alone(what):
    """Return the result of a request, of a pair to score or of prompts to rank, which nothing else runs beside."""
    if (key := repr(what)) not in KNOWN:
        stepper = TableStepper(bias={2: 1.0})
        if isinstance(what, Request):
            KNOWN[key], = generate(stepper, [what])
        elif isinstance(what, tuple):
            KNOWN[key], = score(stepper, [what[0]], [what[1]])
        else:
            KNOWN[key], = last_logits(stepper, [what], [4])
    return KNOWN[key]


def check_idle(queue, stepper):
    """Nothing is open: what is kept is what the cells hold, and no more than the bound."""
    prefixes = queue.prefixes
    assert not prefixes._places
    assert stepper.held == prefixes.kept == sum(run.count for run in prefixes._idle)
    assert prefixes.kept <= prefixes.most
    if not prefixes.kept:
        stepper.assert_clean()


@pytest.mark.parametrize("keep", [0, 64, 500, ENDLESS])
@pytest.mark.parametrize("seed", range(2))
def test_requests_of_all_kinds_that_share_prefixes(seed, keep):
    """Whatever comes and goes, and whatever is kept, each has the result of the request alone."""
    rng, stepper = random.Random(seed), TableStepper(bias={2: 1.0})
    queue = queue_of(stepper, rng, Budget(rng.choice([6, 64]), rng.choice([40, 400])), keep_tokens=keep)
    handles = []
    for i in range(80):
        request = Request(None, prompt_of(rng), rng.choice(CONFIGS))
        kind = rng.choice(["generate"] * 3 + ["score", "rank", "cancel"])
        what = request
        if kind == "score":
            what = request, prompt_of(rng)
        elif kind == "rank":
            what = [np.array(prompt_of(rng)) for _ in range(5)]
        work = Scoring(stepper, *what) if kind == "score" else LastLogits(what, [4]) if kind == "rank" else what
        handles.append((submit(queue, work, rng.randrange(2), rng.choice("ab"), key=rng.choice("xy")), kind, what))
        step_often(queue, rng.randrange(4))
        if rng.random() < 0.3:
            rng.choice([handle for handle, kind, _ in handles if kind == "cancel"] or [handles[0][0]]).cancel()
        if i % 40 == 39:
            finish(queue)
            check_idle(queue, stepper)
    for handle, kind, what in handles:
        if kind != "cancel" and handle.error is None:
            found = handle.result()
            assert found.tolist() == alone(what).tolist() if kind == "rank" else found == alone(what)
    assert sum(handle.error is not None for handle, _, _ in handles) < 20
    if keep:
        assert queue.prefixes.found_tokens > 1000


@pytest.mark.parametrize("seed", range(3))
def test_each_block_is_read_once(seed):
    """By requests that come at any moment: but the last block of a prompt without a rest, whose last token is read."""
    rng, stepper = random.Random(seed), Counting()
    queue = queue_of(stepper, rng, keep_tokens=ENDLESS)
    prompts = [prompt_of(rng, 8) for _ in range(60)]
    handles = []
    for prompt in prompts:
        handles.append(submit(queue, Request(None, prompt, SHORT), rng.randrange(2), rng.choice("abc")))
        step_often(queue, rng.randrange(3))
    finish(queue)
    assert all(handle.result() for handle in handles)
    again = {ids for ids, count in stepper.blocks.items() if count > 1}
    assert again <= {tuple(prompt) for prompt in prompts}
    assert len(stepper.blocks) > 100
    assert queue.tokens_read == read(stepper)
    assert queue.prefixes.found_tokens + queue.tokens_read == sum(map(len, prompts))


@pytest.mark.parametrize("keep", [0, ENDLESS])
def test_prompts_that_come_together_read_their_common_beginning_once(keep):
    system, stepper = [5] * 160, Counting()
    queue = queue_of(stepper, random.Random(0), keep_tokens=keep)
    requests = [Request(None, [*system, 3 + i, 9], SHORT) for i in range(16)]
    handles = [submit(queue, request) for request in requests]
    finish(queue)
    assert max(stepper.blocks.values()) == 1
    assert read(stepper) == 160 + 16 * 2
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]


def test_a_prompt_reads_its_last_token():
    stepper = TableStepper()
    queue, request = queue_of(stepper, keep_tokens=ENDLESS), Request(None, [5] * 32, SHORT)
    works = [request, request, Scoring(stepper, request, [5, 6]), LastLogits([np.array(request.prompt)], [4])]
    for work, tokens in zip(works, (32, 16, 17, 16), strict=True):
        before, handle = queue.tokens_read, submit(queue, work)
        finish(queue, most=20)
        assert handle.done
        assert queue.tokens_read - before == tokens


@pytest.mark.parametrize("config", CONFIGS[:3])
def test_a_prompt_shares_what_open_requests_have_read(config):
    """Also if nothing is kept, and if several hypotheses have gone on from it."""
    stepper = Counting()
    queue = queue_of(stepper, keep_tokens=0)
    requests = [Request(None, [*[5] * 64, 3 + i], replace(config, eos_token_id=())) for i in range(3)]
    handles = []
    for request in requests:
        handles.append(submit(queue, request))
        step_often(queue, 4)
    assert not any(handle.done for handle in handles)
    assert max(stepper.blocks[(5,) * n] for n in (16, 32, 48, 64)) == 1
    finish(queue)
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]
    stepper.assert_clean()


def test_whoever_waits_reads_on_when_the_reader_stops():
    stepper = Counting()
    queue = queue_of(stepper, random.Random(0), most=10, keep_tokens=0)
    requests = [Request(None, [*[5] * 160, 3 + i, 9], SHORT) for i in range(4)]
    handles = [submit(queue, request) for request in requests]
    for i in range(3):
        while read(stepper) < 40 * (i + 1):
            queue.step()
        handles[i].cancel()
    finish(queue)
    assert handles[3].result() == alone(requests[3])
    assert 160 < read(stepper) <= 162 + 3 * BLOCK, "what the others have read of a block is read again"
    stepper.assert_clean()


def test_a_reader_has_the_turn_of_those_who_wait_for_it():
    """A request of a high priority waits for one of a low priority, which is read before those in between."""
    stepper = TableStepper()
    queue = queue_of(stepper, random.Random(1), most=8)
    low = submit(queue, Request(None, [5] * 64, SHORT), priority=0)
    queue.step()
    middle = [submit(queue, Request(None, [6 + i] * 64, SHORT), priority=1) for i in range(3)]
    high = submit(queue, Request(None, [*[5] * 48, 9], SHORT), priority=2)
    while not high.done:
        queue.step()
    assert not any(handle.done for handle in middle)
    assert not low.done
    finish(queue)


def test_the_least_recently_used_goes_first_and_from_its_end():
    stepper = TableStepper()
    queue = queue_of(stepper, keep_tokens=160)

    def ask(*ids):
        before = queue.tokens_read
        generate(queue, [Request(None, [*ids, 9], SHORT)])
        check_idle(queue, stepper)
        return queue.tokens_read - before

    first, second = [5] * 64, [6] * 64
    assert [ask(*first), ask(*second)] == [65, 65]
    assert ask(*first[:32], *[8] * 16) == 17, "the beginning of the first one is used later than its end"
    assert ask(*[7] * 48) == 49
    assert queue.prefixes.kept == 160
    assert ask(*first[:32]) == 1
    assert ask(*first) == 33, "its end has left"
    assert ask(*second) > 1
    assert ask(*[10] * 320) == 321
    assert queue.prefixes.kept == 160, "of a long one, the beginning is kept"
    assert ask(*[10] * 320) == 161


@pytest.mark.parametrize("keys", ["ab", "aa"])
def test_owners_with_different_keys_share_nothing(keys):
    """What one owner asks changes nothing of what the other one's requests read, beside them and after them."""
    rng, counts = random.Random(2), []
    pairs = [(prompt_of(rng), prompt_of(rng)) for _ in range(PAIRS)]
    for asks in (False, True):
        stepper = TableStepper()
        queue, counts_of_one = queue_of(stepper, keep_tokens=ENDLESS), []
        for mine, other in pairs:
            handles = [submit(queue, Request(None, other, SHORT), key=keys[1])] if asks else []
            handles.append(submit(queue, Request(None, mine, SHORT), key=keys[0]))
            first = len(stepper.steps)
            queue.step()
            request = 7 * stepper.opened
            finish(queue)
            counts_of_one.append(sum(len(row.tokens) for step in stepper.steps[first:] for row in step
                                     if row.request == request))
            assert all(handle.result() for handle in handles)
        counts.append(counts_of_one)
    assert (counts[0] == counts[1]) == (keys == "ab")


def test_requests_with_sources_share_nothing():
    stepper = TableStepper()
    queue = queue_of(stepper, keep_tokens=ENDLESS)
    requests = [Request([5 + i], [7] * 40, GenerationConfig(max_new_tokens=9)) for i in range(3)]
    handles = [submit(queue, request) for request in requests]
    finish(queue)
    assert [handle.result() for handle in handles] == [generate(TableStepper(), [each])[0] for each in requests]
    assert (queue.prefixes.found_tokens, queue.prefixes.kept) == (0, 0)


def test_a_chat_reads_its_new_tokens():
    rng, stepper = random.Random(0), TableStepper(bias={2: -9.0})
    queue, ids = queue_of(stepper, keep_tokens=4096), []
    for _ in range(20):
        new = [rng.randrange(3, 20) for _ in range(rng.randint(1, 60))]
        before, prompt = queue.tokens_read, [*ids, *new]
        [[result]] = generate(queue, [Request(None, prompt, GenerationConfig(max_new_tokens=40))])
        assert queue.tokens_read - before <= len(new) + 16
        ids = prompt + result.ids
    check_idle(queue, stepper)


def test_a_reader_whose_step_fails_harms_nobody():
    """Whoever waited for it begins anew, without what was kept."""
    class Broken(TableStepper):
        broken = False

        def step(self, rows, stop=NEVER):
            scores = super().step(rows, stop)
            if self.broken:
                self.broken = False
                raise MemoryError("no room")
            return scores

    stepper = Broken(bias={2: 1.0})
    queue = queue_of(stepper, random.Random(3), most=30, keep_tokens=ENDLESS)
    requests = [Request(None, [*[5] * 100, 3 + i], CONFIGS[i % len(CONFIGS)]) for i in range(8)]
    handles = [submit(queue, request) for request in requests]
    for _ in range(6):
        step_often(queue, 3)
        stepper.broken = True
    finish(queue)
    assert [handle.result() for handle in handles] == [alone(request) for request in requests]
    check_idle(queue, stepper)


def test_calls_of_threads_read_a_common_prompt_once():
    stepper = Counting()
    queue = queue_of(stepper, keep_tokens=4096)
    requests = [Request(None, [*[5] * 400, 3 + i, 9], CONFIGS[i % len(CONFIGS)]) for i in range(8)]
    found = together([lambda request=request: generate(queue, [request])[0] for request in requests])
    assert found == [alone(request) for request in requests]
    assert {count for ids, count in stepper.blocks.items() if len(ids) <= 400} == {1}
    check_idle(queue, stepper)


def test_how_many_tokens_of_a_prompt_are_there():
    queue = queue_of(TableStepper(), keep_tokens=1000)
    ids = np.arange(5 * BLOCK) % 7 + 1
    assert queue.prefixes.known(ids, "") == 0
    generate(queue, [Request(None, ids.tolist(), GenerationConfig(max_new_tokens=2))])
    assert queue.prefixes.known(ids, "") == 5 * BLOCK
    assert queue.prefixes.known(ids[: 3 * BLOCK + 5], "") // BLOCK == 3
    assert queue.prefixes.known(np.append(ids[: 2 * BLOCK], 8), "") == 2 * BLOCK
    assert queue.prefixes.known(ids, "other") == queue.prefixes.known(ids[1:], "") == 0
