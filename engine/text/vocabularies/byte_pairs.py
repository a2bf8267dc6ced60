"""Make the BPE model of a tokenizer.json from pieces with scores, which SentencePiece and GGUF files have.

SentencePiece joins the two neighbours whose joint piece has the highest score. A tokenizer.json instead lists the pairs
in the order in which they are joined: every split of every piece into two pieces, the highest score first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import shown
from ...files.reading import FormatError
from .sentencepiece import BYTE, CONTROL, USER_DEFINED, PieceTable
from .tokenizer_json import Components, with_second_text
from .tokenizer_settings import Token, added_token

_LONGEST = 200
"""The most characters of a piece, which is split at each of them; the longest known pieces, of spaces, have 60."""
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def checked_pairs(lines: Sequence[str], ids: Mapping[str, int], source: str) -> list[list[str]]:
    """Return [["a", "b"], ...] of lines such as "a b"; raises `FormatError` unless "a", "b" and "ab" are tokens.

    ids: the vocabulary. source: the name of the lines, for messages.
    """
    pairs = []
    for line in lines:
        left, _, right = line.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise FormatError(f"{source} joins {shown(left)} and {shown(right)}, and one of the two or what they "
                              "make is not in the vocabulary")
        pairs.append([left, right])
    return pairs


def joined_pieces(texts: Sequence[str], scores: Sequence[float]) -> list[list[str]]:
    """Return the pairs that a BPE model joins, in this order; raises `FormatError` for a piece that is too long.

    texts, scores: one for each piece. Among pairs that make pieces of equal scores, the pair with the longer first part
    comes first, as in transformers.
    """
    ids = {text: i for i, text in enumerate(texts)}
    pairs: list[tuple[float, str, str]] = []
    for text, score in zip(texts, scores, strict=True):
        if len(text) > _LONGEST:
            raise FormatError(f"the piece {shown(text)} has {len(text):,} characters; at most {_LONGEST} are allowed")
        splits = [(text[:i], text[i:]) for i in range(1, len(text)) if text[:i] in ids and text[i:] in ids]
        pairs += [(score, *split) for split in sorted(splits, key=lambda split: (ids[split[0]], ids[split[1]]))]
    # The sort is stable, also in reverse: pairs with equal keys keep their order.
    pairs.sort(key=lambda pair: (pair[0], len(pair[1]), len(pair[2])), reverse=True)
    return [[left, right] for _, left, right in pairs]


def sentencepiece_bpe(pieces: PieceTable, tokens: dict[str, Token], single: str, *, add_space: bool,
                      legacy: bool = True) -> Components:
    """Return the components of the tokenizer of Llama 1 and 2 (Touvron et al. 2023), which falls back to bytes.

    tokens: as in `Components`. single: the template of a text. add_space: whether a space is put in front of a text.
    legacy: whether a space is put in front of each part between added tokens, too.
    """
    byte_fallback = BYTE in pieces.types
    if byte_fallback and not set(_BYTES) <= set(pieces.texts):
        raise FormatError("the vocabulary has some of the pieces <0x00> to <0xFF>, and not all")
    ids = {text: i for i, text in enumerate(pieces.texts)}
    model = {"type": "BPE", "dropout": None, "unk_token": pieces.texts[pieces.unknown],
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
             "byte_fallback": byte_fallback, "ignore_merges": False, "vocab": ids,
             "merges": joined_pieces(pieces.texts, pieces.scores)}
    prepend = [{"type": "Prepend", "prepend": "▁"}] if add_space else []
    steps = [*prepend, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    splitter = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first" if add_space else "never",
                "split": False}  # fmt: skip
    added = [added_token(text, special=kind == CONTROL) for text, kind in zip(pieces.texts, pieces.types, strict=True)
             if kind in (CONTROL, USER_DEFINED)]
    return Components(model, ids, normalizer={"type": "Sequence", "normalizers": steps} if legacy else None,
                      pre_tokenizer=None if legacy else splitter, tokens=tokens, template=with_second_text(single),
                      pieces=added, decoder=spaces_decoder(add_space, byte_fallback))


def spaces_decoder(strip: bool, byte_fallback: bool = False) -> dict[str, Any]:
    """Return the decoder that joins pieces to a text. strip: whether it removes the space in front of the text."""
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]
    steps += [{"type": "ByteFallback"}] if byte_fallback else []
    steps += [{"type": "Fuse"}]
    steps += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strip else []
    return {"type": "Sequence", "decoders": steps}
