"""Read which letter each output of a speech model's head stands for, from vocab.json and settings: `Spelling`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..families.fields import boolean, class_name
from ..files.folder import ModelFolder
from ..model.config_checks import is_unicode
from ..model.spelling import Spelling
from ..speech.samples import RATE
from ..text.vocabularies.tokenizer_settings import FILES
from ..weights.head import Head
from .head_tokens import stated_token
from .other_libraries import CONFIG

LOG = logging.getLogger("engine")

VOCABULARY = "vocab.json"
_CLASSES = ("Wav2Vec2CTCTokenizer", "Wav2Vec2Tokenizer")
_EXTRACTOR, _PROCESSOR = "preprocessor_config.json", "processor_config.json"
_LANGUAGE_MODEL = "alphabet.json"
"""The file of pyctcdecode, whose search asks a language model beside the model of speech; it is never opened."""
_USUAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
"""The special tokens, in the order in which transformers adds those that the vocabulary lacks."""


def gives_letters(values: Mapping[str, Any]) -> bool:
    """Return whether config.json names a model whose head gives the letters of each token of a recording."""
    return class_name(values).endswith("ForCTC")


def spelling_files(folder: ModelFolder) -> list[str]:
    """Return the names of the files in a folder that `read_spelling` may read; none for another model."""
    if not gives_letters(folder.read_object_or_empty(CONFIG)):
        return []
    return [name for name in (*FILES, VOCABULARY, _EXTRACTOR, _PROCESSOR, _LANGUAGE_MODEL) if folder.has(name)]


def with_spelling(heads: Sequence[Head], folder: ModelFolder) -> tuple[Head, ...]:
    """Return heads, of which the head of letters, if there is one, gets the spelling in the files of a folder.

    heads: the result of `read_heads`. Raises `WeightsError` and `UnsupportedError`.
    """
    return tuple(replace(head, config=replace(head.config, spelling=read_spelling(folder, head.config.outputs)))
                 if head.config.task == "transcribe" else head for head in heads)


def without_letters(heads: Sequence[Head]) -> tuple[Head, ...]:
    """Return the heads without the head of letters, whose vocabulary an encoder alone does not need."""
    return tuple(head for head in heads if head.config.task != "transcribe")


def read_spelling(folder: ModelFolder, outputs: int) -> Spelling:
    """Return what each of the `outputs` of a head stands for; raises `WeightsError` and `UnsupportedError`."""
    settings, source = folder.read_object_or_empty(FILES[0]), folder.label(FILES[0])
    name = settings.get("tokenizer_class")
    if name is not None and name not in _CLASSES:
        raise UnsupportedError(f"{source}: tokenizer_class {shown(name)} is not supported for a model of speech; "
                               f"{' and '.join(_CLASSES)} are")
    if folder.has(_LANGUAGE_MODEL):
        LOG.warning("%s: the folder has a language model for a beam search, which the engine does not read; texts are "
                    "those of the greedy search", folder)
    ids = _ids(folder)
    special = {key: stated_token(folder, key, (usual,)) for key, usual in _USUAL.items()}
    pad = next(iter(special["pad_token"]), None)
    if pad is None or pad not in ids:
        raise WeightsError(f"{folder.label(VOCABULARY)}: the vocabulary lacks the word {shown(pad)}, the pad_token of "
                           "the tokenizer, which stands for no letter; copy vocab.json and tokenizer_config.json again "
                           "from the source of the model")
    added = _added_tokens(folder, settings)
    for [token] in filter(None, special.values()):
        if token not in ids and token not in added:
            added[token] = len({*ids, *added})
    words = {number: token for token, number in (*added.items(), *ids.items())}     # the vocabulary's own word wins
    unknown = special["unk_token"][0] if special["unk_token"] else ""
    delimiter = stated_token(folder, "word_delimiter_token", ("|",))
    if ids[pad] >= outputs:
        raise WeightsError(f"{folder.label(VOCABULARY)}: the word {shown(pad)} has the id {ids[pad]}, and the head of "
                           f"the model gives {outputs} outputs")
    scales = _scales(folder)
    with folder.within(FILES[0]):
        return Spelling(
            tokens=tuple(words.get(i, unknown) for i in range(outputs)), blank=ids[pad],
            delimiter=delimiter[0] if delimiter else None, space=settings.get("replace_word_delimiter_char", " "),
            lower_case=settings.get("do_lower_case") or False,
            cleans_spaces=settings.get("clean_up_tokenization_spaces") or False, scales=scales)


def _ids(folder: ModelFolder) -> dict[str, int]:
    """Return the id of each word of vocab.json; raises `WeightsError` and `UnsupportedError`."""
    if not folder.has(VOCABULARY):
        raise WeightsError(f"{folder}: no {VOCABULARY}, which says what letters the model writes; copy it from the "
                           "source of the model")
    ids: dict[str, Any] = folder.read_object(VOCABULARY)
    if ids and all(isinstance(value, dict) for value in ids.values()):
        raise UnsupportedError(f"{folder.label(VOCABULARY)}: it has a vocabulary for each language, whose adapters the "
                               "engine does not read; models of one language run")
    for word, number in ids.items():
        if type(number) is not int or number < 0 or not is_unicode(word):
            raise WeightsError(f"{folder.label(VOCABULARY)}: each word must have an id from 0 on, and {shown(word)} "
                               f"has {shown(number)}")
    if len(set(ids.values())) < len(ids):
        raise WeightsError(f"{folder.label(VOCABULARY)}: two words have one id")
    return ids


def _added_tokens(folder: ModelFolder, settings: dict[str, Any]) -> dict[str, int]:
    """Return the id of each token that the files add to the vocabulary; raises `WeightsError`."""
    stated = settings.get("added_tokens_decoder")       # {"31": {"content": "<s>", ...}, ...}
    added: dict[Any, Any] = folder.read_object_or_empty(FILES[2])       # {"<s>": 31, ...}
    if stated is not None:
        added = {}
        for number, token in stated.items() if isinstance(stated, dict) else [("", None)]:
            is_id = number.isdecimal() and len(number) < 9
            added[token.get("content") if isinstance(token, dict) else None] = int(number) if is_id else None
    if not all(is_unicode(token) and type(number) is int for token, number in added.items()):
        raise WeightsError(f"{folder.label(FILES[0 if stated is not None else 2])}: added tokens must have texts and "
                           f"ids, not {shown(stated if stated is not None else added)}")
    return added


def _scales(folder: ModelFolder) -> bool:
    """Return whether recordings are scaled to mean 0 and variance 1, by the settings of the feature extractor."""
    name, values = _PROCESSOR, folder.read_object_or_empty(_PROCESSOR).get("feature_extractor")
    if values is None:
        name = _EXTRACTOR
        if not folder.has(name):
            raise WeightsError(f"{folder}: no {name}, which says how the model reads recordings; copy it from the "
                               "source of the model")
        values = folder.read_object(name)
    if not isinstance(values, dict):
        raise WeightsError(f"{folder.label(name)}: feature_extractor must be an object, not {shown(values)}")
    for key, only in (("feature_extractor_type", "Wav2Vec2FeatureExtractor"), ("sampling_rate", RATE),
                      ("feature_size", 1)):
        if values.get(key, only) != only:
            raise UnsupportedError(f"{folder.label(name)}: {key} = {shown(values[key])} is not supported; only "
                                   f"{shown(only)} is")
    with folder.within(name):
        return boolean(values, "do_normalize", True)
