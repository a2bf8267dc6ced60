"""A hostile tokenizer.json raises an `EngineError`, soon and in little memory; each case once took a process down."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.base.errors import EngineError, WeightsError
from engine.model.text_config import TextConfig
from engine.text.safety import check_tokenizer
from engine.text.special_tokens import ids_of_tokens, special_ids
from engine.text.tokenizer import Tokenizer

from ..tools.encoders import engine_of
from ..tools.limited import outcome
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

tokenizers = pytest.importorskip("tokenizers")


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(tiny_text().tokenizer_json) | changes).encode()


def model(**changes: Any) -> bytes:
    return changed(model=json.loads(tiny_text().tokenizer_json)["model"] | changes)


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def charsmap(*texts: str) -> str:
    return base64.b64encode(bytes(4) + "\0".join(texts).encode()).decode()


TEMPLATE = json.loads(tiny_text().tokenizer_json)["post_processor"]
A = {"Sequence": {"id": "A", "type_id": 0}}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
WORDPIECE = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 1, "[CLS]": 2, "[SEP]": 3},
             "max_input_chars_per_word": 10**9, "continuing_subword_prefix": "##"}
LETTERS = {"type": "FixedLength", "length": 1}
ADDED = {"id": 20, "content": "a", "special": False, "normalized": True, "single_word": False, "lstrip": False,
         "rstrip": False}



def mark(letter: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": letter, "prepend_scheme": "always", "split": False}


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a thousand letters, four times": lambda: changed(normalizer=sequence(*[replace("a", "a" * 1000)] * 4)),
    "twice, 26 times": lambda: changed(normalizer=sequence(*[replace("a", "aa")] * 26)),
    "twice, 26 times, as the tokenizer loads": lambda: changed(normalizer=sequence(*[replace("a", "aa")] * 26),
                                                               added_tokens=[ADDED]),
    "sequences in sequences": lambda: changed(normalizer=sequence(*[sequence(*[replace("a", "aa")] * 8)] * 4)),
    "a look ahead": lambda: changed(normalizer=sequence(*[replace("(?=a)", "a", "Regex")] * 26)),
    "nothing": lambda: changed(normalizer=replace("", "a" * 10**6)),
    "a long prefix": lambda: changed(normalizer={"type": "Prepend", "prepend": "a" * 10**7}),
    "bytes": lambda: changed(normalizer=sequence(*[{"type": "ByteLevel"}] * 26)),
    "bytes, after": lambda: changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTES] * 26}),
    "Chinese": lambda: changed(normalizer=sequence(*[
        {"type": "BertNormalizer", "clean_text": True, "strip_accents": None, "handle_chinese_chars": True,
         "lowercase": False}] * 26)),
    "a table": lambda: changed(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap("x" * 10**6)}),
    "a table that states a length of 4 GB": lambda: changed(normalizer={
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xfc\xff\xff\xff" + bytes(100)).decode()}),
    "a tree of 2.7 million nodes": lambda: changed(model={
        "type": "Unigram", "unk_id": 0,
        "vocab": [["a", 0.0], *([f"{i:04}".ljust(900, "x"), -1.0] for i in range(3000))]}),
    "a table shorter than it states": lambda: changed(normalizer={
        "type": "Precompiled", "precompiled_charsmap": "a" * 1000}),
    "no table": lambda: changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}),
    "many steps": lambda: changed(normalizer=sequence(*[{"type": "NFKC"}] * 10**6)),
    "a normalizer without a type": lambda: changed(normalizer={"pattern": {"String": "a"}, "content": "a" * 10**6}),
    "a normalizer with an odd type": lambda: changed(normalizer={"type": {"type": "NFC"}}),
    "an added token of which nothing is left": lambda: changed(normalizer={
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
        "lowercase": True}, added_tokens=[ADDED | {"content": "\0", "single_word": True}]),
    "a step that is a text": lambda: changed(normalizer=sequence("NFC")),
    "a text many times": lambda: changed(post_processor=TEMPLATE | {"single": [A] * 10**5}),
    "a text twice": lambda: changed(post_processor=TEMPLATE | {"single": [A, A]}),
    "a template that is a number": lambda: changed(post_processor=TEMPLATE | {"pair": 2**15}),
    "a template that is a text": lambda: changed(post_processor=TEMPLATE | {"single": "$A $A"}),
    "templates": lambda: changed(post_processor={"type": "Sequence", "processors": [TEMPLATE] * 3}),
    "no special tokens": lambda: changed(post_processor=TEMPLATE | {"special_tokens": {}}),
    "normal forms of what was put in": lambda: changed(normalizer=sequence(
        replace("a", "\ufdfa"), *[{"type": "NFKC"}, replace("\u0644", "\ufdfa")] * 20)),
    "lower case of what was put in": lambda: changed(normalizer=sequence(
        *[{"type": "Lowercase"}, replace("i", "\u0130"), replace("\u0307", "\u0130")] * 21)),
    "marks between letters": lambda: changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [
        *[LETTERS, mark("x"), LETTERS, mark("y")] * 12]}),
    "added tokens of a megabyte": lambda: changed(added_tokens=[
        ADDED | {"id": 20 + i, "content": f"{i}".ljust(10**6, "x")} for i in range(20)]),
    "a token of a megabyte": lambda: model(vocab={"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "x" * 10**6: 4}),
    "a regular expression": lambda: changed(normalizer=replace("(a+)+$", "b", "Regex")),
    "a regular expression that splits": lambda: changed(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}),
    "a regular expression that is none": lambda: changed(normalizer=replace("(", "b", "Regex")),
    "a huge token id": lambda: model(vocab={"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "cat": 2**32 - 1}),
    "no [UNK]": lambda: model(vocab={"[CLS]": 2, "[SEP]": 3}),
    "long words": lambda: changed(model=WORDPIECE),
    "a long part of words": lambda: changed(model=WORDPIECE | {"max_input_chars_per_word": 100,
                                                               "continuing_subword_prefix": "#" * 10**7}),
    "many values": lambda: b'{"model": [' + b"[]," * 10**7 + b"[]]}",
    "one key many times": lambda: b"{" + b'"a":1,' * 10**6 + b'"a":1}',
    "no object": lambda: b"[]",
    "deep": lambda: b"[" * 10**5,
}
"""Each makes its bytes when its test runs, because a process that only collects the tests would make 100 MB."""


def answer(data: bytes) -> str:
    engine = engine_of(random_model(TextConfig(data)), threads=1, backend="reference")
    return outcome(lambda: engine.encode(["the cat " + "a" * 1000 + " 中" * 50 + "!"]) is None)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_tokenizer(case):
    result = answer(HOSTILE[case]())
    assert result.startswith("EngineError")
    assert len(result) < 1000


def test_what_takes_memory_only_without_a_limit_or_with_a_real_table_is_refused():
    cases = {
        "post_processor None": changed(post_processor={
            name: value for name, value in TEMPLATE.items() if name != "type"} | {"single": [A] * 3}),
        "has 65 ids": changed(post_processor=TEMPLATE | {"special_tokens": {"[CLS]": {
            "id": "[CLS]", "ids": [2] * 65, "tokens": ["[CLS]"] * 65}}}),
        "can make 18 characters": changed(normalizer=sequence(
            *[{"type": "Precompiled", "precompiled_charsmap": charsmap("x" * 18)}] * 2)),
        "most 1,000,000 are allowed": changed(normalizer={
            "type": "Precompiled", "precompiled_charsmap": charsmap("a" * 10**6)}),
    }
    for message, data in cases.items():
        with pytest.raises(EngineError, match=message):
            check_tokenizer(data)


def decoders(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": list(steps)}


MULTIPLYING = (
    decoders(*[replace("a", "a" * 1000)] * 4),
    decoders(*[replace("a", "aa")] * 26),
    replace("a", "a" * 10**6),
    decoders(decoders(*[replace("", "a")] * 26)),
    decoders(*[{"type": "BPEDecoder", "suffix": ""}] * 26),
    decoders(*[{"type": "CTC", "pad_token": "q", "word_delimiter_token": "", "cleanup": False}] * 26),
    decoders(*[decoders(*[{"type": "Fuse"}] * 64)] * 64),
    {"pattern": {"String": "a"}, "content": "a" * 10**6},
    {"type": "Shout"},
)
WORD = {"type": "WordPiece", "prefix": "##", "cleanup": True}
HARMLESS = (
    None, WORD, BYTES, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
    {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
)


def test_decoders_that_multiply_a_text_are_refused():
    """Each once made a text of 60 tokens that took all memory, when it was generated."""
    for decoder in MULTIPLYING:
        text = TextConfig(changed(decoder=decoder))
        result = outcome(lambda text=text: len(Tokenizer(text, None, 1).decode([8] * 60)))
        assert result.startswith("EngineError"), (decoder, result)
    for decoder in HARMLESS:
        assert Tokenizer(TextConfig(changed(decoder=decoder)), None, 1).decode([5, 6])


def test_special_tokens_are_read_within_the_limits():
    """60 MB of empty lists took 1.4 GB and 11 s."""
    many = TextConfig(b'{"added_tokens": [' + b"[]," * 2 * 10**7 + b"[]]}")
    assert outcome(special_ids, many).startswith("EngineError")
    for token in (5, {"content": 5, "id": 1}, {"content": "a", "id": True}, {"content": "a", "id": -1}, {"id": 1}):
        with pytest.raises(WeightsError, match="added_tokens"):
            special_ids(TextConfig(changed(added_tokens=[token])))
    assert special_ids(tiny_text())["[SEP]"] == 3
    assert ids_of_tokens({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}) == {"a": 0, "b": 1}
    for vocabulary in ({}, [], None, {"a": -1}, {"a": True}, {"a": 2**31}):
        with pytest.raises(WeightsError, match=r"the vocabulary of the model's tokenizer\.json must map tokens to ids"):
            ids_of_tokens({"model": {"vocab": vocabulary}})


GOOD = {
    "BERT": {"type": "BertNormalizer"},
    "SentencePiece": sequence({"type": "Precompiled", "precompiled_charsmap": charsmap("a", "b" * 18)},
                              replace(" {2,}", " ", "Regex")),
    "ALBERT": sequence(replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                       {"type": "Lowercase"}, replace(" {2,}", "▁", "Regex")),
    "Llama": sequence({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
    "classes": sequence(*[replace(pattern, " ", "Regex") for pattern in (r"\s+", "[?!*]+", r"\p{P}", "[^a-z]")] * 3),
    "one mark": replace(r"^\s*", "_", "Regex"),
    "none": None,
}


@pytest.mark.parametrize("case", GOOD)
def test_normalizers_of_real_tokenizers_are_not_refused(case):
    """They are not refused, and the longest string that they look for is that of the special tokens."""
    assert check_tokenizer(changed(normalizer=GOOD[case])) == (len("[PAD]"), False)


def test_the_longest_string_that_is_looked_for():
    assert check_tokenizer(changed(normalizer=replace("a" * 30, "b"))) == (30, False)
    assert check_tokenizer(changed(normalizer=None)) == (len("[PAD]"), False)


@pytest.mark.parametrize("limit", [2**31, 2**63, 10**30])
def test_a_length_limit_that_is_none(limit):
    assert len(Tokenizer(tiny_text(max_seq_length=limit), None, 1)(["cat " * 100]).input_ids[0]) == 102


def test_an_error_of_the_caller_is_not_renamed(monkeypatch):
    tokenizer = Tokenizer(tiny_text(), 64, 1)

    class Alarm(BaseException):
        pass

    for error in (KeyboardInterrupt, TimeoutError, Alarm):
        class Broken:
            def encode(self, *_, error=error):
                raise error

        monkeypatch.setattr(tokenizer, "_tokenizer", Broken())
        with pytest.raises(error):
            tokenizer(["cat"])
        assert not issubclass(error, EngineError)
