"""Load mutated folders and files of models with heads, modules, routes and tables, and make the first calls."""

import random
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine import Engine, Model, load_model, save
from engine.base.errors import EngineError
from engine.families import bart, heads
from engine.loading import bge_m3, colbert, late, module_list, modules, npz_model, router, sentence_transformers, static
from engine.model import config, head, late_config, text_config
from engine.weights import modules as weights_of_modules
from tests.fuzz.corpus import HEADS, NPZ, Files, files_of, head_folder, pair_folder, sparse_folder
from tests.fuzz.mutate import changed_file, words_of
from tests.fuzz.usage import OPTIONS, TEXTS, use_heads
from tests.tools import late_folders
from tests.tools import module_folders as folders
from tests.tools.head_models import write_folder
from tests.tools.m3_folders import write_m3
from tests.tools.model_files import same

CHAINS = (0, 4, 5, 9, 13)
"""The chains of modules that are mutated; those of 4 and 9 are of static models."""
LATE = ("bert", "bert attending", "distilbert")
"""The models with a vector for each token that are mutated."""
OLDER = ("pylate", "pylate bare", "stanford")
"""The folders of PyLate and of Stanford's ColBERT that are mutated."""
READING = ("bart_classify", "bart_answer")
"""The models whose head reads a decoder that are mutated."""
_TASKS: tuple[Any, ...] = ("query", "document", "x", 3, None)
_WORDS = {"head folders": words_of(heads, head, module_list, sentence_transformers, late, late_config, bge_m3, colbert,
                                  bart),
          "module folders": words_of(modules, router, static, module_list, sentence_transformers, weights_of_modules),
          "files of modules": words_of(npz_model, head, config, text_config, weights_of_modules)}


@lru_cache(maxsize=1)
def _sources() -> dict[str, list[Files]]:
    """Return the files of all models, by the kind of case."""
    found: dict[str, list[Files]] = {"head folders": [*map(head_folder, HEADS), sparse_folder(), pair_folder()]}
    with TemporaryDirectory() as place:
        of_tokens = [late_folders.write_late(Path(place, f"late {name}"), name) for name in LATE]
        of_tokens += [late_folders.write_older(Path(place, f"late {name}"), name) for name in OLDER]
        reading = [write_folder(Path(place, name), name) for name in READING]
        found["head folders"] += [files_of(folder) for folder in (*of_tokens, write_m3(Path(place, "m3")), *reading)]
        written = [folders.write_static(Path(place, name), name) for name in folders.STATICS]
        written += [folders.write_chain(Path(place, f"chain {seed}"), seed) for seed in CHAINS]
        written += [folders.write_router(Path(place, name), name) for name in folders.ROUTERS]
        found["module folders"] = [files_of(folder) for folder in written]
        found["files of modules"] = []
        for folder in written:
            save(load_model(folder), Path(place, NPZ))
            found["files of modules"].append({NPZ: Path(place, NPZ).read_bytes()})
    return found


def _run(name: str, rng: random.Random, place: Path) -> None:
    """Write a mutated model, load it, and often use it; raises the `EngineError` of the model."""
    files = dict(rng.choice(_sources()[name]))
    # A change of modules.json or of a small file reaches more code than one of a tokenizer.
    paths = [path for path in files for _ in range(1 if "tokenizer" in path else 3)]
    for _ in range(1 if NPZ in files else rng.choice((1, 1, 1, 2))):     # a changed archive is no archive any more
        path = rng.choice(paths)
        if path not in files:
            continue
        if NPZ not in files and rng.random() < 0.05:
            del files[path]
        elif NPZ not in files and rng.random() < 0.05:
            files[str(PurePosixPath(path).parent / "config.json")] = rng.choice((files[path], b"{}", b"[]", b""))
        else:
            files[path] = changed_file(rng, path, files[path], _WORDS[name])
    for path, data in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    model = load_model(place / NPZ if NPZ in files else place, memory=rng.choice(("map", "copy")))
    if rng.random() < 0.5:
        _use(rng, model, place)


def _use(rng: random.Random, model: Model, place: Path) -> None:
    backend = rng.choice(("auto", "auto", "reference"))
    engine = Engine(model, threads=1, backend=backend, precision=rng.choice((None, None, "float32", "int8", "int4")))
    with np.errstate(all="ignore") if backend == "reference" else nullcontext(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the ranges of int8|the target|.*documents have no vectors", UserWarning)
        texts: Any = rng.choice((rng.choices(TEXTS, k=rng.randrange(4)), rng.choice(TEXTS)))
        options = {name: rng.choice(OPTIONS[name]) for name in rng.sample(list(OPTIONS), k=1)}
        task = rng.choice((*engine.routes, *_TASKS))
        calls = (lambda: engine.encode(texts, task=task, **options), lambda: engine.encode_query(texts),
                 lambda: engine.encode_document(texts), lambda: engine.encode_sparse(texts, task=task),
                 lambda: engine.tokenize(texts), lambda: engine.forward([[0, 1, 2], []]))
        for call in rng.sample(calls, k=3):
            with suppress(EngineError):
                call()
        for one in (engine, *engine.routes.values()):
            if one.text is not None:
                use_heads(rng, one)
    if rng.random() < 0.3:
        save(model, place / "saved.npz")
        read = load_model(place / "saved.npz")
        if list(read.parts) != list(model.parts) or list(read.routes) != list(model.routes) or not all(
                same(one, other) for one, other in zip(read.parts.values(), model.parts.values(), strict=True)):
            raise AssertionError("a model that was written and read again is another one")


def _kind(name: str) -> Callable[[random.Random, Path], None]:
    return lambda rng, place: _run(name, rng, place)


KINDS: dict[str, Callable[[random.Random, Path], None]] = {name: _kind(name) for name in _WORDS}
"""Kinds of cases by name: each writes one mutated model to an empty folder, loads it, and often uses it."""
