"""Read the fenced blocks of the documents, which tests and `tests.project.clean` run."""

import re
import shlex
from typing import NamedTuple

from .paths import ROOT

FOLDERS = ("docs", "engine", "examples", "tests")

FENCE = re.compile(r"\s*```(\S*)")
NOT_RUN = re.compile(r"<!-- not run:\s*(.*?)\s*-->")


class Block(NamedTuple):
    """One fenced block of a document."""

    language: str
    line: int
    """The number of its first line of code."""
    code: str
    reason: str | None
    """Why it is not run; None where nothing is said above it."""


def blocks(text):
    """Yield the fenced blocks of a Markdown text."""
    lines = text.splitlines()
    numbers = iter(range(len(lines)))
    for number in numbers:
        if opening := FENCE.match(lines[number]):
            code = []
            for inside in numbers:
                if lines[inside].strip() == "```":
                    break
                code.append(lines[inside])
            else:
                raise ValueError(f"line {number + 1}: a block without an end")
            above = NOT_RUN.fullmatch(lines[number - 1].strip()) if number else None
            yield Block(opening[1], number + 2, "\n".join(code) + "\n", above[1] if above else None)


def with_tables(path, module, tables):
    """Return a document with its made tables anew. tables: by the names in the comments in front of them."""
    text = path.read_text(encoding="utf-8")
    for name, made in tables.items():
        start = f"<!-- {name}: made by python -m {module} -->"
        before, found, rest = text.partition(start)
        assert found, f"{named(path)} has no place for the table {name}"
        text = f"{before}{start}\n\n{made}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text


def documents():
    """Return the documents whose blocks are run."""
    return [*sorted(ROOT.glob("*.md")), *sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))]


def named(path):
    return path.relative_to(ROOT).as_posix()


def commands(block):
    """Return the commands of a ```sh block, with the words of each, without its comment."""
    found = ((line, shlex.split(line, comments=True)) for line in block.code.splitlines())
    return [(line, words) for line, words in found if words]
