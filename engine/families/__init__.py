"""Model families: each turns a Hugging Face config and its tensor names into the engine's own.

A family is a module with two functions, `read_config(values) -> ModelConfig` and `rename(name) -> str | None`, where
None marks a tensor that the encoder has no use for. To add one, write the module and enter its model_type below.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..config import ModelConfig
from ..errors import UnsupportedError, WeightsError
from . import bert, distilbert, roberta


class Family(Protocol):
    """What a family's module provides."""

    def read_config(self, values: dict[str, Any]) -> ModelConfig:
        """The architecture that the contents of a config.json describe."""

    def rename(self, name: str) -> str | None:
        """Canonical name of a tensor, None for one that is left out, and an unknown name as it is."""


FAMILIES: dict[str, Family] = {
    "bert": bert,
    "camembert": roberta,
    "distilbert": distilbert,
    "roberta": roberta,
    "xlm-roberta": roberta,
}
"""model_type of config.json -> module."""


def get_family(values: dict[str, Any]) -> Family:
    """The family of the model that a config.json describes; raises `UnsupportedError` for one that is not known."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise WeightsError(f"model_type must name a model family ({', '.join(FAMILIES)}), not {model_type!r}")
    if model_type not in FAMILIES:
        raise UnsupportedError(f"model_type {model_type!r} is not supported; supported are {', '.join(FAMILIES)}")
    return FAMILIES[model_type]
