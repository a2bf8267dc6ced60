"""Tokenizers of GGUF files: the ids of the tokenizers that they were made from, and settings that are not right.

tests/golden/make/gguf_tokenizer.py made the ids of SmolLM2.
"""

import json
from typing import Any

import numpy as np
import pytest

from engine.base.errors import UnsupportedError
from engine.files.folder import ModelFolder
from engine.files.gguf import GgufFile
from engine.files.reading import FormatError
from engine.model.text_config import TextConfig
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies import read_vocabulary
from engine.text.vocabularies.gguf import gguf_ends, gguf_keeps_space, read_gguf_tokenizer
from engine.text.vocabularies.sentencepiece import BPE, parse_model

from ..tools.gguf_files import gguf
from ..tools.paths import GGUF_TOKENIZERS, SMOLLM2_IDS, TOKENIZERS
from ..tools.smollm2 import FILE, MISSING

tokenizers = pytest.importorskip("tokenizers")

KEYS = "tokenizer.ggml."


def settings_of(**values: Any) -> dict[str, Any]:
    return {KEYS + key: value for key, value in values.items() if value is not None}


def roberta(**changes: Any) -> dict[str, Any]:
    """Return the settings of a BPE over bytes, with RoBERTa's special tokens."""
    folder = TOKENIZERS / "roberta"
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    given: dict[str, Any] = {
        "model": "gpt2", "pre": "gpt-2", "tokens": list(ids), "merges": merges, "bos_token_id": ids["<s>"],
        "eos_token_id": ids["</s>"], "add_bos_token": True, "add_eos_token": True,
        "token_type": np.array([3 if text in special else 1 for text in ids], np.int32)}
    return settings_of(**given | changes)


def llama(**changes: Any) -> dict[str, Any]:
    """Return the settings of a BPE of SentencePiece."""
    pieces = parse_model((TOKENIZERS / "llama" / "tokenizer.model").read_bytes(), BPE)
    given: dict[str, Any] = {
        "model": "llama", "tokens": pieces.texts, "scores": np.array(pieces.scores, np.float32), "bos_token_id": 1,
        "eos_token_id": 2, "token_type": np.array(pieces.types, np.int32), "add_eos_token": True}
    return settings_of(**given | changes)


def ids_of(data: bytes, texts: list[Any]) -> list[list[int]]:
    return [ids.tolist() for ids in Tokenizer(TextConfig(data), None, 1)(texts).input_ids]


def golden(name: str) -> tuple[list[str], list[list[int]]]:
    rows = json.loads((TOKENIZERS / name / "expected.json").read_text(encoding="utf-8"))
    rows = [(text, ids) for text, ids in rows if isinstance(text, str) and "<mask>" not in text]
    return [text for text, _ in rows], [ids for _, ids in rows]


@pytest.mark.parametrize(("name", "settings"), [("roberta", roberta), ("llama", llama)])
def test_the_ids_of_the_tokenizer_that_it_was_made_from(name, settings):
    texts, expected = golden(name)
    assert ids_of(read_gguf_tokenizer(settings()), texts) == expected


@pytest.mark.parametrize("name", [path.stem for path in sorted(GGUF_TOKENIZERS.iterdir())])
def test_the_ids_of_transformers(name):
    """tests/golden/make/gguf_tokenizers.py made them."""
    found = json.loads((GGUF_TOKENIZERS / f"{name}.json").read_text(encoding="utf-8"))
    given = {key: np.array(value, np.float32 if key.endswith("scores") else np.int32)
             if key.endswith(("scores", "token_type")) else value for key, value in found["settings"].items()}
    texts, expected = zip(*found["texts"], strict=True)
    ids = ids_of(read_gguf_tokenizer(given), [*texts])
    assert [(text, own, right) for text, own, right in zip(texts, ids, expected, strict=True) if own != right] == []


def test_settings_that_went_through_a_file(tmp_path):
    (tmp_path / "m.gguf").write_bytes(gguf(llama(), {}))
    assert read_gguf_tokenizer(GgufFile(tmp_path / "m.gguf").settings) == read_gguf_tokenizer(llama())


def test_pairs_of_texts():
    made = read_vocabulary(ModelFolder(TOKENIZERS / "llama"))
    own = b"" if made is None else made.tokenizer_json
    assert ids_of(read_gguf_tokenizer(llama()), [("the cat", "sleeps")]) == ids_of(own, [("the cat", "sleeps")])


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_splits(name):
    """Each split has its own way with digits, and all give the text back."""
    data = read_gguf_tokenizer(roberta(
        pre=name, add_bos_token=False, add_eos_token=False, token_type=None, merges=["1 9", "19 8", "198 4"],
        tokens=[*roberta()[f"{KEYS}tokens"], "19", "198", "1984"]))
    one = tokenizers.Tokenizer.from_str(data.decode())
    tokens = one.encode("in 1984 it's\n\n x").tokens
    digits = [token.replace("Ġ", "") for token in tokens if set("1984") & set(token)]
    assert digits == {"gpt-2": ["1984"], "llama-bpe": ["198", "4"]}.get(name, list("1984"))
    assert one.decode(one.encode("in 1984 it's\n\n x Größe").ids) == "in 1984 it's\n\n x Größe"


@pytest.mark.parametrize(("alias", "name"), [
    ("deepseek-r1-qwen", "qwen2"), ("kormo", "qwen2"), ("llama3", "llama-bpe"), ("llama-v3", "llama-bpe"),
    ("falcon3", "llama-bpe"), ("pixtral", "llama-bpe"), ("lfm2", "llama-bpe")])
def test_other_names_of_splits(alias, name):
    """Where the file does not say whether a text starts with bos, the name does."""
    flags = {"add_bos_token": None, "add_eos_token": None}
    assert read_gguf_tokenizer(roberta(pre=alias, **flags)) == read_gguf_tokenizer(roberta(pre=name, **flags))


@pytest.mark.parametrize(("settings", "expected"), [
    (roberta(add_bos_token=None, add_eos_token=None), "A"), (llama(add_eos_token=None), "bA"),
    (roberta(pre="llama-bpe", add_bos_token=None, add_eos_token=None), "bA"), (llama(add_bos_token=False), "Ae"),
])
def test_special_tokens(settings, expected):
    template = json.loads(read_gguf_tokenizer(settings))["post_processor"]["single"]
    names = {"<s>": "b", "</s>": "e"}
    assert "".join(names[one["SpecialToken"]["id"]] if "SpecialToken" in one else "A" for one in template) == expected


@pytest.mark.parametrize("settings", [roberta, llama])
@pytest.mark.parametrize("text", ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>",
                                  "<end_of_turn>", "<|end|>", "<EOT>", "<|fim_pad|>", "<|file_sep|>"])
def test_texts_that_end_a_generation_in_llama_cpp(settings, text):
    """The type of such a token does not count, as in llama.cpp."""
    given = settings()
    tokens = [*given[f"{KEYS}tokens"], text]
    types = np.append(given[f"{KEYS}token_type"], np.int32(1))
    more = {"scores": np.append(given[f"{KEYS}scores"], np.float32(0))} if f"{KEYS}scores" in given else {}
    given = settings(tokens=tokens, token_type=types, **more)
    eos = given[f"{KEYS}eos_token_id"]
    assert gguf_ends(given) == [eos, len(tokens) - 1]
    one = tokenizers.Tokenizer.from_str(read_gguf_tokenizer(given).decode())
    assert len(tokens) - 1 in one.encode(f"the{text}the").ids
    assert one.decode([len(tokens) - 1]) == ""


def test_ids_that_end_a_generation():
    assert gguf_ends(roberta(eot_token_id=5, eom_token_id=6, fim_pad_token_id=7, fim_rep_token_id=8)) == [2, 5, 6, 7, 8]
    assert gguf_ends(roberta(eos_token_id=None, eom_token_id=6)) == [6]
    assert gguf_ends(roberta(eos_token_id=None, add_eos_token=False)) == []
    with pytest.raises(FormatError, match="eom_token_id must be the number of a token"):
        gguf_ends(roberta(eom_token_id=10**6))


@pytest.mark.parametrize(("settings", "number"), [(llama(), 0), (roberta(token_type=np.array(
    [2 if text == "<unk>" else 1 for text in roberta()[f"{KEYS}tokens"]], np.int32)), 3)], ids=["llama", "gpt2"])
def test_the_unknown_token_typed_in_a_text_is_one_token(settings, number):
    one = tokenizers.Tokenizer.from_str(read_gguf_tokenizer(settings).decode())
    assert one.encode("the<unk>", add_special_tokens=False).ids[-1] == number
    assert one.encode("the <unk> the", add_special_tokens=False).ids.count(number) == 1


def test_a_continuation_keeps_its_first_space():
    """llama.cpp removes the space in front of a whole text alone; a space may also be a byte."""
    for settings, keeps in ((llama(), True), (llama(add_space_prefix=False), False), (roberta(), False)):
        assert gguf_keeps_space(settings) == keeps
    own = Tokenizer(TextConfig(read_gguf_tokenizer(llama()), keeps_space=True), None, 1)
    ids = own.encode("the cat", add_special_tokens=False)
    pieces = [own.token(number) for number in ids]
    cut = next(i for i in range(1, len(ids)) if pieces[i].startswith("▁"))
    assert (own.decode(ids[cut:]), own.continuation(ids[cut:])) == ("cat", " cat")
    assert own.continuation([1, *ids[cut:]]) == " cat"
    assert own.continuation(ids[cut + 1 :]) == own.decode(ids[cut + 1 :])
    space = own.token_id("<0x20>")
    assert space is None or own.continuation([space]) == " "
    for each in (ids[cut:], [1, *ids[cut:]], ids[cut + 1 :], ids):
        text = own.incremental()
        assert "".join([*map(text.add, each), text.end()]) == own.continuation(each)
    assert own.continuation([]) == own.continuation([1, 2]) == ""
    plain = Tokenizer(TextConfig(read_gguf_tokenizer(llama())), None, 1)
    assert plain.continuation(ids[cut:]) == "cat"


def test_a_tokenizer_without_a_space_in_front():
    one = tokenizers.Tokenizer.from_str(read_gguf_tokenizer(llama(add_space_prefix=False)).decode())
    assert one.encode("the", add_special_tokens=False).tokens[0][0] == "t"
    assert one.decode(one.encode(" the").ids) == " the"


UNSUPPORTED = {
    "no model": roberta(model=None), "T5's": roberta(model="t5"), "a number": roberta(model=3),
    "no split": roberta(pre=None), "a list as split": roberta(pre=np.ones(2)), "another split": roberta(pre="tekken"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_other_tokenizers(case):
    with pytest.raises(UnsupportedError, match=r"tokenizer\.ggml\.(model|pre) .* is not supported; supported are"):
        read_gguf_tokenizer(UNSUPPORTED[case])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no tokens": (roberta(tokens=None), "must be a list of different texts"),
    "a token twice": (roberta(tokens=["a", "a"]), "must be a list of different texts"),
    "an empty token": (roberta(tokens=["a", ""], token_type=None), "token without a text"),
    "a long token": (roberta(tokens=["a" * 1001], token_type=None), "more than 1,000 characters"),
    "types of other tokens": (roberta(token_type=np.ones(3, np.int32)), "an integer for each"),
    "types that are numbers": (roberta(token_type=np.ones(420, np.float32)), "an integer for each"),
    "a bos that is no token": (roberta(bos_token_id=1000), "must be the number of a token, not 1000"),
    "a negative bos": (roberta(bos_token_id=-2), "must be the number of a token, not -2"),
    "bos without a token": (roberta(bos_token_id=None), "add_bos_token True must be true or false, and needs"),
    "a flag that is a number": (roberta(add_eos_token=1), "add_eos_token 1 must be true or false"),
    "no merges": (roberta(merges=None), "merges must be a list"),
    "a merge of no tokens": (roberta(merges=["a qqqq"]), "merges joins 'a' and 'qqqq'"),
    "no scores": (llama(scores=None), "scores must have a number for each"),
    "scores that are none": (llama(scores=np.full(800, np.nan, np.float32)), "scores must have a number for each"),
    "no unknown token": (llama(token_type=None), "has 0 unknown tokens; expected one"),
    "some bytes": (llama(token_type=np.array([2, 3, 3, 6] + [1] * 796, np.int32), tokens=[f"p{i}" for i in range(800)]),
                   "<0x00> to <0xFF>, and not all"),
    "a long piece": (llama(tokens=["<unk>", *("x" * i for i in range(1, 800))],
                           token_type=np.array([2] + [1] * 799, np.int32)), "at most 200 are allowed"),
    "two runs of spaces": (llama(tokens=["<unk>", "▁▁", "  "], token_type=np.array([2, 1, 4]), scores=np.zeros(3)),
                           "two tokens for one piece of SentencePiece"),
    "a space that is a number": (llama(add_space_prefix=3), "add_space_prefix must be true or false"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings(case):
    settings, words = BAD[case]
    with pytest.raises(FormatError, match=words):
        read_gguf_tokenizer(settings)


@pytest.mark.skipif(not FILE.exists(), reason=MISSING)
def test_the_ids_of_smollm2():
    rows = json.loads((SMOLLM2_IDS).read_text(encoding="utf-8"))
    data = read_gguf_tokenizer(GgufFile(FILE).settings)
    found = ids_of(data, [text for text, _ in rows])
    assert [text for (text, right), ids in zip(rows, found, strict=True) if ids != right] == []
    assert len({tuple(ids) for ids in found}) > 40
