"""What a `Generator` keeps open, and for how long: streams that are left, interrupts, waits, bounds of the cache.

    ENGINE_LEFT_STREAMS=1500 ENGINE_INTERRUPTS=10000 python -m pytest tests/interface/test_requests.py
    ENGINE_BOUNDED_REQUESTS=10000 python -m pytest tests/interface/test_requests.py -k many_requests
"""

import gc
import os
import random
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from engine import Generator, InputError, Model, TimedOut, Transformer, WeightsError
from engine.backends.cpu.cache import Cache
from engine.backends.lock import new_turn
from engine.base.errors import EngineError
from engine.base.stop import Stop

from ..soak.measure import growth, malloc_bytes
from ..tools.children import read_child
from ..tools.decoders import DECODERS, make_weights
from ..tools.encoders import engine_of
from ..tools.generators import SOURCES, ids_of, language_model, translator
from ..tools.interrupts import interrupt_at, interrupt_often
from ..tools.threads import begin, together, wait_for
from ..tools.tiny_models import random_model

pytestmark = pytest.mark.usefixtures("quick_collections")
LEFT = int(os.environ.get("ENGINE_LEFT_STREAMS", "60"))
INTERRUPTS = int(os.environ.get("ENGINE_INTERRUPTS", "150"))
BOUNDED = int(os.environ.get("ENGINE_BOUNDED_REQUESTS", "150"))


def is_empty(generator):
    statistics = generator.statistics()
    return (statistics.open_requests, statistics.waiting_calls, statistics.cache_tokens - statistics.kept_tokens
            ) == (0, 0, 0)


@pytest.fixture
def ignored(monkeypatch):
    """The exceptions that Python ignores, for example in finalizers, and where."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: found.append((each.exc_value, each.object)))
    return found


class Holder:
    pass


def leave_a_stream(generator):
    holder = Holder()
    holder.stream = generator.stream([1, 2, 3], max_new_tokens=20)
    next(holder.stream)
    holder.holder = holder      # a cycle, which the collector finds in the middle of anything


@pytest.mark.parametrize(("backend", "threads"), [("cython", 1), ("cython", 4), ("reference", 4)])
def test_streams_that_are_left_in_cycles_are_ended(threads, backend, ignored):
    generator = Generator(language_model(), backend=backend)
    expected = ids_of(generator.generate([[5, 6]] * 4, max_new_tokens=3))
    before = gc.get_threshold()

    def leave_streams():
        for _ in range(-(-LEFT // threads // (3 if backend == "reference" else 1))):     # whose steps take long
            leave_a_stream(generator)
            assert ids_of(generator.generate([[5, 6]] * 4, max_new_tokens=3)) == expected

    gc.set_threshold(50)
    try:
        together([leave_streams] * threads)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert is_empty(generator)
    assert not ignored


def test_the_end_of_a_stream_calls_no_function_of_weak_references():
    """Python would drop the exception of a signal handler there, which the test below meets once in many thousands."""
    generator, files = Generator(language_model(), threads=1), set()
    sys.setprofile(lambda frame, event, arg: files.add(frame.f_code.co_filename))
    try:
        list(generator.stream([5, 6, 7], max_new_tokens=3))
    finally:
        sys.setprofile(None)
    assert files
    assert not any("weakref" in file for file in files)


@pytest.mark.parametrize("call", ["generate", "stream"])
def test_interrupts_at_any_moment_arrive_and_leave_nothing(call, ignored):
    def run():
        if call == "generate":
            return ids_of(generator.generate([[5, 6], [7]], max_new_tokens=10, num_beams=2))
        return [piece.id for piece in generator.stream([5, 6, 7], max_new_tokens=15)]

    generator = Generator(language_model(), threads=1)
    expected = run()
    interrupt_often(lambda: run() == expected, INTERRUPTS, random.Random(1), 2e-5)
    gc.collect()
    assert is_empty(generator)
    assert not ignored
    assert run() == expected


def test_interrupts_at_random_lines_keep_nothing_but_prefixes():
    """Prompts share beginnings in a cache that is too small for all, so that sequences wait and give way."""
    files = ("prefixes.py", "room.py", "step_queue.py", "schedule.py", "works.py", "groups.py", "greedy.py", "beams.py",
             "work_queue.py", "forest.py", "requests.py", "cpu/cache.py")
    common, rng, arrived, right = [4 + i % 40 for i in range(48)], random.Random(2), 0, 0
    prompts = [[*common[:n], n] for n in (40, 48, 33, 17, 40, 8)]
    cases = []
    for settings, keep in (({}, 0), ({"num_beams": 2}, 32), ({"do_sample": True, "num_return_sequences": 2}, 48),
                           ({"max_new_tokens": 25}, 112)):
        generator = Generator(language_model(), threads=1, cache_tokens=112, keep_tokens=keep)
        with interrupt_at(0, files) as lines:
            expected = generator.generate(prompts, **settings)
        cases.append((generator, settings, expected, len(lines)))
    while arrived < INTERRUPTS // 3:
        generator, settings, expected, lines = rng.choice(cases)
        asked = rng.sample(range(len(prompts)), rng.randint(1, 6))
        try:
            with interrupt_at(rng.randrange(lines), files):
                found = generator.generate([prompts[i] for i in asked], **settings)
            assert found == [expected[i] for i in asked]
            right += 1
        except KeyboardInterrupt as interrupt:
            interrupt.__traceback__ = None      # of frames that hold the works
            arrived += 1
        assert is_empty(generator)
        assert generator.statistics().kept_tokens <= generator._model.queue.prefixes.most
    assert right > 5
    for generator, settings, expected, _ in cases:
        assert generator.generate(prompts, **settings) == expected
        assert generator.statistics().found_tokens > 100
    assert cases[0][0].statistics().times_given_way


@pytest.mark.parametrize("call", [
    lambda: (Generator(language_model()), lambda g, **options: g.generate(SOURCES, **options)),
    lambda: (engine_of(random_model(), threads=1), lambda e, **options: e.forward([[4, 5]], **options)),
], ids=["generator", "engine"])
def test_a_timeout_counts_while_a_call_waits_for_its_turn(call):
    loaded, run = call()
    turn = (loaded._decoder if isinstance(loaded, Generator) else loaded._plan)._turn
    taken, leave = threading.Event(), threading.Event()

    def hold():
        with turn.take():
            taken.set()
            leave.wait(10)

    holder = begin(hold)
    taken.wait()
    with pytest.raises(TimedOut):
        run(loaded, timeout=0.1)
    waiting = begin(lambda: run(loaded))
    wait_for(lambda: turn.waiting)
    leave.set()
    holder.result()
    waiting.result()
    run(loaded, timeout=60)


@pytest.mark.parametrize(("model", "part"), [(language_model, "decoder"), (translator, "encoder")])
def test_a_timeout_is_looked_at_inside_a_pass(model, part, monkeypatch):
    model = model()
    deep = replace(getattr(model, part).config, num_layers=40)      # a pass takes more than 0.05 s
    generator = Generator(replace(model, **{part: Transformer(deep, make_weights(deep))}), threads=1)
    turn, looks = getattr(generator._model, part)._turn, []
    monkeypatch.setattr("engine.base.stop.Stop.check", lambda stop: looks.append((turn.held, stop.deadline)))
    generator.generate([[5] * 80] * 100, max_new_tokens=1, timeout=1000)
    assert {held for held, _ in looks} == {True, False}
    assert len({deadline for held, deadline in looks if held}) == 1
    assert 0 not in {deadline for held, deadline in looks if held}


def test_a_cancel_ends_the_pass_of_the_encoder(monkeypatch):
    model = translator()
    deep = replace(model.encoder.config, num_layers=40, max_positions=2000)     # a pass takes more than 0.05 s
    generator = Generator(replace(model, encoder=Transformer(deep, make_weights(deep))), threads=1)
    turn, looks, check = generator._model.encoder._turn, [], Stop.check
    stream = generator.stream([5] * 2000, max_new_tokens=5)

    def cancelled_inside(stop):
        looks.append(turn.held)
        stop.cancelled = stop.cancelled or turn.held
        check(stop)

    monkeypatch.setattr("engine.base.stop.Stop.check", cancelled_inside)
    assert list(stream) == []
    assert looks[-1]
    assert looks.count(True) == 1
    assert is_empty(generator)
    monkeypatch.undo()
    assert len(list(generator.stream([5] * 2000, max_new_tokens=5))) == 5


def test_a_stream_is_cancelled_from_another_thread():
    generator = Generator(language_model())
    stream, first, left = generator.stream([1, 2], max_new_tokens=60), threading.Event(), threading.Event()
    reader = begin(lambda: [(first.set(), left.wait(60)) for _ in stream])
    assert first.wait(60)
    stream.cancel()
    left.set()
    assert 1 <= len(reader.result(60)) < 60
    assert is_empty(generator)
    assert list(stream) == []
    with generator.stream([1, 2]) as stream:
        next(stream)
    assert is_empty(generator), "a stream is a context manager, which closes it"


def test_a_stream_is_cancelled_in_the_middle_of_a_step(monkeypatch):
    generator = Generator(language_model())
    stream, step = generator.stream([1, 2]), generator._decoder.step

    def step_and_cancel(*arguments):
        found = step(*arguments)
        together([stream.cancel])
        return found

    monkeypatch.setattr(generator._decoder, "step", step_and_cancel)
    assert list(stream) == []
    assert is_empty(generator)


def test_two_threads_do_not_read_one_stream_at_the_same_time(monkeypatch):
    generator, refused = Generator(language_model()), []
    expected = [piece.id for piece in generator.stream([1, 2], max_new_tokens=8)]
    stream, step = generator.stream([1, 2], max_new_tokens=8), generator._decoder.step

    def step_and_read(*arguments):
        refused.append(begin(lambda: next(stream)).exception())
        return step(*arguments)

    monkeypatch.setattr(generator._decoder, "step", step_and_read)
    assert [piece.id for piece in stream] == expected
    assert [type(error) for error in refused] == [InputError] * len(expected)
    assert "two threads read one stream" in str(refused[0])
    assert is_empty(generator)


def test_a_bound_of_the_cache_counts_the_pass_for_attention_weights(monkeypatch):
    cells, extend = [], Cache.extend
    monkeypatch.setattr(Cache, "extend", lambda cache, *own: (extend(cache, *own), cells.append(cache.taken))[0])
    generator = Generator(translator(), cache_tokens=32)
    options = {"max_new_tokens": 10, "min_new_tokens": 10, "output_attentions": True}
    generator.generate([[5, 6]] * 3, **options)
    assert max(cells) == 2, "one for the 11 tokens of a request, one for the pass"
    with pytest.raises(InputError, match="up to 64 tokens"):
        generator.generate([[5, 6]], **options | {"max_new_tokens": 17})


def test_many_requests_stay_within_the_cache_and_grow_nothing(monkeypatch):
    """Of random lengths, with common beginnings. Memory is judged from 5,000 requests on."""
    taken, extend = [0], Cache.extend

    def noted(cache, *given):
        table = extend(cache, *given)
        taken[0] = max(taken[0], cache.taken)
        return table

    config, rng = replace(DECODERS["Llama"], max_positions=800), random.Random(6)
    model = Model(decoder=Transformer(config, make_weights(config)))
    generator, alone = Generator(model, threads=1, cache_tokens=8192), Generator(model, threads=1, keep_tokens=0)
    begins = [[rng.randrange(50) for _ in range(600)] for _ in range(8)]
    monkeypatch.setattr(Cache, "extend", noted)
    open_requests, judged = [], BOUNDED >= 5000
    held = np.zeros((3, BOUNDED if judged else 0))      # MB of malloc's blocks, Python's blocks, resident MB
    with generator.session() as session:
        for i in range(BOUNDED):
            own = [rng.randrange(50) for _ in range(rng.randint(1, 80))]
            prompt = [*rng.choice(begins)[: rng.randrange(600)], *own]
            new = rng.choice([1, 5, 20, 100])
            open_requests.append((prompt, new, session.submit(prompt, max_new_tokens=new, cache_key=rng.choice("xy"))))
            if len(open_requests) == 70:
                rng.shuffle(open_requests)
                prompt, new, answer = open_requests.pop()
                result = answer.result(600)
                assert len(result.ids) == new
                if i % max(10, BOUNDED // 100) == 0:
                    assert alone.generate([prompt], max_new_tokens=new) == [result]
            if judged:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                held[:, i] = malloc_bytes() / 1e6, sys.getallocatedblocks(), pages * 4096 / 1e6
        for _, _, answer in open_requests:
            answer.result(600)
    statistics = generator.statistics()
    assert 8192 * 0.9 < taken[0] * 16 <= 8192
    assert statistics.times_given_way > 0
    assert is_empty(generator)
    if judged:
        half = BOUNDED // 2
        lines = [growth(np.arange(half) * 0.36, values[-half:]) for values in held]
        print(f"{taken[0] * 16:,} tokens at most; {statistics}; of 10,000 requests, {lines}")
        assert all(line.slope <= line.error for line in lines[:2])
        assert lines[2].slope < 1
    decoder = generator._decoder
    assert decoder.held == statistics.kept_tokens > 0
    del session, answer, open_requests
    generator.close()
    gc.collect()
    assert decoder.held == 0


@pytest.mark.parametrize("backend", ["cython", "reference"])
def test_prompts_with_one_beginning_go_through_a_small_cache(backend):
    prompts = [[*[5 + i % 40 for i in range(n)], n] for n in (48, 40, 33, 17, 48)]
    bounded, free = (Generator(language_model(), backend=backend, **options, threads=1)
                     for options in ({"cache_tokens": 80}, {"keep_tokens": 0}))
    expected = ids_of(free.generate(prompts, max_new_tokens=20))
    for _ in range(2):
        assert ids_of(bounded.generate(prompts, max_new_tokens=20, timeout=60)) == expected
    statistics = bounded.statistics()
    assert statistics.times_given_way > 0
    assert statistics.found_tokens > 200
    assert is_empty(bounded)


def holding_steps(generator, monkeypatch):
    """Let the steps of a generator wait for an event, and return it."""
    leave, step = threading.Event(), generator._decoder.step
    monkeypatch.setattr(generator._decoder, "step", lambda *given: leave.wait(60) and step(*given))
    return leave


def test_a_bound_of_the_cache_refuses_what_never_fits_and_lets_the_rest_wait(monkeypatch):
    free, bounded = Generator(language_model()), Generator(language_model(), cache_tokens=110)
    with pytest.raises(InputError, match=r"up to 112 tokens, in cells of 16, and cache_tokens=110;.*larger cache_tok"):
        bounded.generate([[1, 2]], max_new_tokens=34, num_beams=2)
    options = {"max_new_tokens": 15, "num_beams": 2}
    assert ids_of(bounded.generate(SOURCES, **options)) == ids_of(free.generate(SOURCES, **options))
    stream = bounded.stream([1, 2], max_new_tokens=30)
    next(stream)
    assert ids_of(bounded.generate([[1]], max_new_tokens=20)) == ids_of(free.generate([[1]], max_new_tokens=20))
    assert [piece.id for piece in stream] == free.generate([[1, 2]], max_new_tokens=30)[0].ids[1:], "it went first"
    leave = holding_steps(bounded, monkeypatch)
    waiting = [begin(partial(bounded.score, [[4, 5, i + 6] * 16])) for i in range(3)]
    wait_for(lambda: bounded.statistics().waiting_calls)     # two of them fit
    leave.set()
    found = [call.result()[0].total for call in waiting]
    assert found == [scored.total for scored in free.score([[4, 5, i + 6] * 16 for i in range(3)])]
    assert is_empty(bounded)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_waits_for_no_thread_that_it_lacks(monkeypatch):
    generator = Generator(language_model(), max_rows=1)
    stream = generator.stream([1, 2], max_new_tokens=30)
    next(stream)
    leave = holding_steps(generator, monkeypatch)
    waiting = begin(lambda: generator.generate([[1]], max_new_tokens=20))
    wait_for(lambda: generator.statistics().waiting_calls)
    child = os.fork()
    leave.set()
    if not child:
        try:
            stream.cancel()
            generator.generate([[1]], max_new_tokens=30, timeout=2)
            os._exit(0 if is_empty(generator) else 2)
        except BaseException:
            os._exit(1)
    stream.cancel()
    waiting.result()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("backend", ["cython", "reference"])
def test_a_request_of_another_thread_takes_no_room_in_a_forked_child(backend):
    generator = Generator(language_model(), backend=backend, cache_tokens=40)

    def leave_open():
        opened = generator.stream([1, 2], max_new_tokens=30)
        next(opened)
        return opened

    [opened] = together([leave_open])
    expected = list(Generator(language_model(), backend=backend).stream([1, 2], max_new_tokens=30))[1:]

    def in_child(_):
        generator.generate([[1]], max_new_tokens=30, timeout=5)
        assert list(opened) == expected
        assert is_empty(generator)

    assert read_child(in_child)[1] == 0
    assert list(opened) == expected
    assert is_empty(generator)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_call_that_waits_for_its_turn_goes_on_in_a_forked_child():
    generator, children, parent = Generator(language_model()), [], os.getpid()
    turn, taken, leave = generator._decoder._turn, threading.Event(), threading.Event()

    def hold():
        with turn.take():
            taken.set()
            leave.wait(10)

    def fork_and_leave(*_):
        children.append(os.fork())
        leave.set()

    holder, before = begin(hold), signal.signal(signal.SIGALRM, fork_and_leave)
    taken.wait()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        generator.generate([[1]], max_new_tokens=2, timeout=2)
    finally:
        if os.getpid() != parent:
            os._exit(2 if sys.exc_info()[0] else turn.waiting)
        signal.signal(signal.SIGALRM, before)
    holder.result()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]


def test_statistics_count_tokens():
    generator = Generator(translator())
    assert generator.statistics().tokens_in == 0
    [result] = generator.generate([[5, 6, 7]], max_new_tokens=4, suppress_tokens=3)
    statistics = generator.statistics()
    assert (statistics.tokens_in, statistics.tokens_out) == (3 + 1, len(result.ids))
    stream = generator.stream([8, 9])
    next(stream)
    during = generator.statistics()
    assert (during.open_requests, during.cache_tokens) == (1, 16)
    assert during.tokens_out == statistics.tokens_out + 1
    assert during.cache_bytes > statistics.cache_bytes, "the keys and values of the source"


def test_the_cache_gives_the_memory_of_a_large_request_back(monkeypatch):
    monkeypatch.setattr("engine.backends.cpu.cache.REGION_BYTES", 1)
    generator = Generator(language_model(), keep_tokens=0)
    generator.generate([[1]], max_new_tokens=2)
    before = generator.statistics().cache_bytes
    generator.generate([[1] * 60] * 40, max_new_tokens=2)
    assert generator.statistics().cache_bytes == before


@pytest.mark.parametrize("call", [
    lambda g: g.generate([np.broadcast_to(np.int64(1), (2**40,))]),
    lambda g: g.score([np.broadcast_to(np.int64(1), (2**40,))]),
    lambda g: next(g.stream(range(2**40))),
])
def test_long_inputs_are_refused_before_they_are_copied(call):
    with pytest.raises(InputError, match=r"1,099,511,627,776 tokens, but the model (reads|scores) at most"):
        call(Generator(language_model()))


def test_an_error_that_is_kept_keeps_no_request_open():
    config = replace(DECODERS["Llama"], logits="own", embedding_scale=100.0)
    generator = Generator(Model(decoder=Transformer(config, make_weights(config, words={7: 3e38}))), max_rows=2)
    with pytest.raises(WeightsError, match=r"input 1: .*NaN") as kept:
        generator.generate([[5], [7], [8]], max_new_tokens=5)       # the last one is open when the first one ends
    assert is_empty(generator)
    assert kept.value


def test_many_samples_and_beams_are_refused_before_they_are_made():
    generator = Generator(language_model())
    for options in ({"num_return_sequences": 10**12, "do_sample": True}, {"num_beams": 1025}):
        with pytest.raises(InputError, match=r"1,024 beams or samples.*larger max_rows"):
            generator.generate([[1]], max_new_tokens=1, **options)
    many = Generator(language_model(), max_rows=1025)
    assert len(many.generate([[1]], max_new_tokens=1, num_return_sequences=1025, do_sample=True)[0]) == 1025


def test_a_turn_is_not_taken_twice_by_one_thread():
    turn = new_turn()
    with turn.take() as taken:
        assert taken
        assert turn.held
        with turn.take_if_free() as again:
            assert not again
        with pytest.raises(EngineError, match="signal handler"), turn.take():
            pass
        assert turn.held
    with turn.take_if_free() as taken:
        assert taken
    assert not turn.held
