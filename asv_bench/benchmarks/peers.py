"""Measure the cases of `make peers`, library by library; skip missing libraries and models."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))  # asv imports this folder only, and `peers` lies beside it

from peers.libraries import LIBRARIES, encoder  # noqa: E402
from peers.machine import environment  # noqa: E402
from peers.work import CASES, SHAPES, inputs, sentences  # noqa: E402

MODELS = HERE.parent / "build/peers/models"
PAIRS = [f"{name}, {precision}" for name, kind in LIBRARIES.items() for precision in kind.precisions]
THREADS = 2


def load(model, pair):
    """Return the library of a pair with a model loaded; tell asv to skip it if it is not available."""
    name, precision = pair.rsplit(", ", 1)
    folder = MODELS / model
    if not (folder / "hf").exists():
        raise NotImplementedError("the models are missing; `make peers` writes them")
    os.environ.update(environment(name, THREADS, MODELS))  # early enough: `peers` imports a library when it loads it
    try:
        return LIBRARIES[name](folder, precision, THREADS), folder
    except Exception as error:
        raise NotImplementedError(f"{pair}: {error}") from error


class Uniform:
    params = ([pair for pair in PAIRS if "sentence" not in pair], list(CASES), list(SHAPES))
    param_names = ("library", "model", "shape")
    timeout = 600

    def setup(self, pair, model, shape):
        self.library, _ = load(model, pair)
        self.inputs = inputs(shape)
        self.library.forward(*self.inputs)

    def time_forward(self, pair, model, shape):
        self.library.forward(*self.inputs)


class Text:
    params = (PAIRS,)
    param_names = ("library",)
    timeout = 600

    def setup(self, pair):
        self.encode = encoder(*load("MiniLM", pair))
        self.texts = sentences()
        self.encode(self.texts)

    def time_encode(self, pair):
        self.encode(self.texts)
