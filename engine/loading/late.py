"""Read how a folder of sentence-transformers' MultiVectorEncoder turns texts into vectors of tokens.

    <Transformer>/sentence_bert_config.json     query_length, document_length, query_expansion
    <MultiVectorMask>/config.json               skiplist_words, skiplist_tasks, keep_only_token_ids

Prompts stand in config_sentence_transformers.json. A prompt that is one token, such as "[Q] ", is an added token of
tokenizer.json, special and not normalized: a tokenizer that changes texts to lower case would not find it otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.arguments import warn_caller
from ..base.errors import UnsupportedError, WeightsError, listed, shown
from ..files.folder import ModelFolder
from ..model.config import ModelConfig
from ..model.late_config import LateConfig
from ..model.text_config import TextConfig
from ..text.special_tokens import token_ids
from .head_tokens import stated_token

_OTHER_MASKS = ("deberta", "deberta-v2")
"""Families that mask attention in both directions in transformers: a token to which no other token may attend attends
to none itself, so that its vector is the same at every place."""
_EXPANSION = ("strategy", "attend", "token", "length")
"""The keys of a query_expansion."""
_MASK = ("skiplist_words", "skiplist_tasks", "keep_only_token_ids")
"""The keys of the module MultiVectorMask."""


def read_late(folder: ModelFolder, settings: Mapping[str, Any], mask: tuple[Mapping[str, Any], str] | None,
              text: TextConfig, config: ModelConfig) -> LateConfig:
    """Return how texts become vectors of tokens; raises `WeightsError` and `UnsupportedError`.

    folder, settings: of the module Transformer. mask: the settings of the module MultiVectorMask and the name of their
    file; None without the module. text, config: of the model.
    """
    expansion = _expansion(folder, settings.get("query_expansion"), text)
    masks = {} if mask is None else _masks(*mask, text)
    with folder.within():
        late = LateConfig(query_length=settings.get("query_length"), document_length=settings.get("document_length"),
                          **expansion, **masks)
        longest = config.longest_sequence
        if longest is not None and (late.expansion_length or 0) > longest:
            raise WeightsError(f"queries are filled up to {late.expansion_length} tokens, and the model reads "
                               f"{longest} at most")
    if late.expansion is not None and not late.attend and config.family in _OTHER_MASKS:
        raise UnsupportedError(f"{folder}: query_expansion with attend = false is not supported for "
                               f"{config.family}, whose tokens that are not read read nothing")
    if late.expansion is not None and not late.attend and mask is None:
        raise UnsupportedError(f"{folder}: query_expansion with attend = false needs the module MultiVectorMask, "
                               "which gives the added tokens their vectors; the folder has none")
    return late


def _expansion(folder: ModelFolder, stated: Any, text: TextConfig) -> dict[str, Any]:
    """Return the fields of `LateConfig` that a query_expansion states."""
    if stated is None:
        return {}
    if not isinstance(stated, dict) or not {"strategy", "length"} <= stated.keys() <= set(_EXPANSION):
        raise WeightsError(f"{folder}: query_expansion must have {', '.join(_EXPANSION)}, not {shown(stated)}")
    if folder.read_object_or_empty("tokenizer_config.json").get("padding_side") == "left":
        raise UnsupportedError(f"{folder}: query_expansion with a tokenizer that pads on the left is not supported")
    tokens = [stated["token"]] if stated.get("token") is not None else [
        *stated_token(folder, "mask_token", ("[MASK]", "<mask>")), *stated_token(folder, "eos_token", ())]
    # The first of these tokens that the vocabulary has fills queries up.
    ids = token_ids(text, [token for token in tokens if isinstance(token, str)])
    if not ids:
        raise WeightsError(f"{folder}: query_expansion needs a token of the vocabulary, not "
                           f"{shown(stated.get('token'))}; name one as its token, or as mask_token in "
                           "tokenizer_config.json")
    return {"expansion": stated["strategy"], "expansion_length": stated["length"],
            "expansion_id": next(iter(ids.values())), "attend": stated.get("attend", False)}


def _masks(values: Mapping[str, Any], label: str, text: TextConfig) -> dict[str, Any]:
    """Return the fields of `LateConfig` that a MultiVectorMask states; label: the file with its settings."""
    if unknown := sorted(values.keys() - set(_MASK)):
        raise UnsupportedError(f"{label}: {listed(unknown)} is not supported; supported are {', '.join(_MASK)}")
    words, tasks, keep = (values.get(key) for key in _MASK)
    tasks = ["document"] if tasks is None else [tasks] if isinstance(tasks, str) else tasks
    if not isinstance(words, list | None) or not all(isinstance(word, str) for word in words or ()) or (
            not isinstance(tasks, list) or not isinstance(keep, list | None)):
        raise WeightsError(f"{label}: skiplist_words must be a list of tokens, skiplist_tasks of names and "
                           f"keep_only_token_ids of ids, not {shown(values)}")
    ids = token_ids(text, words or [])
    if missing := [word for word in words or () if word not in ids]:
        warn_caller(f"{label}: {listed(missing)} of skiplist_words are no tokens of the vocabulary, and are left out",
                    UserWarning)
    return {"skip_ids": tuple(sorted(set(ids.values()))), "skip_tasks": tuple(tasks), "keep_ids": tuple(keep or ())}
