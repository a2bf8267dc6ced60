"""Make the two tokenizers of a Marian model (OPUS-MT): of the source and of the target.

A folder has a SentencePiece model for each side, source.spm and target.spm, whose ids are not those of the model:
vocab.json has the id of each piece. A tokenizer.json has no such table. Its Unigram model lists the pieces by the ids
of vocab.json; a piece that only the other side has is listed with a space in front, which no text can match because
spaces become "▁" first. The decoder removes these spaces. Pieces that vocab.json lacks follow with ids that the model
does not have; `TextConfig.known_ids` turns them into the unknown token.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import TextConfig
from ..errors import UnsupportedError, shown
from ..weights.files import MAX_JSON, FormatError, has_file, naming, parse_object, read_bytes
from .byte_pairs import spaces_decoder
from .parts import Parts, document
from .recipes import precompiled, replace
from .sentencepiece import BYTE, MAX_MODEL, NORMAL, USER_DEFINED, Pieces, parse_model
from .settings import Settings, Token, added_token, plain_tokens

_TOKENS = plain_tokens(eos="</s>", unk="<unk>", pad="<pad>")
_ADVICE = "copy the model's folder again from its source"


@dataclass(frozen=True)
class Sides:
    """The tokenizers of a model that translates."""

    source: TextConfig
    target: TextConfig


def read_marian(folder: Path) -> Sides | None:
    """Return the tokenizers of a folder with source.spm, target.spm and vocab.json, or None if it lacks one of them.

    The ids are those of transformers' MarianTokenizer, with the eos token at the end. Language codes in vocab.json,
    such as ">>deu<<", are found in a text; transformers finds one code, at its start. Raises `WeightsError`, and
    `UnsupportedError` for a kind of SentencePiece model that Marian does not use.
    """
    if not all(has_file(folder / name) for name in ("source.spm", "target.spm", "vocab.json")):
        return None
    settings = Settings(folder)
    own = settings.boolean("separate_vocabs", False)
    source = _side(folder, "source.spm", "vocab.json", settings)
    return Sides(source, _side(folder, "target.spm", "target_vocab.json" if own else "vocab.json", settings))


def _side(folder: Path, model: str, vocabulary: str, settings: Settings) -> TextConfig:
    with naming(folder / vocabulary, _ADVICE):
        ids = parse_object(read_bytes(folder / vocabulary, MAX_JSON))
        if not all(type(number) is int for number in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
            raise FormatError("expected an object from tokens to the ids 0, 1, 2 and so on, each once")
        names = {role: settings.token(role, token["content"])["content"] for role, token in _TOKENS.items()}
        for name in names.values():
            if name not in ids:
                raise FormatError(f"it lacks the token {shown(name)}")
    with naming(folder / model, _ADVICE):
        pieces = parse_model(read_bytes(folder / model, MAX_MODEL))
        if BYTE in pieces.types:
            raise UnsupportedError(f"{folder / model}: the SentencePiece model falls back to bytes, which Marian's "
                                   "tokenizer here does not")
        if any("▁" in text.lstrip("▁") for text in pieces.texts):
            raise UnsupportedError(f"{folder / model}: the SentencePiece model has pieces of several words")
        codes = [text for text in ids if text.startswith(">>") and text.endswith("<<")]
        found = [*(added_token(name) for name in names.values()), *(added_token(code, special=False) for code in codes)]
        parts = _parts(pieces, ids, ids[names["unk_token"]], found)
        roles = {role.removesuffix("_token"): name for role, name in names.items()}
        made = document(parts, found, roles, vocabulary)
    missing = len(parts.ids) > len(ids)
    return TextConfig(made, feeds_token_types=False, known_ids=len(ids) if missing else 0,
                      unknown_id=ids[names["unk_token"]] if missing else 0)


def _parts(pieces: Pieces, ids: dict[str, int], unknown: int, found: list[Token]) -> Parts:
    """Return the parts of one side; found: the tokens that are found in a text before it is split."""
    scores = _scores(pieces)
    lowest, whole = min(scores.values()), {token["content"] for token in found}
    listed = [*sorted(ids, key=ids.__getitem__), *(text for text in scores if text not in ids)]
    vocabulary = [(text if text in scores or text in whole else f" {text}", scores.get(text, lowest))
                  for text in listed]  # fmt: skip
    steps: list[dict[str, Any]] = precompiled(pieces)
    if pieces.removes_spaces:
        steps += [replace(" {2,}", " "), replace("^ | $", "")]
    steps += [replace(" ", "▁", "String"), *([{"type": "Prepend", "prepend": "▁"}] if pieces.adds_space else [])]
    splitter = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True}
    decoder = spaces_decoder(pieces.adds_space)
    decoder["decoders"].insert(0, {"type": "Replace", "pattern": {"String": " "}, "content": ""})
    model = {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": False}
    return Parts(model, {text: i for i, text in enumerate(listed)}, {"type": "Sequence", "normalizers": steps},
                 splitter, _TOKENS, "A eos", "A B eos", [], decoder)


def _scores(pieces: Pieces) -> dict[str, float]:
    """Return the score of each piece that a text may have; SentencePiece's own bonus for pieces of the user."""
    rows = list(zip(pieces.texts, pieces.scores, pieces.types, strict=True))
    scores = {text: score for text, score, kind in rows if kind == NORMAL}
    if not scores:
        raise FormatError("the SentencePiece model has no pieces")
    highest = max(scores.values())
    return scores | {text: len(text) * highest - 0.1 for text, _, kind in rows if kind == USER_DEFINED}
