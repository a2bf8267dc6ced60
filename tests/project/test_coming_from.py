"""Each library in docs/coming-from.md has an example, and `make coming-from` says what happened."""

import sys

import pytest

from ..tools.documents import ROOT
from . import coming_from
from .coming_from import DOCUMENT, PACKAGES, Example, examples


def test_each_library_has_an_example_on_both_sides():
    found = examples(DOCUMENT.read_text(encoding="utf-8"))
    assert [example.library for example in found] == [*PACKAGES]
    for example in found:
        assert "import engine" in example.ours
        assert "engine" not in example.theirs
        assert 3 <= len(example.ours.split("\n\n")[1].splitlines()) <= 5


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
