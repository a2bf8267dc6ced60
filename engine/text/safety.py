"""Refuse a tokenizer.json whose steps can multiply a text, before `tokenizers` runs them and takes all memory.

The normalizers of a tokenizer change a text one after the other. A step that replaces "a" by "aa" doubles a text, and
26 of them make 67 million characters of one. Real tokenizers replace a character by another one, or add a mark.
"""

from __future__ import annotations

import base64
import binascii
import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..files.reading import FormatError, parse_json

MAX_GROWTH = 8
"""The most characters that the normalizers may make of one character, apart from Unicode's own normal forms."""
_MAX_BYTES = 64_000_000
_MAX_VALUES = 4_000_000
"""The most commas and colons of a tokenizer.json; a file with 256,000 tokens and 580,000 merges has 1.8 million."""
_MAX_STEPS = 64
_MAX_PIECES = 64
_MAX_AFFIX = 100
_MAX_WORD = 1000
"""The largest max_input_chars_per_word, because WordPiece takes quadratic time for a word."""

_FREE_TREE, _MAX_TREE = 1_500_000, 2_000_000
"""Bytes of a Unigram vocabulary that need no count, and the limit on the nodes of the tree that `tokenizers` builds of
it, a node for each byte that no two words share: 330 bytes of memory each. XLM-RoBERTa's 250,000 words have 2.6 MB."""

_UNICODE_GROWTH = 18
"""NFKC expands one character to at most 18 (U+FDFA); SentencePiece's tables do the same."""
_HARMLESS = {"Strip", "StripAccents", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt"}
"""Normalizers that do not lengthen a text when they run a second time."""
_REPEATED = {"BertNormalizer": 3, "ByteLevel": 4}
"""How many times longer a text becomes when a step of this kind runs a second time; every tokenizer of its family has
one such step."""
_CLASS = re.compile(r"\[[^\]]*\]")
_MAY_MATCH_NOTHING = re.compile(r"[*?|^$()]|\\[^dDsSwWpPnrt\W_]|\{ *[0,]")


def check_tokenizer(data: bytes) -> int:
    """Refuse a tokenizer.json that may take much time or memory, with a `WeightsError` or `UnsupportedError`.

    Returns the length of the longest string that its added tokens and normalizers look for in a text.
    """
    if data.count(b",") + data.count(b":") > _MAX_VALUES:
        raise WeightsError(f"the model's tokenizer.json has more than {_MAX_VALUES:,} values")
    try:
        with _without_garbage_collection():
            document = parse_json(data, _MAX_BYTES)
    except FormatError as error:
        raise WeightsError(f"the model's tokenizer.json cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise WeightsError(f"the model's tokenizer.json cannot be read: it is no JSON object, but {shown(document)}")
    _check_growth(document)
    _check_model(document.get("model"))
    _check_processor(document.get("post_processor"))
    added = document.get("added_tokens")
    texts = [token.get("content") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    patterns = [step.get("pattern") for step in _steps(document.get("normalizer"), "normalizers")]
    texts += [pattern.get("String") for pattern in patterns if isinstance(pattern, dict)]
    return max((len(text) for text in texts if isinstance(text, str)), default=0)


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


def _check_growth(document: dict[str, Any]) -> None:
    growth, seen = 1.0, set()
    normalizers = list(_steps(document.get("normalizer"), "normalizers"))
    splits = list(_steps(document.get("pre_tokenizer"), "pretokenizers"))
    for step in normalizers:
        kind = step.get("type")
        if kind in _REPEATED:
            growth *= _REPEATED[kind] if kind in seen else 1
        elif kind not in _HARMLESS:
            growth *= _growth(kind, step)
        seen.add(kind)
    for step in splits:
        kind = step.get("type")
        if kind == "ByteLevel" or not isinstance(kind, str):
            growth *= _REPEATED["ByteLevel"] if "ByteLevel" in seen else 1
            seen.add("ByteLevel")
    if growth > MAX_GROWTH:
        raise WeightsError(f"the normalizers of the model's tokenizer.json can make {growth:.3g} characters of one "
                           f"character; at most {MAX_GROWTH} are allowed")


def _steps(step: Any, key: str, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or pre-tokenizer, in order, with sequences taken apart."""
    if step is None:
        return
    if not isinstance(step, dict):
        raise WeightsError(f"a step of the model's tokenizer.json must be an object, not {shown(step)}")
    if not isinstance(step.get("type", ""), str):
        raise WeightsError(f"the type of a step of the model's tokenizer.json must be text, not {shown(step['type'])}")
    if step.get("type") != "Sequence":
        yield step
        return
    inner = step.get(key)
    if not isinstance(inner, list) or len(inner) > _MAX_STEPS or depth > 3:
        raise WeightsError(f"a Sequence in the model's tokenizer.json must have at most {_MAX_STEPS} steps")
    for one in inner:
        yield from _steps(one, key, depth + 1)


def _growth(kind: Any, step: dict[str, Any]) -> float:
    """Return the most characters that one character becomes in a normalizer that real tokenizers use sparingly."""
    content = step.get("content", step.get("prepend", ""))
    if not isinstance(content, str):
        raise WeightsError(f"a normalizer of the model's tokenizer.json has the impossible text {shown(content)}")
    match kind, step.get("pattern"):
        case "Replace", {"String": str(text)}:
            return max(1.0, len(content) / len(text)) if text else 1.0 + len(content)
        case "Replace", {"Regex": str(text)}:
            consumes = bool(text) and not _MAY_MATCH_NOTHING.search(_CLASS.sub("x", text))
            return max(1.0, len(content)) if consumes else 1.0 + len(content)
        case "Prepend" | "Append", None:
            return 1.0 + len(content)
        case "Precompiled", None:
            return max(1.0, _longest_replacement(step.get("precompiled_charsmap")) / _UNICODE_GROWTH)
    raise UnsupportedError(f"the normalizer {shown(kind)} of the model's tokenizer.json is not supported")


def _longest_replacement(table: Any) -> int:
    """Return the length of the longest text of a SentencePiece table: a trie, its size before it, then texts."""
    try:
        data = base64.b64decode(table, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise WeightsError("precompiled_charsmap of the model's tokenizer.json is not in base64") from None
    start = 4 + int.from_bytes(data[:4], "little")
    if start > len(data) or start % 4:  # `tokenizers` would reserve this much memory
        raise WeightsError(f"precompiled_charsmap of the model's tokenizer.json has {len(data):,} bytes, and says that "
                           f"its texts start at byte {start:,}")
    texts = data[start:]
    return max(len(text.decode(errors="replace")) for text in texts.split(b"\0"))


def _check_model(model: Any) -> None:
    if not isinstance(model, dict):
        return  # `tokenizers` refuses it
    longest = model.get("max_input_chars_per_word", 100)
    if type(longest) is not int or longest > _MAX_WORD:
        raise WeightsError(f"max_input_chars_per_word in the model's tokenizer.json must be at most {_MAX_WORD:,}, not "
                           f"{shown(longest)}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        if isinstance(model.get(name), str) and len(model[name]) > _MAX_AFFIX:
            raise WeightsError(f"{name} in the model's tokenizer.json must have at most {_MAX_AFFIX} characters")


    _check_tree(model.get("vocab"))


def _check_tree(vocab: Any) -> None:
    """Refuse a Unigram vocabulary, a list of pairs of a word and its score, that needs too large a tree."""
    words = [one[0].encode(errors="replace") for one in vocab if isinstance(one, list) and one and
             isinstance(one[0], str)] if isinstance(vocab, list) else []
    if sum(map(len, words)) <= _FREE_TREE:
        return
    nodes, before = 0, b""
    for word in sorted(words):
        shared, most = 0, min(len(word), len(before))
        while shared < most and word[shared] == before[shared]:
            shared += 1
        nodes, before = nodes + len(word) - shared, word
    if nodes > _MAX_TREE:
        raise WeightsError(f"the words of the model's tokenizer.json need a tree of {nodes:,} nodes; at most "
                           f"{_MAX_TREE:,} are allowed")


def _check_processor(processor: Any) -> None:
    """Refuse special tokens without end, and templates that repeat a text."""
    templates = [step for step in _steps(processor, "processors") if step.get("type") == "TemplateProcessing"]
    if len(templates) > 1:
        raise UnsupportedError("the post_processor of the model's tokenizer.json has several templates")
    for template in templates:
        for name in ("single", "pair"):
            pieces = template.get(name)
            if not isinstance(pieces, list):
                raise WeightsError(f"the template {name} in the model's tokenizer.json must be a list, not "
                                   f"{shown(pieces)}")
            texts = [shown(piece["Sequence"]) for piece in pieces if isinstance(piece, dict) and "Sequence" in piece]
            if len(pieces) > _MAX_PIECES or len(texts) > 2 or len(set(texts)) != len(texts):
                raise UnsupportedError(f"the template {name} in the model's tokenizer.json repeats a text, or has more "
                                       f"than {_MAX_PIECES} pieces")
