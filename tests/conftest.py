"""Define fixtures that several folders of tests use."""

import json
import shutil
from functools import cache

import pytest

from engine import BackendUnavailable, Engine, UnsupportedError
from engine.backends import BACKENDS, get_backend
from engine.model import load_model, save_model
from engine.weights.safetensors import read_safetensors

from .golden_models import GOLDEN, Golden
from .tiny_models import safetensors, write_json


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    """Return the name of each backend that runs single operations on this machine."""
    try:
        get_backend(request.param).ops(1)
    except (BackendUnavailable, UnsupportedError) as error:
        pytest.skip(str(error))
    return request.param


@pytest.fixture(scope="module", params=["folder", "npz"])
def path_of(request, tmp_path_factory):
    """A function from a golden model's name to the path to load it from."""

    def find(name):
        if request.param == "folder":
            return GOLDEN / name
        npz = tmp_path_factory.mktemp("npz") / "model.npz"
        save_model(load_model(GOLDEN / name), npz)
        return npz

    return find


@pytest.fixture
def run_changed(tmp_path):
    """Return a function that runs a golden model, its config.json and tensors changed, on the reference backend."""

    def run(name, without=(), rename=None, extra=None, **changes):
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(GOLDEN / name, folder)
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        values = {key: value for key, value in values.items() if key not in without}
        write_json(folder / "config.json", values | changes)
        if rename or extra:
            tensors = read_safetensors(GOLDEN / name / "model.safetensors", rename or str)
            (folder / "model.safetensors").write_bytes(safetensors(tensors | (extra or {})))
        return Golden(name).forward(Engine.load(folder, backend="reference"))

    return run


@pytest.fixture(scope="session")
def unchanged():
    """Return a function that runs a golden model on the reference backend."""
    return cache(lambda name: Golden(name).forward(Engine.load(GOLDEN / name, backend="reference")))
