"""Hooks of MkDocs: the files of the site, its navigation and its reference (mkdocs.yml names this file)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import pages  # noqa: E402
import reference  # noqa: E402

PICTURES = (".svg", ".png")
UNUSED = ("assets/javascripts/lunr/",)
"""Parts of the theme that no page loads: the search of other languages than English."""


class Shown(File):
    """A page that shows a file, or lists a folder, whose name does not end in `.md`."""

    def is_documentation_page(self) -> bool:
        return True


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: the pages of the reference, and every document that it does not list."""
    config.site_name = f"{config.site_name} {pages.version()}"
    config.theme.static_templates.clear()  # 404.html and sitemap.xml state the address of a site, which we do not know
    if "MIKE_DOCS_VERSION" in os.environ:  # mike writes the list of versions that the page then reads
        config.extra["version"] = {"provider": "mike"}
    sections = {title: entries for entry in config.nav for title, entries in entry.items()}
    sections["Reference"][:0] = [{page.title: f"reference/{page.file}.md"} for page in reference.PAGES]
    named = set(paths(config.nav))
    if rest := [path for path in pages.documents() if path not in named]:
        config.nav.append({"More": rest})
    return config


def paths(entry: Any) -> list[str]:
    """Return the paths in a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [path for part in (entry.values() if isinstance(entry, dict) else entry) for path in paths(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the documents of the whole repository in the place of those that MkDocs finds in docs/."""
    kept = [file for file in files if not file.src_uri.startswith(UNUSED)
            and (file.src_dir != config.docs_dir or file.src_uri.startswith("site/assets/"))]  # fmt: skip
    return Files([*kept, *site_files(config)])


def site_files(config: MkDocsConfig) -> list[File]:
    """Return the files of the site that are not part of the theme."""
    linked = list(pages.linked())
    found = [from_repository(config, path) for path in pages.documents()]
    for path in linked:
        if path.endswith(PICTURES):
            found.append(from_repository(config, path))
        else:
            file = Shown.generated(config, path, content=pages.shown(path), inclusion=InclusionLevel.NOT_IN_NAV)
            file.dest_uri = f"source/{path}.html"
            found.append(file)
    for page in reference.PAGES:
        found.append(File.generated(config, f"reference/{page.file}.md", content=reference.markdown(page)))
    return found


def from_repository(config: MkDocsConfig, path: str) -> File:
    """Return a file that keeps its path in the repository for links, and has its place in the site."""
    file = File.generated(config, path, abs_src_path=str(pages.ROOT / path))
    file.dest_uri = pages.place(path)
    return file
