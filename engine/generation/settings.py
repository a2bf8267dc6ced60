"""Choose the settings of one call: those of the model, with the arguments of the call in their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..base.arguments import warn_caller
from ..base.errors import InputError
from ..model.generation_config import GREEDY_BELOW, GenerationConfig

_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")
"""The settings without effect unless tokens are drawn."""
_DEFAULTS = {field.name: field.default for field in fields(GenerationConfig)}


def settings_of_call(model: GenerationConfig, given: Mapping[str, Any]) -> GenerationConfig:
    """Return the model's settings with the arguments of a call; raises `InputError`.

    Warns if the call asks for a way of sampling, but nothing samples. A temperature of 0 asks for no sampling.
    """
    if given.get("is_multilingual") not in (None, model.is_multilingual):
        raise InputError("is_multilingual says what a model is, and is no setting of a call; it belongs into "
                         "generation_config.json")
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
