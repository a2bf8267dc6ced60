"""The readmes stay short, and links between documents lead to files that exist."""

import re

import pytest

from ..tools.paths import ROOT

LINES = {"README.md": 150, "engine/README.md": 100}
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


def test_documents_and_examples_import_from_the_package_alone():
    files = [*documents(), *(ROOT / "examples").glob("*.py")]
    names = [(name, path.name) for path in files
             for name in re.findall(r"(?m)^ *(?:from|import) (engine[\w.]*)", path.read_text(encoding="utf-8"))]
    assert len(names) > 15
    assert [entry for entry in names if entry[0] not in ("engine", "engine.ops", "engine.plot")
            and not entry[0].startswith("engine.adapters.")] == []


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
