"""Convert the config and the tensor names of Hugging Face models to the engine's own, family by family.

A family is a module with a function `read_config(values) -> ModelConfig` and a table `NAMES` of its tensor names. To
add a family, write its module and enter its model_type in FAMILIES below.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..config import ModelConfig
from ..errors import UnsupportedError, WeightsError, shown
from . import bert, distilbert, eurobert, gte, jina_embeddings_v3, modernbert, neobert, nomic_bert, qwen3, roberta
from .fields import Names, refuse_remote_code


class Family(Protocol):
    """What a family's module provides."""

    NAMES: Names

    def read_config(self, values: dict[str, Any]) -> ModelConfig:
        """Return the architecture that the contents of a config.json describe."""


FAMILIES: dict[str, Family] = {
    "bert": bert,
    "camembert": roberta,
    "distilbert": distilbert,
    "eurobert": eurobert,
    "gte": gte,
    "jina_embeddings_v3": jina_embeddings_v3,
    "modernbert": modernbert,
    "neobert": neobert,
    "new": gte,
    "nomic_bert": nomic_bert,
    "qwen3": qwen3,
    "roberta": roberta,
    "xlm-roberta": roberta,
}
"""The module of each model_type of config.json."""


REMOTE_CODE = {
    "eurobert": ("EuroBertModel",),
    "gte": ("GteModel",),
    "neobert": ("NeoBERT",),
    "new": ("NewModel",),
    "nomic_bert": ("NomicBertModel",),
}
"""By model_type, the classes of remote code that compute what the family here does, as auto_map names them.

Folders of these families were published with their code, before transformers had it.
"""


def get_family(values: dict[str, Any]) -> Family:
    """Return the family of the model that a config.json describes; raises `UnsupportedError` for an unknown one."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise WeightsError(f"model_type must name a model family ({', '.join(FAMILIES)}), not {shown(model_type)}")
    if model_type not in FAMILIES:
        raise UnsupportedError(f"model_type {shown(model_type)} is not supported; supported are {', '.join(FAMILIES)}")
    refuse_remote_code(values, REMOTE_CODE.get(model_type, ()))
    return FAMILIES[model_type]
