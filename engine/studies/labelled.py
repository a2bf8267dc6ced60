"""Read labelled texts from tab-separated lines, with the label first, and find the number of each label.

The commands calibrate and compare read files by it.
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
"""A description, for messages, of the fields of a line, by the task to calibrate."""
RELEVANCES = ("0", "1")
"""The labels of pairs: whether a document is relevant."""
_COLUMNS = {"classify": (2, 3), "rank": (3,), "tag": (2,), "answer": (3,)}     # how many fields a line may have


def parse_labelled(task: str, lines: Sequence[str], source: str) -> tuple[list[Any], list[Any] | None]:
    """Return the texts and the labels on lines, as `calibrate` takes them; the labels are None for the task "score".

    Raises an `InputError` that names `source`, such as the file, and the number of the line.
    """
    if not lines:
        raise InputError(f"{source} is empty; expected lines of {LINES[task]}, tab-separated")
    if task == "score":
        return list(lines), None
    texts: list[Any] = []
    labels: list[Any] = []
    for number, line in enumerate(lines, 1):
        label, *fields = line.split("\t")
        if 1 + len(fields) not in _COLUMNS[task]:
            raise InputError(f"{source}, line {number}: expected {LINES[task]}, with a tab between them, not "
                             f"{shown(line)}")
        text_or_pair = fields[0] if len(fields) == 1 else tuple(fields)
        texts.append(fields[0].split() if task == "tag" else text_or_pair)
        labels.append(label.split() if task == "tag" else label)
    return texts, labels


def label_numbers(labels: Sequence[Any], names: Sequence[str], what: str = "text", first: int = 0) -> NDArray[np.int64]:
    """Return the number of the class of each label: int64 [n]. Raises `InputError` for a label that is no class.

    names: of the classes, in order. A label is a name or a number; a string of digits is a number unless a name is one
    as well. With two classes it may be a float or, for `RELEVANCES`, a boolean. what, first: the noun of a labelled
    thing for messages, and the number of the first one.
    """
    known = {name: i for i, name in enumerate(names)}
    by_digits = not any(name.isdecimal() for name in names)
    numbers = np.empty(len(labels), np.int64)
    for i, label in enumerate(labels):
        number = label
        if isinstance(label, str):
            # No class has a number of 10 digits, and `int` raises a `ValueError` for thousands of digits.
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
    """Raise `InputError` unless the labels, given by the numbers of their classes, are of at least two classes."""
    counts = Counter(numbers.tolist())
    if len(counts) < 2:
        only = "".join(f", {shown(names[i])}" for i in counts)
        raise InputError(f"all labels are one class{only}; a calibration needs texts of several, in both halves of the "
                         "data")
