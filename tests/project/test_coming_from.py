"""docs/coming-from.md agrees with the table of other names, and `make coming-from` says what happened."""

import re
import sys

import pytest

from engine.base.other_names import CALLS
from engine.cli.main import parsers
from engine.cli.parsing import parse
from engine.interface.other_names import METHODS

from ..tools.documents import ROOT
from . import coming_from
from .coming_from import DOCUMENT, PACKAGES, Example, examples

ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
FUNCTIONS = {"From transformers": ("generate", "translate", "transcribe", "load"),
             "From llama-cpp-python": ("load", "generate"), "From CTranslate2": ("load", "generate", "translate"),
             "From faster-whisper": ("load", "transcribe"), "From fastembed": ("load", "encode"),
             "From FlagEmbedding": ("load", "encode"), "On the command line": ()}


def test_each_library_has_an_example_on_both_sides():
    found = examples(DOCUMENT.read_text(encoding="utf-8"))
    assert [example.library for example in found] == [*PACKAGES]
    for example in found:
        assert "import engine" in example.ours
        assert "engine" not in example.theirs
        assert 3 <= len(example.ours.split("\n\n")[1].splitlines()) <= 5


def test_rows_say_what_the_table_of_names_says():
    checked = set()
    for section in DOCUMENT.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        tables = [CALLS[function] for function in FUNCTIONS[heading]]
        for theirs, ours in ROW.findall(section):
            for name in NAME.findall(theirs):
                rows = [table[name] for table in tables if name in table]
                if rows and rows[0].ours is not None:
                    assert any(f"`{row.ours}`" in ours or f"`{row.ours}=" in ours or row.ours in ("path", "inputs")
                               for row in rows), f"{heading}: {name}"
                    checked.add(name)
                if rows and all("nothing like it" in row.advice for row in rows):
                    assert re.search("nothing|alone", ours), f"{heading}: {name}"
                    checked.add(name)
                if not rows and name in METHODS:
                    checked.add(name)
    assert len(checked) > 30


def test_lines_of_other_programs_are_ours():
    section = DOCUMENT.read_text(encoding="utf-8").partition("\n## On the command line\n")[2]
    rows = re.findall(r"^\| `engine (.+?)` \| `engine (.+?)` \|$", section, re.MULTILINE)
    assert len(rows) > 10
    for theirs, ours in rows:
        assert vars(parse(*parsers(), theirs.split())) == vars(parse(*parsers(), ours.split())), theirs


@pytest.mark.parametrize(("theirs", "reason", "passes", "words"), [
    ("print('a b')", None, True, "the same"), ("print('other')", None, False, "DIFFERENT"),
    ("raise OSError('no network')", None, True, "there: did not run: OSError: no network"),
    ("print(1)", "no compiler", True, "there: did not install: no compiler"),
])
def test_what_is_said_of_a_library(tmp_path, monkeypatch, capsys, theirs, reason, passes, words):
    (tmp_path / "lib" / "bin").mkdir(parents=True)
    (tmp_path / "lib" / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setitem(PACKAGES, "lib", [])
    monkeypatch.setattr(coming_from, "install", lambda folder, packages: reason)
    example = Example("lib", theirs, "print('a  b')")
    assert coming_from.compare(example, tmp_path, ROOT, {"lib": "a file"}) == passes
    assert words in capsys.readouterr().out
