"""Make the settings of one call: those of the model, changed by the arguments of the call; `PreparedModel` asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ..base.arguments import warn_caller
from ..base.errors import InputError, listed, shown
from ..model.generation_config import GREEDY_BELOW, GenerationConfig

_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
"""The settings without effect unless tokens are drawn."""
_DEFAULTS = {field.name: field.default for field in fields(GenerationConfig)}


def settings_of_call(model: GenerationConfig, given: Mapping[str, Any],
                     encode: Callable[[str], Sequence[int]] | None = None) -> GenerationConfig:
    """Return the model's settings, changed by the arguments of a call (given); raises `InputError` for wrong ones.

    encode: returns the ids of a text, without special tokens; None for a model without a tokenizer.

    Warns if the call sets how to sample but does not sample. Temperature 0 means no sampling, so it needs no warning.
    """
    if given.get("is_multilingual") not in (None, model.is_multilingual):
        raise InputError("is_multilingual says what a model is, and is no setting of a call; it belongs into "
                         "generation_config.json")
    if isinstance(given.get("logit_bias"), Mapping):
        given = {**given, "logit_bias": {_id_of(key, encode): bias for key, bias in given["logit_bias"].items()}}
    config = model.changed(**given)
    if not config.do_sample:
        ignored = [name for name in _OF_SAMPLING if given.get(name) is not None
                   and getattr(config, name) != _DEFAULTS[name]
                   and not (name == "temperature" and config.temperature < GREEDY_BELOW)]  # fmt: skip
        if ignored:
            named = ", ".join(f"{name}={given[name]}" for name in ignored)
            warn_caller(f"{named} without do_sample=True changes nothing: the search takes the best token; give "
                        f"do_sample=True, or leave {'them' if len(ignored) > 1 else 'it'} out", UserWarning)
    return config


def _id_of(key: Any, encode: Callable[[str], Sequence[int]] | None) -> Any:
    """Return the id of a key of logit_bias, which may be the text of one token."""
    if not isinstance(key, str):
        return key
    if encode is None:
        raise InputError(f"logit_bias has the text {shown(key)}, but this model came without a tokenizer; give the id "
                         "of the token")
    ids = encode(key)
    if len(ids) != 1:
        instead = f"the id {key} is a number" if key.isdecimal() else "give the id of a token, or another text"
        raise InputError(f"logit_bias has the text {shown(key)}, which is {len(ids)} tokens ({listed(map(str, ids))}) "
                         f"and not one; {instead}")
    return ids[0]
