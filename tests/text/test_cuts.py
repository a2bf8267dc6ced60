"""What is said about texts that are cut: a warning a call, an error, or nothing, by the argument truncation."""

import warnings

import numpy as np
import pytest

from engine import Engine, InputError, Reranker
from engine.text.cuts import truncating
from engine.text.tokenizer import Tokenizer
from engine.text.tokens import counting_tokens

from ..tools import head_texts as texts
from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

LONG = "the cat sat on a mat"      # 8 tokens with the special ones


def engine(**changes):
    return engine_of(random_model(tiny_text(**changes)), threads=1, backend="reference")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("given", "cut", "length"), [
    (["the cat sat", "dog"], 0, ""), ([LONG, "dog", "the cat sat on"], 1, "8"), ([LONG * 40], 1, "203"),
    ([("the cat", "dog")], 0, ""), ([(LONG, "dog"), ("a", "a")], 1, "10"), ([("a " * 400, "dog " * 300)], 1, "703"),
])
def test_what_a_tokenizer_reports(given, cut, length, threads):
    tokenizer = Tokenizer(tiny_text(max_seq_length=6), 64, threads)
    with truncating() as cuts, warnings.catch_warnings(record=True):
        tokenizer(given)
        assert (cuts.texts, cuts.cut) == (len(given), cut)
        if cut:
            assert (cuts.limit, tokenizer.count(cuts.longest)) == (6, length)
    kept = [sentence for sentence in given if isinstance(sentence, str)]
    with truncating() as cuts, warnings.catch_warnings(record=True):
        tokenizer.places(kept)
        assert cuts.cut == (cut if kept else 0)


def test_pairs_with_one_query():
    tokenizer = Tokenizer(tiny_text(max_seq_length=6), 64, 1)
    with truncating(False):
        tokenizer.pairs([("the cat", "dog"), ("the cat", "a"), ("the cat", "mat")])
    with pytest.raises(InputError, match="a text of 7 tokens"), truncating(False):
        tokenizer.pairs([("the cat", "dog"), ("the cat", "a mat"), ("the cat", "mat")])


def test_a_text_with_each_of_several_counts_once():
    tokenizer = Tokenizer(tiny_text(max_seq_length=6), 64, 1)
    seconds = tokenizer.second_texts(["a", "a mat"])
    with truncating() as cuts, warnings.catch_warnings(record=True), counting_tokens() as lengths:
        tokenizer.with_each(["dog", "the cat"], seconds)
        assert (cuts.texts, cuts.cut, lengths) == (2, 1, [5 + 6, 6 + 6])
        assert (cuts.longest, tokenizer.count(cuts.longest)) == (("the cat", "a mat"), "7")


def test_a_call_warns_once():
    model = engine(max_seq_length=4)
    with pytest.warns(UserWarning, match="2 of 3 texts were cut to 4 tokens; the longest has 8. trunc") as found:
        vectors = model.encode([LONG, "dog", "the cat sat"])
    assert len(found) == 1
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(model.encode([LONG, "dog", "the cat sat"], truncation=True), vectors)
        model.encode(["the cat", "dog"])
        model.encode(["the cat", "dog"], truncation=False)
    with pytest.raises(InputError, match="a text of 5 tokens, 'the cat sat', is longer than the 4 that the model"):
        model.encode(["dog", "the cat sat"], truncation=False)
    with pytest.raises(InputError, match="truncation must be True or False"):
        model.encode("dog", truncation="longest_first")


def test_a_stream_warns_once():
    model = engine(max_seq_length=4)
    with pytest.warns(UserWarning, match="1 of 2 texts was cut to 4 tokens") as found:
        arrays = [*model.encode_stream(["dog", "mat", LONG, "dog", LONG, LONG], rows=2)]
    assert len(found) == 1
    np.testing.assert_array_equal(np.concatenate(arrays)[2], model.encode(LONG, truncation=True))
    with pytest.raises(InputError, match="is longer than the 4"):
        [*model.encode_stream(["dog", LONG], rows=1, truncation=False)]


def test_tokens_of_whole_texts_are_counted():
    model = engine(max_seq_length=4)
    assert model.tokenize([LONG, "dog"], truncation=False)["attention_mask"].sum(axis=1).tolist() == [8, 3]
    with pytest.warns(UserWarning, match="1 of 2 texts was cut to 4 tokens"):
        assert model.tokenize([LONG, "dog"])["input_ids"].shape == (2, 4)


CALLS = [
    ("bert_classify", lambda m, **o: m.classify(texts.LONG, **o)),
    ("bert_pairs", lambda m, **o: m.predict([("a", texts.LONG)], **o)),
    ("bert_pairs", lambda m, **o: m.rank("a", ["b", texts.LONG], **o)),
    ("bert_tag", lambda m, **o: m.tag(texts.LONG, **o)),
    ("bert_fill_mask", lambda m, **o: m.fill_mask("[MASK] " + texts.LONG, **o)),
    ("bert_fill_mask", lambda m, **o: m.encode_sparse(texts.LONG, **o)),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_each_method_says_it(name, call):
    model = Engine.load(folder_of(name), threads=1)
    with pytest.warns(UserWarning, match=r"1 of [12] texts? was cut to 96 tokens; the longest has ") as found:
        call(model)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(model, truncation=True)
    with pytest.raises(InputError, match="is longer than the 96 that the model reads"):
        call(model, truncation=False)


def test_a_reranker_says_it():
    model = Reranker.load(folder_of("bert_pairs"), threads=1)
    with pytest.warns(UserWarning, match="1 of 2 texts was cut to 96 tokens") as found:
        model.rank("a", ["b", texts.LONG])
    assert len(found) == 1
    with pytest.raises(InputError, match="is longer than the 96"):
        model.predict(("a", texts.LONG), truncation=False)


def test_windows_cut_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Engine.load(folder_of("bert_tag"), threads=1).tag(texts.LONG, stride=4, aggregation_strategy="simple")
        Engine.load(folder_of("bert_answer"), threads=1).answer("a", texts.LONG)


def test_a_limit_above_the_positions_of_the_model():
    model = engine()
    assert model.with_text(max_seq_length=16).max_seq_length == 16
    with pytest.raises(InputError, match=r"max_seq_length=17 is above the 16 positions of the model.*give at most 16"):
        model.with_text(max_seq_length=17)
