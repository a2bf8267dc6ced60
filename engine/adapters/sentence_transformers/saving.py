"""Write the folder of a model again, with the settings that a program has changed: `save_folder`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.errors import InputError, UnsupportedError, listed
from ...files.folder import ModelFolder
from ...files.writing import replacing
from ...interface.engine import Engine
from ...loading.hugging_face import FolderSource
from ...loading.load import model_path, open_source
from ...loading.module_list import MODULES, PROMPTS, SETTINGS, Late, Modules, Pooled, Static
from ...loading.other_libraries import CONFIG
from ...loading.router import find_routes
from ...loading.sentence_transformers import TOKENIZER_SETTINGS
from ...loading.source import Source
from ...loading.static import is_static

CARD = "README.md"
_PLACEHOLDER = '("sentence_transformers_model_id"'
"""The text in a model card of sentence-transformers in place of the name of a model, which it does not have yet."""
_UNLIMITED = int(1e30)
"""The number that transformers writes for a tokenizer without a limit."""
_LIMIT, _IN_CONFIG = "model_max_length", "sentence_transformers"       # keys of tokenizer_config.json, of config.json

Edits = dict[str, dict[str, Any]]
"""The new contents of JSON files, by their paths in the folder."""


def source_of(engine: Engine) -> Source:
    """Return the files that an engine was loaded from, opened again."""
    assert engine.address is not None       # the classes load every engine from files
    path, revision = engine.address
    return open_source(path, "map", revision)


def save_folder(engine: Engine, target: Any, settings: Mapping[str, Any], changed: Mapping[str, Any], *, card: bool,
                model_name: str | None = None) -> None:
    """Copy the folder from which an engine was loaded to `target`, with other settings.

    settings: all settings of the file `PROMPTS`, where None leaves one out. changed: all settings that differ from the
    folder's. card: whether `CARD` is copied, with `model_name` in its examples. Raises `UnsupportedError` and
    `InputError` before anything is written.
    """
    source, place = source_of(engine), model_path(target)
    if not isinstance(source, FolderSource):
        raise UnsupportedError(f"save_pretrained writes the folder of a model, and this one was loaded from the file "
                               f"{source.path}; copy that file, or load the folder")
    folder = source.folder
    edits = _edits(folder, settings, changed)
    if place.exists() and not place.is_dir():
        raise InputError(f"path must be that of a folder, which may be new, and {place} is a file")
    if folder.path.resolve() in place.resolve().parents:
        raise InputError(f"path must not lie in the folder of the model itself, {folder.path}, and {place} does")
    skipped = (*edits, *(() if card else (CARD,)))
    for path in _files(folder.path):
        if path not in skipped:
            _copy(folder.path / path, place / path)
    for path, values in edits.items():
        _write(place / path, json.dumps(values, indent=2, ensure_ascii=False).encode() + b"\n")
    if card and model_name is not None and (place / CARD).is_file():
        text = (place / CARD).read_text(encoding="utf-8")
        _write(place / CARD, text.replace(_PLACEHOLDER, f"({json.dumps(model_name)}").encode())


def _edits(folder: ModelFolder, settings: Mapping[str, Any], changed: Mapping[str, Any]) -> Edits:
    """Return the new contents of the JSON files of a folder that change.

    settings, changed: as in `save_folder`. Raises `UnsupportedError` for a changed setting that no file can hold.
    """
    edits: Edits = {}
    modules = find_routes(folder)
    left = dict(changed)        # the settings that have no place yet
    is_table = isinstance(modules, Static) or (not folder.has(MODULES) and is_static(folder))
    if "max_seq_length" in left and isinstance(modules, Modules) and not is_table:
        edits |= _with_limit(modules.home, left.pop("max_seq_length"), folder)
    if "include_prompt" in left and isinstance(modules, Pooled):
        edits[_inside(folder, modules.pooling, CONFIG)] = modules.pooling.read_object(CONFIG) | {
            "include_prompt": left.pop("include_prompt")}
    has_settings_file = folder.has(MODULES) and not (isinstance(modules, Late) and modules.colbert is not None)
    if has_settings_file:
        values = {**folder.read_object_or_empty(PROMPTS), **settings}
        edits[PROMPTS] = {name: value for name, value in values.items()
                          if value is not None or name == "default_prompt_name"}
        left = {name: value for name, value in left.items() if name not in settings}
    elif "activation_fn" in left:
        config = folder.read_object(CONFIG)
        stated = config.get(_IN_CONFIG)
        edits[CONFIG] = config | {_IN_CONFIG: {**(stated if isinstance(stated, dict) else {}),
                                               "activation_fn": left.pop("activation_fn")}}
    if left:
        raise UnsupportedError(f"{folder}: the files of this model have no place for {listed(left)}, which changed "
                               "since it was loaded; save the model with sentence-transformers, or set it after each "
                               "load")
    return edits


def _with_limit(home: ModelFolder, limit: int | None, folder: ModelFolder) -> Edits:
    """Return the new contents of the files that state the most tokens of a text.

    home: the folder of these files. limit: None for no limit. folder: of the whole model.
    """
    most = _UNLIMITED if limit is None else limit
    edits = {_inside(folder, home, TOKENIZER_SETTINGS): home.read_object_or_empty(TOKENIZER_SETTINGS) | {_LIMIT: most}}
    name = next((name for name in SETTINGS if home.has(name)), None)
    if name is None:
        return edits
    values = home.read_object(name)
    stated: dict[str, Any] = {"max_seq_length": limit} if values.get("max_seq_length") is not None else {}
    stated |= {key: values[key] | {_LIMIT: most} for key in ("processor_kwargs", "tokenizer_args")
               if isinstance(values.get(key), dict) and _LIMIT in values[key]}
    return edits | ({_inside(folder, home, name): values | stated} if stated else {})


def _inside(folder: ModelFolder, home: ModelFolder, name: str) -> str:
    """Return the path of the file `name` in `home`, relative to the folder of the whole model."""
    return (home.path / name).relative_to(folder.path).as_posix()


def _files(folder: Path) -> list[str]:
    """Return the relative paths of all files in a folder and below, without hidden ones, such as those of Git."""
    paths = []
    for root, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [(Path(root) / name).relative_to(folder).as_posix() for name in files if not name.startswith(".")]
    return sorted(paths)


def _copy(source: Path, target: Path) -> None:
    """Copy a file to `target`, unless that is the same file.

    An old target is replaced by a new file, and not written into, because a program may have mapped it.
    """
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, replacing(target) as written:
        shutil.copyfileobj(read, written)


def _write(path: Path, data: bytes) -> None:
    """Write a file, and make its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)
