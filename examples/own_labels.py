"""Find the topics of texts among topics that you name, with a model that was trained for none of them.

    python examples/own_labels.py MODEL texts.txt sports politics "public health"

MODEL is a classifier of natural language inference, such as facebook/bart-large-mnli, and the file has a text on each
line. A text may have several topics, and "?" stands for none. Each topic has a score of its own between 0 and 1.
"""

import sys
from pathlib import Path

from engine import Engine

LEAST = 0.5
"""The score of a topic that a text has; raise it until the topics of your texts are right."""


def topics(engine: Engine, texts: list[str], names: list[str], least: float = LEAST) -> list[list[str]]:
    """Return the topics of each text, the surest first."""
    found = engine.classify(texts, candidate_labels=names, hypothesis_template="This text is about {}.",
                            multi_label=True, top_k=None)
    return [[one["label"] for one in labels if one["score"] >= least] for labels in found]


def main(model: str, file: str, *names: str) -> None:
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    for text, found in zip(texts, topics(Engine.load(model), texts, list(names)), strict=True):
        print(", ".join(found) or "?", text, sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])
