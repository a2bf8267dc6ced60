"""The Python blocks of README.md and docs/ run as they stand, and print what their comments say.

The ```python blocks of one file run in their order, in one namespace and in an empty folder, so a block can use what
earlier ones made. `models/all-MiniLM-L6-v2.npz` is there as after `make demo`. Directly above a block that cannot run
here stands the line `<!-- not run: REASON -->`.

A comment behind a `print` has to begin with what is printed. One that says "rounded" or "about" is not compared.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from engine import BackendUnavailable
from engine.model import load_model, save_model

from . import minilm

ROOT = Path(__file__).parents[1]
MODEL = "models/all-MiniLM-L6-v2.npz"

FENCE = re.compile(r"\s*```(\S*)")
NOT_RUN = re.compile(r"<!-- not run:\s*(.*?)\s*-->")
INEXACT = re.compile(r"\b(rounded|about)\b")


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


def documents():
    """Return the documents whose blocks are run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def named(path):
    return path.relative_to(ROOT).as_posix()


def promised(line):
    """Return what the comment behind a `print` promises, or None where it promises nothing exact."""
    comment = line.partition("  # ")[2].strip()
    return comment if comment and not INEXACT.search(comment) else None


def spaced(text):
    """Return text with each run of spaces as one."""
    return " ".join(text.split())


def run(path, block, names, printed):
    """Run a block in the namespace `names`, and compare what it prints. `printed()` returns what was printed since."""
    for statement in ast.parse("\n" * (block.line - 1) + block.code).body:
        exec(compile(ast.Module([statement], []), str(path), "exec"), names)
        said = spaced(printed())
        expected = promised(block.code.splitlines()[statement.end_lineno - block.line])
        if said and expected is not None:
            where = f"{named(path)}, line {statement.end_lineno}"
            assert spaced(expected).startswith(said), f"{where} prints {said}, but its comment says {expected}"


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """all-MiniLM-L6-v2 as one file, or None where there is none."""
    if not minilm.FOLDER.exists():
        return None
    path = tmp_path_factory.mktemp("documents") / "model.npz"
    save_model(load_model(minilm.FOLDER), path)
    return path


@pytest.mark.parametrize("path", documents(), ids=named)
def test_blocks_run(path, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if model is not None:
        Path(MODEL).parent.mkdir()
        Path(MODEL).symlink_to(model)
    names = {"__name__": "document"}
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language != "python" or block.reason:
            continue
        if MODEL in block.code and model is None:
            pytest.skip(f"from line {block.line} on: {minilm.MISSING}")
        try:
            run(path, block, names, lambda: capsys.readouterr().out)
        except BackendUnavailable as error:
            pytest.skip(f"from line {block.line} on: {error}")


@pytest.mark.parametrize("path", documents(), ids=named)
def test_blocks_that_do_not_run_say_why(path):
    text = path.read_text(encoding="utf-8")
    found = list(blocks(text))
    assert all(block.reason != "" for block in found), "a reason is empty"
    excluded = sum(block.language == "python" for block in found if block.reason)
    comments = len(NOT_RUN.findall(re.sub(r"`.*?`", "", text)))
    assert excluded == comments, "<!-- not run --> must stand directly above a ```python block"
    assert not [block.line for block in found if block.language in ("py", "python3")], "write ```python"


def test_how_blocks_are_read():
    text = ("a\n```python\nx = 1\n```\n<!-- not run: no GPU -->\n```python\ny\n```\n"
            "<!-- not run: -->\n```python\nz\n```\n```sh\nls\n```")
    assert list(blocks(text)) == [Block("python", 3, "x = 1\n", None), Block("python", 7, "y\n", "no GPU"),
                                  Block("python", 11, "z\n", ""), Block("sh", 14, "ls\n", None)]


@pytest.mark.parametrize(("code", "matches"), [
    ("print((1, 4))    # (1, 4), float32\n", True),
    ("print((1, 4))    # (1, 5)\n", False),
    ("print((1,\n       4))  # (1, 4)\n", True),
    ("x = 3  # anything\nprint(x)\n", True),
    ("print(0.123)  # about 0.12\n", True),
])
def test_what_is_printed_is_compared(code, matches, capsys):
    block = Block("python", 1, code, None)
    if matches:
        run(ROOT / "README.md", block, {}, lambda: capsys.readouterr().out)
    else:
        with pytest.raises(AssertionError, match=r"line 1 prints \(1, 4\), but"):
            run(ROOT / "README.md", block, {}, lambda: capsys.readouterr().out)
