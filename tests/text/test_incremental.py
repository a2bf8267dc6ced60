"""The text of ids that come one by one is the text of all ids, for tokenizers of every kind and for wrong bytes too."""

import json
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.files.folder import ModelFolder
from engine.files.gguf import GgufFile
from engine.model.text_config import TextConfig
from engine.text import tokenizer as module
from engine.text.growth import steps
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies.gguf import read_gguf_tokenizer
from engine.text.vocabularies.of_folder import read_tokenizers

from ..tools.minilm import FOLDER as MINILM
from ..tools.paths import LANGUAGE_TOKENIZERS, MARIAN_TOKENIZER, TOKENIZERS
from ..tools.smollm2 import FILE as SMOLLM2

tokenizers = pytest.importorskip("tokenizers")
decoders = tokenizers.decoders

ALPHABET = tokenizers.pre_tokenizers.ByteLevel.alphabet()
BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
END = "<|endoftext|>"
MADE: dict[str, tuple[list[str], Any]] = {
    "no decoder": (["a", "##b", "", " "], None),
    "Metaspace": (["▁a", "▁", "b", "c▁▁d", ""], decoders.Metaspace()),
    "Metaspace without a first space": (["▁a", "▁", "b"], decoders.Metaspace(prepend_scheme="never")),
    "WordPiece": (["a", "##b", "##", ".", "'", "n't", " do not"], decoders.WordPiece()),
    "BPEDecoder": (["a</w>", "b", "</w>", "a</w>b</w>c", "</w></w>"], decoders.BPEDecoder()),
    "BPEDecoder, WordPiece": (["a</w>", "##b</w>c"], decoders.Sequence([decoders.BPEDecoder(), decoders.WordPiece()])),
    "CTC": (["a", "<pad>", "|", "b|b", "n't"], decoders.CTC()),
    "CTC, WordPiece": (["a", "<pad>", "##b"], decoders.Sequence([decoders.CTC(), decoders.WordPiece()])),
    "Whisper": ([*ALPHABET, "<|0.00|>", "<|0.02|>", "日本"], decoders.ByteLevel()),
    "bytes of Llama": ([*BYTES, "▁", "▁a", "b", "<0x+1>", "<0xc3>"],
                       decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                          decoders.Strip(" ", 1, 0)])),
    "bytes without a Fuse": ([*BYTES, "▁", "▁a"], decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])),
    "two spaces removed": ([" ", "a", "  b "], decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 2, 0)])),
    "spaces of the end removed": (["xyz", " ", "a ", "b  "],
                                  decoders.Sequence([decoders.Replace("x", "--"), decoders.Fuse(),
                                                     decoders.Strip(" ", 0, 2)])),
    "a replacement of all": (["a", "b", "ab"], decoders.Sequence([decoders.Fuse(), decoders.Replace("ba", "!")])),
    "a regular expression": (["a1", "23", "b"], decoders.Sequence([decoders.Replace(tokenizers.Regex(r"\d+"), "#")])),
    "a Sequence in a Sequence": (["▁a", "b"], decoders.Sequence([decoders.Sequence([decoders.Metaspace()])])),
    "an empty Sequence": (["a", "b"], decoders.Sequence([])),
}
"""Tokens and the decoder of tokenizers that no golden vocabulary has."""
FOLDERS = {name: TOKENIZERS / name for name in ("bert_uncased", "gpt2", "llama", "t5", "xlm_roberta")}
FOLDERS |= {name: LANGUAGE_TOKENIZERS / name for name in ("mbart", "nllb")}
NAMES = sorted({*MADE, *FOLDERS, "marian source", "marian target", "MiniLM", "SmolLM2", "llama of a GGUF"})


@cache
def tokenizer_of(name: str) -> Tokenizer:
    """Return a tokenizer by its name; skip the test if its files are not here."""
    if name in MADE:
        tokens, decoder = MADE[name]
        made = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, []))
        if decoder is not None:
            made.decoder = decoder
        made.add_special_tokens([END])
        text = TextConfig(made.to_str().encode())
    elif name == "SmolLM2":
        if not SMOLLM2.exists():
            pytest.skip("no SmolLM2")
        text = TextConfig(read_gguf_tokenizer(GgufFile(SMOLLM2, "map").settings))
    elif name == "llama of a GGUF":
        [text, _] = read_tokenizers(ModelFolder(TOKENIZERS / "llama"), translates=False)
        assert text is not None
        text = replace(text, keeps_space=True, bytes_alone=True)
    else:
        folder = FOLDERS.get(name, MINILM if name == "MiniLM" else MARIAN_TOKENIZER)
        if not folder.exists():
            pytest.skip("no MiniLM")
        sides = read_tokenizers(ModelFolder(folder), translates=True)
        text = sides[name.endswith("target")]
    return Tokenizer(text, None, 1)


def kinds(tokenizer: Tokenizer) -> list[str]:
    decoder = tokenizer._tokenizer.decoder
    return [step["type"] for step in steps(json.loads(decoder.__getstate__()), "decoders")] if decoder else []


@cache
def byte_ids(name: str) -> list[int]:
    """Return the ids of the 256 bytes, if the tokenizer has tokens for them."""
    tokenizer = tokenizer_of(name)
    tokens = [*BYTES] if "ByteFallback" in kinds(tokenizer) else []
    if "ByteLevel" in kinds(tokenizer):
        own = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in own]
        tokens = [chr(byte) if byte in own else chr(256 + others.index(byte)) for byte in range(256)]
    return [number for token in tokens if (number := tokenizer.token_id(token)) is not None]


def some_ids(name: str) -> st.SearchStrategy[list[int]]:
    """Return lists of ids: any ones, those of texts, bytes of texts, and any bytes; ids that do not exist, too."""
    tokenizer = tokenizer_of(name)
    size = tokenizer._tokenizer.get_vocab_size()
    texts = st.text(st.sampled_from("a b.,'\n éß日本😀\u0301\ufffd"), max_size=8)
    parts = [st.lists(st.integers(0, size + 1), max_size=8)]
    if name not in MADE:
        parts.append(texts.map(lambda text: tokenizer.encode(text, add_special_tokens=False)))
    if len(own := byte_ids(name)) == 256:
        parts += [texts.map(lambda text: [own[byte] for byte in text.encode()]),
                  st.binary(max_size=4).map(lambda data: [own[byte] for byte in data]),
                  st.lists(st.sampled_from([own[byte] for byte in b"\xc3\xa9\xe2\x82\xf0\x9f\xed\xa0"]), max_size=6)]
    start = [0] if name == "spaces of the end removed" else []  # `tokenizers` panics where it has too few to remove
    return st.lists(st.one_of(*parts), max_size=5).map(lambda lists: [*start, *chain.from_iterable(lists)])


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
    monkeypatch.delattr(Tokenizer, "decode")
    looked, decoded = [0], [0]
    look, make = Tokenizer._token_with_text, module.make_decoder

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
    monkeypatch.setattr(module, "make_decoder", counting_decoder)
    for name, ids in (("llama", [300, 301]), ("t5", [300, 301]), ("bert_uncased", [100, 200]), ("Metaspace", [0, 2]),
                      ("gpt2", [byte_ids("gpt2")[0xFF]])):
        found, looked[0], decoded[0] = tokenizer_of(name).incremental(), 0, 0
        for number in ids * 1000:
            found.add(number)
        found.end()
        assert looked[0] == len(ids) * 1000
        assert decoded[0] <= 2 * looked[0]
