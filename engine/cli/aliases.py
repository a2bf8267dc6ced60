"""Put our options in place of those of other programs that mean the same, before argparse reads a command line."""

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
"""What to do in place of a value that a flag has in Python alone, by the command, the flag and the value."""


@dataclass
class _Given:
    """One option as it was typed."""

    name: str
    value: str | None
    effect: str | None
    """The value for our option, "" for a flag, and None where the option is left as it is by default."""

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name} {as_typed(self.value)}"


@dataclass
class Aliases:
    """The arguments of a command with our options in place of others, and what was typed in place of ours."""

    arguments: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The typed name, by our option."""
    places: dict[str, list[_Given]] = field(default_factory=dict)
    """What gave `MODEL` and `FILE` by an option."""


def take_aliases(command: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> Aliases:
    """Return the arguments of a command with our options in place of others that mean the same.

    Raises `InputError` where two names of one option have values that differ.
    """
    return _Reader(command, name, arguments).read()


class _Reader:
    """Reads the arguments of one command line from left to right."""

    def __init__(self, command: argparse.ArgumentParser, name: str, arguments: Sequence[str]):
        end = arguments.index("--") if "--" in arguments else len(arguments)
        self._command, self._name = command, name
        self._words, self._rest = list(arguments[:end]), list(arguments[end:])
        self._at = 0
        self._taken = Aliases()
        self._given: dict[str, list[_Given]] = {}       # by the last name of each option of ours

    def read(self) -> Aliases:
        """Return what the whole line is."""
        taken, out = self._taken, self._taken.arguments
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
            elif row is None:
                out.append(word)
                self._note_ours(typed, value)
            elif row.ours is None:
                out += [] if self._asks_for_nothing(row, value) else [word]
            elif row.ours in (MODEL, FILE):
                self._place(row.ours, typed, value)
            else:
                self._option(row, typed, value)
        self._check()
        places = {place: [as_path(one.value or "") for one in given] for place, given in taken.places.items()}
        taken.arguments = [*places.get(MODEL, []), *out, *places.get(FILE, []), *self._rest]
        return taken

    def _next(self) -> str | None:
        """Return the next word, if it can be a value."""
        return self._words[self._at] if self._at < len(self._words) and not is_option(self._words[self._at]) else None

    def _value(self, typed: str, value: str | None) -> str:
        """Return the value of an option: the one behind "=", or the next word."""
        if value is None:
            value = self._next()
            self._at += 1
        if value is None:
            raise InputError(f"argument {typed}: expected one argument")
        return value

    def _own_flag(self, typed: str) -> str | None:
        """Return an option that is a long name of a flag of ours, and None for any other option."""
        return typed if typed.startswith("--") and any(
            typed in action.option_strings for action in self._command._actions
            if isinstance(action, argparse._StoreTrueAction)) else None

    def _flag(self, value: str | None) -> bool | None:
        """Return True or False behind a flag, as some programs write it; None where neither is there."""
        if value is not None:
            return _FLAGS.get(value.lower())
        following = self._next()
        if following is None or following.lower() not in _FLAGS:
            return None
        self._at += 1
        return _FLAGS[following.lower()]

    def _place(self, place: str, typed: str, value: str | None) -> None:
        """Keep the value of an option that stands for an argument without a name, such as the model."""
        value = self._value(typed, value)
        given = self._taken.places.setdefault(place, [])
        given.append(_Given(typed, value, value))
        if place == MODEL and len(given) > 1:
            raise InputError(f"{given[0]} and {given[1]} both give the model; leave one of them out")

    def _option(self, row: OtherName, typed: str, value: str | None) -> None:
        """Write one of our options in place of another."""
        assert row.ours is not None
        action = next(each for each in self._command._actions if row.ours in each.option_strings)
        values: list[str | None]
        if action.nargs == 0 or any(isinstance(theirs, bool) for theirs, _ in row.values):
            given = self._flag(value)
            following = self._next() if value is None and given is None else value
            if given is None and (advice := FLAG_VALUES.get((self._name, row.ours, following or ""))):
                raise InputError(f"{typed} has no value here; {advice}")
            if given is None and value is not None:
                raise InputError(f"argument {typed}: expected True or False, not {shown(value)}")
            effect = dict(row.values).get(given is not False, given is not False)
            values = [None if effect in (False, None) else "" if action.nargs == 0 else str(effect)]
            value = None if given is None else str(given)
        else:
            values = [value := self._value(typed, value)]
            if isinstance(action, argparse._AppendAction) and typed.endswith("s"):
                while (following := self._next()) is not None:
                    values.append(following)
                    self._at += 1
            values = [_ours(row, each) for each in values if each is not None]
        self._taken.names[action.option_strings[-1]] = typed
        self._taken.arguments += [row.ours if action.nargs == 0 else f"{row.ours}={each}"
                                  for each in values if each is not None]
        self._note(action, _Given(typed, value, values[-1]))

    def _note_ours(self, typed: str, value: str | None) -> None:
        """Keep what one of our own options, perhaps cut short, was given."""
        long = typed.startswith("--")

        def is_meant(option: str) -> bool:
            return option == typed or (option.startswith(typed) if long else option == typed[:2])

        meant = [action for action in self._command._actions if any(map(is_meant, action.option_strings))]
        exact = [action for action in meant if typed in action.option_strings]
        if len(exact or meant) != 1:
            return
        [action] = exact or meant
        if action.nargs == 0:
            self._note(action, _Given(typed, None, ""))
        elif action.nargs is None:
            value = typed[2:] if not long and len(typed) > 2 else self._next() if value is None else value
            self._note(action, _Given(typed, value, value))

    def _note(self, action: argparse.Action, given: _Given) -> None:
        """Keep what an option was given, for an error if it is given twice; some options may be."""
        if not isinstance(action, argparse._AppendAction):
            self._given.setdefault(action.option_strings[-1], []).append(given)

    def _asks_for_nothing(self, row: OtherName, value: str | None) -> bool:
        """Return whether an option that we lack has a value that changes nothing, and pass over the value.

        An option of which we know True alone is a flag, and a word behind it that is no flag's value is no value of it.
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
        """Raise `InputError` where another name and ours, or two other names, give one option different values."""
        for ours, given in self._given.items():
            first = given[0]
            for one in given[1:]:
                if ours in self._taken.names and one.name != first.name and one.effect != first.effect:
                    raise InputError(f"{first} and {one} contradict each other; give one of them")


def _ours(row: OtherName, value: str) -> str | None:
    """Return our value for a value of another program."""
    found: Any = next((ours for theirs, ours in row.values if _is_value(value, theirs)), value)
    return None if found is None else str(found)


def _is_value(typed: str, known: Any) -> bool:
    """Return whether a typed word is a value of Python."""
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
    """Return the name of a file that argparse takes for no option."""
    return f"./{name}" if name.startswith("-") and name != "-" else name
