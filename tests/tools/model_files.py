"""Transformer files and folders that several test modules write, and the comparison of two models."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from engine import Transformer
from engine.loading.npz_model import ENCODER, FORMAT
from engine.model.text_config import TextConfig
from engine.weights.modules import module_document

from .module_folders import TYPES
from .tiny_models import hf_folder, random_model, write_json, write_modules_json

TOKENIZER = '{"version": "1.0", "model": {"vocab": {"ä": 0}}}'.encode()
TEXT = TextConfig(TOKENIZER, max_seq_length=9, pooling=("cls", "mean"), normalize=True, include_prompt=False,
                  lower_case=True, prompts={"query": "q: ", "passage": ""}, default_prompt_name="query")

OLD = {kind: f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Normalize")}


def same(one: Transformer, other: Transformer) -> bool:
    """Return whether two models have equal configurations, texts and weights, bit for bit."""
    def contents(model: Transformer) -> dict[str, Any]:
        return {name: (array.dtype, array.shape, array.tobytes()) for name, array in model.weights.items()}

    def heads(model: Transformer) -> list[Any]:
        return [(head.config, {name: array.tobytes() for name, array in head.weights.items()}) for head in model.heads]

    def modules(model: Transformer) -> list[Any]:
        return [(module_document(module), {name: array.tobytes() for name, array in module.arrays.items()})
                for module in (*model.token_modules, *model.modules)]

    return (one.config, one.text) == (other.config, other.text) and contents(one) == contents(other) and (
        (heads(one), modules(one), len(one.modules)) == (heads(other), modules(other), len(other.modules)))


def by_hand(path: Path, document: Any, **arrays: Any) -> Path:
    """Write a file as a user without the engine does: plain savez, the config as a string."""
    text = document if isinstance(document, str) else json.dumps(document)
    np.savez(path, **dict(random_model().weights) | {"config": text} | arrays)
    return path


def document(**changes: Any) -> dict[str, Any]:
    """Return the config of an .npz of a tiny model, with changes."""
    return {"format": FORMAT, "version": ENCODER, "model": random_model().config.to_json()} | changes


def st_folder(folder: Path, *kinds: str, types: dict[str, str] = TYPES, transformer: str = "", pooling: Any = None,
              files: dict[str, Any] | None = None) -> Path:
    """Write a sentence-transformers folder with these modules; `files` are further JSON files."""
    home = hf_folder(folder / transformer)
    (home / "tokenizer.json").write_bytes(TOKENIZER)
    paths = {"Transformer": transformer, "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}
    write_modules_json(folder, *((paths[kind], types[kind]) for kind in kinds))
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": "mean"} if pooling is None else pooling)
    for name, value in (files or {}).items():
        write_json(folder / name, value)
    return folder
