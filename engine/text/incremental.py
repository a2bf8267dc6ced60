"""`IncrementalText`: the text of token ids that come one by one, none of which is decoded twice.

A tokenizer turns tokens into text by a list of decoders, each of which changes a list of tokens. Here each decoder gets
the list token by token, and passes on the text that no later token can change. `tokenizers` changes single tokens. The
decoders that join tokens are written here, because its own `DecodeStream` loses bytes that are no character, and the
text that waits at the end. `TokenTexts` makes these objects, and generation and speech use them.
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
"""The character that Unicode puts in the place of bytes that are no character."""
TextPart: TypeAlias = tuple[str, bool]
"""(a part of a token, whether the token ends with it)."""
DecodeTokens: TypeAlias = Callable[[list[str]], str]
"""Returns the text that one decoder makes of a list of tokens."""


class IncrementalText:
    """The text of ids that come one by one: the texts that all `add` and `end` return, joined, are the text of all ids.

    A text is returned as soon as no later id can change it. Until then these wait: a character whose bytes are not all
    there; the space after the last word; and, with tokens for single bytes, as Llama 2 has them, all bytes since the
    last other token unless `bytes_alone`, because one wrong byte makes all of them U+FFFD. If a decoder reads the
    joined text, such as a Replace after a Fuse, all text waits for the end.
    """

    def __init__(self, decoder: Any, token_of: Callable[[int], str | None], component: Callable[[Any], DecodeTokens],
                 space_before: Callable[[str], str], *, bytes_alone: bool = False):
        """decoder: the decoder as a tokenizer.json has it; None for tokens that are joined by spaces.

        token_of: returns the token of an id; None for an id that has no text. component: makes one decoder of
        `tokenizers` from its settings in a tokenizer.json. space_before: returns the space (or "") in front of the
        text, by its first token. bytes_alone: whether a token for a byte that is part of no character becomes U+FFFD
        without changing the bytes beside it.
        """
        self._token_of, self._space_before, self._begun = token_of, space_before, False
        self._steps = [_step(step, component, bytes_alone) for step in steps(decoder, "decoders")] if decoder else [
            _Spaces()]

    def add(self, number: int) -> str:
        """Add an id (number); return the new text that no later id can change, which may be empty."""
        token = self._token_of(number)
        if token is None:
            return ""
        space, self._begun = "" if self._begun else self._space_before(token), True
        return space + self._apply_decoders([(token, True)], ends=False)

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
        """Return the UTF-8 bytes that an id adds to the middle of a text. This text must have no ids, and gets none."""
        token = self._token_of(number)
        if token is None:
            return b""
        if len(self._steps) == 1 and isinstance(self._steps[0], _Bytes):        # ByteLevel alone: no decoding is needed
            return _bytes_of(token)
        if match := BYTE.fullmatch(token):
            return bytes([int(match[1], 16)])
        first = self.fork()
        first.add(number)       # decoders treat the first token differently: add the id twice, and look at the second
        second = first.fork()
        both = second.add(number) + second.end()
        if REPLACEMENT in both and all(character in BYTES for character in token):      # not a whole character
            return bytes(BYTES[character] for character in token)
        return both.removeprefix(first.end()).encode()

    def _apply_decoders(self, parts: list[TextPart], ends: bool) -> str:
        """Return the text that all decoders, in turn, make of these parts. ends: whether no more parts come."""
        for step in self._steps:
            parts = [piece for text, whole in parts for piece in step.add(text, whole)]
            if ends:
                parts += step.end()
        return "".join(text for text, _ in parts)


class _Step(ABC):
    """A decoder. It gets the parts of tokens one by one, and yields the parts of new tokens that are certain."""

    @property
    def waits(self) -> bool:
        """Return whether `end` may yield a text that is not empty."""
        return False

    def fork(self) -> _Step:
        """Return a decoder that has got the same parts, and goes on by itself."""
        return copy(self)

    @abstractmethod
    def add(self, text: str, whole: bool) -> Iterable[TextPart]:
        """Read a part of a token; return the parts that are certain now. whole: whether the part ends its token."""

    def end(self) -> Iterator[TextPart]:
        """Yield all parts that still wait, when no more tokens come."""
        yield from ()


class _Tokens(_Step):
    """A decoder that reads whole tokens. Behind a decoder that joins all tokens to one, it gets that at the end."""

    def __init__(self) -> None:
        self._parts: list[str] = []     # those of the next token, which is not whole yet

    def fork(self) -> _Tokens:
        """Return a decoder that has got the same parts, in a list of its own."""
        other = copy(self)
        other._parts = [*self._parts]
        return other

    def add(self, text: str, whole: bool) -> Iterable[TextPart]:
        """Collect the parts of a token, and call `token` with it when it is whole."""
        if whole and not self._parts:       # most tokens have one part
            return self.token(text)
        self._parts.append(text)
        if not whole:
            return ()
        token = "".join(self._parts)
        self._parts.clear()
        return self.token(token)

    @abstractmethod
    def token(self, token: str) -> Iterator[TextPart]:
        """Read a whole token, and yield the output parts that are certain now."""

    @property
    def waits(self) -> bool:
        return bool(self._parts)


class _Spaces(_Tokens):
    """Joins tokens by spaces, as a tokenizer without a decoder does."""

    _space = ""

    def token(self, token: str) -> Iterator[TextPart]:
        yield self._space + token, True
        self._space = " "


class _Each(_Tokens):
    """The decoders WordPiece, Metaspace and Replace, which change each token alone."""

    def __init__(self, decode: DecodeTokens, before: list[str]):
        """before: tokens to put in front of every token but the first, so that `decode` does not treat it as the first:
        [""], or [] for a decoder that treats all tokens alike."""
        super().__init__()
        self._decode, self._later = decode, before
        self._before: list[str] = []        # the tokens in front of the next one: `_later` from the second one on

    def token(self, token: str) -> Iterator[TextPart]:
        yield self._decode([*self._before, token]), True
        self._before = self._later


class _Ctc(_Tokens):
    """The decoder CTC: it keeps one of equal tokens in a row, and drops a token that becomes empty."""

    def __init__(self, decode: DecodeTokens):
        super().__init__()
        self._decode, self._last = decode, ""

    def token(self, token: str) -> Iterator[TextPart]:
        """Yield a token that differs from the one before, unless it becomes empty."""
        if token != self._last and (text := self._decode([token])):
            yield text, True
        self._last = token


class _Suffix(_Tokens):
    """BPEDecoder: the suffix of a word becomes a space; in the last token of the text it is removed."""

    def __init__(self, suffix: str):
        """suffix: the end of a token that ends a word, such as "</w>"."""
        super().__init__()
        self._suffix = suffix
        self._rest: str | None = None
        """The last token from its first suffix on, which waits for the next token; None before the first token."""

    def token(self, token: str) -> Iterator[TextPart]:
        """Yield the end of the token before, which is not the text's last token, and this token up to its suffix."""
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
    """A decoder of tokens that stand for bytes of UTF-8: bytes that are part of no character become U+FFFD."""

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
    """ByteFallback as in llama.cpp: tokens such as <0xC3> are bytes, and a wrong one changes no byte beside it."""

    def token(self, token: str) -> Iterator[TextPart]:
        """Yield the characters that a byte completes; or another token, after U+FFFD for half a character."""
        match = BYTE.fullmatch(token)
        yield self._decoder.decode(bytes([int(match[1], 16)]) if match else b"", final=match is None), True
        if match is None:
            yield token, True


class _ByteTokens(_Tokens):
    """ByteFallback: tokens such as <0xC3> in a row are the bytes of a text; if one is wrong, each of them is U+FFFD."""

    def __init__(self) -> None:
        """Begin without bytes."""
        super().__init__()
        self._checker = getincrementaldecoder("utf-8")("strict")
        self._run, self._wrong = bytearray(), False
        """(bytes of the row that wait, whether a byte of the row was wrong: then each byte becomes U+FFFD at once)"""

    def fork(self) -> _ByteTokens:
        """Return a decoder that has got the same parts, with the same bytes that wait."""
        other = cast(_ByteTokens, super().fork())
        other._checker, other._run = getincrementaldecoder("utf-8")("strict"), bytearray(self._run)
        other._checker.setstate(self._checker.getstate())
        return other

    def token(self, token: str) -> Iterator[TextPart]:
        """Keep a byte until the end of its row, or yield U+FFFD if the row is wrong; another token ends the row."""
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
        """Yield the text of the bytes that wait, or U+FFFD for each if the row is wrong, and let none wait any more."""
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
    """The decoder Fuse: it joins all tokens to one."""

    def add(self, text: str, whole: bool) -> Iterator[TextPart]:
        yield text, False

    def end(self) -> Iterator[TextPart]:
        yield "", True


class _Strip(_Step):
    """The decoder Strip: it removes one character (content) at the start and at the end of each token."""

    def __init__(self, content: str, start: int, stop: int):
        """start, stop: how often `content` is removed at most, at the start and at the end."""
        self._content, self._start, self._stop = content, start, stop
        self._left, self._held = self._start, 0
        """(how many characters may still be removed at the start, how many wait that may be removed at the end)"""

    def add(self, text: str, whole: bool) -> Iterator[TextPart]:
        """Yield a part without the characters that are removed at the start of its token or may be at the end.

        The last kind waits: it is removed if the token ends with it, and else comes in front of the next part.
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
"""The bytes that ByteLevel writes as the characters of the same numbers. All others get characters from 256 on."""
_OTHERS = [byte for byte in range(256) if byte not in _OWN]
BYTES = {chr(byte): byte for byte in _OWN} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}
"""The byte of each character of ByteLevel."""


@lru_cache(1 << 14)
def _bytes_of(token: str) -> bytes:
    """Return the bytes of a token of ByteLevel. A token with any other character, such as an added token, is text."""
    known = [BYTES.get(character) for character in token]
    return token.encode() if None in known else bytes(byte for byte in known if byte is not None)


def _step(step: dict[str, Any], component: Callable[[Any], DecodeTokens], bytes_alone: bool) -> _Step:
    """Return the decoder of one step of a tokenizer.json, with the arguments of `IncrementalText`."""
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
    return _Each(component(step), [""])     # WordPiece or Metaspace, which treat the first token in another way
