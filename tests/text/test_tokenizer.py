import logging
import sys
import time
from types import MappingProxyType, ModuleType, SimpleNamespace

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import InputError, TimedOut, UnsupportedError, WeightsError
from engine.base.progress import progress
from engine.base.stop import Stop
from engine.model.text_config import TextConfig
from engine.text import sentences as text_module
from engine.text.sentences import add_prompt, check_sentences, check_texts, choose_prompt, slices
from engine.text.tokenizer import CHARACTERS_AT_A_TIME, Tokenizer
from engine.text.tokens import Tokens, merge_tokens

from ..tools.batches import batches
from ..tools.encoders import engine_of
from ..tools.limited import outcome
from ..tools.tiny_models import random_model
from ..tools.tiny_text import VOCABULARY, ids, tiny_text

SENTENCES = ["the cat sat", "", "  ", "a dog", ("the cat", "sat far away"), "the unknown"]


@pytest.mark.parametrize("threads", [1, 2])
def test_tokens(threads):
    tokens = Tokenizer(tiny_text(), 64, threads)(SENTENCES)
    expected = [
        "[CLS] the cat sat [SEP]",
        "[CLS] [SEP]",
        "[CLS] [SEP]",
        "[CLS] a dog [SEP]",
        "[CLS] the cat [SEP] sat far away [SEP]",
        "[CLS] the [UNK] [SEP]",
    ]
    assert [i.tolist() for i in tokens.input_ids] == [ids(words) for words in expected]
    assert [t.tolist() for t in tokens.token_type_ids] == [
        [0] * 5,
        [0] * 2,
        [0] * 2,
        [0] * 4,
        [0] * 4 + [1] * 4,
        [0] * 4,
    ]


@pytest.mark.parametrize(
    ("max_seq_length", "max_tokens", "length"), [(6, 64, 6), (None, 7, 7), (9, 7, 7), (None, None, 42)]
)
def test_truncation(max_seq_length, max_tokens, length):
    tokens = Tokenizer(tiny_text(max_seq_length=max_seq_length), max_tokens, 1)(["cat " * 40])
    assert tokens.input_ids[0].tolist() == [
        VOCABULARY["[CLS]"],
        *[VOCABULARY["cat"]] * (length - 2),
        VOCABULARY["[SEP]"],
    ]


def test_pairs_lose_the_end_of_the_longer_text():
    tokens = Tokenizer(tiny_text(max_seq_length=8), None, 1)([("cat", "dog ran far and away")])
    assert tokens.input_ids[0].tolist() == ids("[CLS] cat [SEP] dog ran far and [SEP]")


def test_a_limit_without_room():
    with pytest.raises(WeightsError, match="limit of 1 tokens is below the 2 special tokens of a text"):
        Tokenizer(tiny_text(max_seq_length=1), 64, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_limit_without_room_for_pairs(threads):
    tokenizer = Tokenizer(tiny_text(max_seq_length=2), 64, threads)
    assert [i.tolist() for i in tokenizer(["the cat", "dog"]).input_ids] == [ids("[CLS] [SEP]")] * 2
    with pytest.raises(WeightsError, match="limit of 2 tokens is below the 3 special tokens of a pair of texts"):
        tokenizer(["the cat", ("dog", "ran")])


def test_lower_case():
    assert Tokenizer(tiny_text(lower_case=True), 64, 1)(["THE Cat"]).input_ids[0].tolist() == ids("[CLS] the cat [SEP]")


@pytest.mark.parametrize("sentences", [["cat", "\ud800"], ["cat", ("a", "b\udfff")]])
def test_text_that_is_not_unicode(sentences):
    with pytest.raises(InputError, match="sentence 1 is not valid Unicode"):
        check_sentences(sentences)
    with pytest.raises(InputError, match="prompt is not valid Unicode"):
        choose_prompt(TextConfig(b"{}"), "\ud800", None)


def test_a_set_has_no_order():
    rows = {"the cat": 0, "dog": 1}
    for texts in (set(rows), frozenset(rows)):
        with pytest.raises(InputError, match=r"documents must be .*, not (frozen)?set, whose order is by chance.*sort"):
            check_sentences(texts, "documents")
    assert check_sentences(rows.keys()) == check_sentences(iter(rows)) == [*rows]


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan")])
def test_a_missing_text_of_a_table(missing):
    with pytest.raises(InputError, match=r"text 1 must be a string, not \w+ .*; a table .* leave the row out of texts"):
        check_texts(["cat", missing], "texts")


def test_broken_tokenizer():
    pytest.importorskip("tokenizers")
    with pytest.raises(WeightsError, match=r"tokenizer\.json cannot be read"):
        Tokenizer(TextConfig(b"{}"), 64, 1)


def test_a_release_that_loses_what_it_cuts_is_refused(monkeypatch):
    class Losing:
        def __init__(self, model):
            self.pre_tokenizer = model

        def enable_truncation(self, longest):
            assert longest < 4

        def encode(self, text):
            return SimpleNamespace(ids=[0, 0], overflowing=[])

    text, release = tiny_text(), ModuleType("tokenizers")
    release.__version__, release.Tokenizer = "0.23.2", Losing
    release.models, release.pre_tokenizers = tokenizers.models, tokenizers.pre_tokenizers
    monkeypatch.setitem(sys.modules, "tokenizers", release)
    with pytest.raises(UnsupportedError, match=r"tokenizers 0\.23\.2 loses tokens .* run pip install '\.\[text\]'"):
        Tokenizer(text, 64, 1)


def test_tokenizers_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UnsupportedError, match=r"run pip install '\.\[text\]'"):
        Tokenizer(TextConfig(b"{}"), 64, 1)


def test_a_text_that_begins_with_a_token_twice():
    """The token of a text is no start token, where the tokenizer adds none or another one."""
    plain = tokenizers.Tokenizer.from_str(tiny_text().tokenizer_json.decode())
    plain.post_processor = tokenizers.processors.TemplateProcessing(single="$A", pair="$A $B:1")
    for text in tiny_text(), TextConfig(plain.to_str().encode()):
        tokenizer = Tokenizer(text, max_tokens=9, threads=1)
        assert tokenizer.repeated_start("cat cat", *tokenizer(["cat cat"]).input_ids) == ""
    tokenizer = Tokenizer(tiny_text(), max_tokens=9, threads=1)
    assert tokenizer.repeated_start("[CLS] cat", *tokenizer(["[CLS] cat"]).input_ids) == "[CLS]"


def test_prompt_length():
    assert Tokenizer(tiny_text(), 64, 1).prompt_length("query: ") == 3


def test_choose_prompt():
    text = TextConfig(b"{}", prompts={"q": "query: ", "p": "passage: "}, default_prompt_name="p")
    assert choose_prompt(text, None, None) == "passage: "
    assert choose_prompt(text, None, "q") == "query: "
    assert choose_prompt(text, "", None) == ""
    assert choose_prompt(TextConfig(b"{}"), None, None) == ""
    with pytest.raises(InputError, match="no prompt called 'x'; its prompts: 'q', 'p'"):
        choose_prompt(text, None, "x")
    with pytest.raises(InputError, match="prompt must be a string"):
        choose_prompt(text, 5, None)


def test_a_prompt_wins_over_a_name(caplog):
    with caplog.at_level(logging.WARNING):
        assert choose_prompt(TextConfig(b"{}", prompts={"q": "query: "}), "mine", "q") == "mine"
    assert "ignored" in caplog.text


def test_add_prompt():
    assert [*add_prompt("q: ", ["a", ("b", "c")])] == ["q: a", ("q: b", "c")]
    assert add_prompt("q: ", ["a", ("b", "c"), "d"])[1:] == [("q: b", "c"), "q: d"]


def test_a_long_prompt_stands_in_memory_once():
    def longest():
        prompted = add_prompt("p" * 1_000_000, ["a"] * 2000)
        return max(len(prompted[part.start : part.stop][0]) for part in slices(prompted))

    assert outcome(longest, memory=100_000_000) == "ok: 1000001"


def test_sentences_from_collections():
    assert check_sentences(np.array(["a", "b"])) == ["a", "b"]
    assert check_sentences(s for s in ("a", ["b", "c"])) == ["a", ("b", "c")]


@pytest.mark.parametrize(
    "sentences", [None, 5, b"bytes", np.array(5), ["a", None], ["a", b"b"], [("a",)], [("a", "b", "c")], [("a", 1)]]
)
def test_what_is_no_sentence(sentences):
    with pytest.raises(InputError, match=r"sentence(s| \d) must be"):
        check_sentences(sentences)


class DataFrame:
    """Iterates over the names of its columns, as pandas does."""

    columns = ("text", "label")

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(("sentences", "name"), [
    (DataFrame(), "DataFrame"), ({"text": ["a"]}, "dict"), (MappingProxyType({"a": 1}), "mappingproxy"),
])  # fmt: skip
def test_tables_and_mappings_are_refused_by_name(sentences, name):
    with pytest.raises(InputError, match=f"not {name}; pass one of its columns or values as a list"):
        check_sentences(sentences)


def test_an_array_without_axes():
    with pytest.raises(InputError, match=r"not ndarray without axes; pass str\(\.\.\.\)"):
        check_sentences(np.array("abc"))
    assert check_sentences([np.str_("abc")]) == ["abc"]


@given(st.lists(st.integers(0, 50)), st.integers(1, 60), st.none() | st.integers(1, 4))
def test_batches(lengths, max_tokens, batch_size):
    made = list(batches(lengths, max_tokens, batch_size))
    order = [i for batch in made for i in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    for batch in made:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= max_tokens
        assert batch_size is None or len(batch) <= batch_size


def test_slices_are_bounded(monkeypatch):
    monkeypatch.setattr(text_module, "SLICE_SENTENCES", 3)
    monkeypatch.setattr(text_module, "SLICE_CHARACTERS", 10)
    assert list(slices([])) == []
    assert list(slices(["a"] * 7)) == [range(0, 3), range(3, 6), range(6, 7)]
    assert list(slices(["x" * 50, "a", ("b" * 5, "c" * 5), "d"])) == [
        range(0, 1),
        range(1, 2),
        range(2, 3),
        range(3, 4),
    ]


def test_progress(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    with progress(3, True) as advance:
        advance(3)
    assert "Sentences: 100%" in capsys.readouterr().err
    for show in (False, None):
        with progress(3, show) as advance:
            advance(3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(text_module.LOG, "level", logging.INFO)
    for terminal in (False, True):  # in a log file, a bar would be hundreds of lines
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        with progress(3, None) as advance:
            advance(3)
        assert ("Sentences" in capsys.readouterr().err) == terminal


def test_a_timeout_ends_tokenizing(monkeypatch):
    tokenizer, looked = Tokenizer(tiny_text(), None, 1), []
    texts = [*["the cat"] * 3, "cat " * (CHARACTERS_AT_A_TIME // 4), ("mat " * CHARACTERS_AT_A_TIME, "a"), "the", "mat"]
    monkeypatch.setattr("engine.base.stop.Stop.check", lambda stop: looked.append(stop))
    stop = Stop(5.0)
    in_batches = tokenizer(texts, stop)
    assert looked == [stop] * 4
    for one, text in zip(in_batches.input_ids, texts, strict=True):
        assert one.tobytes() == tokenizer([text]).input_ids[0].tobytes()
    monkeypatch.undo()
    with pytest.raises(TimedOut):
        tokenizer(texts, Stop(time.monotonic() - 1))
    engine, stops = engine_of(random_model(tiny_text()), threads=1), []
    monkeypatch.setattr("engine.base.stop.Stop.check", lambda stop: stops.append(stop))
    engine.encode(["a cat"], timeout=50)
    assert set(stops) == {stops[0]}
    assert 0 < stops[0].deadline - time.monotonic() < 50


def test_a_wrong_stride_keeps_the_tokenizer_of_windows(monkeypatch):
    tokenizer = Tokenizer(tiny_text(max_seq_length=8), None, threads=1)
    tokenizer.windows(["the cat"], stride=2)
    monkeypatch.setattr("engine.text.tokenizer.load_tokenizer", lambda text: pytest.fail("another one is loaded"))
    for _ in range(2):
        with pytest.raises(InputError, match="a stride must be less"):
            tokenizer.windows(["the cat sat on a mat and ran"], stride=7)
    assert len(tokenizer.windows(["the cat"], stride=2)[0]) == 1


def test_tokens_of_several_calls_keep_what_belongs_to_each():
    rows = [np.arange(n, dtype=np.int32) for n in (3, 5, 2)]
    types = [np.full(len(ids), i, np.int32) for i, ids in enumerate(rows)]
    prompted, filled = Tokens(rows, types, skips=[1, 2, 0]), Tokens(rows, types, reads=[2, 4, 1])
    found = merge_tokens([(prompted, [1, 0]), (Tokens(rows, types), [2]), (filled, [1])])
    assert [len(ids) for ids in found.input_ids] == [5, 3, 2, 5]
    assert [int(own[0]) for own in found.token_type_ids] == [1, 0, 2, 1]
    assert (found.skips, found.reads, found.asked) == ([2, 1, 0, 0], [5, 3, 2, 4], None)
    asked = merge_tokens([(Tokens(rows, types, asked=[np.array([0]), np.array([4]), np.array([1])]), [2, 1])])
    assert [own.tolist() for own in asked.asked] == [[1], [4]]
    assert (asked.skips, asked.reads) == (None, None)
