"""Read the settings of late interaction in the folders of PyLate and of Stanford's ColBERT.

    PyLate      config_sentence_transformers.json       query_prefix, document_prefix, query_length, document_length,
                                                        do_query_expansion, attend_to_expansion_tokens, skiplist_words
    Stanford    artifact.metadata beside config.json    query_token_id, doc_token_id, query_maxlen, doc_maxlen,
                                                        attend_to_mask_tokens, mask_punctuation

Both put a marker, one token, behind the first token of a text, which says whether the text is a query or a document.
The engine reads it as a prompt of one token. The linear map of the vectors is a module Dense in PyLate, and the tensor
linear.weight in Stanford's ColBERT.
"""

from __future__ import annotations

import json
import string
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import UnsupportedError, WeightsError, listed, shown
from ..families.fields import refuse_others
from ..files.folder import ModelFolder
from ..model.text_config import TextConfig
from ..text.special_tokens import token_ids
from ..text.vocabularies.tokenizer_settings import added_token
from ..weights.bfloat16 import widened
from ..weights.modules import TOKENS, Dense, Normalize

METADATA = "artifact.metadata"
"""The settings of Stanford's ColBERT, as JSON."""
LINEAR = "linear.weight"
"""The map of the vectors of tokens in a folder of Stanford's ColBERT: float32 [D', D]."""
_STANFORD = "HF_ColBERT"
"""The class that config.json of such a folder names."""
_PYLATE = "ColBERT"
"""The model_type of a folder of PyLate."""
_OF_PYLATE = ("query_prefix", "document_prefix", "do_query_expansion", "attend_to_expansion_tokens",
              "attend_to_mask_tokens", "skiplist_words")
"""Keys that PyLate alone writes."""
_USUAL_LENGTH = 32
"""The tokens of a query where a folder states none."""


@dataclass(frozen=True)
class Colbert:
    """The settings of a folder of late interaction, in the form of sentence-transformers' modules."""

    source: str
    """The file that states them, for messages."""
    prompts: dict[str, str]
    """The text to put in front, by the name of the prompt, such as "query"."""
    markers: tuple[str, ...]
    """The marker of queries, then of documents; "" for none."""
    settings: dict[str, Any]
    """query_length, document_length and query_expansion of the module Transformer."""
    skiplist: dict[str, Any]
    """The settings of the module MultiVectorMask."""
    width: int | None = None
    """The length of a vector in a folder of Stanford, 0 if it is not stated; None for PyLate, whose Dense states it."""

    @property
    def is_stanford(self) -> bool:
        """Return whether this is a folder of Stanford's ColBERT, and not of PyLate."""
        return self.width is not None


def read_pylate(folder: ModelFolder, settings: str) -> Colbert | None:
    """Return the settings of a folder of PyLate; None for another folder. settings: the name of the file with them.

    Raises `WeightsError` and `UnsupportedError`.
    """
    values, label = folder.read_object_or_empty(settings), folder.label(settings)
    keys = [key for key in _OF_PYLATE if key in values]
    if values.get("model_type") != _PYLATE and not keys:
        return None
    if values.get("model_type") not in (None, _PYLATE, "SentenceTransformer"):
        raise UnsupportedError(f"{label}: {listed(keys)} of PyLate beside model_type {shown(values['model_type'])} "
                               "are not supported; remove the keys of PyLate, or state them as this model_type does")
    prefixes = {name: _text(values, f"{name}_prefix", f"[{name[0].upper()}] ", label) for name in ("query", "document")}
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise WeightsError(f"{label}: prompts must map names to texts, not {shown(prompts)}")
    # The prompts of queries and of documents get the prefix of their task in front, unless they begin with it.
    prompts = {**prompts, **{name: prefix + (prompts.get(name) or "").removeprefix(prefix)
                             for name, prefix in prefixes.items()}}
    expands = values.get("do_query_expansion")
    if not isinstance(expands, bool | None):
        raise WeightsError(f"{label}: do_query_expansion must be true or false, not {shown(expands)}")
    attends = values.get("attend_to_expansion_tokens", values.get("attend_to_mask_tokens"))
    lengths = {"query_length": values.get("query_length"), "document_length": values.get("document_length")}
    if expands is not False:
        length = _USUAL_LENGTH if lengths["query_length"] is None else lengths["query_length"]
        lengths |= {"query_length": None, "query_expansion": _expansion(length, attends, label)}
    words = values.get("skiplist_words")
    skiplist = {"skiplist_words": list(string.punctuation) if words is None else words}
    return Colbert(label, {name: text for name, text in prompts.items() if text is not None},
                   markers=tuple(prefixes.values()), settings=lengths, skiplist=skiplist)


def read_stanford(folder: ModelFolder, config: str) -> Colbert | None:
    """Return the settings of a folder of Stanford's ColBERT; None for another folder. config: the name of config.json.

    Raises `WeightsError`, also for a folder without `METADATA`, and `UnsupportedError`.
    """
    names = folder.read_object(config).get("architectures") if folder.has(config) else None
    if not isinstance(names, list) or _STANFORD not in names:
        return None
    if not folder.has(METADATA):
        raise WeightsError(f"{folder.label(config)}: it names {_STANFORD}, a model of Stanford's ColBERT, whose "
                           f"lengths and marker tokens are in {METADATA}, and there is no such file; copy it from the "
                           "source of the folder")
    values, label = folder.read_object(METADATA), folder.label(METADATA)
    refuse_others(values, {"similarity": "cosine", "interaction": "colbert"}, f"{label}: ")
    masks, width = values.get("mask_punctuation", True), values.get("dim")
    if type(masks) is not bool or (width is not None and (type(width) is not int or width < 1)):
        raise WeightsError(f"{label}: mask_punctuation must be true or false, and dim a number of at least 1, not "
                           f"{shown(masks)} and {shown(width)}")
    markers = tuple(_text(values, key, usual, label) for key, usual in (
        ("query_token_id", "[unused0]"), ("doc_token_id", "[unused1]")))
    length = _USUAL_LENGTH if values.get("query_maxlen") is None else values["query_maxlen"]
    lengths = {"document_length": values.get("doc_maxlen"),
               "query_expansion": _expansion(length, values.get("attend_to_mask_tokens"), label)}
    prompts = {"query": f"{markers[0]} ", "document": f"{markers[1]} "}
    return Colbert(label, prompts, markers, settings=lengths,
                   skiplist={"skiplist_words": list(string.punctuation) if masks else []}, width=width or 0)


def _text(values: dict[str, Any], key: str, usual: str, label: str) -> str:
    """Return the text under a key, `usual` where it is absent or null; raises `WeightsError` for anything else."""
    text = usual if values.get(key) is None else values[key]
    if not isinstance(text, str):
        raise WeightsError(f"{label}: {key} must be a text, not {shown(text)}")
    return text


def _expansion(length: Any, attends: Any, label: str) -> dict[str, Any]:
    """Return query_expansion of the module Transformer, which fills up or cuts each query to `length` tokens.

    attends: whether other tokens may attend to the added ones; None means no. label: the file, for messages.
    """
    if not isinstance(attends, bool | None):
        raise WeightsError(f"{label}: attend_to_expansion_tokens or attend_to_mask_tokens must be true or false, not "
                           f"{shown(attends)}")
    return {"strategy": "fixed", "attend": bool(attends), "length": length}


def with_markers(text: TextConfig, colbert: Colbert) -> TextConfig:
    """Return text settings whose tokenizer finds the markers in a text, each as one token.

    Raises `WeightsError` for a marker that is no token of the vocabulary.
    """
    markers = [marker for marker in colbert.markers if marker]
    known = token_ids(text, markers)
    if missing := [marker for marker in markers if marker not in known]:
        raise WeightsError(f"{colbert.source}: {listed(missing)} must be put in front of texts as one token, and is no "
                           "token of the vocabulary; copy the tokenizer that belongs to this model")
    document = json.loads(text.tokenizer_json)
    others = [token for token in document.get("added_tokens") or [] if token.get("content") not in known]
    added = [{"id": number, **added_token(token)} for token, number in known.items()]
    document["added_tokens"] = sorted([*others, *added], key=lambda token: token["id"])
    return replace(text, tokenizer_json=json.dumps(document).encode())


def stanford_modules(colbert: Colbert, linear: np.ndarray | None, hidden_size: int) -> tuple[Dense, Normalize]:
    """Return the modules that follow the transformer of Stanford's folder: its linear map, and scaling to length 1.

    linear: the tensor `LINEAR` [D', hidden_size]. Raises `WeightsError` if it is missing or has another shape.
    """
    if linear is None:
        raise WeightsError(f"the weights lack {LINEAR}, the map of the vectors of Stanford's ColBERT")
    shape = linear.shape
    if len(shape) != 2 or shape[1] != hidden_size or (colbert.width or shape[0]) != shape[0]:
        raise WeightsError(f"{LINEAR} must have the shape [{colbert.width or 'dim'}, {hidden_size}] of dim in "
                           f"{METADATA} and hidden_size in config.json, not {list(shape)}")
    return (Dense(widened(linear), bias=None, source=TOKENS, target=TOKENS), Normalize(TOKENS, TOKENS))
