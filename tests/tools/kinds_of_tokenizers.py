"""Tokenizers of every kind, and ids of texts and of wrong bytes, for the tests of texts that come id by id."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import pytest
from hypothesis import strategies as st

from engine.files.folder import ModelFolder
from engine.files.gguf import GgufFile
from engine.model.text_config import TextConfig
from engine.text.growth import steps
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies.gguf import read_gguf_tokenizer
from engine.text.vocabularies.of_folder import read_tokenizers

from .minilm import FOLDER as MINILM
from .paths import LANGUAGE_TOKENIZERS, MARIAN_TOKENIZER, TOKENIZERS
from .smollm2 import FILE as SMOLLM2

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
