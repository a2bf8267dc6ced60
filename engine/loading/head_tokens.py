"""Find the ids of the special tokens that heads need: those for a mask, an unknown word and the like.

A tokenizer.json lists its special tokens and does not say what each is for; tokenizer_config.json does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import WeightsError, shown
from ..files.folder import ModelFolder
from ..model.text_config import TextConfig
from ..text.special_tokens import special_ids
from ..weights.head import Head

_FILES = ("tokenizer_config.json", "special_tokens_map.json")
_TOKENS = (("mask_token", ("[MASK]", "<mask>")), ("pad_token", ("[PAD]", "<pad>")), ("unk_token", ("[UNK]", "<unk>")),
           ("cls_token", ("[CLS]", "<s>")))
"""For the mask, the padding, the unknown token and the first one the key in the files, and the usual tokens, which are
tried where the files do not say."""


def with_tokens(heads: Sequence[Head], text: TextConfig | None, folder: ModelFolder) -> tuple[Head, ...]:
    """Return heads with the ids of the special tokens; raises `WeightsError` for a token that is no text."""
    if text is None or not heads:
        return tuple(heads)
    known = special_ids(text)
    mask, pad, unknown, first = (
        next((known[token] for token in stated_token(folder, key, usual) if token in known), None)
        for key, usual in _TOKENS)
    return tuple(replace(head, config=replace(head.config, mask_id=mask, pad_id=pad, unknown_id=unknown,
                                              first_id=first)) for head in heads)


def stated_token(folder: ModelFolder, key: str, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the token that a file states under a key, or the usual ones."""
    for name in _FILES:
        value: Any = folder.read_object_or_empty(name).get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if value is not None and not isinstance(value, str):
            raise WeightsError(f"{folder.label(name)}: {key} must be a text, not {shown(value)}")
        if value is not None:
            return (value,)
    return usual
