"""Phrases that we gave up, because they said nothing, do not come back. codespell finds single words (`make lint`)."""

import re

import pytest

from ..tools.paths import ROOT

SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".md"}
PHRASES = re.compile(r"(?<![\w-])(?:(?:encoder|decoder|text|image|native) hal(?:f|ves)|HALVES"
                     r"|[Ww]hat (?:all|both|each) [\w ]*begins? with|writes? what (?:\w+ )*sa(?:ys|id)"
                     r"|goes that nobody wants)(?![\w-])")


def test_the_tree_has_none():
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "engine").rglob("*")]
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix in SUFFIXES}
    assert len(texts) > 300
    assert [(path, found[0]) for path, text in texts.items() for found in PHRASES.finditer(text)] == []


@pytest.mark.parametrize("text", [
    "both text halves", "if HALVES == 1", "What all documents of a query begin with",
    "it writes what a recording says", "where a maximum goes that nobody wants",
])  # fmt: skip
def test_each_is_found(text):
    assert PHRASES.search(text)
    assert not PHRASES.search("half to even; the upper half of a register; rotate halves")
