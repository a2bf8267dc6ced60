"""Find the ids of the special tokens that heads need, such as the mask and the token of an unknown word.

A tokenizer.json lists its special tokens and does not say what each is for; tokenizer_config.json does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import WeightsError, shown
from ..files.folder import ModelFolder
from ..model.text_config import TextConfig
from ..text.special_tokens import special_ids, token_ids
from ..text.vocabularies.tokenizer_settings import FILES
from ..weights.head import Head

_USUAL = {"mask_token": ("[MASK]", "<mask>"), "pad_token": ("[PAD]", "<pad>"), "unk_token": ("[UNK]", "<unk>"),
          "cls_token": ("[CLS]", "<s>"), "eos_token": ("</s>",)}
"""The usual special tokens, by their keys in files; they are tried where the files do not state a key."""
_OF_HEADS = ("mask_token", "pad_token", "unk_token", "cls_token")  # in the order of `mask, pad, unknown, first`


def with_tokens(heads: Sequence[Head], text: TextConfig | None, folder: ModelFolder) -> tuple[Head, ...]:
    """Return heads with the ids of the special tokens that they need, None for a token that the tokenizer lacks.

    Raises `WeightsError` for a token that is no text.
    """
    if text is None or not heads:
        return tuple(heads)
    known = special_ids(text)
    mask, pad, unknown, first = (
        next((known[token] for token in stated_token(folder, key, _USUAL[key]) if token in known), None)
        for key in _OF_HEADS)
    return tuple(replace(head, config=replace(head.config, mask_id=mask, pad_id=pad, unknown_id=unknown,
                                              first_id=first)) for head in heads)


def token_ids_of(text: TextConfig, folder: ModelFolder, keys: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of the special tokens with these keys that the tokenizer has, each once, in increasing order.

    Raises `WeightsError` for a token that is no text, and for a vocabulary without texts and ids.
    """
    ids_of_keys = [[*token_ids(text, stated_token(folder, key, _USUAL[key])).values()][:1] for key in keys]
    return tuple(sorted({number for ids in ids_of_keys for number in ids}))


def stated_token(folder: ModelFolder, key: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the one token that a file states under a key; () if a file states null, and none a token; else `usual`.

    usual: the tokens that are tried where no file has the key. tokenizer_config.json comes before
    special_tokens_map.json.
    """
    for name in FILES[:2]:
        values = folder.read_object_or_empty(name)
        value: Any = values.get(key)
        if key in values and value is None:
            usual = ()      # there is no such token, unless the next file names one
        value = value.get("content") if isinstance(value, dict) else value
        if value is not None and not isinstance(value, str):
            raise WeightsError(f"{folder.label(name)}: {key} must be a text, not {shown(value)}")
        if value is not None:
            return (value,)
    return usual
