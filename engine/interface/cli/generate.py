"""Implement `engine generate` and `engine translate`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import InputError
from ..generator import Generator
from .console import read_lines

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


def add_settings(command: argparse.ArgumentParser) -> None:
    """Add the options of both commands, except those of the backend."""
    command.add_argument("model", help="model folder, .npz or .gguf file")
    command.add_argument("file", nargs="?", default="-", help="UTF-8 text, one input per line; - for standard input")
    for name, (kind, text) in SETTINGS.items():
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, help=text)
    command.add_argument("--do-sample", action="store_true", default=None, help="sample instead of greedy search")
    command.add_argument("--json", action="store_true", help="write a JSON object with text, ids and score for each "
                         "input, one per line")  # fmt: skip


def run(args: argparse.Namespace, lines: Sequence[str]) -> None:
    """Write the result of each line to standard output; with --stream, token by token."""
    generator = Generator.load(args.model, backend=args.backend, threads=args.threads, precision=args.precision)
    settings = {name: getattr(args, name) for name in (*SETTINGS, "do_sample") if getattr(args, name) is not None}
    inputs: list[Any] = list(lines)
    if args.command == "translate":
        inputs, settings = generator.translation(lines, args.source_language, args.target_language, **settings)
    if getattr(args, "stream", False):
        if args.json:
            raise InputError("--stream writes text; leave out --json")
        for line in lines:
            for piece in generator.stream(line, **settings):
                print(piece.text, end="", flush=True)
            print()
        return
    for result in generator.generate(inputs, **settings):
        if args.json:
            print(json.dumps({"text": result.text, "ids": result.ids, "score": result.score}, ensure_ascii=False))
        else:
            print(result.text)
    sys.stdout.flush()


def generate(args: argparse.Namespace) -> None:
    """Write the result of each line of a file to standard output."""
    run(args, read_lines(args.file))
