"""Refuse a tokenizer.json that takes much time or memory, before `tokenizers` reads it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..files.reading import FormatError, parse_json
from .growth import check_growth, read_steps
from .patterns import check_patterns

MAX_TOKENIZER = 64_000_000
"""The most bytes of a tokenizer.json; the largest that we know has 35 MB, for 256,000 tokens."""
MAX_VALUES = 4_000_000
"""The most commas and colons of a tokenizer.json; a file with 256,000 tokens and 580,000 merges has 1.8 million."""
MAX_TOKEN = 1000
"""The most characters of a token of the vocabulary, because a generated text may repeat the longest one."""
MAX_VOCABULARY = 400_000
"""The most tokens in a SentencePiece model or a GGUF file; the largest that we know, of Gemma 3, has 262,144."""
MAX_ADDED_TEXT = 1_000_000
"""The most characters of all added tokens together: `tokenizers` builds a tree that takes 75 times as many bytes. A
model with 10,000 added tokens has about 200,000 characters."""
MAX_PIECES = 64
"""The most pieces of a template that puts special tokens around texts, and the most ids of a special token in it."""
MAX_AFFIX = 100
"""The most characters of a prefix or suffix of the parts of words; real ones have two to four."""
MAX_WORD = 200
"""The largest max_input_chars_per_word: WordPiece takes cubic time for a word. Real tokenizers have 100."""

_PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
_FREE_TREE = 1_500_000
"""Bytes of all words of a Unigram vocabulary up to which its tree is small enough, and is not counted. The 250,000
words of XLM-RoBERTa have 2.6 MB."""
MAX_TREE = 2_000_000
"""The most nodes of the tree that `tokenizers` builds of a Unigram vocabulary, a node for each byte that no two words
share: 330 bytes of memory each."""


def read_tokenizer(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a tokenizer.json; raises `WeightsError` beyond the limits on bytes and values."""
    try:
        check_size(data)
        with _without_garbage_collection():
            document = parse_json(data, MAX_TOKENIZER)
    except FormatError as error:
        raise WeightsError(f"the model's tokenizer.json cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise WeightsError(f"the model's tokenizer.json cannot be read: it is no JSON object, but {shown(document)}")
    return document


def check_size(data: bytes) -> None:
    """Raise `FormatError` for a tokenizer.json with too many bytes or values, which `read_tokenizer` would not read."""
    if len(data) > MAX_TOKENIZER:
        raise FormatError(f"the JSON has {len(data):,} bytes; at most {MAX_TOKENIZER:,} are allowed")
    if data.count(b",") + data.count(b":") > MAX_VALUES:
        raise FormatError(f"the JSON has more than {MAX_VALUES:,} values")


def check_added(texts: Iterable[str]) -> None:
    """Raise `FormatError` for added tokens that are too long together."""
    total = sum(map(len, texts))
    if total > MAX_ADDED_TEXT:
        raise FormatError(f"the added tokens have {total:,} characters together; at most {MAX_ADDED_TEXT:,} are "
                          "allowed")


def check_tokenizer(data: bytes) -> tuple[int, bool]:
    """Refuse a tokenizer.json that may take much time or memory, with a `WeightsError` or `UnsupportedError`.

    Returns the length of the longest string that its added tokens and normalizers look for in a text, and whether it
    has a regular expression that may take minutes for a text.
    """
    document = read_tokenizer(data)
    steps = read_steps(document)
    check_growth(steps)
    _check_model(document.get("model"))
    _check_processors(steps["post_processor"])
    added = _texts(document.get("added_tokens"), "content")
    try:
        check_added(added)
    except FormatError as error:
        raise WeightsError(f"the model's tokenizer.json: {error}") from None
    replaced = _texts([step.get("pattern") for step in steps["normalizer"]], "String")
    return max(map(len, added + replaced), default=0), check_patterns(steps, added)


def _texts(entries: Any, key: str) -> list[str]:
    """Return the texts under a key of the objects in a list; it skips other values, which `tokenizers` refuses."""
    objects = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [entry[key] for entry in objects if isinstance(entry.get(key), str)]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Stop the garbage collector in a `with` block: it would visit a million lists of a vocabulary many times."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_model(model: Any) -> None:
    """Refuse a model whose words, affixes or vocabulary are too long."""
    if not isinstance(model, dict):
        return  # `tokenizers` refuses it
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or longest > MAX_WORD:
        raise WeightsError(f"max_input_chars_per_word in the model's tokenizer.json must be at most {MAX_WORD:,}, not "
                           f"{shown(longest)}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        if isinstance(model.get(name), str) and len(model[name]) > MAX_AFFIX:
            raise WeightsError(f"{name} in the model's tokenizer.json must have at most {MAX_AFFIX} characters")
    _check_vocabulary(model.get("vocab"))


def _check_vocabulary(vocab: Any) -> None:
    """Refuse a vocabulary with too long a token: a list of pairs (token, score) for Unigram, otherwise an object."""
    if isinstance(vocab, dict):
        longest = max(map(len, vocab), default=0)
    else:
        pairs = vocab if isinstance(vocab, list) else []
        words = [pair[0] for pair in pairs if isinstance(pair, list) and pair and isinstance(pair[0], str)]
        longest = max(map(len, words), default=0)
        _check_tree([word.encode(errors="replace") for word in words])
    if longest > MAX_TOKEN:
        raise WeightsError(f"a token of the model's tokenizer.json has {longest:,} characters; at most {MAX_TOKEN:,} "
                           "are allowed")


def _check_tree(words: list[bytes]) -> None:
    """Refuse the words, in UTF-8, of a Unigram vocabulary that need too large a tree."""
    if sum(map(len, words)) <= _FREE_TREE:
        return
    nodes, before = 0, b""
    for word in sorted(words):      # no earlier word shares more of its first bytes with a word than the one before it
        shared, most = 0, min(len(word), len(before))
        while shared < most and word[shared] == before[shared]:
            shared += 1
        nodes, before = nodes + len(word) - shared, word
    if nodes > MAX_TREE:
        raise WeightsError(f"the words of the model's tokenizer.json need a tree of {nodes:,} nodes; at most "
                           f"{MAX_TREE:,} are allowed")


def _check_processors(processors: list[dict[str, Any]]) -> None:
    """Refuse unknown post-processors, several templates, and one that repeats a text or has too many pieces or ids."""
    if unknown := [step.get("type") for step in processors if step.get("type") not in _PROCESSORS]:
        raise UnsupportedError(f"the post_processor {shown(unknown[0])} of the model's tokenizer.json is not supported")
    templates = [step for step in processors if step["type"] == "TemplateProcessing"]
    if len(templates) > 1:
        raise UnsupportedError("the post_processor of the model's tokenizer.json has several templates")
    for template in templates:
        _check_special(template.get("special_tokens"))
        for name in ("single", "pair"):
            pieces = template.get(name)
            if not isinstance(pieces, list):
                raise WeightsError(f"the template {name} in the model's tokenizer.json must be a list, not "
                                   f"{shown(pieces)}")
            texts = [shown(piece["Sequence"]) for piece in pieces if isinstance(piece, dict) and "Sequence" in piece]
            if len(pieces) > MAX_PIECES or len(texts) > 2 or len(set(texts)) != len(texts):
                raise UnsupportedError(f"the template {name} in the model's tokenizer.json repeats a text, or has more "
                                       f"than {MAX_PIECES} pieces")


def _check_special(tokens: Any) -> None:
    """Refuse a special token of a template that stands for too many ids. tokens: the template's object of them."""
    for name, token in tokens.items() if isinstance(tokens, dict) else ():
        ids = token.get("ids") if isinstance(token, dict) else None
        if isinstance(ids, list) and len(ids) > MAX_PIECES:
            raise WeightsError(f"the special token {shown(name)} of the template in the model's tokenizer.json has "
                               f"{len(ids):,} ids; at most {MAX_PIECES} are allowed")
