"""Tiny files tokenizer.json of every kind that `tokenizers` knows, and the parts that a mutation puts into them."""

import base64
import json
import struct
from typing import Any

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "t", "##a", "##t", "cat", "the", "▁", "▁a", "Ġ", "Ġa", "at",
         "Ä", "é", ".", "<0x61>", "query", ":", "mat")
VOCABULARY = {word: i for i, word in enumerate(WORDS)}
SPECIAL = WORDS[:4]

_BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
_SPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def _table() -> str:
    """Return a precompiled_charsmap that replaces "c" by "bb": the size of a trie, the trie and the texts."""
    units, leaf = [0] * 256, 200
    units[ord("c")] = (ord("c") ^ leaf) << 10 | 1 << 8 | ord("c")
    return base64.b64encode(struct.pack("<257I", 4 * 256, *units) + b"bb\0").decode()


def _replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _split(pattern: str, kind: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False}


MODELS: list[dict[str, Any]] = [
    {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
    {"type": "WordPiece", "vocab": VOCABULARY, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
     "max_input_chars_per_word": 100},
    {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
     "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": VOCABULARY,
     "merges": [["a", "t"], ["c", "at"], ["Ġ", "a"]]},
    {"type": "BPE", "unk_token": "[UNK]", "byte_fallback": True, "fuse_unk": True, "vocab": VOCABULARY,
     "merges": ["a t", "▁ a"]},
    {"type": "Unigram", "unk_id": 1, "byte_fallback": False,
     "vocab": [[word, -float(i)] for i, word in enumerate(WORDS)]},
]
NORMALIZERS: list[Any] = [
    None,
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
     "lowercase": True},
    {"type": "Precompiled", "precompiled_charsmap": _table()},
    *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")),
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Prepend", "prepend": "▁"},
    _replace(" ", "▁"), _replace(" {2,}", " ", "Regex"), _replace(r"\s+|(a+)+$", " ", "Regex"),
]
PRE_TOKENIZERS: list[Any] = [
    None, {"type": "BertPreTokenizer"}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, _BYTES, _SPACE,
    {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Digits", "individual_digits": True},
    {"type": "CharDelimiterSplit", "delimiter": " "}, {"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 2},
    _split(r"\s+", "Regex", "MergedWithPrevious"), _split("a", "String", "Removed"),
    _split("(?!)", "Regex", "Contiguous"),
]
_A, _B = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
_CLS, _SEP = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]"))
_TEMPLATE = {
    "type": "TemplateProcessing", "single": [_CLS, _A, _SEP], "pair": [_CLS, _A, _SEP, _B, _SEP],
    "special_tokens": {name: {"id": name, "ids": [VOCABULARY[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")},
}
PROCESSORS: list[Any] = [
    _TEMPLATE, {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, None,
    {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True,
     "add_prefix_space": True},
    _BYTES, {"type": "Sequence", "processors": [_BYTES, _TEMPLATE]},
]
DECODERS: list[Any] = [
    None, {"type": "WordPiece", "prefix": "##", "cleanup": True}, _BYTES, _SPACE, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "BPEDecoder", "suffix": "</w>"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}, _replace("▁", " "), _replace("a", "aa"),
    _replace("", "b"), _replace("a", "a" * 1000), _replace(r"\s*", "", "Regex"), _replace("(a+)+$", "b", "Regex"),
    {"type": "CTC", "pad_token": "[PAD]", "word_delimiter_token": "|", "cleanup": True},
]
_TRUNCATION = {"direction": "Left", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
_PADDING = {"strategy": {"Fixed": 5}, "direction": "Right", "pad_to_multiple_of": 8, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "[PAD]"}

PARTS: dict[str, list[Any]] = {
    "model": MODELS, "normalizer": NORMALIZERS, "pre_tokenizer": PRE_TOKENIZERS, "post_processor": PROCESSORS,
    "decoder": DECODERS, "truncation": [None, _TRUNCATION], "padding": [None, _PADDING],
}
"""Values of each part of a tokenizer.json that `tokenizers` accepts."""
SEQUENCES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
             "decoder": "decoders"}
"""The parts that may be a sequence of parts, and the key of its list."""


def added(i: int, content: str, **changes: bool) -> dict[str, Any]:
    """Return an entry of `added_tokens`."""
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True} | changes


ADDED = [added(i, word) for i, word in enumerate(SPECIAL)]


def tokenizer_json(model: int, normalizer: int, pre_tokenizer: int, processor: int, truncation: int = 0) -> bytes:
    """Return a tokenizer.json of these parts, by their places in the lists above."""
    return json.dumps({
        "version": "1.0", "truncation": PARTS["truncation"][truncation], "padding": PARTS["padding"][truncation],
        "added_tokens": ADDED, "normalizer": NORMALIZERS[normalizer], "pre_tokenizer": PRE_TOKENIZERS[pre_tokenizer],
        "post_processor": PROCESSORS[processor], "decoder": None, "model": MODELS[model],
    }).encode()


BERT = tokenizer_json(1, 1, 1, 0)
TOKENIZERS = {
    "words": tokenizer_json(0, 0, 2, 0, truncation=1),
    "BERT": BERT,
    "RoBERTa": tokenizer_json(2, 0, 4, 3),
    "Llama": tokenizer_json(3, 12, 0, 0),
    "SentencePiece": tokenizer_json(4, 2, 5, 0),
}
