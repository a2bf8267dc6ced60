"""Tokenizers made from vocabulary files: the ids of transformers, and hostile files.

tests/golden/make/tokenizers.py made the folders and the expected ids.
"""

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.base.errors import EngineError, InputError, UnsupportedError, WeightsError
from engine.files.folder import ModelFolder
from engine.files.reading import FormatError
from engine.model.text_config import TextConfig
from engine.text import vocabularies
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies import DEFAULTS
from engine.text.vocabularies.byte_pairs import joined_pieces
from engine.text.vocabularies.recipes import RECIPES
from engine.text.vocabularies.sentencepiece import MAX_MODEL, parse_model
from engine.text.vocabularies.tokenizer_settings import MAX_ADDED

from ..tools.changed_folders import copied
from ..tools.encoders import load_encoder
from ..tools.limited import outcome
from ..tools.minilm import FOLDER as MINILM
from ..tools.minilm import MISSING
from ..tools.paths import TOKENIZERS
from ..tools.tiny_models import hf_folder, write_json

pytest.importorskip("tokenizers")

GOLDEN = TOKENIZERS
NAMES = sorted(path.name for path in GOLDEN.iterdir())


def read_vocabulary(folder):
    """Return the tokenizer.json that is made of a folder's vocabulary."""
    made = vocabularies.read_vocabulary(ModelFolder(folder))
    return None if made is None else made.tokenizer_json


def tokens(folder: Path, texts: list[Any]) -> list[list[int]]:
    made = vocabularies.read_vocabulary(ModelFolder(folder))
    assert made is not None
    found = Tokenizer(made, None, 1)(texts)
    return [ids.tolist() for ids in found.input_ids]


def golden_texts(name: str) -> tuple[list[Any], list[list[int]]]:
    """Return the texts of a golden folder, some of them pairs, and their ids."""
    expected = json.loads((GOLDEN / name / "expected.json").read_text(encoding="utf-8"))
    return [text if isinstance(text, str) else tuple(text) for text, _ in expected], [ids for _, ids in expected]


@pytest.mark.parametrize("name", NAMES)
def test_the_ids_of_transformers(name):
    texts, expected = golden_texts(name)
    refused = [text for text, ids in zip(texts, expected, strict=True) if ids is None]
    assert [isinstance(text, tuple) for text in texts] == [text in refused for text in texts] or not refused
    for pair in refused:
        with pytest.raises(InputError, match="reads one text and no pair of texts"):
            tokens(GOLDEN / name, [pair])
    texts, expected = texts[: len(texts) - len(refused)], expected[: len(texts) - len(refused)]
    found = tokens(GOLDEN / name, texts)
    assert [(text, ids) for text, ids, right in zip(texts, found, expected, strict=True) if ids != right] == []
    assert len({tuple(ids) for ids in found}) > (20 if name == "esm" else 40)      # whose vocabulary is amino acids


def test_every_default_has_a_recipe():
    assert set(DEFAULTS.values()) <= RECIPES.keys()
    models = {json.loads((GOLDEN / name / "config.json").read_text())["model_type"] for name in NAMES}
    elsewhere = {"MBart50Tokenizer", "MBartTokenizer", "NllbTokenizer"}     # test_language_tokenizers.py
    elsewhere |= {"ByT5Tokenizer"}      # which a folder names itself, in `test_the_ids_of_transformers`
    same = {"DistilBertTokenizer", "ElectraTokenizer", "DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer"}
    assert {DEFAULTS[model] for model in models} | same | elsewhere == RECIPES.keys()


@pytest.mark.skipif(not (MINILM / "vocab.txt").exists(), reason=MISSING)
def test_a_real_vocabulary(tmp_path):
    for file in ("vocab.txt", "tokenizer_config.json", "config.json", "special_tokens_map.json"):
        shutil.copy(MINILM / file, tmp_path)
    texts, _ = golden_texts(NAMES[0])
    published = Tokenizer(TextConfig((MINILM / "tokenizer.json").read_bytes()), None, 1)(texts)
    assert tokens(tmp_path, texts) == [ids.tolist() for ids in published.input_ids]


def test_token_types_of_pairs():
    found = Tokenizer(TextConfig(read_vocabulary(GOLDEN / "bert_uncased") or b""), None, 1)([("the cat", "sleeps")])
    [types], [ids] = found.token_type_ids, found.input_ids
    assert types.tolist() == sorted(types.tolist())
    assert types[-1] == 1
    assert len(ids) == len(types)


def test_a_folder_is_loaded_with_its_vocabulary(tmp_path):
    shutil.copy(GOLDEN / "bert_uncased" / "vocab.txt", tmp_path)
    folder = hf_folder(tmp_path, vocab_size=1000, tensors=None)
    with pytest.raises(WeightsError, match="shape"):
        load_encoder(folder)  # the tiny weights have fewer words
    write_json(folder / "config.json", json.loads((folder / "config.json").read_text()) | {"vocab_size": 30})
    text = load_encoder(folder).text
    assert text is not None
    assert json.loads(text.tokenizer_json)["model"]["type"] == "WordPiece"


def test_tokenizer_json_is_preferred(tmp_path):
    folder = copied(hf_folder(tmp_path), GOLDEN / "bert_uncased")
    write_json(folder / "config.json", json.loads((folder / "config.json").read_text()) | json.loads(
        (hf_folder(tmp_path / "other") / "config.json").read_text()))
    (folder / "tokenizer.json").write_bytes(b"{}")
    text = load_encoder(folder).text
    assert text is not None
    assert text.tokenizer_json == b"{}"


def test_a_folder_without_vocabulary(tmp_path):
    assert read_vocabulary(hf_folder(tmp_path)) is None


@pytest.mark.parametrize("settings", [
    {"tokenizer_class": "BertJapaneseTokenizer"}, {"tokenizer_class": 3}, {"do_basic_tokenize": False},
    {"added_tokens_decoder": {"5": {"content": "[PAD]"}}},
    {"tokenizer_class": "XLMRobertaTokenizerFast"}, {"auto_map": {"AutoTokenizer": ["x.Y", None]}},
])  # fmt: skip
def test_tokenizers_that_are_not_supported(tmp_path, caplog, settings):
    assert read_vocabulary(copied(tmp_path, GOLDEN / "bert_uncased", tokenizer_config=settings)) is None
    assert "token ids only" in caplog.text
    slow = settings.get("tokenizer_class") == "BertJapaneseTokenizer"
    advice = "transformers writes no tokenizer.json" if slow else "write a tokenizer.json with transformers"
    assert advice in caplog.text


def test_a_model_with_such_a_tokenizer_takes_token_ids(tmp_path, caplog):
    folder = hf_folder(tmp_path)
    (folder / "vocab.txt").write_text("[UNK]\n")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertJapaneseTokenizer"})
    assert load_encoder(folder).text is None
    assert "the tokenizer 'BertJapaneseTokenizer' cannot be made from vocab.txt" in caplog.text


@pytest.mark.parametrize(("name", "settings", "text", "other"), [
    ("bert_uncased", {"do_lower_case": False}, "THE", "the"),
    ("bert_uncased", {"strip_accents": False}, "é", "e"),
    ("bert_uncased", {"tokenize_chinese_chars": False}, "北京", "北 京"),
    ("albert", {"do_lower_case": False}, "THE", "the"),
    ("albert", {"keep_accents": True}, "é", "e"),
    ("deberta_v2", {"do_lower_case": True}, "THE", None),
    ("deberta_v2", {"split_by_punct": True}, "a.b", None),
    ("roberta", {"add_prefix_space": True}, "the", None),
    ("xlm_roberta", {"add_prefix_space": False}, "the", None),
    ("bert_uncased", {"truncation_side": "left"}, None, None),
])
def test_settings_have_an_effect(tmp_path, name, settings, text, other):
    plain = read_vocabulary(GOLDEN / name)
    folder = copied(tmp_path, GOLDEN / name, tokenizer_config=settings)
    changed = read_vocabulary(folder)
    assert changed != plain
    if text is not None:
        assert tokens(folder, [text]) != tokens(GOLDEN / name, [text])
        assert other is None or tokens(GOLDEN / name, [text]) == tokens(GOLDEN / name, [other])


@pytest.mark.parametrize(("name", "role"), [
    ("albert", "cls_token"), ("bart", "sep_token"), ("bert_uncased", "cls_token"), ("bert_uncased", "unk_token"),
    ("blenderbot", "eos_token"), ("byt5", "eos_token"), ("byt5", "pad_token"), ("deberta", "sep_token"),
    ("esm", "cls_token"), ("esm", "unk_token"), ("pegasus", "eos_token"), ("pegasus", "pad_token"),
    ("t5", "eos_token"), ("xlm_roberta", "bos_token"),
])
def test_a_token_that_is_null_and_that_a_text_needs(tmp_path, caplog, name, role):
    """transformers, version 4 or 5, loads no such folder, or fails at a text."""
    stated = json.loads((GOLDEN / name / "tokenizer_config.json").read_text()) if (
        GOLDEN / name / "tokenizer_config.json").exists() else {}
    assert read_vocabulary(copied(tmp_path, GOLDEN / name, tokenizer_config=stated | {role: None})) is None
    assert f"{role} is null, and this tokenizer cannot do without that token. The model therefore" in caplog.text


@pytest.mark.parametrize(("name", "role", "text", "expected"), [
    ("llama", "bos_token", "the cat", [278, 277, 291, 2]), ("llama", "eos_token", "the cat", [1, 278, 277, 291]),
    ("mistral", "bos_token", "the cat", [278, 277, 291]),
    ("bert_uncased", "mask_token", "[MASK]", [2, 1, 32, 259, 169, 1, 3]),
    ("roberta", "pad_token", "x <pad>", [0, 92, 225, 32, 84, 287, 34, 2]),
])
def test_a_token_that_is_null_is_no_token(tmp_path, name, role, text, expected):
    """The ids are those of transformers 5.23; for Llama, with the bos and eos tokens that its settings ask for."""
    stated = json.loads((GOLDEN / name / "tokenizer_config.json").read_text()) if (
        GOLDEN / name / "tokenizer_config.json").exists() else {}
    assert tokens(copied(tmp_path, GOLDEN / name, tokenizer_config=stated | {role: None}), [text]) == [expected]
    assert tokens(GOLDEN / name, [text]) != [expected]


def test_the_number_of_sentinels(tmp_path):
    folder = copied(tmp_path, GOLDEN / "t5", tokenizer_config={"extra_ids": 3})
    [few], [many] = tokens(folder, ["<extra_id_0>"]), tokens(GOLDEN / "t5", ["<extra_id_0>"])
    assert many[0] - few[0] == 97


def test_left_truncation_keeps_the_end(tmp_path):
    folder = copied(tmp_path, GOLDEN / "bert_uncased", tokenizer_config={"truncation_side": "left"})
    whole = tokens(folder, ["the cat sleeps in the warm sun"])[0]
    left = TextConfig(read_vocabulary(folder) or b"", max_seq_length=4)
    plain = TextConfig(read_vocabulary(GOLDEN / "bert_uncased") or b"", max_seq_length=4)
    for text, kept in ((left, whole[-3:]), (replace(left, truncation_side="right"), [*whole[1:3], whole[-1]]),
                       (replace(plain, truncation_side="left"), whole[-3:]), (plain, [*whole[1:3], whole[-1]])):
        found = Tokenizer(text, None, 1)(["the cat sleeps in the warm sun"]).input_ids[0].tolist()
        assert found == [whole[0], *kept]


BAD_SETTINGS: dict[str, tuple[Any, str]] = {
    "do_lower_case": ("yes", "must be true or false"),
    "strip_accents": (1, "must be true or false"),
    "unk_token": ("[NONE]", "lacks the token '\\[NONE\\]'"),
    "cls_token": ({"content": 3}, "cls_token must be a token"),
    "sep_token": ({"content": "[SEP]", "lstrip": "no"}, "sep_token must be a token"),
    "mask_token": ("", "mask_token must be a token"),
    "additional_special_tokens": (["a", 3], "must be a token"),
    "extra_special_tokens": ("x", "must be a list"),
}


@pytest.mark.parametrize("key", BAD_SETTINGS)
def test_bad_settings(tmp_path, key):
    value, words = BAD_SETTINGS[key]
    folder = copied(tmp_path, GOLDEN / "bert_uncased", tokenizer_config={key: value})
    with pytest.raises(WeightsError, match=words):
        read_vocabulary(folder)


@pytest.mark.parametrize("value", [
    [], {"x": {"content": "a"}}, {"-1": {"content": "a"}}, {"1" * 10: {"content": "a"}}, {"700": "x" * 10_000},
    {str(i): {"content": str(i)} for i in range(MAX_ADDED + 1)},
])
def test_bad_added_tokens(tmp_path, value):
    folder = copied(tmp_path, GOLDEN / "bert_uncased", tokenizer_config={"added_tokens_decoder": value})
    with pytest.raises(WeightsError, match="added"):
        read_vocabulary(folder)


def test_many_tokens_of_the_older_file(tmp_path):
    folder = copied(tmp_path, GOLDEN / "bert_uncased", added_tokens={str(i): i for i in range(MAX_ADDED + 1)})
    with pytest.raises(WeightsError, match="more than 10,000 tokens"):
        read_vocabulary(folder)


def field(number: int, value: Any) -> bytes:
    """Return a field of Protocol Buffers: bytes, an int or a float."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def piece(text: str, score: float = -1.0, kind: int = 1) -> bytes:
    return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


UNKNOWN = piece("<unk>", 0.0, 2)
BAD_MODELS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 unknown pieces"),
    "text": (b"hello", "no SentencePiece model|cut short"),
    "no end": (b"\xff" * 30, "no SentencePiece model"),
    "cut short": ((UNKNOWN + piece("a"))[:-3], "cut short"),
    "no unknown piece": (piece("a"), "0 unknown pieces"),
    "two unknown pieces": (UNKNOWN * 2, "2 unknown pieces"),
    "a piece twice": (UNKNOWN + piece("a") * 2, "two pieces .* are equal"),
    "a piece without text": (UNKNOWN + piece(""), "the text ''"),
    "a score that is none": (UNKNOWN + piece("a", float("nan")), "the score nan"),
    "an infinite score": (UNKNOWN + piece("a", float("inf")), "the score inf"),
    "not UTF-8": (UNKNOWN + field(1, field(1, b"\xff")), "not UTF-8"),
    "a piece that is a number": (UNKNOWN + field(1, 5), "wrong type"),
    "a text that is a number": (UNKNOWN + field(1, field(1, 5)), "wrong type"),
    "a table that is a number": (UNKNOWN + field(3, field(2, 5)), "wrong type"),
    "a long piece": (UNKNOWN + piece("a" * 1001), "has the text 'aaaa"),
    "groups": (UNKNOWN + b"\x0b", "no SentencePiece model"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_sentencepiece_files(case):
    data, words = BAD_MODELS[case]
    with pytest.raises(FormatError, match=words):
        parse_model(data)


def test_other_kinds_of_sentencepiece_model():
    with pytest.raises(UnsupportedError, match="has the type 2; only Unigram"):
        parse_model(UNKNOWN + field(2, field(3, 2)))
    with pytest.raises(UnsupportedError, match="has the type b'x'"):
        parse_model(UNKNOWN + field(2, field(3, b"x")))


def test_unknown_fields_are_skipped():
    more = field(9, 5) + field(10, b"x") + varint(11 << 3 | 1) + bytes(8) + field(12, 1.0)
    pieces = parse_model(more + UNKNOWN + piece("a", -2.5) + more)
    assert (pieces.texts, pieces.scores, pieces.types) == (["<unk>", "a"], [0.0, -2.5], [2, 1])


def numbered(count: int, digits: int) -> bytes:
    """Return a model of an unknown piece and of `count` numbers, each of which has `digits` digits."""
    begin, end = piece("0" * digits).split(b"0" * digits)
    return UNKNOWN + b"".join([b"%s%0*d%s" % (begin, digits, i, end) for i in range(count)])


LARGE: dict[str, tuple[Any, str]] = {
    "long pieces": (lambda: UNKNOWN + b"".join(piece(f"{i:06}".ljust(900, "x")) for i in range(8_800)), "a tree of"),
    "many pieces": (lambda: numbered(150_000, 7), "ok"),
    "many empty pieces": (lambda: UNKNOWN + b"\x0a\x00" * 1000, "the text ''"),
    "too many pieces": (lambda: numbered(400_000, 6), "than 400,000 pieces"),
    "empty fields": (lambda: b"\x22\0" * (MAX_MODEL // 2), "than 400,000 pieces"),
    "long added tokens": (lambda: UNKNOWN + b"".join(
        piece(f"{i:06}".ljust(1000, "x"), kind=4) for i in range(1001)), "most 1,000,000 are allowed"),
    "a table": (lambda: UNKNOWN + piece("a") + field(3, field(2, struct.pack("<I", 2**32 - 4) + b"\xff" * 10**7)),
                "texts start at byte 4,294,967,296"),
    "more than the limit": (lambda: bytes(MAX_MODEL + 1), "16,000,000 bytes that are allowed"),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_sentencepiece_files(tmp_path, name):
    write, words = LARGE[name]
    write_json(tmp_path / "config.json", {"model_type": "t5"})
    (tmp_path / "spiece.model").write_bytes(write())
    assert words in outcome(lambda: tokens(tmp_path, ["a cat", "x" * 1000]) is None, memory=10**9)


def test_large_lists_of_words(tmp_path):
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    (tmp_path / "vocab.txt").write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", *(f"{i:06}" for i in range(150_000))]))
    assert outcome(lambda: tokens(tmp_path, ["000007"]), memory=10**9) == "ok: [[1, 10, 2]]"
    (tmp_path / "vocab.txt").write_bytes(b"a\n" * 4_000_001)
    assert "8,000,000 bytes that are allowed" in outcome(tokens, tmp_path, ["a"])


@pytest.mark.parametrize(("name", "file", "data"), [
    ("roberta", "vocab.json", b"[]"), ("roberta", "vocab.json", b'{"a": "b"}'), ("roberta", "vocab.json", b'{"a": -1}'),
    ("roberta", "merges.txt", b"a"), ("roberta", "merges.txt", b"a qqq"), ("roberta", "merges.txt", b"\xff"),
    ("bert_uncased", "vocab.txt", b""), ("bert_uncased", "vocab.txt", b"\xff"), ("bert_uncased", "vocab.txt", b"a\nb"),
])
def test_bad_vocabularies(tmp_path, name, file, data):
    (copied(tmp_path, GOLDEN / name) / file).write_bytes(data)
    with pytest.raises(EngineError, match=file.partition(".")[0]):
        read_vocabulary(tmp_path)


def test_of_two_ways_to_make_a_piece_the_one_with_the_longer_first_part_comes_first():
    pairs = joined_pieces(["a", "b", "ab", "bb", "abb"], [0.0, 0.0, -2.0, -3.0, -1.0])
    assert pairs == [["ab", "b"], ["a", "bb"], ["a", "b"], ["b", "b"]]


def test_opt_starts_a_text_with_its_first_token(tmp_path):
    """The settings of OPT, which GPT-2's class reads: transformers 5.23 puts bos in front of each text of a pair."""
    words = {"<pad>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "\u0120": 5}
    write_json(tmp_path / "vocab.json", words)
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n", encoding="utf-8")
    write_json(tmp_path / "config.json", {"model_type": "opt"})
    own = {"add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    write_json(tmp_path / "tokenizer_config.json", own)
    assert tokens(tmp_path, ["ab a", ("b", "a")]) == [[1, 4, 5, 2], [1, 3, 1, 2]]
    write_json(tmp_path / "tokenizer_config.json", own | {"add_bos_token": False})
    assert tokens(tmp_path, ["ab a"]) == [[4, 5, 2]]
