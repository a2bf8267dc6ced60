"""A case: one model with changed files. Its readers read them, or the whole model is loaded and one time in ten run."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from engine import Transformer, families
from engine.base.errors import EngineError, UnsupportedError
from engine.families import bert, fields, get_family, heads
from engine.families.parts import Part
from engine.files.folder import ModelFolder, read_shards
from engine.files.safetensors import read_safetensors
from engine.loading import module_list, sentence_transformers
from engine.loading.module_list import Modules, SparseStatic, Static
from engine.loading.modules import read_modules
from engine.loading.router import find_routes
from engine.loading.sentence_transformers import read_text
from engine.model import config as model_config
from engine.model import head
from engine.model.config import ModelConfig
from engine.model.text_config import TextConfig
from engine.text.tokenizer import Tokenizer
from engine.weights.modules import SENTENCE, TOKENS
from engine.weights.parameters import expected_shapes
from tests.families.cases import CONFIGS, NEW_CONFIGS
from tests.fuzz import binaries, first_calls, image_models, job_files, module_models
from tests.fuzz.corpus import NPZ, Files, json_bytes, sources, tensor_file, tensors_of, weights_of
from tests.fuzz.mutate import PLAIN, changed_file, value_of, words_of
from tests.fuzz.usage import use

from ..tools.encoders import ENCODERS, convert_encoder, load_encoder, module_of, save_encoder

Changes = dict[str, bytes | None]
"""New contents of files by their paths in a model's folder; None for a file that is removed."""

_MOST_NUMBERS = 20_000
"""Limit on the numbers of the weights that are made for a changed configuration."""
_WARNED = (r"id2label names|the target|the ranges of int8|.*of skiplist_words are no|.*documents have no vectors|"
           r".* cut to .* tokens|label2id says")
"""How the warnings begin that a changed model, or an option of a call, may give."""
_NAMES = ("adapter_config.json", "modules.json", "config.json", "tokenizer.json", "sentence_roberta_config.json",
          "model.safetensors", "model.safetensors.index.json", "1_Pooling/config.json", "pytorch_model.bin")


def _words(name: str, files: Files) -> tuple[str, ...]:
    if NPZ in files:
        return (*ModelConfig.__dataclass_fields__, *words_of(model_config))
    path = next(path for path in ("config.json", "0_Transformer/config.json") if path in files)
    family = import_module(f"engine.families.{module_of(get_family(json.loads(files[path])))}")
    extra = (module_list, sentence_transformers) if "sentence" in name else (heads, head) if "head" in name else ()
    return words_of(family, bert, fields, families, *extra)


MODULES = [import_module(f"engine.families.{name}") for name in dict.fromkeys(map(module_of, ENCODERS.values()))]
WORDS_OF_FAMILIES = words_of(*MODULES, fields, families, module_list, sentence_transformers)


class Cases:
    """Makes and runs cases. A case depends on the seed and its number alone."""

    FITTED = ("folder fitted to its config", "npz fitted to its config")
    """Kinds of cases whose weights have the shapes that the changed configuration asks for."""
    OTHERS = binaries.KINDS | module_models.KINDS | image_models.KINDS | first_calls.KINDS | job_files.KINDS
    """Kinds of cases that other modules make, by name."""

    def __init__(self, place: Path, seed: int, only: Sequence[str] = ()):
        """Make the models, which `start` writes to the folder `place`; no other process may use this folder.

        only: names of `OTHERS`, so that all cases are of these kinds. The kinds of `first_calls` and of `job_files`
            are run in no other way, because they take ten times as long.
        """
        self._place, self._seed, self._only = place, seed, only
        self._written: tuple[int, list[str]] | None = None
        place.mkdir(parents=True, exist_ok=True)
        self._sources = sources(place)
        self._words = [_words(name, files) for name, files in self._sources.items()]
        self._files = list(self._sources.values())

    def start(self) -> Cases:
        """Write all models as they were before any case changed them."""
        for i in range(len(self._files)):
            self._restore(i)
        return self

    @property
    def kinds(self) -> list[str]:
        """The names of the kinds of cases."""
        return [*self._sources, *self.FITTED, *self.OTHERS]

    def run(self, index: int) -> tuple[int, bool]:
        """Run a case; return the number of its kind, and whether the model gave an answer and no `EngineError`."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _WARNED, UserWarning)
            return self._run(index)

    def _run(self, index: int) -> tuple[int, bool]:
        rng = random.Random(f"{self._seed}/{index}")
        kind = 3 if self._only else rng.choices((0, 1, 2, 3), (90, 2, 2, 6))[0]
        try:
            if kind == 0:
                source = rng.randrange(len(self._files))
                return source, self._run_changed(rng, source)
            if kind == 3:
                name = rng.choice(self._only or list(binaries.KINDS | module_models.KINDS | image_models.KINDS))
                return self.kinds.index(name), self._run_other(rng, name)
            number = len(self._files) + kind - 1
            return number, (self._run_fitted_folder if kind == 1 else self._run_fitted_npz)(rng)
        finally:
            self._undo()

    def path(self, source: int) -> Path:
        """Return the path at which the model of this number lies."""
        folder = self._place / str(source)
        return folder / NPZ if NPZ in self._files[source] else folder

    def _run_changed(self, rng: random.Random, source: int) -> bool:
        changes = self._changes(rng, source)
        self._write(source, changes)
        depth, path = rng.random(), self.path(source)
        try:
            if depth < 0.7 and NPZ not in changes and "head" not in self.kinds[source]:
                _read_parts(path, changes)
                return True
            model = load_encoder(path, memory=rng.choice(("map", "map", "copy")))
            if depth > 0.94:
                use(rng, model, self._place)
            elif model.text is not None and any("tokenizer" in name or name == NPZ for name in changes):
                _tokenize(model.text, model.config.longest_sequence)
        except EngineError:
            return False
        return True

    def _run_fitted_folder(self, rng: random.Random) -> bool:
        """Change a config.json, and give the model weights that fit it: so also odd models are run."""
        new = rng.random() < 0.3
        configs = NEW_CONFIGS if new else CONFIGS
        model_type = rng.choice(list(configs))
        source = list(CONFIGS).index(model_type)
        values = self._plain_change(rng, {"model_type": model_type} | configs[model_type], self._words[source])
        try:
            part = encoder_of(values)
            config = part.config
            if not _is_small(config):
                return False
            tensors = tensors_of(part, new)
            dtype = rng.choice(("F32", "BF16", "F16", "F64"))
            self._write(source, {"config.json": json_bytes(values), "model.safetensors": tensor_file(tensors, dtype)})
            use(rng, load_encoder(self.path(source)), self._place)
        except EngineError:
            return False
        return True

    def _run_fitted_npz(self, rng: random.Random) -> bool:
        """Change the configuration of an .npz, and give the model weights that fit it."""
        source = rng.choice([i for i, files in enumerate(self._files) if NPZ in files])
        model = load_encoder(self.path(source))
        values = self._plain_change(rng, model.config.to_json(), self._words[source])
        try:
            config = ModelConfig.from_json(json.loads(json.dumps(values)))
            if not _is_small(config):
                return False
            self._written = (source, [NPZ])
            changed = Transformer(config, weights_of(config), model.text)
            precision = rng.choice((None, None, "int8", "int4", "float16"))
            save_encoder(convert_encoder(changed, precision) if precision else changed, self.path(source))
            use(rng, load_encoder(self.path(source)), self._place)
        except EngineError:
            return False
        return True

    def _run_other(self, rng: random.Random, name: str) -> bool:
        folder = self._place / "other"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            self.OTHERS[name](rng, folder)
        except EngineError:
            return False
        return True

    @staticmethod
    def _plain_change(rng: random.Random, values: dict[str, Any], words: Sequence[str]) -> dict[str, Any]:
        """Give up to three keys another plain value, and sometimes change the configuration in any way."""
        values = json.loads(json.dumps(values))
        for _ in range(rng.choice((0, 1, 2, 3))):
            values[rng.choice(list(values) if rng.random() < 0.7 else words)] = rng.choice(PLAIN)
        changed = value_of(rng, values, words) if rng.random() < 0.5 else values
        return changed if isinstance(changed, dict) else values

    def _changes(self, rng: random.Random, source: int) -> Changes:
        files, changes = self._files[source], {}
        for _ in range(rng.choice((1, 1, 1, 2))):
            path = rng.choice(list(files))
            kind = rng.random()
            if kind < 0.90 or NPZ in files:
                changes[path] = changed_file(rng, path, files[path], self._words[source])
            elif kind < 0.93:
                changes[path] = None
            elif kind < 0.96:
                other = rng.choice(self._files)
                changes[path] = other.get(path) or rng.choice(list(other.values()))
            elif kind < 0.97:
                return {f"{path}/x": b""}  # a folder in the place of a file
            else:
                name = str(PurePosixPath(path).parent / rng.choice(_NAMES))
                changes[name] = rng.choice((files[path], b"", b"{}", b"[]"))
        return changes

    def _write(self, source: int, changes: Changes) -> None:
        """Change files, each as a new file: an array of an earlier case may still lie in the old one."""
        self._written = (source, list(changes))
        for name, data in changes.items():
            path = f"{self._place}/{source}/{name}"
            if name not in self._files[source]:
                folder = os.path.dirname(path)
                if os.path.isfile(folder):
                    os.unlink(folder)
                os.makedirs(folder, exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(path)
            if data is not None:
                with open(path, "xb", buffering=0) as file:
                    file.write(data)

    def _undo(self) -> None:
        """Put back the files that the case has changed."""
        if self._written is None:
            return
        source, names = self._written
        if all(name in self._files[source] for name in names):
            self._write(source, {name: self._files[source][name] for name in names})
        else:
            self._restore(source)
        self._written = None

    def _restore(self, source: int) -> None:
        folder = self._place / str(source)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        for name, data in self._files[source].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def _read_parts(folder: Path, changes: Changes) -> None:
    """Read the changed files of a folder with their own readers, which takes a fifth of the time of the whole model."""
    found = find_routes(ModelFolder(folder))
    for name in changes:
        if name.endswith(".safetensors"):
            read_safetensors(folder / name, keep_float16=True)
        elif name.endswith(".index.json"):
            read_shards(folder / name, read_safetensors)
    for modules in [found] if isinstance(found, Modules) else found.tasks.values():
        _read_modules(modules, changes)


def _read_modules(modules: Modules, changes: Changes) -> None:
    read_modules(modules.before, TOKENS, "map")
    read_modules(modules.after, SENTENCE, "map")
    if isinstance(modules, Static | SparseStatic):
        return
    values = modules.home.read_object("config.json")
    config = encoder_of(values).config
    text = read_text(modules, config)
    if text is not None and any("tokenizer.json" in name for name in changes):
        _tokenize(text, config.longest_sequence)


def encoder_of(values: dict[str, Any]) -> Part:
    """Return the encoder that a config.json describes; raises the errors of the engine."""
    family = get_family(values)
    if family.read_encoder is None:
        raise UnsupportedError("the family has no encoder")
    return family.read_encoder(values)


def _tokenize(text: TextConfig, longest: int | None) -> None:
    Tokenizer(text, longest, 1)(["the cat", ("a b", "query: Äé")])


def _is_small(config: ModelConfig) -> bool:
    if config.num_layers > 20:
        return False
    return sum(int(np.prod(shape, dtype=float)) for shape in expected_shapes(config).values()) <= _MOST_NUMBERS
