"""Make a tokenizer.json of a SentencePiece model whose pieces get other ids, those of a table (vocab.json).

The Unigram model of a tokenizer.json lists its pieces in the order of their ids. A token that the SentencePiece model
lacks, such as a piece of the other language if two share one table, is listed with a space in front. No text can match
it, because spaces become "▁" first; the decoder removes these spaces. A BPE model has its own table of ids, and its
joins never make such a token. Pieces that the table lacks follow with ids that the model does not have;
`TextConfig.known_ids` turns them into the unknown token.

The steps before the model are those of SentencePiece itself.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import UnsupportedError
from ...files.folder import ModelFolder
from ...files.reading import MAX_JSON, FormatError, parse_object
from ...model.text_config import TextConfig
from .byte_pairs import joined_pieces, spaces_decoder
from .sentencepiece import BPE, BYTE, NORMAL, USER_DEFINED, PieceTable
from .tokenizer_json import Components
from .tokenizer_settings import Token


def read_ids(folder: ModelFolder, name: str) -> dict[str, int]:
    """Return {token: id} of a vocab.json; raises `FormatError` unless its ids are 0, 1, 2 and so on."""
    ids = parse_object(folder.read_bytes(name, MAX_JSON))
    if not all(type(number) is int for number in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise FormatError("expected an object from tokens to the ids 0, 1, 2 and so on, each once")
    return ids


def check_mapped(pieces: PieceTable, source: str) -> None:
    """Raise `UnsupportedError` for a SentencePiece model that `mapped_components` does not support."""
    if BYTE in pieces.types:
        raise UnsupportedError(f"{source}: the SentencePiece model falls back to bytes, which this tokenizer does not")
    if any("▁" in text.lstrip("▁") for text in pieces.texts):       # the pre-tokenizer splits a text at each of them
        raise UnsupportedError(f"{source}: the SentencePiece model has pieces of several words")


def mapped_components(pieces: PieceTable, ids: Mapping[str, int], unknown: str, added: Sequence[Token],
                      tokens: dict[str, Token], template: tuple[str, str]) -> Components:
    """Return the components of a tokenizer that gives the pieces of a SentencePiece model the ids of a table.

    ids: the table of all tokens of the model, from 0 without a gap. unknown: the token for text that no piece covers.
    added: the tokens that are found in a text before it is split. tokens: the special tokens by their roles, if the
    settings name no other ones. template: those of a text, and of a pair of texts.
    """
    scores = _scores(pieces)
    listed = [*sorted(ids, key=ids.__getitem__), *(text for text in scores if text not in ids)]
    all_ids = {text: i for i, text in enumerate(listed)}
    decoder = spaces_decoder(pieces.adds_space)
    model: dict[str, Any]
    if pieces.kind == BPE:
        model = {"type": "BPE", "dropout": None, "unk_token": unknown, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": False, "ignore_merges": False,
                 "vocab": all_ids, "merges": joined_pieces(list(scores), list(scores.values()))}
    else:
        # A token that is no piece gets a space in front. No normalized text has a space, so the token is never found.
        lowest, added_texts = min(scores.values()), {token["content"] for token in added}
        vocabulary = [(text if text in scores or text in added_texts else f" {text}", scores.get(text, lowest))
                      for text in listed]  # fmt: skip
        model = {"type": "Unigram", "unk_id": ids[unknown], "vocab": vocabulary, "byte_fallback": False}
        decoder["decoders"].insert(0, {"type": "Replace", "pattern": {"String": " "}, "content": ""})
    steps: list[dict[str, Any]] = precompiled(pieces)
    if pieces.removes_spaces:
        steps += [replace(" {2,}", " "), replace("^ | $", "")]
    steps += [replace(" ", "▁", "String"), *([{"type": "Prepend", "prepend": "▁"}] if pieces.adds_space else [])]
    splitter = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}
    normalizer = {"type": "Sequence", "normalizers": steps}
    return Components(model, all_ids, normalizer=normalizer, pre_tokenizer=splitter, tokens=tokens,
                      template=template, decoder=decoder)


def mapped_text(tokenizer_json: bytes, components: Components, ids: Mapping[str, int], unknown: str) -> TextConfig:
    """Return the text settings of a tokenizer.json with the ids of a table. components: those of the tokenizer.json.

    Pieces that the table lacks have ids behind those of the table, which the model lacks, too: they become `unknown`.
    """
    missing = len(components.ids) > len(ids)
    return TextConfig(tokenizer_json, feeds_token_types=False, known_ids=len(ids) if missing else 0,
                      unknown_id=ids[unknown] if missing else 0)


def precompiled(pieces: PieceTable) -> list[dict[str, Any]]:
    """Return the normalizer that replaces characters by the model's table, in a list, or none if it has no table."""
    if not pieces.charsmap:
        return []
    return [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(pieces.charsmap).decode()}]


def replace(pattern: str, content: str, kind: str = "Regex") -> dict[str, Any]:
    """Return the normalizer that replaces a pattern by a text (content). kind: "Regex" or "String"."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def _scores(pieces: PieceTable) -> dict[str, float]:
    """Return {piece: score} of all pieces that a text may have; pieces of the user get SentencePiece's bonus."""
    rows = list(zip(pieces.texts, pieces.scores, pieces.types, strict=True))
    scores = {text: score for text, score, kind in rows if kind == NORMAL}
    if not scores:
        raise FormatError("the SentencePiece model has no pieces")
    highest = max(scores.values())
    return scores | {text: len(text) * highest - 0.1 for text, _, kind in rows if kind == USER_DEFINED}
