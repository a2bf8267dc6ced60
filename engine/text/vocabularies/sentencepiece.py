"""Read the file of a SentencePiece model: a message of Protocol Buffers, of which a few fields are needed.

Field numbers come from sentencepiece_model.proto of the library. Unknown fields are skipped.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...base.errors import UnsupportedError, shown
from ...files.reading import FormatError
from ..safety import MAX_TOKEN, MAX_VOCABULARY

MAX_MODEL = 16_000_000
"""The most bytes of a model file; the largest that we know has 5 MB, for 256,000 pieces."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The types of a piece."""
UNIGRAM, BPE = 1, 2
"""The types of a model."""
_TYPES = {UNIGRAM: "Unigram", BPE: "BPE"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of Protocol Buffers."""
_DUMMY_PREFIX, _EXTRA_WHITESPACES, _ESCAPES = 3, 4, 5
"""Field numbers of flags of a normalizer, which are true if the file lacks them."""
_FLOAT = struct.Struct("<f")


@dataclass(frozen=True)
class PieceTable:
    """The parts of a SentencePiece model that tokenizing needs."""

    texts: list[str]
    scores: list[float]
    types: list[int]
    """One text, score and type for each piece, in the order of ids."""
    charsmap: bytes = b""
    """The table of the normalizer; empty if it changes no character."""
    adds_space: bool = True
    """Whether the model puts a space in front of a text."""
    removes_spaces: bool = True
    """Whether it removes spaces at both ends of a text, and all but one of several spaces."""
    kind: int = UNIGRAM
    """The type of the model."""

    @property
    def unknown(self) -> int:
        """The index of the piece for text that no other piece covers."""
        return self.types.index(UNKNOWN)


def parse_model(data: bytes, *expected: int) -> PieceTable:
    """Return the pieces of a model file. expected: the allowed types of the model; none stands for Unigram.

    Raises `FormatError` for a damaged file, and `UnsupportedError` for a model of another type.
    """
    expected = expected or (UNIGRAM,)
    pieces: list[tuple[str, float, int]] = []
    kind, charsmap, flags = UNIGRAM, b"", {_DUMMY_PREFIX: 1, _EXTRA_WHITESPACES: 1, _ESCAPES: 1}
    for count, (number, value) in enumerate(_fields(data), 1):
        if count > MAX_VOCABULARY:
            raise FormatError(f"the SentencePiece model has more than {MAX_VOCABULARY:,} pieces")
        if number == 1:         # pieces
            pieces.append(_parse_piece(_message(value)))
        elif number == 2:       # trainer_spec, of which field 3 is model_type
            kind = next((kind for field, kind in _fields(_message(value)) if field == 3), UNIGRAM)
        elif number == 3:       # normalizer_spec, of which field 2 is precompiled_charsmap
            normalizer = dict(_fields(_message(value)))
            charsmap = _message(normalizer.get(2, b""))
            flags |= {field: normalizer[field] for field in flags if field in normalizer}
    if kind not in expected:
        names = " and ".join(f"{_TYPES[one]}, {one}," for one in expected)
        raise UnsupportedError(f"the SentencePiece model has the type {shown(kind)}; only {names} "
                               f"{'is' if len(expected) == 1 else 'are'} supported for this tokenizer")
    if not flags[_ESCAPES]:
        raise UnsupportedError("the SentencePiece model leaves spaces as they are (escape_whitespaces is false)")
    texts, scores, types = (list(column) for column in zip(*pieces, strict=True)) if pieces else ([], [], [])
    if types.count(UNKNOWN) != 1:
        raise FormatError(f"the SentencePiece model has {types.count(UNKNOWN)} unknown pieces; expected one")
    if len(set(texts)) != len(texts):
        raise FormatError("two pieces of the SentencePiece model are equal")
    return PieceTable(texts, scores, types, charsmap, adds_space=bool(flags[_DUMMY_PREFIX]),
                      removes_spaces=bool(flags[_EXTRA_WHITESPACES]), kind=kind)


def _parse_piece(data: bytes) -> tuple[str, float, int]:
    """Return (text, score, type) of the message of a piece, which are its fields 1 to 3."""
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == 1:
            try:
                text = str(_message(value), "utf-8")
            except UnicodeDecodeError:
                raise FormatError("a piece of the SentencePiece model is not UTF-8") from None
        elif number == 2 and isinstance(value, float):
            score = value
        elif number == 3 and isinstance(value, int):
            kind = value
    if not text or len(text) > MAX_TOKEN or not math.isfinite(score):
        raise FormatError(f"a piece of the SentencePiece model has the text {shown(text)} and the score {score}")
    return text, score, kind


def _message(value: Any) -> bytes:
    """Return the value of a field that must be bytes, those of a message or a text; raises `FormatError` otherwise."""
    if not isinstance(value, bytes):
        raise FormatError("a field of the SentencePiece model has the wrong type")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of each field of a message: an int, a float, bytes, or None for a type that is skipped."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        wire = key & 7      # the wire type; the other bits are the number of the field
        value: Any = None
        if wire == _BYTES:
            size, start = _varint(data, position)
            position = start + size
            value = data[start:position]
        elif wire == _VARINT:
            value, position = _varint(data, position)
        elif wire == _FIXED32 and position + 4 <= end:
            [value] = _FLOAT.unpack_from(data, position)
            position += 4
        elif wire == _FIXED64:
            position += 8
        else:
            raise FormatError("the file is no SentencePiece model")
        if position > end:
            raise FormatError("the SentencePiece model is cut short")
        yield key >> 3, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (integer at a position, position after it): up to ten bytes of seven bits each, the lowest bits first."""
    value = 0
    if position < len(data) and data[position] < 128:  # nearly all integers have one byte
        return data[position], position + 1
    for i, byte in enumerate(data[position:position + 10]):
        if byte < 128:
            return value | byte << (7 * i), position + i + 1
        value |= (byte & 127) << (7 * i)
    raise FormatError("the file is no SentencePiece model, or it is cut short")
