"""mteb: a task of similarity gives the scores of sentence-transformers, and all kinds of tasks for texts run."""

import os
from pathlib import Path

import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
mteb = pytest.importorskip("mteb", reason="the package mteb is not installed")

from datasets import Dataset
from mteb.abstasks import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.mocks import ALL_MOCK_TASK_TEST_GRID
from sentence_transformers import CrossEncoder, SentenceTransformer

from engine.adapters.mteb import EngineCrossEncoder, EngineModel

from ..tools import minilm

pytestmark = pytest.mark.filterwarnings("ignore")       # what mteb calls has warnings of its own

PAIRS = Path(__file__).with_name("pairs.tsv")
WITHIN = 1e-4


class LocalPairs(AbsTaskSTS):
    """30 pairs of sentences with a similarity from 0 to 5, from a file beside this one."""

    metadata = TaskMetadata(
        name="LocalPairs", description="Pairs of sentences.", reference=None, type="STS", category="t2t",
        modalities=["text"], dataset={"path": "local/pairs", "revision": "1"}, eval_splits=["test"],
        eval_langs=["eng-Latn"], main_score="cosine_spearman", date=None, domains=None, task_subtypes=None,
        license=None, annotations_creators=None, dialect=None, sample_creation=None, bibtex_citation=None)

    def load_data(self, **options):
        rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
        self.dataset = {"test": Dataset.from_dict({
            "score": [float(row[0]) for row in rows], "sentence1": [row[1] for row in rows],
            "sentence2": [row[2] for row in rows]})}
        self.data_loaded = True


def scores_of(model, task):
    [result] = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    return result.scores["test"][0]


@pytest.mark.parametrize("prompts", [None, {"STS": "Sentence: "}])
def test_a_task_of_pairs_has_the_scores_of_sentence_transformers(prompts, place):
    if not minilm.FOLDER.exists():
        pytest.skip(minilm.MISSING)
    folder = str(place / "all-MiniLM-L6-v2")
    found = scores_of(EngineModel(folder, model_prompts=prompts), LocalPairs())
    expected = scores_of(SentenceTransformer(folder, prompts=prompts), LocalPairs())
    numbers = [name for name, value in expected.items() if isinstance(value, float)]
    assert len(numbers) >= 8
    for name in numbers:
        assert abs(found[name] - expected[name]) <= WITHIN
    assert found["cosine_spearman"] > 0.8


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
