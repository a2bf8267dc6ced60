"""Read labelled texts from tab-separated lines: the label comes first, as the score of a pair does in other files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import InputError, shown

LINES = {
    "classify": "a label and a text, or a label and two texts",
    "rank": "1 or 0, a query and a document",
    "tag": "labels with spaces between them, and as many words with spaces between them",
    "answer": "the right answer, a question and the text to read",
    "score": "a text, without a label",
}
"""What a line is, by the task to calibrate."""
_COLUMNS = {"classify": (2, 3), "rank": (3,), "tag": (2,), "answer": (3,)}


def parse_labelled(task: str, lines: Sequence[str], source: str) -> tuple[list[Any], list[Any] | None]:
    """Return the texts and the labels of lines, as `calibrate` takes them; None for labels of next tokens.

    Raises an `InputError` that names `source` and the number of the line.
    """
    if not lines:
        raise InputError(f"{source} is empty; expected lines of {LINES[task]}, tab-separated")
    if task == "score":
        return list(lines), None
    texts: list[Any] = []
    labels: list[Any] = []
    for number, line in enumerate(lines, 1):
        label, *rest = line.split("\t")
        if 1 + len(rest) not in _COLUMNS[task]:
            raise InputError(f"{source}, line {number}: expected {LINES[task]}, with a tab between them, not "
                             f"{shown(line)}")
        texts.append(rest[0].split() if task == "tag" else rest[0] if len(rest) == 1 else tuple(rest))
        labels.append(label.split() if task == "tag" else label)
    return texts, labels
