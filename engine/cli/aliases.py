"""Replace options of other programs by the engine's that mean the same, before argparse reads a command line.

parsing.py calls `take_aliases`. Options that are "ours" are the engine's, and "theirs" another program's.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.advice.commands import FILE, MODEL
from ..base.errors import InputError, shown
from ..base.other_names import OtherName, same
from .other_options import is_option, row_of

_FLAGS = {"true": True, "false": False}
FLAG_VALUES = {("transcribe", "--timestamps", "word"): "leave out word, and type --words for the times of words"}
"""Advice for a value that only the argument of Python has, and not the flag: by the command, the flag and the value."""


@dataclass
class _TypedOption:
    """One option as it was typed, and its effect."""

    name: str
    value: str | None
    effect: str | None
    """The value for our option, "" for a flag that is set, and None if the option keeps its default."""

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name} {as_typed(self.value)}"


@dataclass
class Aliases:
    """The arguments of a command with our options in place of theirs, and the names that were typed."""

    arguments: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The typed name, by our option."""
    places: dict[str, list[_TypedOption]] = field(default_factory=dict)
    """The options that gave the model and the files, by `MODEL` and `FILE`; these have no option of ours."""


def take_aliases(command: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> Aliases:
    """Return the arguments of a command with our options in place of theirs that mean the same.

    command, name: the parser and the name of the command. Raises `InputError` if two names of one option have
    different values.
    """
    return _Reader(command, name, arguments).read()


class _Reader:
    """Reads the arguments of one command line, once, from left to right."""

    def __init__(self, command: argparse.ArgumentParser, name: str, arguments: Sequence[str]):
        """Divide the arguments at "--", after which no word is an option."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        self._command, self._name = command, name
        self._words, self._rest = list(arguments[:end]), list(arguments[end:])
        self._at = 0        # the index of the next word
        self._taken = Aliases()
        self._occurrences: dict[str, list[_TypedOption]] = {}       # of each option, by the last name of ours

    def read(self) -> Aliases:
        """Return the whole line with our options; raises `InputError`."""
        result, out = self._taken, self._taken.arguments
        while self._at < len(self._words):
            word = self._words[self._at]
            self._at += 1
            if not is_option(word):
                out.append(word)
                continue
            typed, equals, text = word.partition("=")
            value = text if equals else None
            row = row_of(self._command, self._name, typed)
            if row is None and (flag := self._own_flag(typed)) is not None:
                self._option(same(flag), typed, value)
            elif row is None:       # an option of ours, or a word that the parser refuses
                out.append(word)
                self._note_ours(typed, value)
            elif row.ours is None:
                out += [] if self._asks_for_nothing(row, value) else [word]
            elif row.ours in (MODEL, FILE):
                self._place(row.ours, typed, value)
            else:
                self._option(row, typed, value)
        self._check()
        places = {place: [as_path(one.value or "") for one in options] for place, options in result.places.items()}
        result.arguments = [*places.get(MODEL, []), *out, *places.get(FILE, []), *self._rest]
        return result

    def _next(self) -> str | None:
        """Return the next word, if it can be a value."""
        return self._words[self._at] if self._at < len(self._words) and not is_option(self._words[self._at]) else None

    def _value(self, typed: str, value: str | None) -> str:
        """Return the value of the option `typed`: the text after "=", given as `value`, or the next word."""
        if value is None:
            value = self._next()
            self._at += 1
        if value is None:
            raise InputError(f"argument {typed}: expected one argument")
        return value

    def _own_flag(self, typed: str) -> str | None:
        """Return the option if it is the long name of a flag of ours, otherwise None."""
        return typed if typed.startswith("--") and any(
            typed in action.option_strings for action in self._command._actions
            if isinstance(action, argparse._StoreTrueAction)) else None

    def _flag(self, value: str | None) -> bool | None:
        """Return the True or False that other programs write after a flag; None if there is neither.

        value: the text after "="; None for the next word, which is then read.
        """
        if value is not None:
            return _FLAGS.get(value.lower())
        following = self._next()
        if following is None or following.lower() not in _FLAGS:
            return None
        self._at += 1
        return _FLAGS[following.lower()]

    def _place(self, place: str, typed: str, value: str | None) -> None:
        """Note an option whose value is an argument without a name of ours, `MODEL` or `FILE`."""
        value = self._value(typed, value)
        options = self._taken.places.setdefault(place, [])
        options.append(_TypedOption(typed, value, value))
        if place == MODEL and len(options) > 1:
            raise InputError(f"{options[0]} and {options[1]} both give the model; leave one of them out")

    def _option(self, row: OtherName, typed: str, value: str | None) -> None:
        """Add our option of a row of the table to the arguments, with the values that the typed one has.

        value: the text after "=", or None.
        """
        assert row.ours is not None
        action = next(each for each in self._command._actions if row.ours in each.option_strings)
        values: list[str | None]
        # a flag: our option has no value, or theirs is true or false
        if action.nargs == 0 or any(isinstance(theirs, bool) for theirs, _ in row.values):
            stated = self._flag(value)
            following = self._next() if value is None and stated is None else value
            if stated is None and (advice := FLAG_VALUES.get((self._name, row.ours, following or ""))):
                raise InputError(f"{typed} has no value here; {advice}")
            if stated is None and value is not None:
                raise InputError(f"argument {typed}: expected True or False, not {shown(value)}")
            is_set = stated is not False        # a flag without a value is set
            effect = dict(row.values).get(is_set, is_set)
            values = [None if effect in (False, None) else "" if action.nargs == 0 else str(effect)]
            value = None if stated is None else str(stated)
        else:
            values = [value := self._value(typed, value)]
            if isinstance(action, argparse._AppendAction) and typed.endswith("s"):      # such as --stop-sequences A B
                while (following := self._next()) is not None:
                    values.append(following)
                    self._at += 1
            values = [_ours(row, each) for each in values if each is not None]
        self._taken.names[action.option_strings[-1]] = typed
        self._taken.arguments += [row.ours if action.nargs == 0 else f"{row.ours}={each}"
                                  for each in values if each is not None]
        self._note(action, _TypedOption(typed, value, values[-1]))

    def _note_ours(self, typed: str, value: str | None) -> None:
        """Note the value of one of our own options, which argparse will read, and which may be cut short."""
        long = typed.startswith("--")

        def is_meant(option: str) -> bool:
            """Return whether argparse would read `typed` as this option, or as the beginning of it."""
            return option == typed or (option.startswith(typed) if long else option == typed[:2])

        meant = [action for action in self._command._actions if any(map(is_meant, action.option_strings))]
        exact = [action for action in meant if typed in action.option_strings]
        if len(exact or meant) != 1:
            return
        [action] = exact or meant
        if action.nargs == 0:
            self._note(action, _TypedOption(typed, None, ""))
        elif action.nargs is None:
            if not long and len(typed) > 2:     # a short option with its value behind it, such as -oFILE
                value = typed[2:]
            elif value is None:
                value = self._next()
            self._note(action, _TypedOption(typed, value, value))

    def _note(self, action: argparse.Action, occurrence: _TypedOption) -> None:
        """Note an occurrence of an option, for an error if another one contradicts it; some may come several times."""
        if not isinstance(action, argparse._AppendAction):
            self._occurrences.setdefault(action.option_strings[-1], []).append(occurrence)

    def _asks_for_nothing(self, row: OtherName, value: str | None) -> bool:
        """Return whether an option that we lack has a value that changes nothing here; the value is then skipped.

        An option whose only neutral bool is True is a flag, and a word behind it that is neither True nor False is no
        value of it.
        """
        flags = [each for each in row.neutral if isinstance(each, bool)]
        behind = value is None
        value = self._next() if behind else value
        if value is None or (behind and flags == [True] and value.lower() not in _FLAGS):
            return True in flags
        if not any(_is_value(value, each) for each in row.neutral):
            return False
        self._at += behind
        return True

    def _check(self) -> None:
        """Raise `InputError` if one option gets different values by two names, of which one is not ours."""
        for ours, occurrences in self._occurrences.items():
            first = occurrences[0]
            for one in occurrences[1:]:
                if ours in self._taken.names and one.name != first.name and one.effect != first.effect:
                    raise InputError(f"{first} and {one} contradict each other; give one of them")


def _ours(row: OtherName, value: str) -> str | None:
    """Return our value for a value of another program by a row of the table; None if the option keeps its default."""
    ours_value: Any = next((ours for theirs, ours in row.values if _is_value(value, theirs)), value)
    return None if ours_value is None else str(ours_value)


def _is_value(typed: str, known: Any) -> bool:
    """Return whether a typed word means a value of Python: a bool, a number or a string."""
    if isinstance(known, bool):
        return _FLAGS.get(typed.lower()) is known
    if isinstance(known, (int, float)):
        try:
            return float(typed) == known
        except ValueError:
            return False
    return isinstance(known, str) and typed == known


def as_typed(word: str) -> str:
    """Return a word for a message: as it was typed, or in quotes if it has other characters or is long."""
    return word if re.fullmatch(r"[\w./:+-]{1,80}", word) else shown(word)


def as_path(name: str) -> str:
    """Return the name of a file in a form that argparse does not read as an option: ./-a for -a."""
    return f"./{name}" if name.startswith("-") and name != "-" else name
