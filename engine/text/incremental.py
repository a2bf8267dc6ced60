"""`IncrementalText`: the text of token ids that come one by one, none of which is decoded twice.

A tokenizer turns tokens into text by a list of decoders, each of which changes a list of tokens. Here each decoder gets
the list token by token, and passes on what no later token can change. `tokenizers` changes single tokens; the decoders
that join tokens are written here, because its own `DecodeStream` loses bytes that are no character, and the text that
waits at the end.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import lru_cache
from typing import Any, TypeAlias, cast

from .growth import steps

REPLACEMENT = "\ufffd"
"""What stands for bytes that are no character."""
TextPart: TypeAlias = tuple[str, bool]
"""A part of a token, and whether the token ends with it."""
DecodeTokens: TypeAlias = Callable[[list[str]], str]
"""Returns the text that one decoder makes of a list of tokens."""


class IncrementalText:
    """The text of ids that come one by one: the texts of all `add` and of `end` together are that of all ids.

    A text comes as soon as no later id can change it. What waits is a character whose bytes are not all there; with
    tokens for single bytes, as Llama 2 has them, all bytes since the last other token unless `bytes_alone`, because one
    wrong byte makes all of them U+FFFD; and the space after a word that is the last one. Where a decoder reads the
    joined text, such as a Replace after a Fuse, all of it waits for the end.
    """

    def __init__(self, decoder: Any, token_of: Callable[[int], str | None], component: Callable[[Any], DecodeTokens],
                 space_before: Callable[[str], str], *, bytes_alone: bool = False):
        """decoder: the decoder as a tokenizer.json has it; None for tokens that are joined by spaces.

        token_of: returns the token of an id; None for an id that has no text. component: returns one decoder, which is
        given as a tokenizer.json has it. space_before: returns what stands before the text, by its first token.
        bytes_alone: whether a token for a byte that is part of no character becomes U+FFFD alone.
        """
        self._token_of, self._space_before, self._begun = token_of, space_before, False
        self._steps = [_step(step, component, bytes_alone) for step in steps(decoder, "decoders")] if decoder else [
            _Spaces()]

    def add(self, number: int) -> str:
        """Return the text that is certain with the next id; it may be empty."""
        token = self._token_of(number)
        if token is None:
            return ""
        before, self._begun = "" if self._begun else self._space_before(token), True
        return before + self._apply_decoders([(token, True)], ends=False)

    def end(self) -> str:
        """Return the text that waited for another id; no id may come after this."""
        return self._apply_decoders([], ends=True)

    @property
    def waits(self) -> bool:
        """Return whether `end` may return a text now."""
        for step in self._steps:        # noqa: SIM110, because a generator for each look costs more than the look
            if step.waits:
                return True
        return False

    def waiting(self) -> str:
        """Return the text that `end` would return now, without an end: another id may still change it."""
        return self.fork().end() if self.waits else ""

    def fork(self) -> IncrementalText:
        """Return a text with the same ids so far, which goes on by itself."""
        other = copy(self)
        other._steps = [step.fork() for step in self._steps]
        return other

    def bytes_in_the_middle(self, number: int) -> bytes:
        """Return what an id adds to the middle of a text. This text, which must have no ids, stays as it is."""
        token = self._token_of(number)
        if token is None:
            return b""
        if len(self._steps) == 1 and isinstance(self._steps[0], _Bytes):
            return _bytes_of(token)
        if match := BYTE.fullmatch(token):
            return bytes([int(match[1], 16)])
        first = self.fork()
        first.add(number)       # only a second one stands in the middle
        second = first.fork()
        both = second.add(number) + second.end()
        if REPLACEMENT in both and all(character in BYTES for character in token):      # a part of a character
            return bytes(BYTES[character] for character in token)
        return both.removeprefix(first.end()).encode()

    def _apply_decoders(self, parts: list[TextPart], ends: bool) -> str:
        """Return the text that all decoders make of parts, one decoder after the other. ends: no more parts come."""
        for step in self._steps:
            parts = [piece for text, whole in parts for piece in step.add(text, whole)]
            if ends:
                parts += step.end()
        return "".join(text for text, _ in parts)


class _Step(ABC):
    """A decoder. It gets the parts of its tokens one by one, and yields those of its own tokens that are certain."""

    @property
    def waits(self) -> bool:
        """Return whether `end` may yield a text that is not empty."""
        return False

    def fork(self) -> _Step:
        """Return a decoder that has got the same parts, and goes on by itself."""
        return copy(self)

    @abstractmethod
    def add(self, text: str, whole: bool) -> Iterable[TextPart]:
        """Take a part of a token, and whether the token ends with it; return the parts that are certain now."""

    def end(self) -> Iterator[TextPart]:
        """Yield the rest, when no more tokens come."""
        yield from ()


class _Tokens(_Step):
    """A decoder that reads whole tokens; after one that joins all tokens to one, it has its token at the end."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def fork(self) -> _Tokens:
        other = copy(self)
        other._parts = [*self._parts]
        return other

    def add(self, text: str, whole: bool) -> Iterable[TextPart]:
        """Collect the parts of a token, and hand it to `token` when it is whole."""
        if whole and not self._parts:       # as nearly always
            return self.token(text)
        self._parts.append(text)
        if not whole:
            return ()
        token = "".join(self._parts)
        self._parts.clear()
        return self.token(token)

    @abstractmethod
    def token(self, token: str) -> Iterator[TextPart]:
        """Take a whole token, and yield the parts that are certain now."""

    @property
    def waits(self) -> bool:
        return bool(self._parts)


class _Spaces(_Tokens):
    """Tokens are joined by spaces, which a tokenizer without a decoder does."""

    _space = ""

    def token(self, token: str) -> Iterator[TextPart]:
        yield self._space + token, True
        self._space = " "


class _Each(_Tokens):
    """WordPiece, Metaspace and Replace: each token is changed alone."""

    def __init__(self, decode: DecodeTokens, before: list[str]):
        """before: the tokens "", if any, that `decode` needs before a token so as not to take it for the first one."""
        super().__init__()
        self._decode, self._later = decode, before
        self._before: list[str] = []        # what `decode` gets before the next token: `_later` after the first one

    def token(self, token: str) -> Iterator[TextPart]:
        yield self._decode([*self._before, token]), True
        self._before = self._later


class _Ctc(_Tokens):
    """CTC: of equal tokens in a row one is kept, and none that becomes empty."""

    def __init__(self, decode: DecodeTokens):
        super().__init__()
        self._decode, self._last = decode, ""

    def token(self, token: str) -> Iterator[TextPart]:
        """Yield a token that differs from the one before, unless it becomes empty."""
        if token != self._last and (text := self._decode([token])):
            yield text, True
        self._last = token


class _Suffix(_Tokens):
    """BPEDecoder: the suffix of a word becomes a space, except in the last token, where it becomes nothing."""

    def __init__(self, suffix: str):
        super().__init__()
        self._suffix = suffix
        self._rest: str | None = None
        """The last token from its first suffix on."""

    def token(self, token: str) -> Iterator[TextPart]:
        """Yield the rest of the last token, which is not the last one of the text, and this one up to its suffix."""
        yield from self._flushed(" ")
        start = token.find(self._suffix)
        start = len(token) if start < 0 else start
        self._rest = token[start:]
        yield token[:start], False

    def _flushed(self, replacement: str) -> Iterator[TextPart]:
        """Yield the rest of the last token, with a text in place of the suffix."""
        if self._rest is not None:
            yield self._rest.replace(self._suffix, replacement), True

    def end(self) -> Iterator[TextPart]:
        return self._flushed("")

    @property
    def waits(self) -> bool:
        return super().waits or bool((self._rest or "").replace(self._suffix, ""))


class _Utf8(_Tokens):
    """Tokens that are bytes: those that are part of no character become U+FFFD."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def fork(self) -> _Utf8:
        """Return a decoder that has got the same parts, with the same bytes of half a character."""
        other = cast(_Utf8, super().fork())
        other._decoder = getincrementaldecoder("utf-8")("replace")
        other._decoder.setstate(self._decoder.getstate())
        return other

    def end(self) -> Iterator[TextPart]:
        yield self._decoder.decode(b"", final=True), True

    @property
    def waits(self) -> bool:
        return super().waits or bool(self._decoder.getstate()[0])       # bytes of a character that is not whole


class _Bytes(_Utf8):
    """ByteLevel: each character of a token stands for a byte, and all bytes together are one text."""

    def token(self, token: str) -> Iterator[TextPart]:
        yield self._decoder.decode(_bytes_of(token)), False


class _BytesAlone(_Utf8):
    """ByteFallback as llama.cpp has it: tokens such as <0xC3> are bytes of the text, whatever stands beside them."""

    def token(self, token: str) -> Iterator[TextPart]:
        """Yield the characters that a byte completes, or another token, before which half a character is U+FFFD."""
        match = BYTE.fullmatch(token)
        # Another token ends a character that is not whole.
        yield self._decoder.decode(bytes([int(match[1], 16)]) if match else b"", final=match is None), True
        if match is None:
            yield token, True


class _ByteTokens(_Tokens):
    """ByteFallback: tokens such as <0xC3> in a row are the bytes of a text; if one is wrong, each of them is U+FFFD."""

    def __init__(self) -> None:
        super().__init__()
        self._checker = getincrementaldecoder("utf-8")("strict")
        self._run, self._wrong = bytearray(), False
        """(bytes that wait, whether a byte of the row was wrong: then each byte becomes U+FFFD at once)"""

    def fork(self) -> _ByteTokens:
        """Return a decoder that has got the same parts, with the same bytes that wait."""
        other = cast(_ByteTokens, super().fork())
        other._checker, other._run = getincrementaldecoder("utf-8")("strict"), bytearray(self._run)
        other._checker.setstate(self._checker.getstate())
        return other

    def token(self, token: str) -> Iterator[TextPart]:
        """Let a byte wait for the end of its row, or yield U+FFFD if the row is wrong; another token ends the row."""
        if (match := BYTE.fullmatch(token)) is None:
            yield from self.end()
            yield token, True
            return
        self._run.append(int(match[1], 16))
        try:
            if not self._wrong:
                self._checker.decode(self._run[-1:])
        except UnicodeDecodeError:
            self._wrong = True
        if self._wrong:
            yield from self._flushed()

    def _flushed(self) -> Iterator[TextPart]:
        """Yield the text of the bytes that wait, or U+FFFD for each if the row is wrong; none waits any more."""
        run = bytes(self._run)
        self._run.clear()
        yield from [(REPLACEMENT, True)] * len(run) if self._wrong else [(run.decode(), True)]

    def end(self) -> Iterator[TextPart]:
        """Yield the text of the row of bytes, and begin a new row."""
        self._wrong = self._wrong or bool(self._checker.getstate()[0])      # bytes of half a character are left
        if self._run:
            yield from self._flushed()
        self._checker.reset()
        self._wrong = False

    @property
    def waits(self) -> bool:
        return super().waits or bool(self._run)


class _Fuse(_Step):
    """Fuse: all tokens are joined to one."""

    def add(self, text: str, whole: bool) -> Iterator[TextPart]:
        yield text, False

    def end(self) -> Iterator[TextPart]:
        yield "", True


class _Strip(_Step):
    """Strip: some characters at the start and at the end of each token are removed, where they are the given one."""

    def __init__(self, content: str, start: int, stop: int):
        self._content, self._start, self._stop = content, start, stop
        self._left, self._held = self._start, 0
        """(how many characters may still be removed at the start, how many were held back at the end so far)"""

    def add(self, text: str, whole: bool) -> Iterator[TextPart]:
        """Yield a part without what is removed at the start of its token, and hold its last characters back.

        These are removed if the token ends with them, and come in front of the next part otherwise.
        """
        removed = min(self._left, len(text) - len(text.lstrip(self._content)))
        text, self._left = text[removed:], self._left - removed
        if text:
            self._left = 0
        text = self._content * self._held + text
        self._held = min(self._stop, len(text) - len(text.rstrip(self._content)))
        yield text[: len(text) - self._held], whole
        if whole:
            self._left, self._held = self._start, 0


BYTE = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")      # `tokenizers` reads "+F", too, as a number of two places
_OWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
"""The bytes that ByteLevel writes as the characters of the same numbers; the others get the numbers from 256 on."""
_OTHERS = [byte for byte in range(256) if byte not in _OWN]
BYTES = {chr(byte): byte for byte in _OWN} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}
"""The byte of each character of ByteLevel."""


@lru_cache(1 << 14)
def _bytes_of(token: str) -> bytes:
    """Return the bytes of a token of ByteLevel. One with another character, such as an added one, stands for itself."""
    known = [BYTES.get(character) for character in token]
    return token.encode() if None in known else bytes(byte for byte in known if byte is not None)


def _step(step: dict[str, Any], component: Callable[[Any], DecodeTokens], bytes_alone: bool) -> _Step:
    """Return one decoder of a tokenizer.json; component: makes a decoder of `tokenizers`, for those that need one."""
    match step["type"]:
        case "BPEDecoder":
            return _Suffix(step["suffix"])
        case "ByteFallback":
            return _BytesAlone() if bytes_alone else _ByteTokens()
        case "ByteLevel":
            return _Bytes()
        case "CTC":
            return _Ctc(component(step))
        case "Fuse":
            return _Fuse()
        case "Replace":
            return _Each(component(step), [])
        case "Strip":
            return _Strip(step["content"], step["start"], step["stop"])
    return _Each(component(step), [""])     # WordPiece or Metaspace, which change the first token in another way
