"""Read the module LogitScore of a reranker of sentence-transformers: the tokens whose logits it compares."""

from __future__ import annotations

from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from ..files.folder import ModelFolder
from .module_list import MODULES

_MODULE = ".LogitScore"


def read_logit_score(folder: ModelFolder) -> tuple[int, ...] | None:
    """Return the id of the token that means "relevant", and of the token for "not relevant" if there is one.

    None for a folder without the module. Raises `WeightsError`, and `UnsupportedError` if the module reads no logits.
    """
    if (module := _module(folder)) is None:
        return None
    name = module.get("path")
    if not isinstance(name, str) or not name.replace("_", "").isalnum():
        raise WeightsError(f"{folder.label(MODULES)}: the path of LogitScore must be the name of a folder, not "
                           f"{shown(name)}")
    home = folder.folder(name, MODULES)
    values, config = home.read_object("config.json"), home.label("config.json")
    if values.get("module_input_name", "causal_logits") != "causal_logits":
        raise UnsupportedError(f"{config}: module_input_name {shown(values['module_input_name'])} is not supported; "
                               "only 'causal_logits' is")
    ids = [values.get("true_token_id"), values.get("false_token_id")]
    stated = tuple(number for number in ids if number is not None)
    if ids[0] is None or not all(type(number) is int and 0 <= number < 2**31 for number in stated):
        raise WeightsError(f"{config}: true_token_id and false_token_id must be token ids, not {shown(ids)}")
    return stated


def has_logit_score(folder: ModelFolder) -> bool:
    """Return whether modules.json names the module, so that the folder holds a reranker."""
    return _module(folder) is not None


def _module(folder: ModelFolder) -> dict[str, Any] | None:
    """Return the entry of LogitScore in modules.json; None without it."""
    entries = folder.read_list(MODULES) if folder.has(MODULES) else []
    return next((entry for entry in entries if isinstance(entry, dict) and str(entry.get("type")).endswith(_MODULE)),
                None)
