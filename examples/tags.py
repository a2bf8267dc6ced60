"""Replace the names in texts by their kinds, such as [PER], with a model that tags tokens.

    python examples/tags.py MODEL texts.txt

MODEL is the folder of a token classifier, and the file has a text on each line. A text of more tokens than the model
reads is read in windows that overlap, so that names at its end are found, too.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from engine import Engine

OVERLAP = 16
"""Tokens by which the windows of a long text overlap."""


def find(engine: Engine, texts: list[str], least: float) -> list[list[dict[str, Any]]]:
    """Return the entities of each text whose score is at least `least`."""
    found = engine.tag(texts, aggregation_strategy="first", stride=OVERLAP)
    return [[entity for entity in entities if entity["score"] >= least] for entities in found]


def replace(text: str, entities: list[dict[str, Any]]) -> str:
    """Return a text with the kind of each entity in its place."""
    parts, end = [], 0
    for entity in sorted(entities, key=lambda one: one["start"]):
        parts += [text[end : entity["start"]], f"[{entity['entity_group']}]"]
        end = entity["end"]
    return "".join([*parts, text[end:]])


def main(model: str, file: str, least: str = "0.5") -> None:
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    found = find(Engine.load(model), texts, float(least))
    for text, entities in zip(texts, found, strict=True):
        print(replace(text, entities))
    counts = Counter((entity["entity_group"], text[entity["start"] : entity["end"]])
                     for text, entities in zip(texts, found, strict=True) for entity in entities)
    for (kind, words), count in counts.most_common(10):
        print(f"{count:6}  {kind:6}  {words}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
