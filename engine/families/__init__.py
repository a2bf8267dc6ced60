"""Convert the config and the tensor names of Hugging Face models to the engine's own, family by family.

A family is a module with a function `read_config(values) -> ModelConfig` and a table `NAMES` of its tensor names. To
add a family, write its module and enter its model_type in FAMILIES below.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..config import ModelConfig, TextConfig
from ..errors import InputError, UnsupportedError, WeightsError, shown
from ..stems import Stem
from . import (
    albert,
    bert,
    clip,
    deberta_v2,
    distilbert,
    electra,
    embedding_gemma,
    eurobert,
    gte,
    jina_bert,
    jina_embeddings_v3,
    modernbert,
    mpnet,
    neobert,
    nomic_bert,
    qwen3,
    roberta,
    siglip,
    t5,
    umt5,
    vit,
    whisper,
)
from .fields import refuse_remote_code
from .names import Names


class Family(Protocol):
    """What a family's module provides."""

    NAMES: Names

    def read_config(self, values: dict[str, Any]) -> ModelConfig:
        """Return the architecture that the contents of a config.json describe."""


FAMILIES: dict[str, Family] = {
    "albert": albert,
    "bert": bert,
    "camembert": roberta,
    "clip": clip,
    "clip_text_model": clip,
    "deberta-v2": deberta_v2,
    "dinov2": vit,
    "dinov2_with_registers": vit,
    "distilbert": distilbert,
    "electra": electra,
    "eurobert": eurobert,
    "gemma3_text": embedding_gemma,
    "gte": gte,
    "jina_embeddings_v3": jina_embeddings_v3,
    "modernbert": modernbert,
    "mpnet": mpnet,
    "mt5": t5,
    "neobert": neobert,
    "new": gte,
    "nomic_bert": nomic_bert,
    "qwen3": qwen3,
    "roberta": roberta,
    "siglip": siglip,
    "siglip2": siglip,
    "siglip2_text_model": siglip,
    "siglip_text_model": siglip,
    "t5": t5,
    "umt5": umt5,
    "vit": vit,
    "whisper": whisper,
    "xlm-roberta": roberta,
}
"""The module of each model_type of config.json."""

BY_POSITIONS: dict[tuple[str, str], tuple[str, Family]] = {
    ("bert", "alibi"): ("jina_bert", jina_bert),
    ("xlm-roberta", "rotary"): ("jina_embeddings_v3", jina_embeddings_v3),
}
"""The name and the module of a family that shares its model_type, by model_type and position_embedding_type."""


REFUSED = {
    "embedding_gemma2_text": "EmbeddingGemma 2 adds a gated input to each layer; the first EmbeddingGemma is supported",
}
"""Why a model_type is refused that users may take for one of the supported families."""


REMOTE_CODE = {
    "eurobert": ("EuroBertModel",),
    "gte": ("GteModel",),
    "jina_bert": ("JinaBertModel",),
    "jina_embeddings_v3": ("XLMRobertaLoRA", "XLMRobertaModel"),
    "neobert": ("NeoBERT",),
    "new": ("NewModel",),
    "nomic_bert": ("NomicBertModel",),
}
"""The classes of remote code that compute what the family here does, as auto_map names them.

The keys are values of model_type and names in `BY_POSITIONS`. Folders of these families were published with
their code, before transformers had it.
"""


def choose_task(family: Family, weights: dict[str, np.ndarray], values: dict[str, Any],
                task: Any) -> dict[str, np.ndarray]:
    """Return renamed weights with the adapter of a task merged, for a family that has adapters.

    Raises `InputError` for an unknown task, and `UnsupportedError` for a family without adapters.
    """
    if not isinstance(task, str | None):
        raise InputError(f"task must be the name of one of the model's tasks, or None, not {shown(task)}")
    merge = getattr(family, "merge_adapters", None)
    if merge is not None:
        return merge(weights, values, task)
    if task is not None:
        raise UnsupportedError(f"the model has no adapters, so that task={shown(task)} chooses nothing; leave it out")
    return weights


def fold(family: Family, weights: dict[str, np.ndarray], values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return renamed weights with what a family folds into them.

    A family's module may have a function `fold(weights, values)`, for an operation of the model that other weights can
    express.
    """
    own = getattr(family, "fold", None)
    return weights if own is None else own(weights, values)


def read_stem(family: Family, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> Stem | None:
    """Return what turns images or sound into token vectors, from its arrays; None for a family that reads text.

    The module of a family that reads no text has a function `read_stem(values, arrays)`.
    """
    own = getattr(family, "read_stem", None)
    return None if own is None else own(values, arrays)


def adapt_text(family: Family, text: TextConfig, values: dict[str, Any], settings: dict[str, Any]) -> TextConfig:
    """Return the text settings of a folder without modules.json; a family may have its own pooling.

    A family's module may have a function `adapt_text(text, values, settings)`. settings: of the tokenizer.
    """
    own = getattr(family, "adapt_text", None)
    return text if own is None else own(text, values, settings)


def get_family(values: dict[str, Any]) -> Family:
    """Return the family of the model that a config.json describes; raises `UnsupportedError` for an unknown one."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise WeightsError(f"model_type must name a model family ({', '.join(FAMILIES)}), not {shown(model_type)}")
    if model_type not in FAMILIES:
        reason = f" ({REFUSED[model_type]})" if model_type in REFUSED else ""
        raise UnsupportedError(f"model_type {shown(model_type)} is not supported{reason}; supported are "
                               f"{', '.join(FAMILIES)}")
    name, family = model_type, FAMILIES[model_type]
    positions = values.get("position_embedding_type")
    if isinstance(positions, str):
        name, family = BY_POSITIONS.get((model_type, positions), (name, family))
    refuse_remote_code(values, REMOTE_CODE.get(name, ()))
    return family
