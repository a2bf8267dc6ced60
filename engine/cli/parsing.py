"""Parse the command line: the command, then its options and files in any order, with advice about what is wrong."""

from __future__ import annotations

import argparse
import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain
from shlex import quote
from typing import NoReturn

from ..base.advice.commands import COMMANDS, FILE, MODEL
from ..base.errors import InputError
from .aliases import Aliases, as_path, as_typed, take_aliases
from .console import is_image_name, is_text
from .other_options import (
    advice_on_command,
    advice_on_options,
    names_for,
    other_commands,
    other_names,
    unknown_options,
)

MANY_FILES = {"encode": "engine encode reads one file of texts, or images; engine embed MODEL FILES -o FOLDER reads "
              "many files"}
"""The advice about several files, by a command that reads one."""
TAKE_MODELS = ("convert", "embed")
"""The commands whose words behind the model may look like models, too."""
READ_IMAGES = ("classify", "encode")
"""The commands that take several images in the place of a file of texts."""
ONE_TEXT = ("chat", "generate", "translate", "classify", "tag", "answer", "encode")
"""The commands that take one text in the place of a file."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are two lines: what is wrong, and where the options are listed."""

    lists = "options"
    """What --help lists."""

    def error(self, message: str) -> NoReturn:
        """End the program with a message."""
        self.exit(2, f"{self.prog}: {message}\n{self.prog} --help lists the {self.lists}\n")


class CommandsParser(Parser):
    """The parser of the whole command line, which has the commands."""

    lists = "commands"

    def format_help(self) -> str:
        """Return the help, with one list of the other names of commands."""
        return f"{super().format_help()}\n{_wrapped(f'Other names of commands: {names_for(other_commands())}.')}\n"


class CommandParser(Parser):
    """The parser of one command, which also accepts the names that other programs have for its options."""

    _taken = Aliases()
    """The line that `parse` reads, with our options in place of others."""
    _form = ""
    """The form of the command, for messages."""

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.prog.rpartition(" ")[2]

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the values of the arguments after the command; ends the program with a message if any is wrong.

        `parse_args` would fill all positional arguments at the first of them, and `file` of `model --option 1 file`
        would be left over. argparse cannot mix them in a parser that has commands, so each command has its own call.
        """
        self._taken, self._form = Aliases(), self._describe_form()      # argparse changes the actions while it reads
        try:
            self._taken = take_aliases(self, self.name, arguments)
        except InputError as error:
            self.error(str(error))
        typed = self._taken.arguments
        args, left = self.parse_known_intermixed_args(_as_paths(typed))
        if unknown := unknown_options(self, self.name, typed):
            self.error(advice_on_options(self, self.name, unknown))
        positional = [getattr(args, action.dest) for action in self._actions if not action.option_strings]
        places = [[one] if isinstance(one, str) else one or [] for one in positional]       # the words of each
        words = [*chain.from_iterable(places)]
        self._check_places([*chain.from_iterable(places[1:])], left)
        self._check_order([*words, *left])
        args.more = left
        if left and not (self.name in READ_IMAGES and is_image_name(args.file)):
            self.error(f"unrecognized arguments: {' '.join(left)}; {self._instead_of([*words, *left])}")
        args.command = self.name
        return args

    def error(self, message: str) -> NoReturn:
        """End the program with a message; with one about unknown options in its place, if the line has some."""
        if unknown := unknown_options(self, self.name, self._taken.arguments):
            message = advice_on_options(self, self.name, unknown)
        elif message.startswith("the following arguments are required"):
            message = f"{message}; {self._form}"
        for action in self._actions:        # argparse names our option; the message shall name the typed one
            if action.option_strings and (other := self._taken.names.get(action.option_strings[-1])):
                message = message.replace(f"argument {'/'.join(action.option_strings)}:", f"argument {other}:")
        super().error(message)

    def with_options(self, message: str, args: argparse.Namespace) -> str:
        """Return a message of the library with options, as they were typed, in the place of arguments.

        A flag is an option wherever the message advises it, and an option with a value only where the line has it:
        otherwise the value comes from the files of the model.
        """
        for action in self._actions:
            if not action.option_strings:
                continue
            option = self._taken.names.get(action.option_strings[-1], action.option_strings[-1])
            ours = rf"(?<![\w.'/-]){action.dest}"       # the argument of Python, as a word of its own
            if action.nargs == 0:
                message = re.sub(rf"{ours}=True\b(?! \()", option, message)
            elif getattr(args, action.dest, None) != action.default:
                message = re.sub(rf"{ours} must (be|have) (None or )?", rf"{option} must \1 ", message)
                message = re.sub(rf"{ours}=(?=[\d'-])", f"{option} ", message)
        return message

    def format_help(self) -> str:
        """Return the help, with one list of the other names that the command takes."""
        names = names_for(other_names(self, self.name))
        return super().format_help() + (f"\n{_wrapped(f'Other names that mean the same: {names}.')}\n" if names else "")

    def _check_order(self, words: Sequence[str]) -> None:
        """End the program, and say what to type, if a text or a file stands before the model.

        words: of the line, without options and their values.
        """
        models = [word for word in words[1:] if _is_model(word)]
        if models and not _may_be_model(words[0]) and self.name not in TAKE_MODELS:
            others = [word for word in words if word != models[0]]
            self.error(f"the model comes first; type: {self._typed(models[0], others)}")

    def _instead_of(self, words: Sequence[str]) -> str:
        """Return advice about a line with too many words."""
        if self.name in ONE_TEXT and all(map(is_text, words[1:])):
            return f"a text of several words stands in quotes, as in: {self._typed(words[0], words[1:])}"
        return MANY_FILES.get(self.name) or self._form

    def _typed(self, model: str, words: Sequence[str]) -> str:
        """Return a command line to type, for a model and either a text of these words or files."""
        words = [" ".join(words)] if self.name in ONE_TEXT else words
        return " ".join([self.prog, *map(quote, [model, *words])])

    def _check_places(self, words: Sequence[str], left: Sequence[str]) -> None:
        """End the program if an option and a word without one both give the model, or the file.

        words: those of the places behind the model. left: the words for which the command has no place.
        """
        by_option = self._taken.places
        models = [*filter(_is_model, words)]
        if MODEL in by_option and (left or models) and self.name not in TAKE_MODELS:
            word = [*models, *words, *left][0]
            self.error(f"{by_option[MODEL][0]} and {as_typed(word)} both give the model; leave one of them out")
        if FILE in by_option and left:
            self.error(f"{as_typed(words[0])} and {by_option[FILE][-1]} both give the file; leave one of them out")

    def _describe_form(self) -> str:
        """Return a text with the arguments that the command takes without an option, and the options that it needs."""
        names = [f"[{each.dest.upper()}]" if each.nargs in ("?", "*") else each.dest.upper()
                 for each in self._actions if not each.option_strings]
        needed = [f"{each.option_strings[0]} {each.metavar or each.dest.upper()}" for each in self._actions
                  if each.option_strings and each.required]
        return f"the form is: {' '.join([self.prog, *names, *needed])}"


def parse(parser: argparse.ArgumentParser, commands: Mapping[str, CommandParser],
          arguments: Sequence[str]) -> argparse.Namespace:
    """Return the values of a command line; ends the program after --help, --version and an error.

    parser, commands: of the whole line, and of each command by its name.
    """
    first = arguments[0] if arguments else ""
    if first in COMMANDS:
        first = COMMANDS[first].ours or first
    if first == "--help" and len(arguments) > 1 and arguments[0] == "help":     # `engine help COMMAND`, as with git
        first, arguments = arguments[1], [arguments[1], first]
        first = (COMMANDS[first].ours if first in COMMANDS else None) or first
    if first in commands:
        return commands[first].parse(arguments[1:])
    if first.startswith("-") and first not in ("-h", "--help", "--version"):
        parser.error(f"there is no option {first} before the command; the command comes first, such as: engine "
                     "generate MODEL --prompt TEXT")
    if first and not first.startswith("-"):
        parser.error(f"there is no command {first}{advice_on_command(first, commands)}; the commands are "
                     f"{', '.join(commands)}")
    return parser.parse_args([first] if first else [])


def _is_model(word: str) -> bool:
    """Return whether a word seems to be the path of a model, and not a text or a file to read."""
    return os.path.isdir(word) or word.endswith((".npz", ".gguf"))


def _may_be_model(word: str) -> bool:
    """Return whether a word may be meant as a model: as `_is_model`, a file without a suffix, or a name on the hub."""
    if _is_model(word):
        return True
    if os.path.lexists(word):
        return "." not in os.path.basename(word)
    return re.fullmatch(r"[\w.-]+/[\w./-]+", word) is not None


def _wrapped(text: str) -> str:
    """Return a text in lines of at most 80 characters, in which no name is cut at a hyphen."""
    return textwrap.fill(text, 80, break_on_hyphens=False, break_long_words=False)


def _as_paths(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which a file "-a" after "--" is "./-a", so that argparse does not read it as an option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [as_path(each) if i > end else each for i, each in enumerate(arguments)]
