"""The families of models that generate: translation, summarisation, language models and speech recognition.

To add one, write a module with `read_halves` (halves.py), and enter its model_type below.
"""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedError, WeightsError, shown
from . import bart, gpt2, llama, t5, umt5, whisper
from .fields import refuse_remote_code
from .halves import GeneratingFamily

GENERATING: dict[str, GeneratingFamily] = {
    "bart": bart,
    "gpt2": gpt2,
    "llama": llama,
    "m2m_100": bart,
    "marian": bart,
    "mbart": bart,
    "mistral": llama,
    "mt5": t5,
    "qwen2": llama,
    "qwen3": llama,
    "t5": t5,
    "umt5": umt5,
    "whisper": whisper,
}
"""The module of each model_type of config.json."""


def get_generating_family(values: dict[str, Any]) -> GeneratingFamily:
    """Return the family of the model that a config.json describes; raises `UnsupportedError` for an unknown one."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise WeightsError(f"model_type must name a model family ({', '.join(GENERATING)}), not {shown(model_type)}")
    if model_type not in GENERATING:
        raise UnsupportedError(f"model_type {shown(model_type)} is not one of a generating model that is supported; "
                               f"supported are {', '.join(GENERATING)}")
    refuse_remote_code(values, ())
    return GENERATING[model_type]
