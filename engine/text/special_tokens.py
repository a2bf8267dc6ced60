"""Find the ids of a tokenizer's special and other tokens, and end and fill the ids of a text by special ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..base.errors import WeightsError, shown
from ..model.text_config import TextConfig

START, END = "<|startoftranscript|>", "<|endoftext|>"
"""Whisper's tokens at the start and at the end of a transcript."""
NO_TIMES = "<|notimestamps|>"
"""Whisper's token that asks for no timestamps; the tokens after it are the times."""


def special_ids(text: TextConfig | None) -> dict[str, int]:
    """Return the ids of the added tokens of a tokenizer.json by their texts; raises `WeightsError`."""
    if text is None:
        return {}
    from .safety import read_tokenizer  # here, because `import engine` shall stay light

    return _added_ids(read_tokenizer(text.tokenizer_json))


def token_ids(text: TextConfig, tokens: Iterable[str]) -> dict[str, int]:
    """Return {token: id} of these tokens, without tokens that the tokenizer lacks, in the order of `tokens`.

    Raises `WeightsError` for a tokenizer.json that is damaged.
    """
    from .safety import read_tokenizer  # here, because `import engine` shall stay light

    known = ids_of_tokens(read_tokenizer(text.tokenizer_json))
    return {token: known[token] for token in tokens if token in known}


def ids_of_tokens(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Return the ids of all tokens of a tokenizer.json by their texts.

    Raises `WeightsError` for a vocabulary that is no mapping of tokens to ids, and no list of tokens.
    """
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):         # Unigram has pairs of a token and its score
        vocab = {entry[0]: i for i, entry in enumerate(vocab) if isinstance(entry, list) and entry
                 and isinstance(entry[0], str)}
    if not isinstance(vocab, dict) or not vocab or not all(
            type(number) is int and 0 <= number < 2**31 for number in vocab.values()):
        raise WeightsError("the vocabulary of the model's tokenizer.json must map tokens to ids below 2^31, or list "
                           f"tokens with scores, and is {shown(vocab)}")
    return vocab | _added_ids(tokenizer)


def _added_ids(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Return the ids of the added tokens of a tokenizer.json by their texts; raises `WeightsError`."""
    tokens = tokenizer.get("added_tokens") or []
    if not isinstance(tokens, list) or not all(map(_is_token, tokens)):
        raise WeightsError("the added_tokens of the model's tokenizer.json must be a list of objects with an id below "
                           "2^31 and a content, a text")
    return {token["content"]: token["id"] for token in tokens}


def _is_token(token: Any) -> bool:
    """Return whether a value is an added token with a text and a possible id."""
    return (isinstance(token, dict) and isinstance(token.get("content"), str) and type(token.get("id")) is int
            and 0 <= token["id"] < 2**31)


def finish(text: TextConfig, ids: np.ndarray, limit: int) -> np.ndarray:
    """Return the ids [T] without `text.left_out_id`, up to the first `text.end_id`, and filled with `text.fill_id`.

    limit: the number of tokens up to which they are filled. Raises `WeightsError` for ids without the end token, whose
    vector is that of the text in such a model.
    """
    if text.left_out_id is not None:
        ids = ids[ids != text.left_out_id]
    if text.end_id is not None:
        ends = np.flatnonzero(ids == text.end_id)
        if not ends.size:
            raise WeightsError(f"the model's tokenizer gives a text no token {text.end_id}, which ends a text by the "
                               "model's config.json")
        ids = ids[: ends[0] + 1]
    return ids if text.fill_id is None else resized(ids, max(limit, len(ids)), text.fill_id)


def resized(ids: np.ndarray, size: int, value: int) -> np.ndarray:
    """Return the first `size` ids [T], filled up with `value` if there are fewer."""
    if len(ids) >= size:
        return ids[:size]       # without np.pad, whose 40 microseconds would double the time of a short text
    return np.pad(ids, (0, size - len(ids)), constant_values=value)
