"""Documents and source files stay short, and links between documents lead to files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = {"README.md": 150, "engine/README.md": 100}
SOURCE_LINES = 400
SOURCES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".c", ".md"}
FOLDERS = ("docs", "engine", "tests", "asv_bench", "examples")

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def documents():
    return sorted([*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))])


def anchor(heading):
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def line_count(path):
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", LINES)
def test_readme_is_short(name):
    assert line_count(ROOT / name) <= LINES[name]


def test_source_files_are_short():
    # The compiler's .c files lie beside the .pyx files that they are made from.
    files = [path for path in (ROOT / "engine").rglob("*") if path.suffix in SOURCES]
    written = [path for path in files if path.suffix != ".c" or not path.with_suffix(".pyx").exists()]
    assert len(written) > 50
    long = {str(path.relative_to(ROOT)): line_count(path) for path in written if line_count(path) > SOURCE_LINES}
    assert not long


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path):
    broken = []
    for link in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            broken.append(link)
        elif fragment and target.suffix == ".md":
            headings = HEADING.findall(FENCED.sub("", target.read_text(encoding="utf-8")))
            if fragment not in map(anchor, headings):
                broken.append(link)
    assert not broken
