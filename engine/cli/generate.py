"""Implement `engine generate` and `engine translate`: one result for each line of a file."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from ..base.errors import InputError, located
from ..base.progress import progress
from ..generation.results import TokenLogprob
from ..interface.generator import Generator
from .console import (
    MODEL_OR_GGUF,
    STDIO,
    add_model,
    add_output,
    add_texts,
    check_output,
    given_texts,
    read_inputs,
    run_options,
    writing_lines,
)


def _seed(text: str) -> int | str:
    """Return a seed of the command line, for argparse: "random", or an integer."""
    return text if text == "random" else int(text)


SETTINGS: dict[str, tuple[Callable[[str], Any], str]] = {
    "max_new_tokens": (int, "most new tokens of a result; by default the model's own limit, else 256"),
    "num_beams": (int, "beams of a beam search; 1 is greedy search, or sampling with --do-sample"),
    "length_penalty": (float, "power of the length by which a beam search divides a result's score"),
    "no_repeat_ngram_size": (int, "length of the runs of tokens that may come only once"),
    "repetition_penalty": (float, "factor by which tokens that came before lose; 1 for none"),
    "presence_penalty": (float, "what is subtracted from the logits of tokens that the result has, from -2 to 2"),
    "frequency_penalty": (float, "the same, for each time that the result has the token"),
    "temperature": (float, "divisor of the logits before sampling"),
    "top_k": (int, "number of best tokens to sample from; 0 for all"),
    "top_p": (float, "probability of the best tokens to sample from"),
    "min_p": (float, "least probability of a token to sample, as a part of the best one's"),
    "seed": (_seed, "seed of sampling, or random; by default 0"),
}
"""The settings of a generation that the command line takes, with the type and the help of each."""
_MORE_SETTINGS = ("do_sample", "stop_strings", "include_stop", "ignore_eos", "logprobs", "echo")
"""Further settings, whose options take no value, may come several times, or belong to some commands alone."""
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}
ESCAPED = re.compile(r"\\([nrt\\])")
"""Matches the sequences that --escape replaces; a backslash before any other character stays."""


def add_settings(command: argparse.ArgumentParser, text: str) -> None:
    """Add the options of both commands, except the backend's. text: the option whose value is an input itself."""
    add_model(command, MODEL_OR_GGUF)
    command.add_argument("file", nargs="?", help="UTF-8 text, one input per line; - for standard input, the default; "
                         "or one input itself, where there is no such file")
    add_texts(command, f"--{text}", "an input")
    add_output(command)
    command.add_argument("-e", "--escape", action="store_true", help=r"read \n, \r, \t and \\ in inputs as a "
                         "line feed, a carriage return, a tab and a backslash; without it they are plain characters")
    add_generation(command)
    command.add_argument("--json", action="store_true", help="write a JSON object for each input, one per line: text, "
                         "ids, score, finish_reason, and stop_text, seed and logprobs where there are some")
    command.add_argument("--logprobs", type=int, metavar="N", help="with --json, the log probability of each token "
                         "and the N likeliest tokens in its place, up to 20")
    if text == "prompt":
        command.add_argument("--echo", action="store_true", default=None, help="begin each result with its prompt; "
                             "then --max-new-tokens may be 0")


def add_generation(command: argparse.ArgumentParser) -> None:
    """Add the options of `SETTINGS` and `_MORE_SETTINGS`."""
    for name, (kind, meaning) in SETTINGS.items():
        command.add_argument(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    command.add_argument("--do-sample", action="store_true", default=None, help="sample instead of greedy search")
    command.add_argument("--stop", dest="stop_strings", action="append", metavar="TEXT", help="end a result where this "
                         "text comes, and leave it out; the option may come several times")
    command.add_argument("--include-stop", action="store_true", default=None, help="keep the text of --stop")
    command.add_argument("--ignore-eos", action="store_true", default=None, help="let end tokens end nothing")


def generation_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the options of `add_generation` give."""
    return {name: getattr(args, name) for name in (*SETTINGS, *_MORE_SETTINGS)
            if getattr(args, name, None) is not None}


def generate(args: argparse.Namespace) -> None:
    """Write the result of each input to standard output or to a file, in order."""
    streams = args.command == "generate" and args.stream
    if streams and args.json:
        raise InputError("--stream writes text; leave out --json")
    if streams and args.output != STDIO:
        raise InputError("--stream writes each token at once, and a file appears when it is complete; leave out "
                         "--output")
    if args.logprobs is not None and not args.json:
        raise InputError("--logprobs is written with --json; add --json, or leave --logprobs out")
    check_output(args.output, "lines of text or JSON")
    lines, places = _inputs(args)
    generator = Generator.load(args.model, **run_options(args, "cache", "revision"),
                               long_context=args.command == "generate" and args.long_context)
    settings = generation_of(args)
    inputs: list[Any] = lines
    if args.command == "translate":
        inputs, settings = generator.translation(lines, args.source_language, args.target_language, places, **settings)
    elif streams:
        _stream(generator, lines, places, settings)
        return
    # No progress bar on a terminal that also shows the results: their lines would interrupt it.
    done, bar = 0, sys.stderr.isatty() and not (args.output == STDIO and sys.stdout.isatty())
    try:
        with writing_lines(args.output) as write, progress(len(inputs), bar, "Inputs", " inputs") as advance:
            for result in generator.results(inputs, places=places, **settings):
                write(_as_json(result) if args.json else str(result.text))
                done += 1
                advance(1)
    except KeyboardInterrupt:
        written = done if args.output == STDIO else 0       # a file appears only when it is whole
        raise KeyboardInterrupt(f"{written} of {len(inputs)} results are written") from None


def _inputs(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return (inputs of a command, the name of each for messages), with escapes read if --escape asks for it."""
    option = "--prompt" if args.command == "generate" else "--text"
    lines, places = read_inputs(args, option)
    if args.escape:
        return [ESCAPED.sub(lambda match: ESCAPES[match[1]], line) for line in lines], places
    if any("\\n" in text for text in given_texts(args) or ()):
        where = "the text" if args.texts is None else option
        print(rf"engine {args.command}: {where} has \n as two characters, a backslash and an n; --escape reads it as "
              "a line feed", file=sys.stderr)
    return lines, places


def _stream(generator: Generator, lines: list[str], places: list[str], settings: dict[str, Any]) -> None:
    """Write the result of each line to standard output token by token, after all lines are checked."""
    generator.results(lines, places=places, **settings)     # checks all lines; results are only computed when read
    for line, place in zip(lines, places, strict=True):
        with located(place):
            for piece in generator.stream(line, **settings):
                print(piece.text, end="", flush=True)
        print()


def _as_json(result: Any) -> str:
    """Return a result as one line of JSON."""
    written = {"text": result.text, "ids": result.ids, "score": result.score, "finish_reason": result.finish_reason}
    written |= {name: value for name in ("stop_text", "seed") if (value := getattr(result, name)) is not None}
    if result.logprobs is not None:
        written["logprobs"] = [_logprob_as_json(one) | {"top": [*map(_logprob_as_json, one.top)]}
                               for one in result.logprobs]
    return json.dumps(written, ensure_ascii=False)


def _logprob_as_json(logprob: TokenLogprob) -> dict[str, Any]:
    """Return the log probability of a token as an object of JSON."""
    return {"id": logprob.id, "text": logprob.text, "logprob": logprob.logprob}
