"""No prompt, source or target is cut: what is too long is refused before anything is computed, ids and texts alike."""

import re
from dataclasses import replace

import numpy as np
import pytest

from engine import GenerationConfig, Generator, InputError, Model, Transformer, calibrate
from engine.generation import lengths, scoring
from engine.generation.lengths import Lengths
from engine.text.tokenizer import Tokenizer

from ..tools.decoders import DECODERS as DECODER_CONFIGS
from ..tools.decoders import make_weights
from ..tools.generators import SETTINGS, language_model, translator
from ..tools.limited import outcome
from ..tools.paths import DECODERS
from ..tools.tiny_text import VOCABULARY, tiny_text

POSITIONS = 90
TEXT = tiny_text(max_seq_length=7, max_characters=20)
"""Neither limit is one of prompts, nor is that in the tokenizer.json."""


def words(tokens):
    """Return a text of so many tokens, with the two special ones."""
    return " ".join(["cat"] * (tokens - 2))


def ids(tokens):
    return [VOCABULARY["[CLS]"], *[VOCABULARY["cat"]] * (tokens - 2), VOCABULARY["[SEP]"]]


def generator(model, **options):
    """Return a generator that computes nothing."""
    found = Generator(model(TEXT), threads=1, **options)
    found._decoder.step = None
    return found


def refusal(call):
    with pytest.raises(InputError) as error:
        call()
    return str(error.value)


PROMPTS = {
    "generate": lambda g, long: g.generate([words(4), long]),
    "results": lambda g, long: g.results([words(4), long]),
    "stream": lambda g, long: g.stream(long),
    "score a target after it": lambda g, long: g.score([words(4), long], [words(4), words(4)]),
}
SOURCES = {
    **PROMPTS,
    "translate": lambda g, long: g.translate([words(4), long]) if isinstance(long, str) else g.generate([[4], long]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_long_prompt(name):
    place = "input 0" if name == "stream" else "input 1"
    for options in ({}, {"max_batch_tokens": 10}):
        language = generator(language_model, **options)
        expected = f"{place}: the prompt has 91 tokens, but the model reads at most {POSITIONS}; shorten it"
        assert refusal(lambda g=language: PROMPTS[name](g, words(POSITIONS + 1))) == expected
        assert refusal(lambda g=language: PROMPTS[name](g, ids(POSITIONS + 1))) == expected


def test_a_prompt_longer_than_a_table_of_biases():
    """The biases by distance are there for max_batch_tokens, which a model without positions is bounded by."""
    config = DECODER_CONFIGS["sandwich, ALiBi"]
    model = Model(decoder=Transformer(config, make_weights(config), TEXT), generation=SETTINGS)
    language = generator(lambda text: model, max_batch_tokens=10)
    assert refusal(lambda: language.generate([words(11)])) == (
        "input 0: the prompt has 11 tokens, but max_batch_tokens=10 bounds it; shorten it, or load the model with a "
        "larger max_batch_tokens")


def test_a_prompt_longer_than_a_batch_is_read_in_parts():
    whole, parts = (Generator(language_model(TEXT), threads=1, max_batch_tokens=n) for n in (POSITIONS, 7))
    for call in (lambda g: g.generate([words(60), words(20)]), lambda g: g.generate([words(60)], num_beams=3),
                 lambda g: g.score([words(60)], [words(20)])[0].log_probabilities.tolist()):
        assert call(parts) == call(whole)


@pytest.mark.parametrize("name", SOURCES)
def test_a_long_source(name):
    place = "input 0" if name == "stream" else "input 1"
    for options, most, limit in (({}, POSITIONS, f"the model reads at most {POSITIONS}"),
                                 ({"max_batch_tokens": 10}, 10, "max_batch_tokens=10 bounds it")):
        whole = generator(translator, **options)
        expected = f"{place}: the source has {most + 1} tokens, but {limit}"
        assert refusal(lambda g=whole, n=most: SOURCES[name](g, words(n + 1))).startswith(expected)
        assert refusal(lambda g=whole, n=most: SOURCES[name](g, ids(n + 1))).startswith(expected)


@pytest.mark.parametrize("as_item", [words, ids])
def test_a_long_prompt_beside_a_source(as_item):
    whole = generator(translator)
    for call in (lambda: whole.generate([[4]], prompts=[as_item(POSITIONS + 1)]),
                 lambda: whole.stream([4], prompt=as_item(POSITIONS + 1)),
                 lambda: whole.score([[4]], [[5]], prompts=[as_item(POSITIONS + 1)])):
        assert refusal(call) == "input 0: the prompt has 91 tokens, but the model reads at most 90; shorten it"


@pytest.mark.parametrize("as_item", [words, ids])
def test_long_texts_to_score(as_item):
    language, whole = generator(language_model), generator(translator)
    for call in (lambda: language.score([words(4), as_item(POSITIONS + 2)]),
                 lambda: calibrate(language, [words(4), as_item(POSITIONS + 2)])):
        assert refusal(call) == "input 1: the text has 92 tokens, but the model scores at most 91; shorten it"
    assert refusal(lambda: whole.score([[4], [4]], [words(4), as_item(POSITIONS + 1)])) == (
        "input 1: the target has 91 tokens, but the model scores at most 90; shorten it")
    assert refusal(lambda: language.score([[4], words(50)], [words(4), as_item(42)])).startswith(
        "input 1: the prompt with its continuation has 92 tokens, but the model scores")


@pytest.mark.parametrize("reads", [language_model, translator])
def test_a_continuation_is_checked_once(reads, monkeypatch):
    checked, check = [], lengths.check_continuation
    for module in (lengths, scoring):
        monkeypatch.setattr(module, "check_continuation", lambda *given: (checked.append(given), check(*given))[1])
    model = Generator(reads(TEXT), threads=1)
    model.score([words(9), [4, 5]], *([] if reads is language_model else [[[5, 6], words(4)]]))
    assert len(checked) == 2


def test_ids_to_calibrate_with_are_named_by_their_place():
    found = refusal(lambda: calibrate(generator(language_model), [[4, 90 + i] for i in range(4)]))
    assert re.match(r"input (\d): a continuation has the id 9\1, but the model has 50 tokens", found)


def test_the_longest_that_fit_are_read_whole():
    """The last token of a result or of a target is not read, so there may be one more than the model has positions."""
    for options in ({}, {"max_batch_tokens": POSITIONS}):
        language, whole = (Generator(model(TEXT), threads=1, **options) for model in (language_model, translator))
        long, one_more = words(POSITIONS), words(POSITIONS + 1)
        assert language.generate([long], max_new_tokens=1) == language.generate([ids(POSITIONS)], max_new_tokens=1)
        assert whole.generate([long], max_new_tokens=2) == whole.generate([ids(POSITIONS)], max_new_tokens=2)
        assert len(list(language.stream(long, max_new_tokens=1))) == 1
        assert len(language.score([one_more])[0].log_probabilities) == POSITIONS
        assert len(whole.score([long], [long])[0].log_probabilities) == POSITIONS
    assert len(Generator(language_model(TEXT), max_batch_tokens=64).score([one_more])[0].log_probabilities) == POSITIONS


def test_the_prefix_and_the_forced_token_count():
    found = Generator(replace(language_model(TEXT), generation=SETTINGS.changed(prefix=[5] * 89)), threads=1)
    assert "the prompt has 91 tokens" in refusal(lambda: found.generate([[4, 4]]))
    assert found.statistics().tokens_in == 0
    bound = Lengths(replace(DECODER_CONFIGS["Llama"], max_positions=1), None, 1, 8)
    with pytest.raises(InputError, match="the prompt has 2 tokens"):
        bound.check(None, np.array([4]), GenerationConfig(forced_bos_token_id=5))


def test_a_text_of_100_mb_is_refused_in_little_memory():
    language = generator(language_model)
    found = outcome(lambda: language.generate(["cat " * 25_000_000]), memory=200_000_000)
    assert re.fullmatch(r"EngineError: input 0: the prompt has at least 65,\d\d\d tokens, but the model reads at most "
                        "90; shorten it", found)
    found = outcome(lambda: language.generate([" " * 100_000_000]), memory=200_000_000)
    assert "input 0: a text of 100,000,000 characters" in found
    assert "has too few tokens in its first 262,144 characters" in found


def test_the_tokenizer_of_a_generator_cuts_nothing():
    tokenizer = Generator(language_model(TEXT), max_batch_tokens=10).tokenizer
    assert tokenizer.encode(words(3000)) == ids(3000)
    assert len(tokenizer.encode(words(3000), add_special_tokens=False)) == 2998
    filled = tiny_text(max_seq_length=6, fill_id=1)
    for text, tokens in ((words(4), [*ids(4), 1, 1]), (words(8), ids(8))):
        assert Tokenizer(filled, None, 1, truncates=False).encode(text) == tokens


def test_a_pad_token_without_a_position_is_refused():
    """M2M100 numbers the tokens that are no padding, and in transformers the numbers behind one depend on the cache."""
    model = Generator.load(DECODERS / "m2m_100", threads=1)
    pad = model.config.pad_token_id
    assert refusal(lambda: model.score([[3, 4]], [[4, pad, 5]])) == (
        f"input 0: a target has the id {pad} of the pad token, to which this family of models gives no position; "
        "leave it out")
    for call in (lambda: model.generate([[3, 4]], prompts=[[2, pad]]),
                 lambda: model.score([[3, 4]], [[4]], prompts=[[2, pad]])):
        assert refusal(call).startswith(f"input 0: a prompt has the id {pad} of the pad token")
    assert len(model.score([[3, 4]], [[4, 5, pad]])[0].log_probabilities) == 3      # it is not read
    other = Generator.load(DECODERS / "marian", threads=1)
    other.score([[3, 4]], [[4, other.config.pad_token_id, 5]])
