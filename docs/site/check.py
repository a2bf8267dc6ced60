"""Check a built site: no broken link, nothing that a browser would load from elsewhere, nothing lost in translation.

    python docs/site/check.py build/docs-site

- Every link inside the site leads to a file, and every anchor to an element.
- No page, style sheet or script loads a file of another server.
- Every page can be reached from the navigation, and found by the search.
- Every document has as many lists, tables and code blocks as CommonMark makes of its source, as GitHub shows them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

sys.path.insert(0, str(Path(__file__).parent))

import pages

LOADS = {"src", "srcset", "poster", "data"}
"""Attributes whose address a browser loads by itself; `href` of a <link> is another."""

IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""")
IN_SCRIPTS = re.compile(r"""["'`](?:https?:)?//([\w-]+(?:\.[\w-]+)+)""")
NOT_LOADED = {
    "www.w3.org": "names of namespaces",
    "127.0.0.1": "the address of the server in examples, which are text of the index of the search",
    "unpkg.com": "Material's script for diagrams of Mermaid; a page with one is refused here",
    "api.github.com": "Material's facts about a repository; mkdocs.yml states no repository",
}
"""The hosts that scripts of the site name, and why no reader's browser asks them."""

COUNTED = ("ul", "ol", "li", "table", "tr", "pre", "h2", "h3", "img", "blockquote")


class Page(HTMLParser):
    """What one page of HTML holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.nav: list[str] = []
        self.styles: list[str] = []
        self.counts: Counter[str] = Counter()
        self.mermaid = False
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values and (name == "id" or tag == "a"))
        self.loads += [values[name] for name in LOADS if name in values]
        self.styles.append(values.get("style", ""))
        self.mermaid |= "mermaid" in values.get("class", "").split()
        if tag == "link":
            self.loads.append(values.get("href", ""))
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])
            if any("md-nav--primary" in outer.get("class", "") for _, outer in self._open):
                self.nav.append(values["href"])
        if any(name == "article" for name, _ in self._open):
            self.counts[tag] += tag in COUNTED
        if tag not in ("br", "hr", "img", "input", "link", "meta", "source", "col", "wbr"):
            self._open.append((tag, values))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "style":
            self.styles.append(data)


class Finding(NamedTuple):
    """Something that is wrong with a file of the site."""

    file: str
    text: str


def find(site: Path) -> Iterator[Finding]:
    """Yield what is wrong with a site, apart from what the sources of its pages say."""
    read = {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    if not read:
        yield Finding(str(site), "there are no pages")
    for name, page in sorted(read.items()):
        yield from broken_links(site, name, page, read)
        remote = [load for load in page.loads if is_remote(load)]
        remote += [address for style in page.styles for address in IN_STYLES.findall(style) if is_remote(address)]
        yield from (Finding(name, f"loads {address}") for address in remote)
        if page.mermaid:
            yield Finding(name, "has a diagram of Mermaid, whose script is loaded from unpkg.com")
    for path in sorted(site.rglob("*.css")):
        for address in filter(is_remote, IN_STYLES.findall(path.read_text(encoding="utf-8"))):
            yield Finding(path.relative_to(site).as_posix(), f"loads {address}")
    for path in sorted(site.rglob("*.js")):
        for host in sorted({*IN_SCRIPTS.findall(path.read_text(encoding="utf-8"))} - {*NOT_LOADED}):
            yield Finding(path.relative_to(site).as_posix(), f"names the host {host}; say in check.py why not to worry")
    yield from lost_pages(site, read)


def is_remote(address: str) -> bool:
    """Return whether a browser asks another server for an address."""
    return urlsplit(address).netloc != "" or urlsplit(address).scheme not in ("", "data")


def broken_links(site: Path, name: str, page: Page, read: dict[str, Page]) -> Iterator[Finding]:
    """Yield the links and files of a page that lead nowhere in the site."""
    for address in {*page.links, *page.loads}:
        if is_remote(address) or address.startswith("data:"):
            continue
        path, _, fragment = urljoin(f"http://site/{name}", address).removeprefix("http://site/").partition("#")
        path = unquote(path.partition("?")[0])
        path += "index.html" * (path == "" or path.endswith("/"))
        if not (site / path).is_file():
            yield Finding(name, f"{address} leads to no file")
        elif fragment and fragment != "__top" and path in read and unquote(fragment) not in read[path].ids:
            yield Finding(name, f"{address} leads to no element")


def lost_pages(site: Path, read: dict[str, Page]) -> Iterator[Finding]:
    """Yield the pages that neither the navigation of the first page nor a search finds."""
    if "index.html" not in read:
        yield Finding("index.html", "is not there")
        return
    listed = {unquote(link.partition("#")[0]) for link in read["index.html"].nav}
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for name in sorted(read):
        if not name.startswith("source/"):  # the files that documents link to
            if name not in listed and not (name == "index.html" and listed):
                yield Finding(name, "is not in the navigation")
            if name not in searched:
                yield Finding(name, "is not in the index of the search")


def differences(site: Path, root: Path = pages.ROOT) -> Iterator[Finding]:
    """Yield the documents that have other lists, tables and blocks in the site than in CommonMark."""
    from markdown_it import MarkdownIt

    for document in pages.documents(root):
        html = MarkdownIt("commonmark").enable("table").render((root / document).read_text(encoding="utf-8"))
        expected = Page(f"<article>{html}</article>").counts
        found = Page((site / pages.place(document)).read_text(encoding="utf-8")).counts
        if different := {tag: (found[tag], expected[tag]) for tag in COUNTED if found[tag] != expected[tag]}:
            yield Finding(document, f"has other elements in the site than on GitHub (site, GitHub): {different}")


def main(site: Path) -> int:
    """Print each finding in a line; return 1 if there is one."""
    found = [*find(site), *differences(site)]
    for finding in found:
        print(f"{finding.file}: {finding.text}")
    print(f"{len(list(site.rglob('*.html')))} pages checked, {len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
