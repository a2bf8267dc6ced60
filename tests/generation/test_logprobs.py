"""Log probabilities of new tokens are those of `score`, and tell of likely tokens; no token changes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from engine import Generator, InputError

from ..tools.generators import SOURCES, language_model, translator

SETTINGS = ({}, {"do_sample": True, "top_k": 0, "seed": 3}, {"do_sample": True, "temperature": 5.0, "top_k": 7},
            {"repetition_penalty": 1.4, "suppress_tokens": [5, 6]}, {"logit_bias": {7: 4.0}, "presence_penalty": 1.0},
            {"do_sample": True, "temperature": 3.0, "frequency_penalty": 0.5, "num_return_sequences": 2},
            {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2, "suppress_tokens": [5, 6]})


def listed(result):
    return result if isinstance(result, list) else [result]


@pytest.mark.parametrize("model", [language_model, translator])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_they_are_those_of_score(model, settings):
    generator = Generator(model(), threads=2)
    plain = generator.generate(SOURCES, max_new_tokens=8, **settings)
    for n in (0, 4):
        for source, before, results in zip(SOURCES, plain, generator.generate(SOURCES, max_new_tokens=8, logprobs=n,
                                                                              **settings), strict=True):
            assert [replace(one, logprobs=None) for one in listed(results)] == listed(before)
            for result in listed(results):
                scored = generator.score([source], [result.ids])[0].log_probabilities.tolist()
                assert [(one.id, one.logprob) for one in result.logprobs] == [*zip(result.ids, scored, strict=True)]
                assert all(len(one.top) == n for one in result.logprobs)


def test_likely_tokens_are_those_of_all_logits():
    generator = Generator(language_model(), threads=1)
    [result] = generator.generate([[7, 8]], max_new_tokens=6, logprobs=5, repetition_penalty=1.8, suppress_tokens=[9])
    for i, one in enumerate(result.logprobs):
        prompt = [7, 8, *result.ids[:i]]
        every = np.array([generator.score([prompt], [[word]])[0].log_probabilities[0] for word in range(50)])
        order = np.argsort(-every, kind="stable")[:5]
        assert [(each.id, each.logprob) for each in one.top] == [(int(word), float(every[word])) for word in order]


def test_company_streams_and_sessions_give_the_same():
    generator, rng = Generator(language_model(), threads=2), random.Random(5)
    asked = [(rng.choice(SOURCES), rng.choice(SETTINGS) | {"logprobs": rng.choice([None, 0, 3]), "max_new_tokens": 7})
             for _ in range(24)]
    alone = [generator.generate([source], **settings)[0] for source, settings in asked]
    with generator.session() as session:
        assert [one.result() for one in [session.submit(source, **settings) for source, settings in asked]] == alone
    for (source, settings), result in zip(asked, alone, strict=True):
        if not isinstance(result, list):
            pieces = [*generator.stream(source, **settings)]
            told = None if settings["logprobs"] is None else tuple(piece.logprob for piece in pieces)
            assert told == result.logprobs
            assert [piece.id for piece in pieces] == result.ids


@pytest.mark.parametrize("wrong", [-1, 21, 1.5, "2"])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(InputError, match=r"logprobs must be (an int of at least 0|at most 20)"):
        Generator(language_model()).generate([[1]], logprobs=wrong)
