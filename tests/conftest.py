"""Define fixtures that several folders of tests use."""

import gc
import inspect
import json
import os
import shutil
from functools import cache
from pathlib import Path

# NumPy's products are small here, and the threads of two workers would wait for each other. NumPy reads it once.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The same holds for engines, whose threads spin while they wait. What depends on threads has tests that say how many.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

import engine
from engine import Engine
from engine.files.safetensors import read_safetensors

from .tools.golden_models import GOLDEN, Golden
from .tools.quick import is_quick, turn
from .tools.running import COMPILED, RUNNING
from .tools.skips import by_reason
from .tools.tiny_models import safetensors, write_json

# No test asks the real hub; tests of names have a server of their own.
os.environ["HF_HUB_OFFLINE"] = "1"

# A test that fails because the machine is busy says nothing.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="one backend, one model a family, no slow files (90 s)")
    parser.addoption("--engine-from", metavar="FOLDER", help="fail unless the engine was imported from this folder")


def pytest_configure(config):
    folder = config.getoption("--engine-from")
    if folder and Path(folder).resolve() not in Path(engine.__file__).parents:
        raise pytest.UsageError(f"the engine was imported from {engine.__file__}, not from {folder}")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Let no collection of garbage go through what lives until the end: modules, and ten thousand tests.

    Whole collections are rare after that, because what tests keep for each other grows to millions of objects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 100)
        gc.enable()


@pytest.fixture(scope="module")
def quick_collections():
    """Let the many collections of garbage of a module not go through what the modules before it keep."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Take the quick tests alone, if asked; let slow files start first, so that all workers end at about one time."""
    if config.getoption("--quick"):
        quick = {item: is_quick(item.path, item.callspec.params if hasattr(item, "callspec") else {}) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not quick[item]])
        items[:] = [item for item in items if quick[item]]
    if hasattr(config, "workerinput"):      # this process is a worker of pytest-xdist
        items.sort(key=lambda item: turn(item.path))


def pytest_terminal_summary(terminalreporter):
    if lines := by_reason(terminalreporter.stats.get("skipped", [])):
        terminalreporter.section("skipped tests by reason")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", params=RUNNING)
def backend(request):
    """Return the name of each backend that runs single operations on this machine; test_backends.py names the rest."""
    return request.param


@pytest.fixture(scope="session", params=COMPILED)
def compiled_backend(request):
    """Return the name of each backend that computes in every precision, and whose bits do not depend on the batch."""
    return request.param


@pytest.fixture(scope="session")
def compiled_backends(request):
    """Return all names of `compiled_backend`, for tests that compute what they expect at more cost than what they test.

    A quick run has the fastest one alone.
    """
    return COMPILED[:1] if request.config.getoption("--quick") else COMPILED


@pytest.fixture(scope="session")
def one_backend():
    """Return the name of the fastest backend, for what lies in a model or a file and not in a backend."""
    return RUNNING[0]


@pytest.fixture
def refusals(tmp_path, snapshot):
    """Return a function that calls another one with each row, which is refused, and compares errors with recorded ones.

    `make snapshots` records them anew, behind rows that are dicts. A function whose first argument is `tmp_path` gets a
    folder for each row.
    """

    def check(call, rows):
        own = next(iter(inspect.signature(call).parameters), "") == "tmp_path"
        found = []
        for i, row in enumerate(rows):
            folder = tmp_path / f"{i}"
            if own:
                folder.mkdir()
            with pytest.raises(engine.EngineError) as caught:
                call(*[folder] * own, *(row if type(row) is tuple else (row,)))
            message = f"{caught.typename}: {caught.value}"
            for place, name in ((folder, "FOLDER"), (tmp_path, "FOLDER"), (GOLDEN, "GOLDEN")):
                message = message.replace(str(place), name)
            found.append(f"{row}: {message}" if isinstance(row, dict) and len(str(row)) < 300 else message)
        assert "\n".join(found) == snapshot

    return check


@pytest.fixture
def run_changed(tmp_path):
    """Return a function that runs a golden model, its config.json and tensors changed, on the fastest backend."""

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
        return Golden(name).forward(Engine.load(folder, backend=RUNNING[0]))

    return run


@pytest.fixture(scope="session")
def unchanged():
    """Return a function that runs a golden model on the fastest backend."""
    return cache(lambda name: Golden(name).forward(Engine.load(GOLDEN / name, backend=RUNNING[0])))
