"""Learn labels of texts with scikit-learn on the engine's vectors, and choose the settings by cross-validation.

    pip install scikit-learn
    python examples/sklearn_labels.py MODEL labelled.tsv new.txt

MODEL is a sentence-transformers model such as all-MiniLM-L6-v2. Each line of labelled.tsv has a label, a tab and a
text; new.txt has a text on each line.
"""

import sys
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from engine.adapters.sklearn import EngineEncoder


def learn(model: str, labels: list[str], texts: list[str]) -> GridSearchCV:
    """Return the best of some pipelines, fitted to all texts."""
    pipeline = Pipeline([("vectors", EngineEncoder(model)), ("labels", LogisticRegression(max_iter=1000))])
    settings = {"vectors__normalize_embeddings": [False, True], "labels__C": [1.0, 10.0]}
    return GridSearchCV(pipeline, settings, cv=3).fit(texts, labels)


def main(model: str, labelled: str, new: str) -> None:
    rows = [line.split("\t", 1) for line in Path(labelled).read_text(encoding="utf-8").splitlines()]
    found = learn(model, [label for label, _ in rows], [text for _, text in rows])
    print(f"{found.best_score_:.1%} right in cross-validation, with {found.best_params_}")
    texts = Path(new).read_text(encoding="utf-8").splitlines()
    for label, text in zip(found.predict(texts), texts, strict=True):
        print(f"{label}\t{text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
