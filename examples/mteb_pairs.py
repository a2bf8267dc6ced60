"""Measure models with mteb on pairs of sentences of your own.

    pip install mteb
    python examples/mteb_pairs.py pairs.tsv MODEL [MODEL ...]

Each line of pairs.tsv has a similarity from 0 to 5 and two sentences, separated by tabs. Nothing is downloaded. For the
tasks of mteb itself, pass mteb.get_tasks(...) to mteb.evaluate in place of the task here.
"""

import sys
from pathlib import Path

import mteb
from datasets import Dataset
from mteb.abstasks import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from engine.adapters.mteb import EngineModel


class OwnPairs(AbsTaskSTS):
    """A task of semantic similarity whose pairs come from a file."""

    metadata = TaskMetadata(
        name="OwnPairs", description="Pairs of sentences from a file.", type="STS", category="t2t", modalities=["text"],
        dataset={"path": "local/pairs", "revision": "1"}, eval_splits=["test"], eval_langs=["eng-Latn"],
        main_score="cosine_spearman")
    path = Path("pairs.tsv")

    def load_data(self, **options: object) -> None:
        rows = [line.split("\t") for line in self.path.read_text(encoding="utf-8").splitlines()]
        self.dataset = {"test": Dataset.from_dict({
            "score": [float(row[0]) for row in rows], "sentence1": [row[1] for row in rows],
            "sentence2": [row[2] for row in rows]})}
        self.data_loaded = True


def scores_of(model: object, path: str) -> dict:
    """Return mteb's scores of a model on the pairs of a file, such as "cosine_spearman"."""
    task = OwnPairs()
    task.path = Path(path)
    [result] = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    return result.scores["test"][0]


def main(path: str, *models: str) -> None:
    for model in models:
        print(f"{scores_of(EngineModel(model), path)['cosine_spearman']:.4f}  {model}")


if __name__ == "__main__":
    main(*sys.argv[1:])
