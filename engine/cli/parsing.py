"""Parse the command line: the command, then its options and files in any order."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from .other_options import advice_on_command, advice_on_options, unknown_options

MANY_FILES = {"encode": "engine encode reads one file; engine embed MODEL FILES -o FOLDER reads many"}
"""What to do with several files, by a command that reads one."""


class CommandParser(argparse.ArgumentParser):
    """The parser of one command. An error about options of other libraries says which of ours do the same."""

    _typed: Sequence[str] = ()
    _form = ""

    @property
    def name(self) -> str:
        return self.prog.rpartition(" ")[2]

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the values of the arguments after the command; ends the program with a message if any is wrong.

        `parse_args` would fill all positional arguments at the first of them, and `file` of `model --option 1 file`
        would be left over. argparse cannot mix them in a parser that has commands, so each command has its own call.
        """
        self._typed, self._form = arguments, self._describe_form()
        args, left = self.parse_known_intermixed_args(_as_paths(arguments))
        if left or unknown_options(self, self.name, arguments):
            self.error(f"unrecognized arguments: {' '.join(left)}; {MANY_FILES.get(self.name) or self._form}")
        args.command = self.name
        return args

    def error(self, message: str) -> NoReturn:
        """End the program with a message, or with one about the options that the command lacks, where some are."""
        if unknown := unknown_options(self, self.name, self._typed):
            message = advice_on_options(self, self.name, unknown)
        elif message.startswith("the following arguments are required"):
            message = f"{message}; {self._form}"
        super().error(message)

    def _describe_form(self) -> str:
        """Say which arguments a command takes without an option, and which options it has to have."""
        names = [f"[{each.dest.upper()}]" if each.nargs in ("?", "*") else each.dest.upper()
                 for each in self._actions if not each.option_strings]
        needed = [f"{each.option_strings[0]} {each.metavar or each.dest.upper()}" for each in self._actions
                  if each.option_strings and each.required]
        return f"the form is: {' '.join([self.prog, *names, *needed])}, and engine {self.name} --help lists the options"


def parse(parser: argparse.ArgumentParser, commands: Mapping[str, CommandParser],
          arguments: Sequence[str]) -> argparse.Namespace:
    """Return the values of a command line; ends the program after --help, --version and a mistake."""
    first = arguments[0] if arguments else ""
    if first in commands:
        return commands[first].parse(arguments[1:])
    if first.startswith("-") and first not in ("-h", "--help", "--version"):
        parser.error(f"there is no option {first} before the command; the command comes first, such as: engine "
                     "generate MODEL --prompt TEXT")
    if first and not first.startswith("-"):
        parser.error(f"there is no command {first}{advice_on_command(first, commands)}; the commands are "
                     f"{', '.join(commands)}")
    return parser.parse_args(arguments[:1])


def _as_paths(arguments: Sequence[str]) -> list[str]:
    """Return arguments whose names of files after "--" may begin with a hyphen: "-a" is the file "./-a" there."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [f"./{each}" if i > end and each.startswith("-") and each != "-" else each
            for i, each in enumerate(arguments)]
