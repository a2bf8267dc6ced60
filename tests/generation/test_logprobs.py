"""Log probabilities of new tokens are those of `score`, and tell of likely tokens; no token changes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from engine import Generator, InputError

from ..tools.generators import SOURCES, language_model, translator
from ..tools.golden_generating import GOLDEN, NAMES, Expected
from ..tools.tiny_text import tiny_text

SETTINGS = ({}, {"do_sample": True, "top_k": 0, "seed": 3}, {"do_sample": True, "temperature": 5.0, "top_k": 7},
            {"repetition_penalty": 1.4, "suppress_tokens": [5, 6]}, {"logit_bias": {7: 4.0}, "presence_penalty": 1.0},
            {"do_sample": True, "temperature": 3.0, "frequency_penalty": 0.5, "num_return_sequences": 2},
            {"num_beams": 3}, {"num_beams": 3, "repetition_penalty": 1.4, "num_return_sequences": 2},
            {"num_beams": 2, "presence_penalty": 1.0, "suppress_tokens": [5], "renormalize_logits": True},
            {"num_beams": 45, "max_new_tokens": 2},
            {"num_beams": 2, "num_return_sequences": 2, "suppress_tokens": [5, 6]},
            {"return_timestamps": True, "no_timestamps_token_id": 30, "eos_token_id": 20})


def listed(result):
    return result if isinstance(result, list) else [result]


@pytest.mark.parametrize("model", [language_model, translator])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_they_are_those_of_score(model, settings):
    generator = Generator(model(), threads=2)
    settings = {"max_new_tokens": 8, **settings}
    plain = generator.generate(SOURCES, **settings)
    for n in (0, 4):
        for source, before, results in zip(SOURCES, plain, generator.generate(SOURCES, logprobs=n, **settings),
                                           strict=True):
            assert [replace(one, logprobs=None) for one in listed(results)] == listed(before)
            for result in listed(results):
                scored = generator.score([source], [result.ids])[0].log_probabilities.tolist()
                assert [(one.id, one.logprob) for one in result.logprobs] == [*zip(result.ids, scored, strict=True)]
                assert all(len(one.top) == n for one in result.logprobs)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("n", [None, 3])
def test_echo_puts_the_prompt_in_front(settings, n):
    generator = Generator(language_model(), threads=2, max_batch_tokens=16)     # prompts are read in parts
    sources = [*SOURCES, [*range(4, 44)]]
    settings = {"max_new_tokens": 5, "logprobs": n, **settings}
    plain = generator.generate(sources, **settings)
    echoed = generator.generate(sources, echo=True, **settings)
    alone = generator.generate(sources, echo=True, **{**settings, "max_new_tokens": 0})
    for source, before, results, prompts in zip(sources, plain, echoed, alone, strict=True):
        for one, result, prompt in zip(listed(before), listed(results), listed(prompts), strict=True):
            assert replace(result, ids=result.ids[len(source) :], echoed=0, logprobs=one.logprobs) == one
            assert (result.ids[: len(source)], result.echoed) == (source, len(source))
            assert (prompt.ids, prompt.echoed, prompt.finish_reason) == (source, len(source), "length")
            if n is not None:
                scored = [None, *generator.score([result.ids])[0].log_probabilities.tolist()]
                assert [(told.id, told.logprob) for told in result.logprobs] == [*zip(result.ids, scored, strict=True)]
                assert [len(told.top) for told in result.logprobs] == [0, *[n] * (len(result.ids) - 1)]
                assert result.logprobs[len(source) :] == one.logprobs
                assert prompt.logprobs == result.logprobs[: len(source)]


def test_the_text_of_an_echo_is_that_of_the_caller():
    generator, special = Generator(language_model(tiny_text())), "the   cat [SEP] sat"
    for given, shown in ((special, special), (generator.tokenizer.encode("the cat"), "the cat")):
        for settings in ({"max_new_tokens": 0}, {"max_new_tokens": 4}, {"max_new_tokens": 4, "logprobs": 1}):
            [result] = generator.generate([given], echo=True, **settings)
            new = generator.generate([given], max_new_tokens=4)[0].text if settings["max_new_tokens"] else ""
            assert result.text == f"{shown}{new}"
            pieces = [*generator.stream(given, echo=True, **settings)]
            assert "".join(piece.text for piece in pieces) == result.text
            assert [piece.id for piece in pieces] == result.ids
            assert tuple(piece.logprob for piece in pieces if piece.logprob) == (result.logprobs or ())


def test_echo_needs_a_prompt_of_the_decoder():
    with pytest.raises(InputError, match="echo=True puts the prompt in front of the result, but this model reads its"):
        Generator(translator()).generate([[5, 6]], echo=True)
    with pytest.raises(InputError, match="max_new_tokens must be None or an int of at least 1, not 0; with echo=True"):
        Generator(language_model()).generate([[5, 6]], max_new_tokens=0)


def test_an_echo_gives_way_and_ends_in_the_middle():
    generator = Generator(language_model(), threads=1, cache_tokens=96, keep_tokens=0, max_batch_tokens=8)
    sources = [[(7 * i + j) % 46 + 4 for j in range(40)] for i in range(6)]
    settings = {"echo": True, "logprobs": 2, "max_new_tokens": 30}
    alone = [generator.generate([source], **settings)[0] for source in sources]
    assert generator.generate(sources, **settings) == alone
    assert generator.statistics().times_given_way > 0
    stream = generator.stream(sources[0], **settings)
    assert next(stream).id == sources[0][0]
    stream.cancel()
    assert (list(stream), stream.finish_reason) == ([], "cancelled")


def test_an_echo_that_begins_anew_comes_once(monkeypatch):
    settings = {"echo": True, "logprobs": 1, "max_new_tokens": 4}
    alone = Generator(language_model(), threads=1).generate([[*range(4, 34)]], **settings)[0].logprobs
    generator = Generator(language_model(), threads=1, keep_tokens=0, max_batch_tokens=8)
    stepper = generator.prepared.queue._stepper
    compute, left = stepper.step, []

    def interrupted(rows, stop):
        if left and not left.pop():
            raise KeyboardInterrupt
        return compute(rows, stop)

    monkeypatch.setattr(stepper, "step", interrupted)
    for steps in range(8):
        left[:] = [False, *[True] * steps]
        stream, pieces = generator.stream([*range(4, 34)], **settings), []
        with pytest.raises(KeyboardInterrupt):
            pieces.extend(stream)
        pieces.extend(stream)
        assert tuple(piece.logprob for piece in pieces) == alone


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("whisper")][::4])
def test_they_are_those_of_transformers(name):
    """Of the logits in float64 that tests/golden/make/generating.py wrote."""
    generator = Generator.load(GOLDEN / name, threads=1, precision="float32")
    source, ids, logits, _ = min(Expected(name).sequences, key=lambda sequence: len(sequence[1]))
    expected = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    settings = {"max_new_tokens": 1, "logprobs": 5, "eos_token_id": [], "forced_eos_token_id": [],
                "forced_bos_token_id": None}
    if source is None:
        [result] = generator.generate([ids], echo=True, **settings)
        told = result.logprobs[1:]
    else:
        [result] = generator.generate([source], prompts=[ids], **settings)
        told, expected = result.logprobs, expected[-1:]
    for one, row in zip(told, expected, strict=True):
        found = [(one.id, one.logprob), *((each.id, each.logprob) for each in one.top)]
        assert [log_p for _, log_p in found] == pytest.approx([row[id] for id, _ in found], abs=1e-4)
        assert [each.logprob for each in one.top] == pytest.approx(np.sort(row)[:-6:-1], abs=1e-4)


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
    asked = [(rng.choice(SOURCES), {"max_new_tokens": 7, "logprobs": rng.choice([None, 0, 3]),
                                    "echo": rng.random() < 0.5, **rng.choice(SETTINGS)}) for _ in range(24)]
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
