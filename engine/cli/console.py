"""Read lines of input and names of precisions, and print rows of a table and warnings."""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.errors import InputError, shown
from ..model.precision import FORMATS, WAYS, canonical_name

MODEL_OR_GGUF = "model folder, .npz or .gguf file"


def add_model(command: argparse.ArgumentParser, holds: str = "model folder or .npz file", name: str = "model",
              **options: Any) -> None:
    """Add the model that a command reads, by its path or name, and the revision of a name. holds: what it may be."""
    command.add_argument(name, help=f"{holds}; or the name of a model on the Hugging Face hub, such as "
                         "intfloat/e5-small-v2", **options)
    add_revision(command)


def add_revision(command: argparse.ArgumentParser) -> None:
    command.add_argument("--revision", help="branch, tag or commit of a model on the Hugging Face hub; by default the "
                         "main branch")


def warn_generates(args: argparse.Namespace) -> None:
    if args.generates:
        print(f"engine {args.command}: --generates does nothing any more, because the files say what the model is for; "
              "leave it out", file=sys.stderr)  # fmt: skip


def read_lines(name: str, advice: str = "") -> list[str]:
    """Read the lines of a file, or of standard input for "-", without their line ends; only a line feed ends a line.

    advice: what else to do if there is no such file, for the end of the message. Raises `InputError`.
    """
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{shown(name)}: no such file; expected a file of UTF-8 text, one text per line, or - for "
                         f"standard input{advice}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: {error}") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def print_row(label: str, value: str) -> None:
    print(f"  {label:<18} {value}")


def write_utf8() -> None:
    """Let standard output and standard error write UTF-8, whatever the environment says.

    Paths and variables of the environment may hold other bytes: standard output gives them back, and messages show
    them as escapes.
    """
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)


@contextmanager
def warnings_in_a_line(command: str) -> Iterator[None]:
    """Write each warning as a line of its own after the name of the command, without the place in the code."""

    def write(message: Warning | str, *_: object, **__: object) -> None:
        print(f"{command}: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = write
        yield


def precision_among(names: Sequence[str]) -> Callable[[str], str]:
    """Return a function for argparse that reads the name of a precision; its message has the name as it was typed."""

    def precision(typed: str) -> str:
        name = canonical_name(typed)
        if name not in names:
            why = " is no precision here"
            if name in WAYS:
                why = f" is a way to multiply {FORMATS[name].stored} weights, and nothing is stored in it"
            elif name in FORMATS:
                why = " is only stored, and nothing computes in it"
            raise argparse.ArgumentTypeError(f"{shown(typed)}{why}; choose {', '.join(names)}")
        return name

    return precision
