"""Requests of all kinds over real decoders in one session: the bits of each are those of the request alone.

    ENGINE_MIXED_REQUESTS=2000 python -m pytest tests/generation/test_mixed_requests.py
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from engine import Generator, Model, Transformer
from engine.base.errors import Cancelled, WeightsError
from engine.base.stop import NEVER
from engine.generation.calls import generate, last_logits
from engine.generation.calls import score as score_alone
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.generation.scoring import LastLogits, Scoring
from engine.generation.session import Session
from engine.model.config import ModelConfig
from engine.model.generation_config import GenerationConfig

from ..tools.decoders import DECODERS, make_weights
from ..tools.generators import SETTINGS
from ..tools.sessions import finish, shared_session

REQUESTS = int(os.environ.get("ENGINE_MIXED_REQUESTS", "168")) // 12
BASE = {"eos_token_id": 3, "decoder_start_token_id": 2, "max_new_tokens": 9}
CONFIGS = [GenerationConfig(**{**BASE, **options}) for options in (
    {}, {"max_new_tokens": 20}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2, "suppress_tokens": [5]},
    {"encoder_no_repeat_ngram_size": 2}, {"num_beams": 2, "encoder_no_repeat_ngram_size": 1},
    {"num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.3},
    {"num_beams": 2, "renormalize_logits": True, "bad_words_ids": [[4], [5, 6]]},
    {"do_sample": True, "num_return_sequences": 2}, {"do_sample": True, "seed": 8, "temperature": 1.7, "top_p": 0.8},
    {"do_sample": True, "top_k": 0, "min_p": 0.05}, {"do_sample": True, "top_k": 7, "repetition_penalty": 0.8},
)]  # fmt: skip
PAIRS = [*product(("float32", "bfloat16", "int8", "int4"), ("float32", "bfloat16", "int8"))]
NAMES = ("Llama", "2017", "windows, head norms", "T5", "sandwich, ALiBi", "pre-norm")


def model_of(config: ModelConfig, damaged: int | None = None) -> Model:
    """Return a decoder with its encoder, if it reads one. damaged: a token whose embedding is huge."""
    weights, encoder = make_weights(config), None
    if damaged is not None:
        weights["embeddings.word"][damaged] = 3e38
    if config.memory_size:
        reads = ModelConfig("test", config.memory_size, 1, 2, config.memory_size // 2, 30, vocab_size=50,
                            max_positions=90)
        encoder = Transformer(reads, make_weights(reads, 1))
    return Model(decoder=Transformer(config, weights), encoder=encoder, generation=SETTINGS)


def ids_of(rng: random.Random, most: int) -> list[int]:
    return [rng.randrange(4, 50) for _ in range(rng.randint(1, most))]


def drawn(rng: random.Random, generator: Generator) -> tuple[str, Any]:
    """Return a request of some kind."""
    reads = generator.encoder_config is not None
    source, prompt = ids_of(rng, 40) if reads else None, ids_of(rng, 3 if reads else 60)
    request = Request(source, prompt, rng.choice(CONFIGS))
    kind = rng.choice(["generate", "generate", "generate", "score", "generate" if reads else "rank"])
    if kind == "score":
        return kind, (request, ids_of(rng, 15))
    if kind == "rank":
        return kind, [np.array(prompt + ids_of(rng, 9)) for _ in range(rng.randint(1, 4))]
    return kind, request


def submit(session: Session, generator: Generator, stepper: Any, kind: str, what: Any, **options: Any) -> Any:
    if kind == "score":
        return session.submit(Scoring(stepper, *what), **options)
    return session.submit(LastLogits(what, [4, 7]) if kind == "rank" else what, **options)


def alone(generator: Generator, stepper: Any, kind: str, what: Any) -> Any:
    """Return the result of a request in a call of its own."""
    if kind == "score":
        return score_alone(stepper, [what[0]], [what[1]])[0]
    return last_logits(stepper, [what], [4, 7])[0].tolist() if kind == "rank" else generate(stepper, [what])[0]


@pytest.mark.parametrize("number", range(len(PAIRS)), ids=[f"{own[0]}, cache {own[1]}" for own in PAIRS])
def test_mixed_requests_have_the_bits_of_each_alone(number):
    rng, (precision, cache) = random.Random(number), PAIRS[number]
    options = {"backend": "cython", "precision": precision, "cache": cache}
    model = model_of(DECODERS[NAMES[number % len(NAMES)]])
    generator, single = (Generator(model, threads=n, **options) for n in (rng.randint(1, 4), 1))
    stepper, own = (each._model.stepper(NEVER) for each in (generator, single))
    session = shared_session(stepper, rng, Budget(rng.choice([8, 64]), rng.choice([64, 400])))
    kept, left = [], []
    for _ in range(REQUESTS):
        kind, what = drawn(rng, generator)
        handle = submit(session, generator, stepper, kind, what, priority=rng.randrange(2), owner=rng.choice("abc"))
        if rng.random() < 0.2:
            left.append(handle)
        else:
            kept.append((handle, kind, what))
        for _ in range(rng.randrange(3)):
            session.step()
        if left and rng.random() < 0.3:
            left.pop().cancel()
    finish(session)
    for handle, kind, what in kept:
        found = handle.result()
        assert (found.tolist() if kind == "rank" else found) == alone(single, own, kind, what)
    assert generator.statistics().cache_tokens == 0


@pytest.mark.parametrize("cache", ["float32", "bfloat16", "int8"])
def test_a_damaged_word_fails_its_requests_alone(cache):
    rng = random.Random(7)
    config = replace(DECODERS["Llama"], logits="own", embedding_scale=100.0)        # 3e38 becomes infinite
    damaged, whole = (Generator(model_of(config, word), threads=2, backend="cython", cache=cache)
                      for word in (49, None))
    stepper, own = damaged._model.stepper(NEVER), whole._model.stepper(NEVER)
    session = shared_session(stepper, rng)
    requests = [Request(None, [rng.randrange(4, 49) for _ in range(rng.randint(1, 60))],
                        replace(rng.choice(CONFIGS), suppress_tokens=(49,))) for _ in range(24)]
    handles, hurt, late = [], [], []
    for request in requests:
        handles.append(session.submit(request))
        hurt.append(session.submit(replace(request, prompt=[*request.prompt, 49])))
        late.append(session.submit(replace(request, config=replace(request.config, max_new_tokens=20))))
        late[-1].cancel()
        session.step()
    finish(session)
    assert [handle.result() for handle in handles] == [generate(own, [request])[0] for request in requests]
    for handle in hurt:
        with pytest.raises(WeightsError, match="NaN"):
            handle.result()
    for handle in late:
        with pytest.raises(Cancelled):
            handle.result()
