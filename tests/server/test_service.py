"""A service gives each of many clients the bits of a call of the library for its request alone, and drops nothing.

More requests, clients and threads than `make test` has:

    ENGINE_SERVED=2000 python -m pytest tests/server/test_service.py
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
import weakref
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from engine import InputError, TimedOut, UnsupportedError
from engine.base.errors import Closing, Overloaded, TextTooLong
from engine.server.admission import Room
from engine.server.service import Service
from engine.server.settings import Limit

from ..tools import served
from ..tools.bits import same
from ..tools.served import Asked, load, requests_of
from ..tools.threads import begin, together, wait_for

pytest.importorskip("tokenizers")

SERVED = int(os.environ.get("ENGINE_SERVED", "80"))
"""How many requests each model gets."""
CLIENTS = 64 if SERVED > 500 else 16
SETTINGS = [("float32", 1), ("bfloat16", 2), ("int8", 2)] if SERVED <= 500 else [
    (precision, threads) for precision in ("float32", "bfloat16", "int8") for threads in (1, 2, 3, 4)]
PATIENT = {"max_wait": 1e6, "max_batch_tokens": 128}


@pytest.mark.parametrize("name", served.MODELS)
def test_each_answer_has_the_bits_of_a_call_alone(name, one_backend):
    asked = requests_of(name)
    for precision, threads in SETTINGS if name != "language" else SETTINGS[:1]:
        model = load(name, backend=one_backend, precision=precision, threads=threads)
        alone = [one.alone(model) for one in asked]
        # Each prompt of a language model has some 200 tokens, and its passes are long.
        with Service(model, **PATIENT | ({"max_batch_tokens": 1024} if name == "language" else {})) as service:
            found = run_clients(service, asked, SERVED // 4 if name == "language" else SERVED, seed=threads)
        numbers = service.statistics()
        wrong = [asked[i] for i, value in found if not same(value, alone[i])]
        assert not wrong
        assert len(found) > SERVED / 8
        assert numbers.waiting_requests == numbers.waiting_tokens == numbers.waiting_bytes == 0
        assert numbers.unlike_batches > 0


def run_clients(service, asked, count, seed):
    """Let clients ask, wait a random time and cancel some; return (number of the request, value) of each answer."""
    found, rng = [], random.Random(seed)
    orders = [[rng.randrange(len(asked)) for _ in range(count // CLIENTS)] for _ in range(CLIENTS)]
    seeds = [rng.random() for _ in orders]

    def client(order, seed):
        own, asked_for = random.Random(seed), []
        for i in order:
            future = service.submit(asked[i].task, asked[i].inputs, asked[i].options, key=str(seed)[:3])
            if own.random() < 0.2:
                time.sleep(own.random() * 0.003)
                future.cancel()
            asked_for.append((i, future))
            while asked_for and own.random() < 0.7:     # it may go on before it has the answer
                i, future = asked_for.pop()
                with suppress(CancelledError):
                    found.append((i, future.result(timeout=60).value))
        for i, future in asked_for:
            with suppress(CancelledError):
                found.append((i, future.result(timeout=60).value))

    together([lambda one=one, seed=seed: client(one, seed) for one, seed in zip(orders, seeds, strict=True)])
    return found


@pytest.fixture
def engine(one_backend):
    return load("bert_classify", backend=one_backend, threads=1)


class Gate:
    """Hold every batch of a service back until it is opened, and count the batches."""

    def __init__(self, service, monkeypatch):
        self.open, self.entered, self.batches = threading.Event(), threading.Event(), []
        runner = service.model.runner_of("classify")
        compute = runner._compute_logits

        def slow(packed, stop):
            self.entered.set()
            self.batches.append(packed.tokens.input_ids)
            assert self.open.wait(30)
            return compute(packed, stop)

        monkeypatch.setattr(runner, "_compute_logits", slow)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open.set()     # also if a test fails: the end of a service waits for its batches


def test_calls_of_the_library_share_the_batches_of_a_service(engine, monkeypatch):
    texts = ["lovely", "awful", "Anna lives in Berlin"]
    alone = [engine.classify([text]) for text in texts]
    with Service(engine, max_wait=1e6) as service, Service(engine) as other:
        with Gate(service, monkeypatch) as gate:
            first = service.submit("classify", ["lovely"])
            assert gate.entered.wait(30)
            called = [begin(partial(engine.classify, [text])) for text in texts]
            futures = [service.submit("classify", [text]) for text in texts]
            wait_for(lambda: len(engine.queue._arrived) == 6)
        assert [future.result(30) for future in called] == alone
        assert [future.result(timeout=30).value for future in futures] == alone
        assert first.result().value == alone[0]
        assert [len(batch) for batch in gate.batches] == [1, 6]
        assert service.statistics().mixed_batches == other.statistics().mixed_batches == 1
        assert (service.statistics().answered, other.statistics().answered) == (2 + 4, 2)
    assert not engine.queue.has_thread
    assert engine.classify(texts[:1]) == alone[0]


def test_an_answer_is_not_kept(engine):
    with Service(engine) as service:
        deadline = time.monotonic() + 1000      # until which the queue remembers it
        for inputs, options in ((["the cat"], {}), (["the cat"] * 300, {}), (["a cat " * 900], {"truncation": False})):
            gc.collect()
            gc.disable()        # so that a circle of references is found
            try:
                future = service.submit("tokens", inputs, options, deadline=deadline)
                kept = weakref.ref(next(iter(service._open)))
                assert (future.exception(timeout=30) is None) == (not options)
                del future
                wait_for(lambda kept=kept: kept() is None)
            finally:
                gc.enable()


@pytest.mark.parametrize("count", [min(500, SERVED)])
def test_a_request_that_fails_takes_no_other_along(engine, monkeypatch, count):
    runner = engine.runner_of("classify")
    compute, bad = runner._compute_logits, engine.tokenizer.token_id("berlin")
    texts = [served.SHORT[i % 5] for i in range(count)]
    fails = ["Berlin" in text or "berlin" in text for text in texts]
    assert 0 < sum(fails) < count
    alone = {text: engine.classify([text], truncation=True) for text in set(texts)}

    def raising(packed, stop):
        rows = compute(packed, stop)
        if any(bad in ids for ids in packed.tokens.input_ids):
            raise RuntimeError("a head that raises")
        return rows

    with Service(engine, max_wait=1e6) as service:
        monkeypatch.setattr(runner, "_compute_logits", raising)
        futures = [service.submit("classify", [text]) for text in texts]
        errors = [future.exception(timeout=60) for future in futures]
        assert service.statistics().failed == sum(fails)
    for text, future, error, fail in zip(texts, futures, errors, fails, strict=True):
        if fail:
            assert type(error) is RuntimeError
        else:
            assert future.result().value == alone[text]
    assert service.statistics().mixed_batches > 0


def test_a_list_delays_a_single_text_by_one_batch(engine, monkeypatch):
    with Service(engine, max_batch_tokens=128) as service, Gate(service, monkeypatch) as gate:
        whole = service.submit("classify", ["Anna lives in Berlin"] * 2000, key="a")
        assert gate.entered.wait(30)
        single = service.submit("classify", ["lovely"], key="a")
        wait_for(lambda: service.statistics().queued_requests == 2)
        gate.open.set()
        single.result(timeout=30)
        own = engine.tokenizer.token_id("lovely")
        assert any(own in ids for batch in gate.batches[:2] for ids in batch)
        assert len(whole.result(timeout=60).value) == 2000
        assert len(gate.batches) > 50


def test_more_than_can_be_answered_in_time_is_refused(engine, monkeypatch):
    with Service(engine, max_wait=0.5) as service, Gate(service, monkeypatch) as gate:
        monkeypatch.setattr(type(service._admission), "rate", property(lambda self: 100.0))     # tokens a second
        first = service.submit("classify", ["lovely"])                  # 3 tokens
        assert gate.entered.wait(30)
        taken = []
        for _ in range(40):     # each lets 3 tokens wait, and 50 tokens are half a second
            taken.append(service.submit("classify", ["lovely"]))
            wait_for(lambda: taken[-1].done() or service.statistics().queued_requests == len(taken))
            if taken[-1].done():
                break
        refused = taken.pop()
        error = refused.exception()
        assert isinstance(error, Overloaded)
        assert len(taken) == 16
        assert error.retry_after == pytest.approx(0.01)
        # A list is not refused because of its length, and another key has its own turn.
        others = [service.submit("classify", ["lovely"] * 300, key="b"), service.submit("classify", ["a"], key="c")]
        wait_for(lambda: service.statistics().queued_requests == len(taken) + 2 or others[0].done() or others[1].done())
        assert not any(other.done() for other in others)
        gate.open.set()
        for future in (first, *taken, *others):
            future.result(timeout=30)
        assert service.statistics().refused == 1


def test_a_list_that_others_would_make_too_late_is_refused(engine, monkeypatch):
    with Service(engine, max_wait=60) as service, Gate(service, monkeypatch) as gate:
        monkeypatch.setattr(type(service._admission), "rate", property(lambda self: 100.0))     # tokens a second
        first = service.submit("classify", ["lovely"] * 500, deadline=time.monotonic() + 300)   # 1,500 tokens
        assert gate.entered.wait(30)
        taken = service.submit("classify", ["lovely"] * 500, deadline=time.monotonic() + 300)
        wait_for(lambda: service.statistics().queued_requests == 2)
        error = service.submit("classify", ["lovely"] * 500, deadline=time.monotonic() + 20).exception(timeout=30)
        assert isinstance(error, Overloaded)
        assert "because of other requests" in str(error)
        gate.open.set()
        assert [len(future.result(timeout=60).value) for future in (first, taken)] == [500, 500]


def test_a_deadline(engine, monkeypatch):
    with Service(engine) as service, Gate(service, monkeypatch) as gate:
        first = service.submit("classify", ["lovely"])
        assert gate.entered.wait(30)
        assert isinstance(service.submit("classify", ["a"], deadline=time.monotonic() - 1).exception(30), TimedOut)
        soon = service.submit("classify", ["a"], deadline=time.monotonic() + 0.2)
        wait_for(lambda: service.statistics().waiting_tokens or soon.done())
        time.sleep(0.3)
        gate.open.set()
        assert isinstance(soon.exception(timeout=30), TimedOut)
        assert first.result(timeout=30).value
        assert service.statistics().expired == 2
        assert sum(map(len, gate.batches)) == 1


def test_a_client_that_has_gone_leaves_the_queue(engine, monkeypatch):
    with Service(engine) as service, Gate(service, monkeypatch) as gate:
        first = service.submit("classify", ["lovely"])
        assert gate.entered.wait(30)
        gone = [service.submit("classify", ["lovely"] * 50) for _ in range(5)]
        wait_for(lambda: service.statistics().waiting_tokens >= 5 * 150)
        assert all(future.cancel() for future in gone)
        numbers = service.statistics()
        assert (numbers.waiting_requests, numbers.waiting_tokens, numbers.cancelled) == (1, 0, 5)
        assert first.cancel()       # its work ends with its batch
        gate.open.set()
        assert service.submit("classify", ["a"]).result(timeout=30).value
        assert sum(map(len, gate.batches)) == 2
        assert service.statistics().waiting_bytes == 0


def test_what_was_accepted_is_answered_at_the_end(engine, monkeypatch):
    service = Service(engine)
    gate = Gate(service, monkeypatch)
    accepted = [service.submit("classify", [text] * 30) for text in served.SHORT[:12]]
    assert gate.entered.wait(30)
    closing = begin(service.close)
    wait_for(lambda: service._closing)     # a request before that would wait for the gate
    assert isinstance(service.submit("classify", ["a"]).exception(timeout=30), Closing)
    assert not closing.done()
    gate.open.set()
    closing.result(60)
    assert all(len(future.result(timeout=0).value) == 30 for future in accepted)
    service.close()


def test_an_end_without_answers(engine, monkeypatch):
    service = Service(engine)
    gate = Gate(service, monkeypatch)
    accepted = [service.submit("classify", [text]) for text in served.SHORT[:12]]
    assert gate.entered.wait(30)
    opened = begin(lambda: (wait_for(lambda: sum(one.done() for one in accepted) > 5), gate.open.set()))
    service.close(drain=False)
    opened.result(60)
    assert {type(future.exception(timeout=0)) for future in accepted} <= {Closing, type(None)}
    assert sum(isinstance(future.exception(), Closing) for future in accepted) > 5


def test_a_forked_process_ends_without_the_threads_of_its_parent(engine, monkeypatch):
    with Service(engine, max_wait=1e6) as service, Gate(service, monkeypatch) as gate:
        waits = service.submit("classify", ["lovely"])
        wait_for(lambda: service.statistics().waiting_requests)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)     # as a child of a fork, where nobody answers the request
            service.close()
            with pytest.raises(InputError, match="was forked"):
                service.submit("classify", ["lovely"])
        gate.open.set()
        assert waits.result(timeout=30).value
        assert service.submit("classify", ["lovely"]).result(timeout=30).value


def test_an_option_that_cannot_be_shown_fails_its_request_alone(engine, monkeypatch):
    class Odd(str):
        def __repr__(self):
            raise ValueError("no repr")

    with Service(engine, max_wait=1e6) as service, Gate(service, monkeypatch) as gate:
        odd = service.submit("score", [("a", "b")], {"prompt": Odd("the ")})
        others = [service.submit("classify", ["lovely"]) for _ in range(3)]
        gate.open.set()
        assert all(other.result(timeout=30).value for other in others)
        assert isinstance(odd.exception(timeout=30), ValueError)


def test_words_beyond_the_usual_ones_are_counted(monkeypatch):
    """A text may have far more words than its memory was counted for."""
    monkeypatch.setattr("engine.methods.encode_sparse._WORDS", 1)
    engine = load("bert_fill_mask", threads=1)
    with Service(engine, max_bytes=2**20) as service:
        before = service.submit("sparse", ["the cat"]).result(timeout=30)
        assert len(before.value[0].indices) > 1
        room = Room(service.memory)
        assert service.submit("sparse", ["the cat"] * 3, room=room).result(timeout=30).bytes + 48 <= room.size
        room.close()
        monkeypatch.setattr("engine.methods.encode_sparse._WORD", 2**18)
        with pytest.raises(Limit, match="one request may need 393,216"):
            service.submit("sparse", ["the cat"]).result(timeout=30)
        wait_for(lambda: service.statistics().waiting_bytes == 0)


def test_memory_has_a_bound(engine, monkeypatch):
    with Service(engine, max_bytes=2**20, max_wait=1e6) as service, Gate(service, monkeypatch) as gate:
        futures = [service.submit("classify", ["lovely"] * 100) for _ in range(20)]
        wait_for(lambda: sum(future.done() for future in futures) + service.statistics().waiting_requests == 20
              and service.statistics().waiting_tokens > 0)
        wait_for(lambda: any(future.done() for future in futures))
        assert 2**19 < service.statistics().waiting_bytes <= 2**20
        single = service.submit("classify", ["lovely"])     # a short text has room left
        wait_for(lambda: single.done() or service.statistics().waiting_tokens)
        gate.open.set()
        assert single.result(timeout=30).value
        kinds = {type(future.exception(timeout=30)) for future in futures}
        assert kinds == {Overloaded, type(None)}
        with pytest.raises(Limit, match=r"needs about [\d,]+ bytes .* one request may need 393,216; send less"):
            service.submit("classify", ["lovely"] * 2000).result(timeout=30)
        wait_for(lambda: service.statistics().waiting_bytes == 0)


@pytest.mark.parametrize(("asked", "error", "says"), [
    (Asked("", "tag", ["a"]), InputError, "no task 'tag'; the model serves classify, embed, "),
    (Asked("", "classify", "a text"), InputError, "inputs must be a list, not str 'a text'"),
    (Asked("", "classify", ["a", 3]), InputError, "input 1 must be a string"),
    (Asked("", "classify", ["a"], {"top": 3}), InputError, r"no argument top \(did you mean top_k\?\)"),
    (Asked("", "classify", ["a"], {"top_k": 0}), InputError, "top_k must be None or an int of at least 1"),
    (Asked("", "classify", ["a"], {"function_to_apply": "relu"}), InputError, "function_to_apply must be one of"),
    (Asked("", "classify", ["a"], {"truncation": 3}), InputError, "truncation must be True or False"),
    (Asked("", "score", [("a", "b"), "c"]), InputError, "pairs must be pairs"),
])
def test_wrong_requests(engine, asked, error, says):
    with Service(engine) as service, pytest.raises(error, match=says):
        service.submit(asked.task, asked.inputs, asked.options).result(timeout=30)


def test_long_texts_and_ids():
    model = load("prompts", backend="reference", threads=1)
    long, limit = "the cat " * 40, 14
    with Service(model) as service:
        found = service.submit("embed", ["dog", long], {"prompt_name": "query"}).result(timeout=30)
        assert (found.tokens, found.truncated) == ([5, limit], [False, True])
        with pytest.raises(TextTooLong, match="a text of 84 tokens") as error:
            service.submit("embed", ["dog", long], {"prompt_name": "query", "truncation": False}).result(timeout=30)
        assert (error.value.tokens, error.value.limit, error.value.place) == ("84", limit, 1)
        ids = [[2, 5, 3], [2, *[5] * 30, 3]]
        found = service.submit("embed", ids).result(timeout=30)
        assert (found.tokens, found.truncated) == ([3, limit], [False, True])
        with pytest.raises(TextTooLong, match="input 1 has 32 tokens, more than the 14") as error:
            service.submit("embed", ids, {"truncation": False}).result(timeout=30)
        for wrong, says in (([[]], "input 0 must have token ids"), ([[2], [99]], "input 1 must .* from 0 to .* not 99"),
                            ([[-1]], "input 0 must be a flat"), ([[1.5]], "input 0 must be a flat"),
                            ([[2], "dog"], "input 1 must be a flat")):
            with pytest.raises(InputError, match=says):
                service.submit("embed", wrong).result(timeout=30)
        with pytest.raises(InputError, match="a prompt is a text, and token ids"):
            service.submit("embed", [[2, 5, 3]], {"prompt_name": "query"}).result(timeout=30)
        with pytest.raises(InputError, match=r'role must be "query", "document" or None'):
            service.submit("embed", ["dog"], {"role": "passage"}).result(timeout=30)


def test_a_model_without_a_tokenizer_serves_nothing():
    from ..tools.encoders import engine_of
    from ..tools.tiny_models import random_model

    with pytest.raises(UnsupportedError, match="reads no texts"):
        Service(engine_of(random_model(), backend="reference"))


def test_many_threads_submit_cancel_and_look(engine):
    """Small requests from many threads, most of them cancelled at once, leave nothing behind."""
    count = max(20, SERVED // 4)
    with Service(engine, max_batch_tokens=256, max_wait=1e6) as service:
        expected = {text: engine.classify([text]) for text in ("lovely", "awful", "a")}

        def client(seed):
            rng = random.Random(seed)
            for _ in range(count):
                text = rng.choice([*expected])
                futures = [service.submit("classify", [text], key=str(seed)) for _ in range(rng.randint(1, 4))]
                for future in futures[1:]:
                    future.cancel()
                service.statistics()
                assert futures[0].result(timeout=60).value == expected[text]

        together([lambda seed=seed: client(seed) for seed in range(8)])
        wait_for(lambda: service.statistics().waiting_requests == 0)
        numbers = service.statistics()
        assert numbers.waiting_bytes == numbers.waiting_tokens == numbers.failed == 0
        assert numbers.answered >= 8 * count
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("engine-")]


def test_vectors_of_a_service_are_arrays_of_their_own(one_backend):
    """The answer to one request keeps no memory of a batch alive, and nobody else can change it."""
    model = load("prompts", backend=one_backend, threads=1)
    with Service(model, max_wait=1e6) as service:
        futures = [service.submit("tokens", [text]) for text in served.WORDS * 10]
        arrays = [array for future in futures for array in future.result(timeout=30).value]
        assert service.statistics().mixed_batches > 0
    assert sum(array.base is not None and array.base.nbytes > 4 * array.nbytes for array in arrays) <= 10
    assert all(isinstance(array, np.ndarray) for array in arrays)


def test_clients_with_different_keys_share_no_prefix():
    model = load("language", backend="reference", keep_tokens=4096)
    prefixes = model.prepared.queue.prefixes
    with Service(model, **PATIENT) as service:
        found = [prefixes.found_tokens]
        for key in ("a", "b", "a", "b"):
            service.submit("rank", ("Which cats purr?", ["Lions roar."]), key=key).result(60)
            found.append(prefixes.found_tokens)
    assert found[0] == found[1] == found[2]
    assert found[2] < found[3] < found[4]
