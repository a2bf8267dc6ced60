"""The words that must not come back: the tree has none, and each is found."""

import pytest

from .words import WORDS, files, find, main


def test_the_tree_has_none(capsys):
    assert main() == 0, capsys.readouterr().out
    assert len([*files()]) > 300


@pytest.mark.parametrize(("text", "line", "word"), [
    ("x\nhere are taps\n", 2, "taps"), ("TappingPlan", 1, "TappingPlan"), ("the sound of it", 1, "sound"),
    ("both text halves", 1, "text halves"), ("if HALVES == 1", 1, "HALVES"), ("a CythonPlan", 1, "CythonPlan"),
    ("singles", 1, "singles"), ("It is remembered.", 1, "remembered"), ("likewise", 1, "likewise"),
    ("What all documents of a query begin with", 1, "What all documents of a query begin with"),
    ("it writes what a recording says", 1, "writes what a recording says"),
    ("where a maximum goes that nobody wants", 1, "goes that nobody wants"),
])  # fmt: skip
def test_each_is_found(text, line, word):
    assert [found[:2] for found in find(text, "docs/guide.md")] == [(line, word)]


def test_words_with_a_meaning_in_the_field_are_left_alone():
    text = "unsound; half to even; the upper half of a register; rotate halves; tape; wire-tap; single"
    assert list(find(text, "docs/guide.md")) == []
    assert list(find("sounds is now called audio", "engine/base/advice.py")) == []
    assert all(word.instead for word in WORDS)
