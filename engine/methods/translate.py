"""`Generator.translate`: translates texts, and puts in the language tokens of models that have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, UnsupportedError, located, shown
from ..base.stop import NEVER, Stop
from ..model.text_config import TextConfig
from ..text.sentences import read_texts
from ..text.special_tokens import special_ids
from .decoding import DecoderMethod, GeneratingModel, GeneratingOptions, PreparedWorks
from .generate import GENERATE, GenerateOptions
from .inputs import place_of, read_ids

_TOKENS = {
    "m2m_100": re.compile(r"__(?P<m2m>[a-z]{2,3})__|(?P<nllb>[a-z]{3}_[A-Z][a-z]{3})"),
    "marian": re.compile(r">>(?P<marian>[^<>]+)<<"),
    "mbart": re.compile(r"(?P<mbart>[a-z]{2}_[A-Z]{2})"),
}
"""For each family, a regular expression for its language tokens, with the code of the language in a group."""


def language_ids(family: str, text: TextConfig | None) -> dict[str, int]:
    """Return the id of each language token, by the code of the language; empty for a model without language tokens."""
    if family not in _TOKENS:
        return {}
    matches = ((_TOKENS[family].fullmatch(token), number) for token, number in special_ids(text).items())
    return {str(match[match.lastgroup or 0]): number for match, number in matches if match}    # the group that matched


def choose_languages(family: str, languages: dict[str, int], sources: Sequence[NDArray[np.int64]], source: Any,
                     target: Any) -> tuple[list[NDArray[np.int64]], dict[str, Any]]:
    """Return (the sources with their language tokens, the generation settings for the target language).

    sources: the ids of each source, int64 [S]. languages: of `language_ids`. source, target: codes, or None to change
    nothing. A Marian model reads the token of the target language in front of the source. The other models write it as
    the first token of the result, and read the token of the source language in front of the source or at its end.
    Raises `InputError`, and `UnsupportedError` for a model that has no languages to choose from.
    """
    if source is None and target is None:
        return list(sources), {}
    if not languages:
        raise UnsupportedError("this model has no language tokens, so source_language and target_language have no "
                               "effect; leave them out")
    ids = {name: _id_of(name, code, languages) for name, code in
           (("source_language", source), ("target_language", target)) if code is not None}
    if family == "marian":
        if source is not None:
            raise UnsupportedError("this model finds the language of a source itself; leave out source_language")
        return [np.concatenate([[ids["target_language"]], tokens]).astype(np.int64) for tokens in sources], {}
    known = np.array([*languages.values()])
    # The tokenizer puts the language token of a source at its end or at its start.
    at_ends = [len(tokens) > 0 and bool(np.isin(tokens[-1], known)) for tokens in sources]
    if source is not None:
        sources = [_replaced(tokens, known, at_end, ids["source_language"])
                   for tokens, at_end in zip(sources, at_ends, strict=True)]
    # The first mBART, with the language at a source's end, starts results with it; other models force it after a start.
    name = "decoder_start_token_id" if family == "mbart" and any(at_ends) else "forced_bos_token_id"
    return list(sources), {} if target is None else {name: ids["target_language"]}


def _id_of(name: str, code: Any, languages: dict[str, int]) -> int:
    """Return the id of the token of a language; raises `InputError`. name: the caller's argument with the code."""
    if not isinstance(code, str) or code not in languages:
        raise InputError(f"{name} must be one of {', '.join(languages)}, not {shown(code)}")
    return languages[code]


def _replaced(ids: NDArray[np.int64], known: NDArray[np.int64], at_end: bool, language: int) -> NDArray[np.int64]:
    """Return the ids of a source with another language token in the place of its own, at its end or at its start.

    known: the ids of all language tokens.
    """
    place = len(ids) - 1 if at_end else 0
    if not len(ids) or ids[place] not in known:
        raise UnsupportedError("the model's tokenizer adds no language token to a text, so source_language has no "
                               "effect; leave it out")
    changed = ids.copy()
    changed[place] = language
    return changed


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(GeneratingOptions):
    """The options of `Generator.translate` that say what is computed."""

    source_language: str | None = None
    target_language: str | None = None


def check_translates(model: GeneratingModel) -> None:
    """Raise `UnsupportedError` for a model without an encoder, or without the tokenizer of source or target."""
    prepared = model.prepared
    if prepared.encoder_config is None:
        raise UnsupportedError("this model has no encoder, so it does not translate; call generate")
    for config in (prepared.source_text, prepared.text):
        prepared.tokenizer(config)      # raises for None, a model without this tokenizer


def sources_of(model: GeneratingModel, texts: Any, options: TranslateOptions, places: Sequence[str] | None = None
               ) -> tuple[list[Any], dict[str, Any]]:
    """Return (inputs, settings) with which `generate` translates texts. places: the names of the texts in messages."""
    prepared, sources = model.prepared, []
    for i, text in enumerate(read_texts(texts)[0]):
        with located(place_of(i, places)):
            sources.append(read_ids(prepared, prepared.source_text, text, "a text", prepared.lengths.source))
    family, languages = prepared.config.family, model.language_ids
    inputs, language_settings = choose_languages(family, languages, sources, options.source_language,
                                                 options.target_language)
    settings = language_settings | {**options.settings}
    config = prepared.generation.changed(**settings)
    # All families but Marian name the language of a result by its first token, which these two settings choose.
    first_tokens = {config.decoder_start_token_id, config.forced_bos_token_id}
    if languages and family != "marian" and not first_tokens & {*languages.values()}:
        raise InputError(f"this model needs a target_language for its results; it knows {', '.join(languages)}")
    return inputs, settings


def _prepare(model: GeneratingModel, texts: Any, options: TranslateOptions, stop: Stop = NEVER,
             places: Sequence[str] | None = None) -> PreparedWorks:
    """Return the call of `generate` for a text or a list of texts with language tokens; its results are texts."""
    inputs, settings = sources_of(model, texts, options, places)
    if (logprobs := settings.get("logprobs")) is not None and logprobs is not False:
        raise InputError("translate returns texts, without log probabilities; leave logprobs out, or call generate")
    generated = GENERATE.prepare(model, inputs, GenerateOptions(settings=settings), stop, places)

    def finish(i: int, results: Any) -> Any:
        """Return the translation of text `i`, or a list of them if several were asked for."""
        finished = generated.finish(i, results)
        return [result.text for result in finished] if isinstance(finished, list) else finished.text

    return replace(generated, finish=finish, single=isinstance(texts, str))


TRANSLATE = DecoderMethod("translate", TranslateOptions, check_translates, _prepare)
