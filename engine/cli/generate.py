"""Implement `engine generate` and `engine translate`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from ..base.errors import InputError, located, shown
from ..base.progress import progress
from ..interface.generator import Generator
from .console import MODEL_OR_GGUF, add_model, read_lines

SETTINGS: dict[str, tuple[Callable[[str], Any], str]] = {
    "max_new_tokens": (int, "most new tokens of a result; by default the model's own limit, else 256"),
    "num_beams": (int, "beams of a beam search; 1 is greedy search, or sampling with --do-sample"),
    "length_penalty": (float, "power of the length by which a beam search divides a result's score"),
    "no_repeat_ngram_size": (int, "length of the runs of tokens that may come only once"),
    "repetition_penalty": (float, "factor by which tokens that came before lose; 1 for none"),
    "temperature": (float, "divisor of the logits before sampling"),
    "top_k": (int, "number of best tokens to sample from; 0 for all"),
    "top_p": (float, "probability of the best tokens to sample from"),
    "min_p": (float, "least probability of a token to sample, as a part of the best one's"),
    "seed": (int, "seed of sampling"),
}
"""The settings of a generation that the command line takes, with the type and the help of each."""


def add_settings(command: argparse.ArgumentParser, text: str) -> None:
    """Add the options of both commands, except those of the backend. text: the option that gives a text itself."""
    add_model(command, MODEL_OR_GGUF)
    command.add_argument("file", nargs="?", help="UTF-8 text, one input per line; - for standard input, the default")
    command.add_argument(f"--{text}", dest="texts", action="append", metavar="TEXT", help="an input itself, in place "
                         "of a file; the option may come several times")  # fmt: skip
    for name, (kind, meaning) in SETTINGS.items():
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    command.add_argument("--do-sample", action="store_true", default=None, help="sample instead of greedy search")
    command.add_argument("--json", action="store_true", help="write a JSON object with text, ids and score for each "
                         "input, one per line")  # fmt: skip


def generate(args: argparse.Namespace) -> None:
    """Write the result of each input to standard output, in order, as soon as it is there."""
    if args.command == "generate" and args.stream and args.json:
        raise InputError("--stream writes text; leave out --json")
    lines, places = _inputs(args)
    generator = Generator.load(args.model, backend=args.backend, threads=args.threads, precision=args.precision,
                               cache=args.cache, revision=args.revision)
    settings = {name: getattr(args, name) for name in (*SETTINGS, "do_sample") if getattr(args, name) is not None}
    inputs: list[Any] = lines
    if args.command == "translate":
        inputs, settings = generator.translation(lines, args.source_language, args.target_language, places, **settings)
    elif args.stream:
        _stream(generator, lines, places, settings)
        return
    done, bar = 0, sys.stderr.isatty() and not sys.stdout.isatty()
    try:
        with progress(len(inputs), bar or False, "Inputs", " inputs") as advance:
            for result in generator.results(inputs, places=places, **settings):
                print(_written(result, args.json), flush=True)
                done += 1
                advance(1)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{done} of {len(inputs)} results are written") from None


def _inputs(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the inputs of a command, and what messages call each of them."""
    option = "--prompt" if args.command == "generate" else "--text"
    if args.texts is None:
        name = args.file or "-"
        lines = read_lines(name, f"; {option} TEXT gives the text itself")
        return lines, [f"{'standard input' if name == '-' else name}, line {i}" for i in range(1, len(lines) + 1)]
    if args.file is not None:
        raise InputError(f"{option} comes in place of a file; leave out {shown(args.file)}")
    return args.texts, [f"{option} {shown(text)}" for text in args.texts]


def _stream(generator: Generator, lines: list[str], places: list[str], settings: dict[str, Any]) -> None:
    """Write the result of each line token by token, after all lines are checked."""
    generator.results(lines, places=places, **settings)     # checks them all; nobody reads the results
    for line, place in zip(lines, places, strict=True):
        with located(place):
            for piece in generator.stream(line, **settings):
                print(piece.text, end="", flush=True)
        print()


def _written(result: Any, as_json: bool) -> str:
    if not as_json:
        return str(result.text)
    return json.dumps({"text": result.text, "ids": result.ids, "score": result.score}, ensure_ascii=False)
