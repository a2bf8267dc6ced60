"""Write the API reference of the public modules as HTML.

    make docs        or, where docs/requirements.txt is installed:        python docs/make_api.py build/docs-site
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = (
    "engine",
    "engine.model.config",
    "engine.model.text_config",
    "engine.weights.model",
    "engine.weights.quantize",
    "engine.encoding.pooling",
    "engine.base.errors",
)
"""The modules that have a page. `engine` brings `engine.ops` with it."""

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


def main(out: Path) -> None:
    sys.path.insert(0, str(ROOT))
    import pdoc

    pdoc.render.env.filters["to_markdown"] = to_markdown
    pdoc.render.configure(footer_text="encoder-engine", show_source=False)
    # The files behind engine.ops are left out: two of them have the names of functions.
    pdoc.pdoc(*MODULES, r"!engine\.ops\..*", output_directory=out)
    print(f"{out / 'index.html'}: the API reference")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
