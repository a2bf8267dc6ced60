"""The site of the documents: where its pages lie, what its reference holds, and what the check of a built site finds.

`make docs` builds the site and checks it; nothing here needs what that installs.
"""

import importlib.util
import inspect
import re
import sys
from types import SimpleNamespace

import pytest

import engine
from engine import ops, plot

from ..tools.paths import ROOT

FOLDER = ROOT / "docs/site"


def load(name, monkeypatch):
    """Import a module of docs/site, which is no package, as MkDocs does."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pages(monkeypatch):
    return load("pages", monkeypatch)


@pytest.fixture
def check(pages, monkeypatch):
    return load("check", monkeypatch)


def test_every_public_name_is_on_one_page_of_the_reference(monkeypatch):
    named = sorted(name for page in load("reference", monkeypatch).PAGES for name in page.names)
    public = [f"engine.{name}" for name in engine.__all__ if name not in ("ops", "plot")]
    public += [f"engine.ops.{name}" for name in ops.__all__]
    public += [f"engine.plot.{name}" for name, value in vars(plot).items()
               if inspect.isfunction(value) and value.__module__ == plot.__name__ and not name.startswith("_")]
    assert named == sorted(public)


def test_a_page_begins_with_the_methods_that_people_need(monkeypatch):
    reference = load("reference", monkeypatch)
    members = ["answer", "runner_of", "heads", "encode", "_pack", "look", "load"]
    assert reference.in_order(members) == ["load", "encode", "answer", "heads", "look"]
    assert {name for owner in (engine.Engine, engine.Generator, engine.Reranker, engine.Transcriber)
            for name in dir(owner)} >= {*reference.FIRST, *reference.HIDDEN}


def test_a_summary_shows_a_whole_sentence(monkeypatch):
    """The summary of a page has the first line of a docstring alone."""
    monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object, Object=object))
    value = SimpleNamespace(docstring=SimpleNamespace(value="A\nb.\n\nC\nd."))
    load("docstrings", monkeypatch).PlainText().on_instance(obj=value)
    assert value.docstring.value == "A b.\n\nC\nd."


def test_the_header_has_the_version(pages):
    assert pages.version() == engine.__version__


def test_links_between_documents_are_called_by_titles(pages):
    named = [(path, text) for path in pages.documents()
             for text in re.findall(r"\[`?([\w./-]+\.md)`?\]\(", (ROOT / path).read_text(encoding="utf-8"))]
    assert named == []


@pytest.mark.parametrize(("path", "place"), [
    ("README.md", "index.html"), ("CHANGELOG.md", "changelog.html"), ("docs/guide.md", "guide.html"),
    ("docs/peers/README.md", "peers/index.html"), ("engine/README.md", "engine/index.html"),
    ("docs/head.svg", "head.svg"),
])  # fmt: skip
def test_place(pages, path, place):
    assert pages.place(path) == place


def test_the_archive_of_measurements_is_shown_and_no_page(pages):
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("measurements-*.md")}
    assert found
    assert found.isdisjoint(pages.documents())
    assert found <= {*pages.linked()}


def test_files_that_documents_link_to_are_shown(pages, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/a.py").write_text('"""Show ```a```."""\n', encoding="utf-8")
    (tmp_path / "docs/x.md").write_text("[a](../examples/a.py), [all](../examples), [x](x.md)\n", encoding="utf-8")
    assert list(pages.linked(tmp_path)) == ["examples", "examples/a.py"]
    assert '\n````python\n"""Show ```a```."""\n````\n' in pages.shown("examples/a.py", tmp_path)
    assert "| `a.py` | Show ```a```. |" in pages.shown("examples", tmp_path)


WHOLE = """<nav class="md-nav md-nav--primary"><a href="index.html">Start</a><a href="b.html#there">B</a></nav>
<article><h2 id="here">H</h2><a href="#here">up</a><img src="p.svg"></article>"""


def write_site(folder, **files):
    index = '{"docs": [{"location": "index.html"}, {"location": "b.html#there"}]}'
    whole = {"index.html": WHOLE, "b.html": '<a id="there"></a>', "p.svg": "<svg/>", "search/search_index.json": index}
    for name, text in (whole | files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_a_whole_site_has_no_findings(check, tmp_path):
    write_site(tmp_path, **{"a.css": "a { background: url(p.svg) }", "a.js": "x = 'http://www.w3.org/2000/svg'"})
    assert list(check.find(tmp_path)) == []


@pytest.mark.parametrize(("name", "text", "finding"), [
    ("b.html", '<a id="there" href="c.html"></a>', "c.html leads to no file"),
    ("b.html", '<a id="there" href="index.html#nowhere"></a>', "index.html#nowhere leads to no element"),
    ("b.html", '<p id="elsewhere"></p>', "b.html#there leads to no element"),
    ("b.html", '<a id="there"></a><img src="q.svg">', "q.svg leads to no file"),
    ("b.html", '<a id="there"></a><script src="//cdn.org/x.js"></script>', "loads //cdn.org/x.js"),
    ("b.html", '<a id="there"></a><link rel="stylesheet" href="https://f.org/css">', "loads https://f.org/css"),
    ("b.html", '<a id="there"></a><style>@import "https://f.org/css";</style>', "loads https://f.org/css"),
    ("b.html", '<a id="there"></a><p style="background: url(https://f.org/p)"></p>', "loads https://f.org/p"),
    ("b.html", '<a id="there"></a><pre class="mermaid"></pre>', "has a diagram of Mermaid"),
    ("a.css", "@font-face { src: url('https://f.org/x.woff2') }", "loads https://f.org/x.woff2"),
    ("a.js", 'import("https://cdn.org/x.js")', "names the host cdn.org"),
    ("c.html", "<p></p>", "is not in the navigation"),
    ("d.html", "<p></p>", "is not in the index of the search"),
])  # fmt: skip
def test_what_is_wrong_is_found(check, tmp_path, name, text, finding):
    write_site(tmp_path, **{name: text})
    assert any(found.text.startswith(finding) for found in check.find(tmp_path)), list(check.find(tmp_path))


def test_the_workflow_publishes_what_make_builds():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    workflow = (ROOT / ".github/workflows/docs.yml").read_text(encoding="utf-8")
    assert re.findall(r"\bmake ([\w-]+)", workflow) == ["docs", "docs-version"]
    assert all(re.search(f"^{target}: ", makefile, re.MULTILINE) for target in ("docs", "docs-version"))
