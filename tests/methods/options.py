"""The tables of docs/options.md, from signatures, defaults and docstrings. Run this file as a module to write them:

    python -m tests.methods.options

The defaults of methods are those of their dataclasses of options; arguments that say how a call runs, such as timeout,
stand in signatures alone. What an option does is said in the docstring of the first method or class that has it.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from engine import Engine, GenerationConfig, Generator, Reranker, Transcriber
from engine.cli.main import parsers
from engine.methods.table import GENERATING, METHODS, RERANKING, TRANSCRIBING

from ..tools.documents import ROOT, with_tables

DOCUMENT = ROOT / "docs" / "options.md"
CLASSES = (Engine, Generator, Reranker, Transcriber)
COMPUTING = {**{name: (getattr(Engine, name), method) for name, method in METHODS.items()},
             **{f"Reranker.{name}": (getattr(Reranker, name), method) for name, method in RERANKING.items()}}
"""The methods of encoders and rerankers by what the page calls them: what the user calls, and the value."""
WRITING = {**{name: (getattr(Generator, name), method) for name, method in GENERATING.items()},
           **{name: (getattr(Transcriber, name), method) for name, method in TRANSCRIBING.items()}}
"""The methods of models that generate."""
EXPLAINED = re.compile(r"^(\w+(?:, \w+)*): (.*(?:\n    .*)*)", re.MULTILINE)
"""An entry of a docstring: names, and what they do."""
SAME_AS = re.compile(r"as in `(?:Engine\.)?(\w+)`")
REPLACED = ("convert_to_tensor", "device", "pool", "chunk_size")
"""Arguments that are there for other libraries alone."""


class Row(NamedTuple):
    """An option of one method or class."""

    name: str
    default: str
    place: str
    text: str


def explained(function: Callable[..., Any]) -> dict[str, str]:
    """Return what each argument does, by the docstring of a function."""
    return {name: " ".join(text.split()) for names, text in EXPLAINED.findall(inspect.getdoc(function) or "")
            for name in names.split(", ")}


def options(functions: Iterable[tuple[str, Callable[..., Any]]]) -> Iterator[Row]:
    """Yield the options of functions. What one function does not say, the functions before it do."""
    known: dict[str, dict[str, str]] = {}
    for place, function in functions:
        own = explained(function)
        texts = known[place] = dict(own)
        known.setdefault(function.__name__, texts)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind.name != "KEYWORD_ONLY" or name in REPLACED:
                continue
            text = own.get(name, "")
            if other := SAME_AS.search(text):
                owner = place.rpartition(".")[0]
                texts_of_other = known.get(f"{owner}.{other[1]}" if owner else other[1], known.get(other[1], {}))
                text = texts_of_other.get(name, text)
            texts[name] = text or next((each[name] for each in known.values() if each.get(name)), "")
            yield Row(name, literal(stated(place).get(name, parameter.default)), place, texts[name])


def stated(place: str) -> dict[str, Any]:
    """Return the defaults in the options of a method, by their names."""
    _, method = (COMPUTING | WRITING).get(place, (None, None))
    return {} if method is None else {one.name: one.default for one in fields(method.options)}


def literal(value: object) -> str:
    """Return a default as code; a long text, such as a prompt, is not shown."""
    return f"`{value!r}`".replace("'", '"') if len(repr(value)) < 100 else "a text"


def table(rows: Iterable[Row]) -> str:
    """Return a table of options; places with the same default and text share a row."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        assert row.text, f"nothing says what {row.name} of {row.place} does"
        found.setdefault((row.name, row.default, row.text), []).append(row.place)
    lines = [f"| `{name}` | {default} | {', '.join(f'`{place}`' for place in places)} | {escaped(text)} |"
             for (name, default, text), places in sorted(found.items(), key=lambda item: item[0][0])]
    return "\n".join(["| option | default | of | what it does |", "|---|---|---|---|", *lines])


def escaped(text: str) -> str:
    """Return the text of a docstring as Markdown in a table."""
    return re.sub(r"(?<![`\w])(\w+_\w+)(?![`\w])", r"`\1`", text).replace("|", "\\|").replace("[MASK]", "`[MASK]`")


def settings() -> str:
    """Return the table of the settings of a generation."""
    tree = ast.parse(Path(inspect.getfile(GenerationConfig)).read_text(encoding="utf-8"))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GenerationConfig"]
    said = {first.target.id: " ".join(second.value.value.split()) for first, second in pairwise(body)
            if isinstance(first, ast.AnnAssign) and isinstance(second, ast.Expr)}
    rows = [f"| `{one.name}` | {literal(one.default)} | {escaped(said[one.name])} |"
            for one in fields(GenerationConfig)]
    return "\n".join(["| setting | default | what it does |", "|---|---|---|", *rows])


def serving() -> str:
    """Return the table of the options of `engine serve`."""
    lines = ["| option | what it does |", "|---|---|"]
    for action in parsers()[1]["serve"]._actions:
        if action.option_strings and action.dest != "help" and action.help != argparse.SUPPRESS:
            value = "" if action.nargs == 0 else f" {shape(action)}"
            lines.append(f"| `{action.option_strings[-1]}{value}` | {escaped(str(action.help) % vars(action))} |")
    return "\n".join(lines)


def shape(action: argparse.Action) -> str:
    """Return how a command line shows the value of an option."""
    return "\\|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())


def document() -> str:
    """Return docs/options.md with its tables made anew."""
    return with_tables(DOCUMENT, "tests.methods.options", {
        "loading": table(options([(cls.__name__, cls.load) for cls in CLASSES])),
        "methods": table(options((name, function) for name, (function, _) in COMPUTING.items())),
        "generating": table(options([("apply_chat_template", Generator.apply_chat_template),
                                     *((name, function) for name, (function, _) in WRITING.items())])),
        "settings": settings(), "serving": serving()})


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
