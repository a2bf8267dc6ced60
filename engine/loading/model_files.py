"""List the files of a model that the engine reads, from their names, before any of them is read.

`hub.py` fetches these files and no others, and `checksum` reads them. A test compares the list with the files that
loading opens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ..files.folder import ModelFolder
from ..files.gguf_parts import named_parts
from ..files.reading import naming, open_regular
from ..text.vocabularies.of_folder import tokenizer_files
from . import bge_m3, ctranslate2, peft, router
from .chat import chat_files
from .colbert import METADATA
from .generation_settings import GENERATION
from .hugging_face import SETFIT
from .image_settings import image_files
from .module_list import MODULES, PROMPTS, SETTINGS, SPARSE_STATIC
from .other_libraries import CONFIG
from .spelling import spelling_files
from .static import stated_numbers

_OF_MODEL = (MODULES, PROMPTS, SETFIT, METADATA)
"""Files in the folder of the whole model. SetFit's classifier is never opened, but its presence is an error."""
_OF_PART = (CONFIG, peft.CONFIG, GENERATION, *SETTINGS, *bge_m3.FILES, router.CONFIGS[0])
"""Files in the folder of a transformer or of another module."""
_BLOCK = 1 << 20       # bytes that are read at a time for a checksum


def files_read(folder: ModelFolder) -> list[str]:
    """Return the relative paths of the files that loading a folder reads, with the weights last.

    Only modules.json, router_config.json, each config.json and the index of split weights are read for this. Raises
    `WeightsError` where these are wrong.
    """
    read = [name for name in _OF_MODEL if folder.has(name)]
    weights = []
    parts = router.module_folders(folder) if MODULES in read else [("", folder)]
    for kind, part in parts:
        start = "" if part is folder else f"{part.path.relative_to(folder.path).as_posix()}/"
        names = [name for name in _OF_PART if part.has(name)] + tokenizer_files(part)
        names += [*spelling_files(part), *image_files(part)]
        if kind == SPARSE_STATIC and part.has(name := str(stated_numbers(part))):
            names.append(name)
        files = part.weight_files()
        index, files = (files[:1], files[1:]) if len(files) > 1 else ([], files)    # split weights: the index first
        read += [f"{start}{name}" for name in (*names, *index)]
        weights += [f"{start}{name}" for name in files]
    read += chat_files(folder)     # only language models read them
    if ctranslate2.is_ctranslate2(folder):
        lists = [f"{name}.{suffix}" for name in ctranslate2.VOCABULARIES for suffix in ("json", "txt")]
        read += [name for name in lists if folder.has(name)]
        weights.append(ctranslate2.MODEL)
    return list(dict.fromkeys((*read, *weights)))


def has_model(folder: ModelFolder) -> bool:
    """Return whether a folder is a model itself, and not only a place of files that are each a model."""
    return any(map(folder.has, (MODULES, peft.CONFIG, ctranslate2.MODEL))) or folder.has_weights()


def model_files(path: Path) -> list[Path]:
    """Return the files that loading the path of a model reads; raises `WeightsError`."""
    if path.is_dir():
        return [path / name for name in files_read(ModelFolder(path))]
    names = named_parts(path.name) if path.suffix == ".gguf" else [path.name]
    return [path.with_name(name) for name in names]


def checksum(path: Path) -> str:
    """Return a SHA-256, in hexadecimal, of the names and contents of the files that loading a path reads.

    The name of the folder, or of a file that is a model itself, does not count, so that a copy has the same checksum.
    Raises `WeightsError`.
    """
    files = model_files(path)
    of_all = hashlib.sha256()
    for name, file in sorted((file.relative_to(path).as_posix() if path.is_dir() else str(i), file)
                             for i, file in enumerate(files)):
        contents = hashlib.sha256()
        with naming(file, "copy it again from its source"):
            for block in _blocks(file):
                contents.update(block)
        of_all.update(f"{name}\0{contents.hexdigest()}\0".encode())
    return of_all.hexdigest()


def _blocks(file: Path) -> Iterator[bytes]:
    """Yield the contents of a file in blocks of `_BLOCK` bytes, of which the last one may be shorter."""
    with open_regular(file) as opened:
        while block := opened.read(_BLOCK):
            yield block
