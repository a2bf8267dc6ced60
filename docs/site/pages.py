"""Which files of the repository are pages of the site, and where each page lies in it.

A page keeps its path in the repository while the site is built, so that links between documents are the same on GitHub
and here. Links to other files and folders of the repository lead to pages that show them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

FOLDERS = ("docs", "engine", "examples", "tests")
"""The folders whose Markdown files are pages, besides those of the root."""
ARCHIVE = "measurements-"
"""What the names of the archives of measurements begin with, which are no pages."""

FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
LANGUAGES = {".py": "python", ".pyx": "cython", ".pxi": "cython", ".pxd": "cython", ".toml": "toml", ".sh": "sh"}


def version(root: Path = ROOT) -> str:
    """Return the version of the package, for the header of the site."""
    found = re.search(r'^__version__ = "([^"]+)"', (root / "engine/base/version.py").read_text("utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def documents(root: Path = ROOT) -> list[str]:
    """Return the documents, as paths relative to the root of the repository, without the archive of measurements.

    A link to the archive leads to a page that shows it as a file.
    """
    found = [*root.glob("*.md"), *(path for folder in FOLDERS for path in (root / folder).rglob("*.md"))]
    return sorted(path.relative_to(root).as_posix() for path in found if not path.name.startswith(ARCHIVE))


def place(path: str) -> str:
    """Return where the site has a document or a picture: `docs/guide.md` is guide.html, and README.md is index.html."""
    inside = path.removeprefix("docs/")
    if inside == path and "/" not in path:
        inside = path.lower()
    folder, _, name = inside.rpartition("/")
    if name.lower() == "readme.md":
        name = "index.md"
    return f"{folder}/{name}".lstrip("/").removesuffix(".md") + (".html" if name.endswith(".md") else "")


def linked(root: Path = ROOT) -> Iterator[str]:
    """Yield each file and folder of the repository that a document links to and that is no document itself."""
    known = set(documents(root))
    found = set()
    for document in known:
        for link in LINK.findall(FENCED.sub("", (root / document).read_text(encoding="utf-8"))):
            name = link.partition("#")[0]
            target = ((root / document).parent / name).resolve()
            if name and not re.match(r"[a-z]+:", link) and target.exists() and target.is_relative_to(root.resolve()):
                found.add(target.relative_to(root.resolve()).as_posix())
    yield from sorted(found - known)


def shown(path: str, root: Path = ROOT) -> str:
    """Return the Markdown of the page that shows a file, or lists a folder, of the repository."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if (root / path).is_dir():
        files = sorted(file for file in (root / path).iterdir() if not file.name.startswith((".", "__pycache__")))
        rows = (f"| `{file.name}{'/' * file.is_dir()}` | {first_line(file)} |\n" for file in files)
        return f"{head}| file | what it is |\n|---|---|\n{''.join(rows)}"
    text = (root / path).read_text(encoding="utf-8")
    fence = "`" * max(4, *(len(run) + 1 for run in re.findall("`+", text)), 4)
    return f"{head}{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def first_line(file: Path) -> str:
    """Return the first line of a module's docstring, or of a package's; nothing for other files."""
    module = file / "__init__.py" if file.is_dir() else file
    if module.suffix != ".py" or not module.exists():
        return ""
    lines = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").splitlines()
    return lines[0].replace("|", r"\|") if lines else ""
