"""A hostile tokenizer.json raises an `EngineError`, soon and in little memory; each case once took a process down."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from engine.base.errors import EngineError
from engine.model.text_config import TextConfig
from engine.text.safety import check_tokenizer
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
ADDED = {"id": 20, "content": "a", "special": False, "normalized": True, "single_word": False, "lstrip": False,
         "rstrip": False}

HOSTILE = {
    "a thousand letters, four times": changed(normalizer=sequence(*[replace("a", "a" * 1000)] * 4)),
    "twice, 26 times": changed(normalizer=sequence(*[replace("a", "aa")] * 26)),
    "twice, 26 times, as the tokenizer loads": changed(normalizer=sequence(*[replace("a", "aa")] * 26),
                                                       added_tokens=[ADDED]),
    "sequences in sequences": changed(normalizer=sequence(*[sequence(*[replace("a", "aa")] * 8)] * 4)),
    "a look ahead": changed(normalizer=sequence(*[replace("(?=a)", "a", "Regex")] * 26)),
    "nothing": changed(normalizer=replace("", "a" * 10**6)),
    "a long prefix": changed(normalizer={"type": "Prepend", "prepend": "a" * 10**7}),
    "bytes": changed(normalizer=sequence(*[{"type": "ByteLevel"}] * 26)),
    "bytes, after": changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTES] * 26}),
    "Chinese": changed(normalizer=sequence(*[{"type": "BertNormalizer", "clean_text": True, "strip_accents": None,
                                              "handle_chinese_chars": True, "lowercase": False}] * 26)),
    "a table": changed(normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap("x" * 10**6)}),
    "a table that states a length of 4 GB": changed(normalizer={
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xfc\xff\xff\xff" + bytes(100)).decode()}),
    "a tree of 2.7 million nodes": changed(model={
        "type": "Unigram", "unk_id": 0,
        "vocab": [["a", 0.0], *([f"{i:04}".ljust(900, "x"), -1.0] for i in range(3000))]}),
    "a table shorter than it states": changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "a" * 1000}),
    "no table": changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}),
    "many steps": changed(normalizer=sequence(*[{"type": "NFKC"}] * 10**6)),
    "a normalizer without a type": changed(normalizer={"pattern": {"String": "a"}, "content": "a" * 10**6}),
    "a normalizer with an odd type": changed(normalizer={"type": {"type": "NFC"}}),
    "an added token of which nothing is left": changed(normalizer={
        "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
        "lowercase": True}, added_tokens=[ADDED | {"content": "\0", "single_word": True}]),
    "a step that is a text": changed(normalizer=sequence("NFC")),
    "a text many times": changed(post_processor=TEMPLATE | {"single": [A] * 10**5}),
    "a text twice": changed(post_processor=TEMPLATE | {"single": [A, A]}),
    "a template that is a number": changed(post_processor=TEMPLATE | {"pair": 2**15}),
    "a template that is a text": changed(post_processor=TEMPLATE | {"single": "$A $A"}),
    "templates": changed(post_processor={"type": "Sequence", "processors": [TEMPLATE] * 3}),
    "no special tokens": changed(post_processor=TEMPLATE | {"special_tokens": {}}),
    "a regular expression": changed(normalizer=replace("(a+)+$", "b", "Regex")),
    "a regular expression that splits": changed(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}),
    "a regular expression that is none": changed(normalizer=replace("(", "b", "Regex")),
    "a huge token id": model(vocab={"[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "cat": 2**32 - 1}),
    "no [UNK]": model(vocab={"[CLS]": 2, "[SEP]": 3}),
    "long words": changed(model=WORDPIECE),
    "a long part of words": changed(model=WORDPIECE | {"max_input_chars_per_word": 100,
                                                       "continuing_subword_prefix": "#" * 10**7}),
    "many values": b'{"model": [' + b"[]," * 10**7 + b"[]]}",
    "one key many times": b"{" + b'"a":1,' * 10**6 + b'"a":1}',
    "no object": b"[]",
    "deep": b"[" * 10**5,
}


def answer(data: bytes) -> str:
    engine = engine_of(random_model(TextConfig(data)), threads=1, backend="reference")
    return outcome(lambda: engine.encode(["the cat " + "a" * 1000 + " 中" * 50 + "!"]) is None)


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_tokenizer(case):
    result = answer(HOSTILE[case])
    assert result.startswith("EngineError")
    assert len(result) < 1000


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
    assert check_tokenizer(changed(normalizer=GOOD[case])) == len("[PAD]")


def test_the_longest_string_that_is_looked_for():
    assert check_tokenizer(changed(normalizer=replace("a" * 30, "b"))) == 30
    assert check_tokenizer(changed(normalizer=None)) == len("[PAD]")


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
