"""Load mutated folders and files of models that read images or recordings, and make the first calls."""

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine import Engine, Model, Transcriber, load_model, save
from engine.base.errors import EngineError
from engine.families import clip, fields, heads, siglip, vit, wav2vec2
from engine.loading import image_settings, npz_model, spelling
from engine.model import image_config
from engine.weights import attention_pooling, input_layers
from tests.fuzz.corpus import NPZ, Files, files_of
from tests.fuzz.mutate import changed_file, words_of
from tests.tools.model_files import same
from tests.tools.paths import ENCODERS, IMAGES
from tests.tools.speech import recording

OF_IMAGES = ("vit", "vit_several", "deit_teacher", "dinov2_registers", "clip", "clip_projected", "siglip")
OF_LETTERS = ("wav2vec2_base", "wav2vec2_large", "hubert_ctc")
"""The golden models that are mutated."""
_WORDS = {
    "folders of images": words_of(image_settings, image_config, clip, siglip, vit, fields, heads),
    "files of images": words_of(npz_model, image_config, input_layers, attention_pooling),
    "folders of letters": words_of(wav2vec2, spelling, fields, heads)}
_NOT_READ = ("inputs.npz", "transcripts.json")
_BACKENDS = ("auto", "auto", "reference")


@lru_cache(maxsize=1)
def _sources() -> dict[str, list[Files]]:
    """Return the files of all models, by the kind of case."""
    folders = [files_of(IMAGES / name) for name in OF_IMAGES]
    letters = [{path: data for path, data in files_of(ENCODERS / name).items() if path not in _NOT_READ}
               for name in OF_LETTERS]
    files = []
    with TemporaryDirectory() as place:
        for name in OF_IMAGES:
            save(load_model(IMAGES / name), Path(place, NPZ))
            files.append({NPZ: Path(place, NPZ).read_bytes()})
    return {"folders of images": folders, "files of images": files, "folders of letters": letters}


def _run(name: str, rng: random.Random, place: Path) -> None:
    """Write a mutated model, load it, and often use it; raises the `EngineError` of the model."""
    files = dict(rng.choice(_sources()[name]))
    # A change of a small file reaches more code than one of a tokenizer.
    paths = [path for path in files for _ in range(1 if "tokenizer" in path else 3)]
    for _ in range(1 if NPZ in files else rng.choice((1, 1, 1, 2))):    # a changed archive is no archive any more
        path = rng.choice(paths)
        if NPZ not in files and rng.random() < 0.05:
            files.pop(path, None)
        elif path in files:
            files[path] = changed_file(rng, path, files[path], _WORDS[name])
    for path, data in files.items():
        (place / path).write_bytes(data)
    kind = "transcribe" if name == "folders of letters" and rng.random() < 0.9 else "encode"
    task = "image" if kind == "encode" and rng.random() < 0.1 else None
    model = load_model(place / NPZ if NPZ in files else place, kind=kind, task=task,
                       memory=rng.choice(("map", "copy")))
    if rng.random() < 0.7:
        (_hear if kind == "transcribe" else _look)(rng, model)
    if rng.random() < 0.2:
        save(model, place / "saved.npz")
        read = load_model(place / "saved.npz")
        if list(read.parts) != list(model.parts) or not all(
                same(one, other) for one, other in zip(read.parts.values(), model.parts.values(), strict=True)):
            raise AssertionError("a model that was written and read again is another one")


def _look(rng: random.Random, model: Model) -> None:
    """Call the methods for images and texts with right and wrong arguments."""
    backend = rng.choice(_BACKENDS)
    engine = Engine(model, threads=1, backend=backend, precision=rng.choice((None, None, "float32", "int8")))
    picture = np.random.default_rng(rng.randrange(9)).integers(0, 256, rng.choice(((30, 40, 3), (1, 1), (9, 200, 4))),
                                                              np.uint8)
    calls = (lambda: engine.encode([picture]), lambda: engine.encode(picture, output_value=None),
             lambda: engine.classify(picture, top_k=None), lambda: engine.encode(["the cat", ""]),
             lambda: engine.classify(picture, candidate_labels=["<9>", "<17> <18>"]),
             lambda: engine.encode([picture, "a"]), lambda: engine.encode(b"no image"),
             lambda: engine.forward(pixel_values=rng.choice(_PIXELS)), engine.get_embedding_dimension)
    with np.errstate(all="ignore") if backend == "reference" else nullcontext():
        for call in rng.sample(calls, k=3):
            with suppress(EngineError):
                call()


_PIXELS: tuple[Any, ...] = (np.zeros((1, 3, 24, 24), np.float32), np.zeros((2, 3, 12, 36)), np.zeros((1, 3, 1, 1)),
                            np.zeros((1, 1, 24, 24)), np.full((1, 3, 24, 24), np.nan), [[0]], "x")


def _hear(rng: random.Random, model: Model) -> None:
    """Transcribe recordings."""
    backend = rng.choice(_BACKENDS)
    transcriber = Transcriber(model, threads=1, backend=backend, precision=rng.choice((None, "int8")))
    with np.errstate(all="ignore") if backend == "reference" else nullcontext():
        for seconds in rng.sample((0.3, 0.05, 0.001), k=2):
            with suppress(EngineError):
                transcriber.transcribe([recording(seconds)], timestamps=rng.choice((False, True, "word")), timeout=1.0)


KINDS: dict[str, Callable[[random.Random, Path], None]] = {name: partial(_run, name) for name in _WORDS}
"""Kinds of cases by name: each writes one mutated model to an empty folder, loads it, and often uses it."""
