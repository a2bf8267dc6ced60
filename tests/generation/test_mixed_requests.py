"""Requests of all kinds over real decoders in one queue: the bits of each are those of the request alone.

    ENGINE_MIXED_REQUESTS=2000 python -m pytest tests/generation/test_mixed_requests.py
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from itertools import product

import pytest

from engine import Generator, Model, Transformer
from engine.base.errors import Cancelled, WeightsError
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.model.config import ModelConfig
from engine.model.generation_config import GenerationConfig

from ..tools.decoders import DECODERS, make_weights
from ..tools.generators import SETTINGS
from ..tools.mixed_requests import check_mixed_requests, configs_of
from ..tools.step_queues import finish, generate, queue_of, submit

REQUESTS = int(os.environ.get("ENGINE_MIXED_REQUESTS", "168")) // 12
CONFIGS = configs_of(GenerationConfig(eos_token_id=3, decoder_start_token_id=2, max_new_tokens=9))
PAIRS = [*product(("float32", "bfloat16", "int8", "int4"), ("float32", "bfloat16", "int8"))]
NAMES = ("Llama", "2017", "windows, head norms", "T5", "sandwich, ALiBi", "pre-norm")


def model_of(config: ModelConfig, damaged: int | None = None) -> Model:
    """Return a decoder with its encoder, if it reads one. damaged: a token whose embedding is huge."""
    weights, encoder = make_weights(config, words={} if damaged is None else {damaged: 3e38}), None
    if config.memory_size:
        reads = ModelConfig("test", config.memory_size, 1, 2, config.memory_size // 2, 30, vocab_size=50,
                            max_positions=90)
        encoder = Transformer(reads, make_weights(reads, 1))
    return Model(decoder=Transformer(config, weights), encoder=encoder, generation=SETTINGS)


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=[f"{own[0]}, cache {own[1]}" for own in PAIRS])
def test_mixed_requests_have_the_bits_of_each_alone(number):
    rng, (precision, cache) = random.Random(number), PAIRS[number]
    options = {"backend": "cython", "precision": precision, "cache": cache}
    model = model_of(DECODERS[NAMES[number % len(NAMES)]])
    generator, single = (Generator(model, threads=n, **options) for n in (rng.randint(1, 4), 1))
    check_mixed_requests(generator, single, rng, REQUESTS, CONFIGS, tokens=range(4, 50),
                         budget=Budget(rng.choice([8, 64]), rng.choice([64, 400])))


@pytest.mark.parametrize("cache", ["float32", "bfloat16", "int8"])
def test_a_damaged_word_fails_its_requests_alone(cache):
    rng = random.Random(7)
    config = replace(DECODERS["Llama"], logits="own", embedding_scale=100.0)        # 3e38 becomes infinite
    damaged, whole = (Generator(model_of(config, word), threads=2, backend="cython", cache=cache)
                      for word in (49, None))
    queue, own = queue_of(damaged._model.queue._stepper, rng), whole._model.queue
    requests = [Request(None, [rng.randrange(4, 49) for _ in range(rng.randint(1, 60))],
                        replace(rng.choice(CONFIGS), suppress_tokens=(49,))) for _ in range(24)]
    handles, hurt, late = [], [], []
    for request in requests:
        handles.append(submit(queue, request))
        hurt.append(submit(queue, replace(request, prompt=[*request.prompt, 49])))
        late.append(submit(queue, replace(request, config=replace(request.config, max_new_tokens=20))))
        late[-1].cancel()
        queue.step()
    finish(queue)
    assert [handle.result() for handle in handles] == [generate(own, [request])[0] for request in requests]
    for handle in hurt:
        with pytest.raises(WeightsError, match="NaN"):
            handle.result()
    for handle in late:
        with pytest.raises(Cancelled):
            handle.result()
