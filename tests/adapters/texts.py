"""Real English texts that every Python has: the sentences of its reference manual and of its docstrings."""

import ast
import re
import sysconfig
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics


@cache
def manual() -> tuple[str, ...]:
    """Return the sentences of the language reference that Python ships, once each, in a fixed order: about 3,000."""
    return tuple(dict.fromkeys(sentence for topic in sorted(topics) for sentence in _sentences(topics[topic])))


@cache
def docstrings() -> tuple[str, ...]:
    """Return the sentences of the docstrings of the standard library, once each, in a fixed order: about 15,000."""
    found: dict[str, None] = {}
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(path for path in library.rglob("*.py") if not {"site-packages", "test"} & {*path.parts}):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):   # files of lib2to3's tests
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.update(dict.fromkeys(_sentences(ast.get_docstring(node) or "")))
    return tuple(found)


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text that have at least five words."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    sentences = (sentence for paragraph in paragraphs for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph))
    return [sentence for sentence in sentences if len(sentence.split()) >= 5]
