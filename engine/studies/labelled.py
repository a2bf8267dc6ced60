"""Read labelled texts from tab-separated lines, and find the number of each label.

The label comes first, as the score of a pair does in other files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, listed, shown

LINES = {
    "classify": "a label and a text, or a label and two texts",
    "rank": "1 or 0, a query and a document",
    "tag": "labels with spaces between them, and as many words with spaces between them",
    "answer": "the right answer, a question and the text to read",
    "score": "a text, without a label",
}
"""What a line is, by the task to calibrate."""
RELEVANCES = ("0", "1")
"""The labels of pairs: whether a document is relevant."""
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
        text_or_pair = rest[0] if len(rest) == 1 else tuple(rest)
        texts.append(rest[0].split() if task == "tag" else text_or_pair)
        labels.append(label.split() if task == "tag" else label)
    return texts, labels


def label_numbers(labels: Sequence[Any], names: Sequence[str], what: str = "text", first: int = 0) -> NDArray[np.int64]:
    """Return the number of each label, which is a name or a number of a class; raises `InputError`.

    A text of digits, as a file has it, is a number unless the names are texts of digits, too. A table of relevances may
    hold floats or booleans. what, first: what has the label, for the message, and the number of the first of them.
    """
    known = {name: i for i, name in enumerate(names)}
    by_digits = not any(name.isdecimal() for name in names)
    numbers = np.empty(len(labels), np.int64)
    for i, label in enumerate(labels):
        number = label
        if isinstance(label, str):
            number = int(label) if by_digits and label.isdecimal() and len(label) < 10 else known.get(label)
        elif ((isinstance(label, (float, np.floating)) and len(names) == 2 and label in (0, 1))
              or (isinstance(label, (bool, np.bool_)) and names == RELEVANCES)):
            number = int(label)
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 0 <= number < len(names):
            raise InputError(f"the label of {what} {i + first} must be one of {listed(names)}, or the number of one, "
                             f"not {shown(label)}")
        numbers[i] = number
    return numbers


def check_several(numbers: NDArray[np.int64], names: Sequence[str]) -> None:
    """Raise `InputError` unless labels are of two classes at least."""
    counts = Counter(numbers.tolist())
    if len(counts) < 2:
        only = "".join(f", {shown(names[i])}" for i in counts)
        raise InputError(f"all labels are one class{only}; a calibration needs texts of several, in both halves of the "
                         "data")
