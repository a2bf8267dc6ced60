"""Make the two tokenizers of a Marian model (OPUS-MT): of the source and of the target.

A folder has a SentencePiece model for each side, source.spm and target.spm, whose ids are not those of the model:
vocab.json has the id of each piece, as `sentencepiece_tables.py` describes.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...base.errors import shown
from ...files.folder import ModelFolder
from ...files.reading import FormatError
from ...model.text_config import TextConfig
from .sentencepiece import MAX_MODEL, parse_model
from .sentencepiece_tables import check_mapped, mapped_components, mapped_text, read_ids
from .tokenizer_json import document
from .tokenizer_settings import TokenizerSettings, added_token, plain_tokens

FILES = ("source.spm", "target.spm", "vocab.json")
"""The SentencePiece models of both sides, and the ids of their pieces."""
OWN_VOCABULARY = "target_vocab.json"
"""The file with the ids of the target, if vocab.json has only those of the source."""
_TOKENS = plain_tokens(eos="</s>", unk="<unk>", pad="<pad>")


@dataclass(frozen=True)
class Sides:
    """The tokenizers of the source and of the target of a model that translates."""

    source: TextConfig
    target: TextConfig


def read_marian(folder: ModelFolder) -> Sides | None:
    """Return the tokenizers of a folder with source.spm, target.spm and vocab.json, or None if it lacks one of them.

    The ids are those of transformers' MarianTokenizer, with the eos token at the end. Language codes in vocab.json,
    such as ">>deu<<", are found in a text; transformers finds one code, at its start. Raises `WeightsError`, and
    `UnsupportedError` for a kind of SentencePiece model that Marian does not use.
    """
    if not all(folder.has(name) for name in FILES):
        return None
    settings = TokenizerSettings(folder)
    separate = settings.boolean("separate_vocabs", False)
    source_model, target_model, vocabulary = FILES
    source = _read_side(folder, source_model, vocabulary, settings)
    return Sides(source, _read_side(folder, target_model, OWN_VOCABULARY if separate else vocabulary, settings))


def _read_side(folder: ModelFolder, model: str, vocabulary: str, settings: TokenizerSettings) -> TextConfig:
    """Return the tokenizer of one side. model, vocabulary: the names of its files of pieces, and of their ids."""
    with folder.naming(vocabulary):
        ids = read_ids(folder, vocabulary)
        names = {role: settings.token(role, token["content"])["content"] for role, token in _TOKENS.items()}
        for name in names.values():
            if name not in ids:
                raise FormatError(f"it lacks the token {shown(name)}")
    with folder.naming(model):
        pieces = parse_model(folder.read_bytes(model, MAX_MODEL))
        check_mapped(pieces, folder.label(model))
        codes = [text for text in ids if text.startswith(">>") and text.endswith("<<")]
        added = [*(added_token(name) for name in names.values()), *(added_token(code, special=False) for code in codes)]
        components = mapped_components(pieces, ids, names["unk_token"], added, _TOKENS, ("A eos", "A B eos"))
        roles = {role.removesuffix("_token"): name for role, name in names.items()}
        made = document(components, added, roles, vocabulary)
    return mapped_text(made, components, ids, names["unk_token"])
