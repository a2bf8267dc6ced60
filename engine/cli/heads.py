"""Implement `engine classify`, `engine tag`, `engine answer` and `engine rank`: lines or JSON objects in, JSON out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from ..base.errors import InputError, located, shown
from ..files.reading import FormatError, parse_object
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..methods.answer import AnswerOptions
from ..methods.classify import ClassifyOptions
from ..text.cuts import truncating
from ..text.sentences import check_sentences
from ..uncertainty.conformal import SCORES
from .console import (
    NOT_LINES,
    STDIO,
    add_labels,
    add_model,
    add_output,
    add_texts,
    check_output,
    given_texts,
    label_options,
    read_inputs,
    read_lines,
    run_options,
    spoken,
    writing_lines,
)

AGGREGATION_STRATEGY = "simple"
"""The default of `engine tag`, which writes entities, where `Engine.tag` returns the tags of tokens."""
TOGETHER = 1024
"""How many inputs are computed by one call, and written before the next call."""

COMMANDS = {
    "classify": "write the labels of texts or images",
    "tag": "write the tags of texts, or the entities that they make",
    "answer": "write the parts of texts that answer questions",
    "rank": "order documents by how well they answer queries",
}
"""The commands, and the line of each in `engine --help`."""

FIELDS: dict[str, tuple[dict[str, type], str]] = {
    "classify": ({"text": str}, "a text"),
    "tag": ({"text": str}, "a text"),
    "answer": ({"question": str, "context": str}, "a question and the text to read, with a tab between them"),
    "rank": ({"query": str, "documents": list}, ""),
}
"""The fields of the JSON objects that each command reads, and a description of a line of text, "" if it reads none."""

TEXTS = {"classify": "--text", "tag": "--text", "answer": "--context", "rank": "--document"}
"""The option whose value is an input itself, by the command."""
ABOUT = {"answer": "question", "rank": "query"}
"""The option that all inputs of a command share."""
_ABOUT_HELP = {"answer": "the question; each line is then a text to read, and gets its own answer",
               "rank": "the query; lines are then documents, all ranked together"}
_COVERAGE = {
    "classify": "write the set of labels that holds the right one so often, such as 0.9; for a calibrated model",
    "answer": "abstain where the answers that may be right, so often, are not one; for a calibrated model",
    "rank": "write the shortest list that holds a relevant document so often; for a calibrated model"}
"""The help of --coverage for each command."""


def add_options(command: argparse.ArgumentParser, name: str) -> None:
    """Add the options of a command, except those of the backend."""
    fields, line = FIELDS[name]
    add_model(command)
    command.add_argument(
        "file", nargs="?",
        help="UTF-8 text" + (f": a line is {line}" if line else "") + f"; with --jsonl, or if the name ends in .jsonl, "
        f"a line is a JSON object with {' and '.join(fields)}; - for standard input, the default" + (
            "; or images, by their paths or by patterns in quotes; for a model of images alone a line is the path of "
            "one" if name == "classify" else "") + (
            "" if name == "rank" else f"; or one {TEXTS[name][2:]} itself, where there is no such file"))
    if name in ABOUT:
        command.add_argument(f"--{ABOUT[name]}", metavar="TEXT", help=_ABOUT_HELP[name])
    add_texts(command, TEXTS[name], f"a {TEXTS[name][2:]}")
    add_output(command)
    command.add_argument("--jsonl", action="store_true", help="lines are JSON objects")
    if name == "classify":
        command.add_argument("--top-k", type=int, metavar="K", help="labels of a text; by default the best one, and 0 "
                             "for all")
        add_labels(command)
    elif name == "tag":
        command.add_argument("--aggregation-strategy", default=AGGREGATION_STRATEGY, metavar="NAME",
                             help="none for one tag a token; simple, first, average or max for entities; by default "
                             f"{AGGREGATION_STRATEGY}")
        command.add_argument("--stride", type=int, help="read long texts in windows that overlap by this many tokens")
    elif name == "answer":
        command.add_argument("--top-k", type=int, default=AnswerOptions.top_k, metavar="K",
                             help=f"answers to a question; by default {AnswerOptions.top_k}")
        command.add_argument("--handle-impossible-answer", action="store_true", help="let no answer be one of them")
    else:
        command.add_argument("--top-k", type=int, metavar="K", help="documents of a query; by default all")
        command.add_argument("--return-documents", action="store_true", help="write the documents, too")
    if name != "tag":
        command.add_argument("--coverage", type=float, metavar="C", help=_COVERAGE[name])
    if name == "classify":
        command.add_argument("--conformal-score", choices=[*SCORES], default=ClassifyOptions.conformal_score,
                             help="with --coverage: lac for the smallest sets, the default, or aps")
        command.add_argument("--by-class", action="store_true", help="with --coverage: for the texts of each class")


def run(args: argparse.Namespace) -> None:
    """Write one JSON value for each input to standard output or to a file, in order."""
    check_output(args.output, "lines of JSON")
    rows = _rows(args)
    loaded: Any = (Reranker if args.command == "rank" else Engine).load(args.model, **run_options(args, "revision"))
    with truncating(), writing_lines(args.output) as write:
        for first in range(0, len(rows), TOGETHER):
            for result in _results(args, loaded, rows[first : first + TOGETHER]):
                write(json.dumps(result, ensure_ascii=False))


JSON_LINES = (".jsonl", ".ndjson")
"""Ends of the names of files whose lines are JSON objects."""


def _results(args: argparse.Namespace, loaded: Any, rows: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield the result of each input, as JSON can hold it. loaded: an `Engine`, or for rank a `Reranker`."""
    if args.command == "classify":
        # --top-k 0 asks for all labels, and in Python top_k=None does.
        top_k = ClassifyOptions.top_k if args.top_k is None else args.top_k or None
        yield from loaded.classify([row["text"] for row in rows], top_k=top_k, coverage=args.coverage,
                                   conformal_score=args.conformal_score, by_class=args.by_class,
                                   **label_options(args))
    elif args.command == "tag":
        yield from loaded.tag([row["text"] for row in rows], aggregation_strategy=args.aggregation_strategy,
                              stride=args.stride)
    elif args.command == "answer":
        yield from loaded.answer([row["question"] for row in rows], [row["context"] for row in rows], top_k=args.top_k,
                                 handle_impossible_answer=args.handle_impossible_answer, coverage=args.coverage)
    else:
        for row in rows:
            yield loaded.rank(row["query"], row["documents"], top_k=args.top_k, return_documents=args.return_documents,
                              coverage=args.coverage)


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the inputs of a command, each with the fields of `FIELDS`; raises `InputError`."""
    fields = FIELDS[args.command][0]
    about = ABOUT.get(args.command)
    shared = getattr(args, about) if about else None        # one query or question for all lines
    by_suffix = args.file is not None and args.file.lower().endswith(JSON_LINES)
    if by_suffix or args.jsonl:
        if shared is not None:
            raise InputError(f"--{about} is for lines of text; JSON objects have their own {about}")
        if args.texts is not None:
            raise InputError(f"{TEXTS[args.command]} gives a text itself; leave out --jsonl and the file")
        name = args.file or STDIO
        lines = read_lines(name, kept=JSON_LINES if by_suffix else NOT_LINES)
        return [_object(line, fields, f"{spoken(name)}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    if args.command == "rank" and shared is None:
        raise InputError("give the query of the documents with --query, or JSON objects with --jsonl")
    if args.command == "answer" and shared is None and given_texts(args) is not None:
        raise InputError("give the question to the text with --question")
    lines, places = read_inputs(args, TEXTS[args.command], kept=(".tsv",) if args.command == "answer" else (), other=(
        f"write JSON objects with {' and '.join(fields)}, one a line, into a .jsonl file"),
        one_text=args.command != "rank", images=args.command == "classify")
    if args.command == "rank":
        return [{"query": shared, "documents": lines}]
    if args.command == "answer":
        return [_split(*row) if shared is None else {"question": shared, "context": row[0]}
                for row in zip(lines, places, strict=True)]
    return [{"text": line} for line in lines]


def _object(line: str, fields: dict[str, type], place: str) -> dict[str, Any]:
    """Return the JSON object on a line, which must have these fields of these types; raises `InputError`.

    place: names the line in messages.
    """
    with located(place):
        try:
            row = parse_object(line.encode("utf-8", "surrogatepass"))
        except FormatError as error:
            raise InputError(str(error)) from None
        for field, kind in fields.items():
            value = row.get(field)
            if not isinstance(value, kind):
                raise InputError(f"expected an object with {' and '.join(fields)}; {field} is {shown(value)}")
            check_sentences([value] if isinstance(value, str) else value)
        return row


def _split(line: str, place: str) -> dict[str, Any]:
    """Return the question and the text of a line, which a tab separates; raises `InputError` with the `place`."""
    question, tab, context = line.partition("\t")
    if not tab:
        raise InputError(f"{place}: expected a question, a tab and the text to read, not {shown(line)}")
    return {"question": question, "context": context}
