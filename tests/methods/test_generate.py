"""Requests with settings of their own have the ids, texts, log probabilities and reasons of the request alone.

    ENGINE_REQUESTS=1000 python -m pytest tests/methods/test_generate.py
"""

import os
import random

import pytest

from engine import Generator
from engine.base.arguments import use_our_names
from engine.generation.calls import run
from engine.methods.generate import GenerateOptions, prepare_one

from ..tools.generators import language_model, translator
from ..tools.tiny_text import WORDS, tiny_text

REQUESTS = int(os.environ.get("ENGINE_REQUESTS", "90"))
"""The requests of all the calls of a test together."""


def drawn_settings(rng, reads):
    """Return random settings of a generation. reads: whether the model has an encoder."""
    search = rng.choice([{}, {}, {"num_beams": 2}, {"num_beams": 3, "num_return_sequences": 2},
                         {"do_sample": True, "temperature": rng.choice([0.7, 3.0]), "seed": rng.randrange(9),
                          "top_k": rng.choice([0, 7]), "top_p": rng.choice([1.0, 0.8]), "n": rng.choice([1, 1, 3])}])
    few = {
        "stop": lambda: [*rng.sample(WORDS, 2), " ".join(rng.sample(WORDS, 2))], "ignore_eos": lambda: True,
        "include_stop": lambda: True, "min_tokens": lambda: rng.randint(1, 3), "logprobs": lambda: rng.choice([0, 3]),
        "repetition_penalty": lambda: 1.4, "presence_penalty": lambda: 0.8, "frequency_penalty": lambda: -0.4,
        "logit_bias": lambda: {rng.randrange(50): 3.0}, "no_repeat_ngram_size": lambda: rng.randint(1, 2),
        "suppress_tokens": lambda: rng.sample(range(50), 5), "bad_words_ids": lambda: [[7], [8, 9]],
        "eos_token_id": lambda: rng.sample(range(50), 4), "forced_eos_token_id": lambda: rng.sample(range(50), 2),
        "length_penalty": lambda: 0.4, "echo": lambda: not reads}
    settings = {name: draw() for name, draw in few.items() if rng.random() < 0.3}
    most = rng.choice([3, 8, 16])
    return {"max_new_tokens": 0 if settings.get("echo") and rng.random() < 0.2 else most, **search, **settings}


def asked_of(model, count, seed):
    """Return random sources with settings; many begin alike."""
    rng, common = random.Random(seed), [*range(4, 48)]
    reads, asked = model is translator, []
    for _ in range(count):
        begin = rng.choice([0, 0, 17, 33, 44])
        settings = drawn_settings(rng, reads)
        if settings["max_new_tokens"] == 0:
            settings.pop("min_tokens", None)
        asked.append(([*common[:begin], *(rng.randrange(4, 50) for _ in range(rng.randint(1, 20)))], settings))
    return asked


def prepared(generator, asked):
    calls = []
    for source, given in asked:
        settings = dict(given)
        use_our_names("generate", settings, ())
        calls.append(prepare_one(generator, "generate", source, None, GenerateOptions(settings=settings), several=True))
    return calls


def check_log_probabilities(generator, source, result):
    """Assert that those of a result have the bits of `score`."""
    if result.logprobs is None:
        return
    echo, ids = result.echoed > 0, [one.id for one in result.logprobs]
    assert ids == result.ids
    if not echo:
        scored = generator.score([source], [ids])[0]
    elif len(ids) > 1:
        scored = generator.score([ids])[0]
    else:
        return
    assert [one.logprob for one in result.logprobs[echo:]] == scored.log_probabilities.tolist()


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("model", [language_model, translator])
def test_mixed_settings_in_one_queue(model, precision):
    """In random company, on 2 to 4 threads, with prefixes cold and warm; the request alone has one thread."""
    asked = asked_of(model, REQUESTS // 6, seed=precision)
    loaded = model(tiny_text())
    single = Generator(loaded, precision=precision, threads=1, keep_tokens=0)
    alone = [call.finish(0, run(call.queue, call.works)[0]) for call in prepared(single, asked)]
    for (source, _), results in zip(asked, alone, strict=True):
        for result in results if isinstance(results, list) else [results]:
            check_log_probabilities(single, source, result)
    threads = {"float32": 2, "bfloat16": 3, "int8": 4}[precision]
    crowd = Generator(loaded, precision=precision, threads=threads, keep_tokens=512, max_rows=24, max_batch_tokens=64)
    for _ in ("cold", "warm"):
        calls = prepared(crowd, asked)
        results = run(crowd.prepared.queue, [work for call in calls for work in call.works])
        assert [call.finish(0, found) for call, found in zip(calls, results, strict=True)] == alone
    reasons = {one.finish_reason for each in alone for one in (each if isinstance(each, list) else [each])}
    assert {"stop", "length"} <= reasons
    if model is language_model:
        assert crowd.statistics().found_tokens > 16
