"""An extension of griffe, which reads the docstrings: our plain text becomes Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"[a-z_]+(, [a-z_]+)*: ")
"""The start of a line that describes an argument, such as `threads: ` or `prompt_name, prompt: `."""


def to_markdown(docstring: str) -> str:
    """Return the docstring with its argument lines as a list and its indented blocks as code."""
    lines: list[str] = []
    in_entry = in_block = False
    for line in docstring.split("\n"):
        indented = line.startswith("    ")
        entry = ENTRY.match(line)
        starts_entry = entry is not None and not in_entry
        starts_block = indented and not in_block and not in_entry
        ends_block = in_block and not indented
        if lines and lines[-1] and (starts_entry or starts_block or ends_block):
            lines.append("")
        in_entry = line != "" and (in_entry or starts_entry)
        in_block = indented and not in_entry
        lines.append(f"- **{entry[0][:-2]}**: {line[entry.end() :]}" if entry else line)
    return "\n".join(lines)


def with_first_paragraph_in_a_line(text: str) -> str:
    """Return Markdown whose first paragraph is one line, because the summary of a page shows that line alone."""
    first, gap, rest = text.partition("\n\n")
    return (first if first.startswith(("- ", "    ")) else first.replace("\n", " ")) + gap + rest


class PlainText(griffe.Extension):
    """Rewrite every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_first_paragraph_in_a_line(to_markdown(obj.docstring.value))
