"""mteb: a task of similarity gives the scores of sentence-transformers, and all kinds of tasks for texts run."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
mteb = pytest.importorskip("mteb", reason="the package mteb is not installed")

from mteb.mocks import ALL_MOCK_TASK_TEST_GRID
from sentence_transformers import CrossEncoder, SentenceTransformer

from engine.adapters.mteb import EngineCrossEncoder, EngineModel

from ..tools import minilm
from ..tools.examples import example

pytestmark = pytest.mark.filterwarnings("ignore")       # what mteb calls has warnings of its own

PAIRS = Path(__file__).with_name("pairs.tsv")
WITHIN = 1e-4


@pytest.mark.parametrize("prompts", [None, {"STS": "Sentence: "}])
def test_a_task_of_pairs_has_the_scores_of_sentence_transformers(prompts, place):
    if not minilm.FOLDER.exists():
        pytest.skip(minilm.MISSING)
    folder, scores_of = str(place / "all-MiniLM-L6-v2"), example("mteb_pairs")["scores_of"]
    found = scores_of(EngineModel(folder, model_prompts=prompts), PAIRS)
    expected = scores_of(SentenceTransformer(folder, prompts=prompts), PAIRS)
    numbers = [name for name, value in expected.items() if isinstance(value, float)]
    assert len(numbers) >= 8
    for name in numbers:
        assert abs(found[name] - expected[name]) <= WITHIN
    assert found["cosine_spearman"] > 0.8


def test_the_example(place, capsys):
    example("mteb_pairs")["main"](str(PAIRS), str(place / "static"))
    assert re.fullmatch(r"-?0\.\d{4}  \S+static\n", capsys.readouterr().out)


def test_the_description_of_a_model(place):
    meta = EngineModel(place / "static").mteb_model_meta
    assert (meta.name, meta.embed_dim, meta.modalities) == ("local/static", 10, ["text"])


SMALL = {task.metadata.type: task for task in ALL_MOCK_TASK_TEST_GRID
         if task.metadata.modalities == ["text"] and not task.metadata.is_multilingual}
"""mteb's own small tasks, which download nothing: one of each kind."""


def run_small(model, kinds):
    """Return the main score of the small task of each kind; a task that fails raises."""
    found = mteb.evaluate(model, [SMALL[kind] for kind in kinds], cache=None, show_progress_bar=False)
    scores = {one.task_name: one.scores["test"][0]["main_score"] for one in found.task_results}
    return {kind: scores[SMALL[kind].metadata.name] for kind in kinds}


def test_every_kind_of_task_runs(place):
    kinds = sorted({*SMALL} - {"InstructionReranking", "InstructionRetrieval"})     # for models with instructions
    assert {"STS", "Retrieval", "Reranking", "Classification", "Clustering", "PairClassification", "BitextMining",
            "Summarization"} <= {*kinds}
    assert np.isfinite([*run_small(EngineModel(place / "modules"), kinds).values()]).all()


def test_cross_encoders_rerank(place):
    folder = str(place / "cross-encoder")
    assert 0 < run_small(EngineCrossEncoder(folder), ["Reranking"])["Reranking"] <= 1
    pairs = [("Who lives in Berlin?", "Anna lives in Berlin."), ("a", "b")]
    loaders = [[{"text": [pair[side]]} for pair in pairs] for side in (0, 1)]
    found = EngineCrossEncoder(folder).predict(*loaders, task_metadata=None, hf_split="", hf_subset="")
    assert np.abs(found - CrossEncoder(folder).predict(pairs)).max() <= WITHIN
