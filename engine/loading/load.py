"""Open the path of a model, whatever its format, and read the model."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..base.errors import InputError, WeightsError, shown
from ..files.folder import ModelFolder
from ..model.precision import canonical_name
from ..weights.model import Model
from .ctranslate2 import CTranslate2Source, is_ctranslate2
from .gguf import GgufSource
from .hugging_face import FolderSource
from .npz_model import NpzSource
from .source import CLASSES, Source


def open_source(path: str | os.PathLike[str] | Source, memory: str = "map") -> Source:
    """Open a path: an `.npz`, a `.gguf`, a folder of Hugging Face, of sentence-transformers or of CTranslate2.

    memory: "map" for weights that stay in the file, mapped read-only, unless they have to be converted to float32; or
    "copy" to read the whole file into private memory, so that a change of the file cannot hurt. A source that is open
    already is returned. Raises `WeightsError` and `InputError`.
    """
    if memory not in ("map", "copy"):
        raise InputError(f"memory must be 'map' or 'copy', not {shown(memory)}")
    if isinstance(path, Source):
        return path
    path = model_path(path)
    if os.path.isdir(path):
        folder = ModelFolder(path)
        return CTranslate2Source(folder, memory) if is_ctranslate2(folder) else FolderSource(folder, memory)
    if path.suffix == ".gguf":
        return GgufSource(path, memory)
    if os.path.isfile(path):
        return NpzSource(path, memory)
    raise WeightsError(explain_missing(path))


def load_model(path: str | os.PathLike[str] | Source, *, kind: str | None = None, memory: str = "map",
               task: str | None = None, precision: str | None = None) -> Model:
    """Load a model into memory, checked.

    path, memory: as in `open_source`. kind: "encode" for the encoder alone, or "generate", "transcribe" or "rank" for a
    decoder with the encoder that it reads; None for what the files say. task: the adapter to merge, of a folder that
    holds adapters for several tasks. Matrices in bfloat16 and float16 stay as they are. precision: the one that the
    model will run in, if not that of its weights. The quantized matrices of a GGUF file are then widened to float32, as
    llama.cpp does it; otherwise those in Q8_0, Q4_0, Q4_1 and Q5_0 are kept, and the others are rounded to q8_0.

    Raises `WeightsError`, with everything that is wrong with the weights in one message, `UnsupportedError` for a model
    or a setting that does not run here, and `InputError` for an unknown task or kind.
    """
    source = open_source(path, memory)
    source.precision = canonical_name(precision) if isinstance(precision, str) else None
    return source.read(choose_kind(source, kind), task).checked(str(source.path))


def choose_kind(source: Source, kind: str | None) -> str:
    """Return the kind of use that the caller asks for, or for None that of the files; raises `InputError`."""
    if kind is not None and (not isinstance(kind, str) or kind not in CLASSES):
        raise InputError(f"kind must be None or one of {', '.join(CLASSES)}, not {shown(kind)}")
    return source.kind if kind is None else kind


def model_path(path: str | os.PathLike[str]) -> Path:
    """Return a caller's path with `~` replaced by the home folder; raises `InputError` if it is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the path of a model must be a str or a Path, not {shown(path)}")
    return Path(os.path.expanduser(os.fsdecode(path)))


def explain_missing(path: Path) -> str:
    """Describe a path that is neither a file nor a folder."""
    if os.path.lexists(path):
        return f"{path}: expected an .npz, a .gguf or the folder of a model, and this is neither a file nor a folder"
    found = f"{shown(str(path), 300)[1:-1]}: no such file or folder; expected an .npz, a .gguf or the folder of a model"
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(path)):
        return found
    return (f"{found}. The engine downloads nothing. For a model of the Hugging Face hub, get its folder with "
            f"huggingface_hub.snapshot_download({str(path)!r}), and pass the folder")
