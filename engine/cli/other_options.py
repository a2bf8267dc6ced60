"""Say what to type in place of an option that the command line lacks, where another library has it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

from ..base.errors import listed, nearest
from ..base.other_names import CALLS, OtherName
from ..interface.other_names import LOAD

MODEL_FIRST = "the model is the first argument, without an option"
_FILE = "the file is the second argument, without an option"


def _option(name: str) -> str:
    return f"{name} is the same"


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "": {"-m": MODEL_FIRST, "--model": MODEL_FIRST, "-t": _option("--threads"),
         "-o": "the results go to standard output; write > FILE at the end"},
    "generate": {"-p": _option("--prompt"), "-n": _option("--max-new-tokens"), "-s": _option("--seed"), "-f": _FILE,
                 "--file": _FILE},
    "translate": {"-n": _option("--max-new-tokens"), "-f": _FILE, "--file": _FILE,
                  **{name: _option("--source-language") for name in ("--src-lang", "--source-lang", "--from")},
                  **{name: _option("--target-language") for name in ("--tgt-lang", "--target-lang", "--to")}},
    "transcribe": {"-f": "the recordings follow the model, without an option", "-l": _option("--language"),
                   "--word-timestamps": _option("--words"), "--output-dir": "--output takes the path of a file",
                   "--output-format": "--json, --srt and --vtt are the formats"},
}
"""What to type in place of an option of another command line, by our command; "" is for all. These options are no
arguments of `CALLS`, or are other options than arguments."""


def refuse_unknown(command: argparse.ArgumentParser, name: str, unknown: Sequence[str]) -> None:
    """End the program with a message if there are arguments that a command does not know. name: that of the command.

    For an option of another library the message says which of ours does the same, or what there is in Python.
    """
    typed = [argument.partition("=")[0] for argument in unknown if re.match("--?[A-Za-z]", argument)]
    if typed:
        command.error("\n  ".join(f"{name} has no option {option}{_advice(command, name, option)}"
                                  for option in dict.fromkeys(typed)))
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")


def _advice(command: argparse.ArgumentParser, name: str, typed: str) -> str:
    """Return the end of the message about an option."""
    argument = typed.lstrip("-").replace("-", "_")
    spelled = typed if len(argument) == 1 else f"--{argument.replace('_', '-')}"
    if advice := OPTIONS.get(name, {}).get(spelled) or OPTIONS[""].get(spelled):
        return f"; {advice}"
    options = {action.dest: action.option_strings[-1] for action in command._actions if action.option_strings}
    row, function = _row(name, argument)
    if row is None:
        return nearest(typed, options.values())
    if row.ours is None:
        return f". In Python: {row.advice}"
    if row.ours == "path":
        return f"; {MODEL_FIRST}"
    if row.ours in options:
        return f"; {options[row.ours]} is the same"
    return f". In Python, {function} has {listed([row.ours])} for it"


def _row(name: str, argument: str) -> tuple[OtherName | None, str]:
    """Return what becomes of an argument of another library, and the function that a command calls with it."""
    for function, rows in ((name, CALLS.get(name, {})), ("load", LOAD)):
        if argument in rows and not rows[argument].earlier:
            return rows[argument], function
    return None, ""
