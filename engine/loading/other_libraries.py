"""Refuse folders in the form of other libraries, with a message that names the library."""

from __future__ import annotations

from typing import Any

from ..base.errors import UnsupportedError
from ..files.folder import ModelFolder

CONFIG = "config.json"
"""The file that folders of transformers have, and most folders of other libraries lack."""
_OF_TRANSFORMERS = "the engine reads the form of transformers, which has a config.json with a model_type; load the " \
    "model in that form, if it was published or can be converted"
_FILES = {
    "gliner_config.json": "it describes a model of GLiNER, which finds words for labels that the caller gives; the "
                          "engine does not run this kind of model",
    "params.json": "it describes the weights in the form of the model's makers, as Mistral and Meta publish them; "
                   f"{_OF_TRANSFORMERS}",
    "config.yaml": f"it describes a model of another library, such as pyannote.audio; {_OF_TRANSFORMERS}",
}
"""The message for each file of another library, if there is no config.json beside it."""
NEMO = ".nemo"
"""The suffix of an archive of NVIDIA NeMo."""
OF_NEMO = f"this is an archive of NVIDIA NeMo; {_OF_TRANSFORMERS}"


def refuse_other_library(folder: ModelFolder) -> None:
    """Raise `UnsupportedError` for a folder without a config.json that has the files of another library."""
    if folder.has(CONFIG):
        return
    for name, reason in _FILES.items():
        if folder.has(name):
            raise UnsupportedError(f"{folder.label(name)}: {reason}")
    for name in folder.names_in("", NEMO):
        raise UnsupportedError(f"{folder.label(name)}: {OF_NEMO}")


def library_of(values: dict[str, Any]) -> str:
    """Return the library that wrote a config.json without a model_type, by its contents; "" if it is not known."""
    if "pretrained_cfg" in values:
        return "timm"
    if any(isinstance(value, dict) and "_target_" in value for value in values.values()):
        return "uni2ts (Moirai)"
    named = any(isinstance(value, str) and value.startswith("pyannote.") for value in values.values())
    return "pyannote.audio" if named else ""
