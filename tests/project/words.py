"""Find words that we gave up because they had several meanings or said nothing: `python -m tests.project.words`.

CONTRIBUTING.md says how we write. This list is short, and each of its patterns has no innocent use in the files that
are read. If one gets such a use, add the file to its row.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".md"}


@dataclass(frozen=True)
class Word:
    """A pattern that must not come back."""

    pattern: str
    instead: str
    """The words to use in its place."""
    allowed: tuple[str, ...] = ()
    """Files in which the word has its meaning in the field."""


WORDS = (
    Word(r"[Tt]aps?|tapped|TappingPlan", "observed heads, hidden states"),
    Word(r"[Ss]ounds?", "audio, recording", ("engine/base/advice.py", "docs/coming-from.md")),
    Word(r"(?:encoder|decoder|text|image|native) hal(?:f|ves)", "part, or the encoder or decoder itself"),
    Word(r"HALVES|half_heads", "PAIR_STEPS; bfloat16"),
    Word(r"Cython(?:Plan|Decoder)", "CpuPlan, CpuDecoder"),
    Word(r"singles", "greedy search, sampling"),
    Word(r"[Rr]emember(?:s|ed)?|REMEMBERED", "keep, cache"),
    Word(r"[Ww]hat (?:all|both|each) [\w ]*begins? with", "common prefix"),
    Word(r"writes? what (?:\w+ )*sa(?:ys|id)", "transcribe"),
    Word(r"goes that nobody wants", "scratch space"),
    Word(r"[Ll]ikewise|the latter|the former", "the noun", ("CONTRIBUTING.md",)),
)


def files() -> Iterator[Path]:
    """Yield the files that are read: the package, with its map, and the documents."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))
    yield from (path for path in sorted((ROOT / "engine").rglob("*")) if path.suffix in SUFFIXES)


def find(text: str, path: str, words: Iterable[Word] = WORDS) -> Iterator[tuple[int, str, str]]:
    """Yield the number of the line, the word and its replacement for each word of a text that must not come back."""
    for word in words:
        if path not in word.allowed:
            for match in re.finditer(rf"(?<![\w-])(?:{word.pattern})(?![\w-])", text):
                yield text.count("\n", 0, match.start()) + 1, match[0], word.instead


def main() -> int:
    """Print each finding in a line; return 1 if there is one."""
    found = [(path.relative_to(ROOT).as_posix(), *finding) for path in files()
             for finding in find(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())]
    for path, line, word, instead in found:
        print(f"{path}:{line}: {word!r} must not come back; write: {instead}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
