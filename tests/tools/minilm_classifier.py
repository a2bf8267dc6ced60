"""A folder of all-MiniLM-L6-v2 with a head of classes behind its pooler."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.files.safetensors import read_safetensors

from .tiny_models import safetensors, write_json


def weights_of(minilm: Path) -> dict[str, np.ndarray]:
    """Return the float32 arrays of the folder, its pooler among them."""
    return read_safetensors(minilm / "model.safetensors",
                            lambda name: None if name == "embeddings.position_ids" else name)


def write_classifier(folder: Path, minilm: Path, labels: Sequence[str], weight: np.ndarray, bias: np.ndarray) -> Path:
    """Write a Hugging Face folder; weight: [labels, 384], bias: [labels]."""
    folder.mkdir()
    config = json.loads((minilm / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(labels)),
               "label2id": {label: i for i, label in enumerate(labels)}}
    write_json(folder / "config.json", config)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, folder / name)
    tensors = {f"bert.{name}": np.asarray(array) for name, array in weights_of(minilm).items()}
    tensors |= {"classifier.weight": weight, "classifier.bias": bias}
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return folder
