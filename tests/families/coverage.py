"""The tables of the most used checkpoints in docs/coverage.md, made from a list of them. Run this file to write them:

    python -m tests.families.coverage

checkpoints.tsv is the list, a line for each checkpoint, with the columns of `Checkpoint`. To change what the page says
of a checkpoint, change its line: the status, and the golden models that prove it. test_coverage.py holds each line to
the golden models and to the refusals of the engine.
"""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.tools.paths import ROOT

DOCUMENT = ROOT / "docs" / "coverage.md"
START, END = "<!-- made by python -m tests.families.coverage -->", "<!-- end -->"
LIST = Path(__file__).with_name("checkpoints.tsv")
MAIN = "269"
"""The name of the list that the page counts; the other one is of newer checkpoints."""
TIERS = {"A": 20.0, "B": 3.0, "C": 0.4, "D": 0.05}
"""Millions of downloads a month that a tier stands for: about the middle of its bounds."""
WORDS = {"whole": "whole", "runs": "runs, not compared", "half": "half", "refused": "refused", "wrong": "wrong"}
"""The heads of columns for `Checkpoint.word`."""


@dataclass(frozen=True)
class Checkpoint:
    """A line of the list."""

    group: str
    checkpoint: str
    """Its name, or several names that one line stands for."""
    downloads: str
    """A key of `TIERS`."""
    list: str
    status: str
    """"whole", "half", "refused", or "wrong" for results that differ from those of the other library."""
    kind: str
    """Its class in transformers, as its config.json names it."""
    model_type: str
    """"" for a folder whose config.json names none."""
    tokenizer: str
    """The kind of its vocabulary; "" for what has none."""
    form: str
    """The pooling of an embedder, and what follows it."""
    golden: tuple[str, ...]
    """The golden models in its form, as KIND/NAME; test_coverage.py has the kinds."""
    lacks: str
    """What does not run."""
    config: Mapping[str, Any]
    """The settings of config.json that the engine refuses, of a model_type that it reads otherwise."""

    @property
    def word(self) -> str:
        """The key of `WORDS` that it is counted under."""
        return "runs" if self.status == "whole" and not self.golden else self.status

    @property
    def result(self) -> str:
        """What the page says of it."""
        return {"whole": "whole", "runs": "runs, no golden model of this form", "half": f"half, without {self.lacks}",
                "refused": f"refused: {self.lacks}", "wrong": f"wrong: {self.lacks}"}[self.word]


@cache
def checkpoints() -> tuple[Checkpoint, ...]:
    """Return the lines of the list."""
    with LIST.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(Checkpoint(**{key: value for key, value in row.items() if key not in ("class", "golden", "config")},
                            kind=row["class"], golden=tuple(filter(None, row["golden"].split("; "))),
                            config=json.loads(row["config"] or "{}")) for row in rows)


def weight(rows: Sequence[Checkpoint], word: str | None = None) -> float:
    """Return the downloads of checkpoints, in millions a month; word: of those that are counted under it."""
    return sum(TIERS[row.downloads] for row in rows if word in (None, row.word))


def counts(rows: Sequence[Checkpoint]) -> list[str]:
    """Return the table of the groups."""
    words = [word for word in WORDS if word != "wrong" or any(row.word == word for row in rows)]
    found = ["| group | checkpoints | " + " | ".join(WORDS[word] for word in words) + " | whole, by downloads |",
             "|---" * (len(words) + 3) + "|"]
    for group in [*dict.fromkeys(row.group for row in rows), None]:
        own = [row for row in rows if group in (None, row.group)]
        numbers = Counter(row.word for row in own)
        share = f"{100 * weight(own, 'whole') / weight(own):.0f} %"
        cells = [group or "**all**", len(own), *(numbers[word] for word in words), share]
        found.append("| " + " | ".join(map(str, cells)) + " |")
    return found


def each(rows: Sequence[Checkpoint]) -> list[str]:
    """Return the table of the checkpoints."""
    found = ["| checkpoint | class | vocabulary | it runs | golden models |", "|---|---|---|---|---|"]
    for row in rows:
        name = row.checkpoint.replace("*", r"\*")
        found.append(f"| {name} | {row.kind} | {row.tokenizer} | {row.result} | {'; '.join(row.golden)} |")
    return found


def tables() -> str:
    """Return the tables of the page, as Markdown."""
    main = [row for row in checkpoints() if row.list == MAIN]
    newer = [row for row in checkpoints() if row.list != MAIN]
    return "\n".join([*counts(main), "", *each(main), "", "## Newer checkpoints", "",
                      "These checkpoints of 2026 are not among those that the first table counts.", "", *each(newer)])


def document() -> str:
    """Return docs/coverage.md with its tables made anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
