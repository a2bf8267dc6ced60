"""A result ends at its first stop text: greedy, drawn, with beams, in streams and sessions, alone and in company."""

from __future__ import annotations

import random
from functools import cache

import pytest

from engine import Generator, InputError, UnsupportedError
from engine.model.text_config import TextConfig
from engine.text.stops import StopText

from ..tools.generators import language_model

SETTINGS = ({}, {"do_sample": True, "top_k": 0, "seed": 3}, {"do_sample": True, "temperature": 5.0, "seed": 9},
            {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2, "length_penalty": 0.5})


def text_of_bytes() -> TextConfig:
    """Return a tokenizer whose 50 tokens are bytes of characters of one to three bytes, and words of two letters."""
    tokenizers = pytest.importorskip("tokenizers")
    tokens = ["\u00c3", "\u00a9", "\u00e2", "\u0124", "\u00ac", *"abcdefghij"]
    tokens += [a + b for a in "abcdefg" for b in "abcde"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, []))
    made.decoder = tokenizers.decoders.ByteLevel()
    return TextConfig(made.to_str().encode())


@cache
def generator_of() -> Generator:
    return Generator(language_model(text_of_bytes()), threads=2)


def cases(count: int, seed: int, kinds=SETTINGS):
    """Yield inputs, settings and stop texts, many of which are parts of the text without stop texts."""
    rng, generator = random.Random(seed), generator_of()
    for _ in range(count):
        ids = [rng.randrange(50) for _ in range(rng.randint(1, 6))]
        settings = rng.choice(kinds) | {"max_new_tokens": rng.randint(3, 20), "min_new_tokens": rng.choice([0, 0, 3])}
        text = generator.generate([ids], **settings)[0]
        text = (text[0] if isinstance(text, list) else text).text
        begin = rng.randrange(max(len(text), 1))
        stops = [text[begin : begin + rng.randint(1, 4)] or "a", rng.choice(["zz", "ab", "\u00e9", "\u20ac"])]
        yield ids, settings, stops, rng.random() < 0.3


def cut(ids: list[int], stops: list[str], include: bool, least: int) -> StopText:
    """Return the text of ids, up to a stop text."""
    text = StopText(generator_of()._model.tokenizer(generator_of().text).incremental(), stops, include, least)
    for number in ids:
        if text.found is None:
            text.add(number)
    return text


def test_a_result_is_cut_from_the_one_without_stop_texts():
    found = 0
    for ids, settings, stops, include in cases(60, 1, SETTINGS[:3]):
        plain = generator_of().generate([ids], **settings)[0]
        result = generator_of().generate([ids], stop=stops, include_stop=include, **settings)[0]
        expected = cut(plain.ids, stops, include, settings["min_new_tokens"])
        assert result.ids == plain.ids[: len(result.ids)]
        assert (result.text, result.stop_text) == (expected.whole(), expected.found)
        assert result.finish_reason == ("stop" if expected.found else plain.finish_reason)
        assert not result.ended
        if expected.found:      # the last token alone makes the stop text complete
            assert cut(result.ids[:-1], stops, include, settings["min_new_tokens"]).found is None
            found += 1
        else:
            assert (result.ids, result.score) == (plain.ids, plain.score)
    assert found > 15


def test_beams_end_at_the_token_that_completes_a_stop_text():
    found = 0
    for ids, settings, stops, include in cases(60, 2, SETTINGS[4:]):
        for result in generator_of().generate([ids], stop=stops, include_stop=include, **settings)[0]:
            expected = cut(result.ids, stops, include, settings["min_new_tokens"])
            assert (result.text, result.stop_text) == (expected.whole(), expected.found)
            assert cut(result.ids[:-1], stops, include, settings["min_new_tokens"]).found is None
            found += result.stop_text is not None
    assert found > 15


def test_streams_sessions_and_company_give_the_same():
    generator, made = generator_of(), [*cases(24, 3)]
    alone = [generator.generate([ids], stop=stops, include_stop=include, **settings)[0]
             for ids, settings, stops, include in made]
    with generator.session() as session:
        submitted = [session.submit(ids, stop=stops, include_stop=include, **settings)
                     for ids, settings, stops, include in made]
        assert [one.result() for one in submitted] == alone
        assert [one.finish_reason for one in submitted] == [
            (one[0] if isinstance(one, list) else one).finish_reason for one in alone]
    single = [(*case, result) for case, result in zip(made, alone, strict=True) if not isinstance(result, list)]
    assert len(single) > 5
    for ids, settings, stops, include, result in single:
        stream = generator.stream(ids, stop=stops, include_stop=include, **settings)
        assert stream.finish_reason is None
        pieces = [*stream]
        assert [piece.id for piece in pieces] == result.ids
        assert "".join(piece.text for piece in pieces) == result.text
        assert stream.finish_reason == result.finish_reason


def test_an_end_token_can_be_ignored():
    generator = generator_of()
    plain = generator.generate([[7, 8]], max_new_tokens=12)[0]
    end = plain.ids[4]
    ended = generator.generate([[7, 8]], max_new_tokens=12, eos_token_id=end)[0]
    assert (ended.finish_reason, ended.ended, ended.stop_text) == ("stop", True, None)
    ignored = generator.generate([[7, 8]], max_new_tokens=12, eos_token_id=end, ignore_eos=True)[0]
    assert (ignored.ids, ignored.finish_reason) == (plain.ids, "length")
    every = [*range(50)]
    assert generator.generate([[7]], suppress_tokens=every)[0].finish_reason == "forbidden"


def test_a_random_seed_is_drawn_and_kept():
    generator = generator_of()
    settings = {"do_sample": True, "top_k": 0, "temperature": 3.0, "max_new_tokens": 8}
    first, second = (generator.generate([[7]], seed="random", **settings)[0] for _ in range(2))
    assert first.seed != second.seed
    assert generator.generate([[7]], seed=first.seed, **settings)[0] == first
    assert generator.generate([[7]], **settings)[0].seed == 0
    assert generator.generate([[7]])[0].seed is None


@pytest.mark.parametrize(("stop", "message"), [
    ("", "stop has an empty text"), (["a"] * 17, "up to 16 texts, not 17"),
    ("a" * 1001, "up to 1,000 characters"), ([1], "a text or a list of texts"), (5, "a text or a list of texts"),
])
def test_wrong_stop_texts_are_refused(stop, message):
    with pytest.raises(InputError, match=message):
        generator_of().generate([[1]], stop=stop)


def test_stop_texts_need_a_tokenizer():
    with pytest.raises(UnsupportedError, match="without a tokenizer; give eos_token_id"):
        Generator(language_model()).generate([[1]], stop="a")
