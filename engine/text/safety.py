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
"""The most characters of a token of the vocabulary, which a generated text may have as often as it has tokens."""
MAX_VOCABULARY = 400_000
"""The most tokens in a SentencePiece model or a GGUF file; the largest that we know, of Gemma 3, has 262,144."""
MAX_ADDED_TEXT = 1_000_000
"""The most characters of all added tokens: `tokenizers` builds a tree of them, of 75 bytes for each byte. A model with
10,000 added tokens has about 200,000 characters."""
MAX_PIECES = 64
"""The most pieces of a template, and the most ids of a special token in it."""
MAX_AFFIX = 100
"""The most characters of a prefix or suffix of the parts of words; real ones have two to four."""
MAX_WORD = 200
"""The largest max_input_chars_per_word: WordPiece takes cubic time for a word. Real tokenizers have 100."""

_PROCESSORS = ("BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing")
_FREE_TREE = 1_500_000
"""Bytes of a Unigram vocabulary whose tree is not counted. XLM-RoBERTa's 250,000 words have 2.6 MB."""
MAX_TREE = 2_000_000
"""The most nodes of the tree that `tokenizers` builds of a Unigram vocabulary, a node for each byte that no two words
share: 330 bytes of memory each."""


def read_tokenizer(data: bytes) -> dict[str, Any]:
    """Return the object in a tokenizer.json within the limits on bytes and values; raises `WeightsError`."""
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
    """Return the texts under a key of the objects in a list; `tokenizers` refuses whatever is none."""
    objects = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [entry[key] for entry in objects if isinstance(entry.get(key), str)]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Stop the collector of cycles, which would look again and again at the million lists of a large vocabulary."""
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
    """Refuse a vocabulary with too long a token; it is a list of pairs for Unigram, otherwise an object."""
    if isinstance(vocab, dict):
        longest = max(map(len, vocab), default=0)
    else:
        words = [one[0] for one in vocab if isinstance(one, list) and one and isinstance(one[0], str)] \
            if isinstance(vocab, list) else []
        longest = max(map(len, words), default=0)
        _check_tree([word.encode(errors="replace") for word in words])
    if longest > MAX_TOKEN:
        raise WeightsError(f"a token of the model's tokenizer.json has {longest:,} characters; at most {MAX_TOKEN:,} "
                           "are allowed")


def _check_tree(words: list[bytes]) -> None:
    """Refuse the words of a Unigram vocabulary that need too large a tree."""
    if sum(map(len, words)) <= _FREE_TREE:
        return
    nodes, before = 0, b""
    for word in sorted(words):      # so that a word shares most of its first bytes with the one before it
        shared, most = 0, min(len(word), len(before))
        while shared < most and word[shared] == before[shared]:
            shared += 1
        nodes, before = nodes + len(word) - shared, word
    if nodes > MAX_TREE:
        raise WeightsError(f"the words of the model's tokenizer.json need a tree of {nodes:,} nodes; at most "
                           f"{MAX_TREE:,} are allowed")


def _check_processors(processors: list[dict[str, Any]]) -> None:
    """Refuse special tokens without end, and templates that repeat a text."""
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
    """Refuse a special token of a template that stands for too many ids."""
    for name, token in tokens.items() if isinstance(tokens, dict) else ():
        ids = token.get("ids") if isinstance(token, dict) else None
        if isinstance(ids, list) and len(ids) > MAX_PIECES:
            raise WeightsError(f"the special token {shown(name)} of the template in the model's tokenizer.json has "
                               f"{len(ids):,} ids; at most {MAX_PIECES} are allowed")
