"""Refuse the folder of an adapter that PEFT saved beside its base model, and say how to merge it."""

from __future__ import annotations

from ..base.errors import UnsupportedError, shown
from ..files.folder import ModelFolder

CONFIG = "adapter_config.json"


def refuse_adapter(folder: ModelFolder, loader: str) -> None:
    """Raise `UnsupportedError` if a folder holds an adapter of PEFT, whether or not it also holds a whole model.

    loader: the class of transformers that loads the base model, which the message names beside the kind and the rank.
    """
    if not folder.has(CONFIG):
        return
    values = folder.read_object(CONFIG)
    stated = [f"{key} {shown(values[key])}" for key in ("peft_type", "r", "base_model_name_or_path") if key in values]
    described = f" ({', '.join(stated)})" if stated else ""
    raise UnsupportedError(
        f"{folder}: {CONFIG} describes an adapter of PEFT{described}, and the engine loads whole models; merge the "
        f"adapter into its base model with peft and transformers, and load the folder that this writes: "
        f"PeftModel.from_pretrained({loader}.from_pretrained(BASE), ADAPTER).merge_and_unload().save_pretrained(FOLDER)"
        f"; copy the base model's tokenizer files into it. If the weights are merged already, remove {CONFIG}")
