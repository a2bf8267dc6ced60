"""Read lines of input, and print rows of a table and warnings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ...base.errors import InputError


def warn_generates(args: argparse.Namespace) -> None:
    if args.generates:
        print(f"engine {args.command}: --generates does nothing any more, because the files say what the model is for; "
              "leave it out", file=sys.stderr)  # fmt: skip


def read_lines(name: str) -> list[str]:
    """Read the lines of a file, or of standard input for "-", without their line ends; only a line feed ends a line."""
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
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
