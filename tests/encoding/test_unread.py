"""A short text of a call is tokenized beside those of other calls, and its call alone hears what was cut of it."""

import threading
import warnings
from functools import partial

import numpy as np
import pytest

from engine.base.errors import TextTooLong
from engine.encoding.unread import SHORT, UnreadText, read_all
from engine.text.cuts import Cuts, reporting, truncating
from engine.text.tokenizer import Tokenizer
from engine.text.tokens import counting_tokens

from ..tools.encoders import engine_of
from ..tools.threads import begin, wait_for
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

LONG = "the cat sat on a mat"      # 8 tokens with the special ones
GIVEN = ["the cat", LONG, ("dog", "a mat"), "", (LONG, "dog"), "a " * 500]


@pytest.mark.parametrize("threads", [1, 2])
def test_texts_that_are_read_together_have_the_tokens_of_each_alone(threads):
    tokenizer = Tokenizer(tiny_text(max_seq_length=6), 64, threads)
    together, alone, reports = [], [], []
    for given in GIVEN:
        with truncating(True):
            alone.append(tokenizer([given]))
        with truncating() as cuts, warnings.catch_warnings(record=True):
            together.append(UnreadText(tokenizer, given))
            reports.append(cuts)
    assert together[0].lengths == [2 + 7 // 5]
    read_all([tokens for i, tokens in enumerate(together) if i != 3])
    for own, expected, cuts, given in zip(together, alone, reports, GIVEN, strict=True):
        np.testing.assert_array_equal(own.input_ids, expected.input_ids)
        np.testing.assert_array_equal(own.token_type_ids, expected.token_type_ids)
        assert own.lengths == [len(expected.input_ids[0])]
        for _ in range(2):      # the second time there is nothing left to say
            own.report()
            assert (cuts.texts, cuts.cut) == (1, given in (LONG, (LONG, "dog"), "a " * 500))


def test_a_text_is_read_at_once_where_somebody_wants_its_tokens_or_it_is_long():
    engine = engine_of(random_model(tiny_text()), threads=1, backend="reference")
    encoder = engine.text_encoder
    assert isinstance(encoder.tokens_or_unread(["the cat"]), UnreadText)
    assert not isinstance(encoder.tokens_or_unread(["the cat", "dog"]), UnreadText)
    assert isinstance(encoder.tokens_or_unread(["a" * SHORT]), UnreadText)
    assert not isinstance(encoder.tokens_or_unread(["a" * (SHORT + 1)]), UnreadText)
    with reporting(Cuts(None, marks=[])):
        assert not isinstance(encoder.tokens_or_unread(["the cat"]), UnreadText)
    with counting_tokens() as lengths:
        assert not isinstance(encoder.tokens_or_unread(["the cat"]), UnreadText)
    assert lengths == [4]


def test_a_call_hears_of_its_own_text_alone(monkeypatch):
    """Callers whose texts are tokenized in one batch want cuts, warnings and errors."""
    engine = engine_of(random_model(tiny_text(max_seq_length=6)), threads=1)
    expected = engine.encode([LONG], truncation=True)[0]
    begun, goes_on = threading.Event(), threading.Event()
    read = Tokenizer.read_together
    sizes = []

    def slow(self, texts):
        sizes.append(len(texts))
        if len(sizes) == 1:
            begun.set()
            assert goes_on.wait(60)
        return read(self, texts)

    monkeypatch.setattr(Tokenizer, "read_together", slow)

    first = begin(lambda: engine.encode("dog"))
    assert begun.wait(60)
    cut, refused, short = (begin(partial(engine.encode, text, truncation=truncation)) for text, truncation in (
        (LONG, True), (LONG, False), ("the cat", False)))
    wait_for(lambda: len(engine._queue._arrived) == 3)
    goes_on.set()
    first.result(60)
    np.testing.assert_array_equal(cut.result(60), expected)
    assert isinstance(error := refused.exception(60), TextTooLong)
    assert error.tokens == "8"
    vectors = short.result(60)
    assert sizes == [1, 3]
    np.testing.assert_array_equal(vectors, engine.encode("the cat"))
    with pytest.warns(UserWarning, match="1 of 1 text was cut to 6 tokens; the longest has 8"):
        engine.encode(LONG)


def test_texts_longer_than_the_workspace_are_refused_as_before():
    engine = engine_of(random_model(tiny_text()), threads=1, max_batch_tokens=4)
    with pytest.raises(ValueError, match="max_batch_tokens=4 bounds what is computed together"):
        engine.encode(LONG)
