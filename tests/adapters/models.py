"""Write the models that the tests of the adapters read, in one folder, in which the programs run."""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from ..tools import minilm, splade
from ..tools.head_models import write_folder
from ..tools.late_folders import write_late
from ..tools.module_folders import write_chain, write_router, write_static
from ..tools.tiny_models import write_json


def write_models(place: Path) -> list[str]:
    """Write the models; return the names of the real ones that are there."""
    real = []
    if minilm.FOLDER.exists():
        (place / "all-MiniLM-L6-v2").symlink_to(minilm.FOLDER.resolve())
        real.append("all-MiniLM-L6-v2")
    if splade.FOLDER.exists():
        (place / "splade").symlink_to(splade.FOLDER.resolve())
        real.append("splade")
    else:
        widen(write_folder(place / "splade", "bert_fill_mask"))
    widen(write_folder(place / "cross-encoder", "bert_pairs"))
    widen(write_folder(place / "cross-encoder-classes", "bert_pairs_three"))
    widen(write_late(place / "colbert", "bert"))
    widen(write_chain(place / "modules", 3))
    write_static(place / "static", "prompted")
    write_router(place / "router", "static query")
    write_router(place / "sparse-router", "sparse query")
    return real


def widen(folder: Path) -> None:
    """Store the weights of a folder as float32, because sentence-transformers computes in the type that is stored."""
    path = folder / "model.safetensors"
    save_file({name: tensor.float() for name, tensor in load_file(path).items()}, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"dtype": "float32"})
