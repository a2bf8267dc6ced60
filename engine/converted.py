"""Read how a model of CTranslate2 generates: from its config.json, and from its vocabulary or tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import TextConfig
from .errors import InputError, WeightsError, shown
from .generation.settings import GenerationConfig
from .weights.files import FormatError, has_file, naming, read_bytes, read_list

_VOCABULARIES = ("shared_vocabulary", "target_vocabulary", "vocabulary")
"""The names that the list of the decoder's tokens has had, with the suffix .json or .txt."""
_MAX_LINES = 16_000_000
START, END = "<|startoftranscript|>", "<|endoftext|>"
"""Whisper's tokens at the start and at the end of a transcript."""
NO_TIMES = "<|notimestamps|>"
"""Whisper's token that asks for no timestamps; the tokens behind it are the times."""
_FIRST_TIME = 50
"""The latest first timestamp, in steps of 0.02 s, where a file does not say it: OpenAI's own limit."""


def read_settings(folder: Path, specification: str, values: Mapping[str, Any],
                  text: TextConfig | None) -> GenerationConfig:
    """Return the settings of a folder of CTranslate2; raises `WeightsError`.

    values: the contents of its config.json. text: its tokenizer, in which the special tokens of Whisper are found.
    """
    if specification == "WhisperSpec":
        ids = special_ids(text)
        if START not in ids or END not in ids:
            raise WeightsError(f"{folder}: a model of speech needs a tokenizer.json with the tokens {START} and {END}")
        found: dict[str, Any] = {"decoder_start_token_id": ids[START], "eos_token_id": ids[END],
                                 "max_initial_timestamp_index": _FIRST_TIME}
        for own, key in (("suppress_tokens", "suppress_ids"), ("begin_suppress_tokens", "suppress_ids_begin")):
            found[own] = [number for number in _numbers(folder, values, key) if number >= 0]
        try:
            return GenerationConfig(**found | {"alignment_heads": values.get("alignment_heads")})
        except InputError as error:
            raise WeightsError(f"{folder / 'config.json'}: {error}") from None
    words = _words(folder)
    names = {"eos_token_id": values.get("eos_token", "</s>"), "bos_token_id": values.get("bos_token", "<s>"),
             "decoder_start_token_id": values.get("decoder_start_token", "<s>")}
    known: dict[str, Any] = {key: words[name] for key, name in names.items() if isinstance(name, str) and name in words}
    return GenerationConfig(**known)


def special_ids(text: TextConfig | None) -> dict[str, int]:
    """Return the ids of the added tokens of a tokenizer.json by their texts; raises `WeightsError`."""
    if text is None:
        return {}
    try:
        tokens = json.loads(text.tokenizer_json).get("added_tokens", [])
        return {token["content"]: token["id"] for token in tokens if isinstance(token["id"], int)}
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        raise WeightsError("the added_tokens of the model's tokenizer.json must be a list of objects with id and "
                           "content") from None


def _numbers(folder: Path, values: Mapping[str, Any], key: str) -> list[int]:
    numbers = values.get(key, [])
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise WeightsError(f"{folder / 'config.json'}: {key} must be a list of ids, not {shown(numbers)}")
    return numbers


def _words(folder: Path) -> dict[str, int]:
    """Return the ids of the decoder's tokens by their texts."""
    for name in _VOCABULARIES:
        path = folder / f"{name}.json"
        if has_file(path):
            words = read_list(path)
            if not all(isinstance(word, str) for word in words):
                raise WeightsError(f"{path}: expected a list of texts")
            return {word: i for i, word in enumerate(words)}
        path = folder / f"{name}.txt"
        if has_file(path):
            with naming(path, "copy the model's folder again from its source"):
                try:
                    lines = read_bytes(path, _MAX_LINES).decode("utf-8").split("\n")
                except UnicodeDecodeError:
                    raise FormatError("it is not UTF-8") from None
            return {line.rstrip("\r"): i for i, line in enumerate(lines) if line}
    return {}
