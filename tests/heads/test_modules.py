"""Static models, chains of modules and routes are those of sentence-transformers and model2vec.

tests/golden/make/modules.py wrote the vectors, of the folders in tests/tools/module_folders.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine import Engine

from ..tools import module_folders as folders
from ..tools.head_texts import TEXTS
from ..tools.paths import HEADS

pytest.importorskip("tokenizers")

EXPECTED = np.load(HEADS / "modules.npz")


@pytest.mark.parametrize("name", folders.STATICS)
def test_static_models(tmp_path, name, backend):
    engine = Engine.load(folders.write_static(tmp_path / "folder", name), backend=backend)
    found = engine.encode(list(TEXTS))
    assert np.abs(found - EXPECTED[f"static {name}"]).max() <= 1e-5 * max(1, np.abs(found).max())


@pytest.mark.parametrize("part", range(8))
def test_chains_of_modules(tmp_path, part, one_backend):
    for seed in range(part, folders.CHAINS, 8):
        engine = Engine.load(folders.write_chain(tmp_path / str(seed), seed), backend=one_backend)
        found, expected = engine.encode(list(TEXTS[:4])), EXPECTED[f"chain {seed}"]
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-5, seed


@pytest.mark.parametrize("name", folders.ROUTERS)
def test_routes(tmp_path, name, one_backend):
    engine = Engine.load(folders.write_router(tmp_path / "folder", name), backend=one_backend)
    cases = {key.rpartition(", ")[2]: array for key, array in EXPECTED.items() if key.startswith(f"route {name}, ")}
    some = list(TEXTS[:12])
    for task, expected in cases.items():
        options = {} if task == "none" else {"task": task.removeprefix("encode_")}
        if name == "sparse query":
            prompt = {} if task.startswith("encode_") is False else {"prompt_name": options["task"]}
            found = engine.encode_sparse(some, **options, **prompt).to_dense()
        elif task.startswith("encode_"):
            found = getattr(engine, task)(some)
        else:
            found = engine.encode(some, **options)
        assert np.abs(found - expected).max() <= 1e-5, task
