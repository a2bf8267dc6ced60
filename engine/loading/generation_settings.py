"""Make a `GenerationConfig` from the contents of the generation_config.json or config.json of a model folder."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from ..base.advice.calls import LACKED, WITHOUT_EFFECT
from ..base.errors import UnsupportedError, listed, shown
from ..model.generation_config import CHECKS, GenerationConfig

LOG = logging.getLogger("engine")

GENERATION = "generation_config.json"
"""The file of the settings."""
_OWN = CHECKS.keys() - {"seed", "prefix", "return_timestamps", "logprobs", "echo"}
"""Fields of `GenerationConfig` that files state. Of the others, seed and prefix are the engine's own, and the rest are
arguments of calls."""

_OF_FILES = {"_commit_hash", "_from_model_config", "return_dict"}
"""Keys that files have besides those in `WITHOUT_EFFECT`, and that do not change the generated tokens either."""


def settings_of(generation: Mapping[str, Any] | None, model: Mapping[str, Any] | None = None,
                handled: Collection[str] = ()) -> GenerationConfig:
    """Return the settings of generation that a model folder states.

    generation: the contents of generation_config.json; None if there is none. Then model is read, the contents of
    config.json, where older folders keep these settings. handled: other keys of generation_config.json that the family
    of the model reads. An unknown key is left out with a warning. Raises `UnsupportedError` for a
    setting that changes the results and is not implemented, and `InputError` for a wrong value.
    """
    stated: Mapping[str, Any] = (generation if generation is not None else model) or {}
    for name, value in stated.items():
        if name in LACKED and name not in handled and value is not None and value != LACKED[name]:
            raise UnsupportedError(f"the model's settings ask for {name}={shown(value)}, which the engine lacks")
    if generation is not None:
        known = {*_OWN, *LACKED, *WITHOUT_EFFECT, *_OF_FILES, *handled}
        unknown = [name for name in generation if name not in known]
        if unknown:
            LOG.warning("%s has keys that the engine does not know, and that are left out: %s; if they change what is "
                        "generated, the results are not those that the folder asks for", GENERATION, listed(unknown))
    options = {name: stated[name] for name in stated if name in _OWN and stated[name] is not None}
    if generation is None and stated.get("force_bos_token_to_be_generated") and "bos_token_id" in options:
        options["forced_bos_token_id"] = options["bos_token_id"]  # BART's older form
    return GenerationConfig(**options)
