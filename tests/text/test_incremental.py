"""The text of ids that come one by one is the text of all ids, for tokenizers of every kind and for wrong bytes too."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text import token_texts
from engine.text.tokenizer import Tokenizer

from ..tools.kinds_of_tokenizers import NAMES, byte_ids, kinds, some_ids, tokenizer_of


def may_wait(name: str, rest: str, last: str) -> bool:
    """Return whether the rest of a text may wait for more ids. last: the last token."""
    decoding = kinds(tokenizer_of(name))
    if decoding[-1:] == ["ByteLevel"]:
        return rest in ("\ufffd", "\ufffd\ufffd")     # a character that is not whole; of a surrogate, two bytes
    if "ByteFallback" in decoding:
        return last.startswith("<0x")
    if decoding == ["BPEDecoder"]:
        return "</w>" in last.removesuffix("</w>")
    return name in ("a replacement of all", "BPEDecoder, WordPiece")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_texts_together_are_the_text_of_all_ids(name: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(name)
    ids, found, text, last = data.draw(some_ids(name)), tokenizer.incremental(), "", ""
    for i, number in enumerate(ids):
        text += found.add(number)
        token = tokenizer._token_with_text(number)
        last = last if token is None else token
        whole = tokenizer.continuation(ids[: i + 1])
        assert whole.startswith(text)
        assert whole == text or (found.waits and may_wait(name, whole[len(text) :], last))
    assert text + found.end() == tokenizer.continuation(ids)


def test_a_wrong_byte_is_known_at_once() -> None:
    """No later byte makes a character of it, and with tokens for bytes it makes none of those beside it."""
    for name, texts in (("Whisper", ["", "\ufffd", "\ufffd" * 2, "b"]),
                        ("bytes of Llama", ["", "\ufffd" * 2, "\ufffd", "b"]),
                        ("llama of a GGUF", ["", "\ufffd", "\ufffd" * 2, "b"])):
        tokenizer, own = tokenizer_of(name), byte_ids(name)
        last = tokenizer.token_id("b")
        assert last is not None
        found = tokenizer.incremental()
        assert [found.add(number) for number in (own[0xE2], own[0xC3], own[0xFF], last)] == texts


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=5), st.text("日é\n", max_size=2).map(str.encode), st.just("b")),
                max_size=8))
def test_bytes_of_a_gguf_file_are_written_as_they_are(parts: list[bytes | str]) -> None:
    """llama.cpp does not look at the bytes beside a wrong one, of which some are line feeds."""
    tokenizer, own = tokenizer_of("llama of a GGUF"), byte_ids("llama of a GGUF")
    letter = tokenizer.token_id("b")
    ids = [number for part in parts for number in ([letter] if isinstance(part, str) else [own[one] for one in part])]
    written = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    expected, found = written.decode("utf-8", "replace"), tokenizer.incremental()
    before = " " if written.startswith(b" ") else ""        # a continuation keeps the space that a whole text loses
    assert tokenizer.decode(ids) == expected[len(before):]
    assert "".join([*map(found.add, ids), found.end()]) == expected == tokenizer.continuation(ids)
    assert tokenizer.decode(ids, skip_special_tokens=False) == expected[len(before):]
    assert tokenizer.join([tokenizer.token(number) for number in ids]) == expected[len(before):]


def test_the_work_of_an_id_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token is looked up once, and decoded once with at most one token beside it; `decode` is not called."""
    monkeypatch.delattr(token_texts.TokenTexts, "decode")
    looked, decoded = [0], [0]
    look, make = Tokenizer._token_with_text, token_texts.make_decoder

    def counting_look(self: Tokenizer, number: int) -> str | None:
        looked[0] += 1
        return look(self, number)

    def counting_decoder(step: Any) -> Any:
        decode = make(step)

        def counted(tokens: list[str]) -> str:
            decoded[0] += len(tokens)
            return decode(tokens)

        return counted

    monkeypatch.setattr(Tokenizer, "_token_with_text", counting_look)
    monkeypatch.setattr(token_texts, "make_decoder", counting_decoder)
    for name, ids in (("llama", [300, 301]), ("t5", [300, 301]), ("bert_uncased", [100, 200]), ("Metaspace", [0, 2]),
                      ("gpt2", [byte_ids("gpt2")[0xFF]])):
        found, looked[0], decoded[0] = tokenizer_of(name).incremental(), 0, 0
        for number in ids * 1000:
            found.add(number)
        found.end()
        assert looked[0] == len(ids) * 1000
        assert decoded[0] <= 2 * looked[0]


@pytest.mark.parametrize(("name", "token", "data"), [
    ("gpt2", "\u0120sa", b" sa"), ("llama", "<0xC4>", b"\xc4"), ("llama", "ing", b"ing"), ("nllb", "\u2581in", b" in"),
    ("bert_uncased", "we", b" we"), ("bert_uncased", "##\u30bf", "\u30bf".encode()),
    ("bert_uncased", "[SEP]", b"[SEP]"),
])
def test_bytes_of_a_token_in_the_middle_of_a_text(name: str, token: str, data: bytes) -> None:
    tokenizer = tokenizer_of(name)
    number = tokenizer.token_id(token)
    assert number is not None
    assert tokenizer.token_text(number) == (data.decode("utf-8", "replace"), data)
    assert tokenizer.token_text(10**6) == ("", b"")


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_bytes_of_tokens_together_are_the_text(data: st.DataObject) -> None:
    tokenizer = tokenizer_of("gpt2")
    ids = [number for number in data.draw(some_ids("gpt2")) if tokenizer._token_with_text(number) is not None]
    together = b"".join(tokenizer.token_text(id)[1] for id in ids).decode("utf-8", "replace")
    assert together == tokenizer.continuation(ids)
