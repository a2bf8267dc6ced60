"""Look up options and commands of other programs in the tables of `engine.base.advice`.

A name with the same meaning as one of ours is accepted, as such names of arguments are in Python; for any other name,
a message gives advice.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from typing import Any

from ..base.advice.calls import AT_CALL, CALLS, LOAD
from ..base.advice.commands import COMMANDS, FILE, MODEL, OPTIONS
from ..base.errors import closest, listed, nearest
from ..base.other_names import OtherName, same
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.reranker import Reranker
from ..interface.transcriber import Transcriber
from ..model.generation_config import GenerationConfig

PYTHON: Mapping[str, Callable[..., Any]] = {
    "encode": Engine.encode, "classify": Engine.classify, "tag": Engine.tag, "answer": Engine.answer,
    "rank": Reranker.rank, "generate": Generator.generate, "chat": Generator.chat, "translate": Generator.translate,
    "transcribe": Transcriber.transcribe}
"""The method that a command calls, which has arguments that the command lacks."""
SURE = 0.8
"""The least similarity, from 0 to 1, of a misspelt option and one of another program for a guess."""


def advice_on_command(typed: str, commands: Iterable[str]) -> str:
    """Return the end of the message about an unknown command: advice, or the nearest command."""
    if typed in COMMANDS:
        return f"; {COMMANDS[typed].advice}"
    return nearest(typed, commands)


def other_commands() -> dict[str, list[str]]:
    """Return the names of commands of other programs that are accepted, by the command that each stands for."""
    names: dict[str, list[str]] = {}
    for typed, row in COMMANDS.items():
        if row.ours is not None:
            names.setdefault(row.ours, []).append(typed)
    return names


def names_for(names: Mapping[str, Sequence[str]]) -> str:
    """Return other names, given by ours, as one list for the help."""
    return "; ".join(f"{', '.join(typed)} for {ours}" for ours, typed in names.items())


def _options(command: argparse.ArgumentParser) -> list[str]:
    """Return all names of the options that a command has."""
    return [option for action in command._actions for option in action.option_strings]


def is_ours(command: argparse.ArgumentParser, option: str) -> bool:
    """Return whether argparse reads an option for a command: a long one may be cut short, a short one have a value."""
    known = _options(command)
    if option.startswith("--"):
        return any(name.startswith(option) for name in known)
    return option[:2] in known


def unknown_options(command: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> list[str]:
    """Return the options in `arguments` that a command lacks. name: of the command. arguments: with our options.

    An option of another library may look like one of ours with its value behind it: -osrt of whisper.cpp is not -o srt.
    """
    of_others = {*OPTIONS[""], *OPTIONS.get(name, {})}.difference(_options(command))
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    typed = [argument.partition("=")[0] for argument in before if is_option(argument)]
    return [option for option in dict.fromkeys(typed) if option in of_others or not is_ours(command, option)]


def is_option(argument: str) -> bool:
    """Return whether an argument is an option by its form; one with a space, or a negative number, is a value."""
    return re.match("--?[A-Za-z][^ ]*$", argument) is not None


def row_of(command: argparse.ArgumentParser, name: str, typed: str) -> OtherName | None:
    """Return the row of the tables for an option of another program; None for one of ours, and for an unknown one.

    `ours` of the row is an option of the command, `MODEL` or `FILE`, or None for an option that has only advice. An
    option of ours, also one cut short, is never another program's, except for the names in `OPTIONS`.
    """
    known_here = _options(command)
    spelled = f"--{typed.lstrip('-').replace('_', '-')}" if len(typed) > 2 else typed
    if typed in known_here:
        return None
    for rows in (OPTIONS.get(name, {}), OPTIONS[""]):
        for each in (typed, spelled):
            if each in rows and each not in known_here and _has(command, rows[each].ours):
                return rows[each]
    if len(typed) > 2 and spelled in known_here:
        return same(spelled)
    if is_ours(command, typed):
        return None
    row, _ = _row(name, spelled.lstrip("-").replace("-", "_"))
    if row is None or row.ours is None:
        return row
    ours = MODEL if row.ours == "path" else f"--{row.ours.replace('_', '-')}"
    return same(ours, *row.values) if _has(command, ours) else None


def _has(command: argparse.ArgumentParser, ours: str | None) -> bool:
    """Return whether a command has `ours` of a row: an option, `MODEL` or `FILE`; True for None, a row of advice."""
    places = [action.dest for action in command._actions if not action.option_strings]
    if ours == MODEL:
        return bool(places)
    if ours == FILE:
        return places[1:] in (["file"], ["audio"])
    return ours is None or ours in _options(command)


def other_names(command: argparse.ArgumentParser, name: str) -> dict[str, list[str]]:
    """Return the options of other programs that a command accepts, by the option or argument that each stands for."""
    places = [action.dest.upper() for action in command._actions if not action.option_strings]
    spoken = dict(zip((MODEL, FILE), places, strict=False))
    names: dict[str, list[str]] = {}
    for typed in dict.fromkeys(_names_of_others(name)):
        row = row_of(command, name, typed)
        if row is None or row.ours is None:
            continue
        flags = [ours for theirs, ours in row.values if theirs is True]     # our value for their flag without a value
        if flags != [False]:
            names.setdefault(" ".join([spoken.get(row.ours, row.ours), *filter(None, flags)]), []).append(typed)
    return names


def _names_of_others(name: str) -> list[str]:
    """Return all options, and arguments in the form of options, of other programs in the tables for a command."""
    return [*OPTIONS.get(name, {}), *OPTIONS[""], *(_as_option(each) for each in (*CALLS.get(name, {}), *LOAD))]


def _as_option(argument: str) -> str:
    """Return an argument of Python in the form of an option."""
    return f"--{argument.lstrip('-').replace('_', '-')}"


def advice_on_options(command: argparse.ArgumentParser, name: str, unknown: Sequence[str]) -> str:
    """Return a message about options that a command lacks, with advice about each, such as its argument in Python."""
    return ". ".join(f"{name} has no option {option}{_advice(command, name, option)}" for option in unknown)


def _advice(command: argparse.ArgumentParser, name: str, typed: str) -> str:
    """Return the end of the message about one option that a command lacks; "" if nothing is known about it."""
    row = row_of(command, name, typed)
    if row is not None and row.advice and row in (*OPTIONS.get(name, {}).values(), *OPTIONS[""].values()):
        return f"; {row.advice}"
    if re.match(r"-[A-Za-z]\d+$", typed) and row_of(command, name, typed[:2]) is not None:
        return f"; write {typed[:2]} {typed[2:]}"
    argument = typed.lstrip("-").replace("-", "_")
    row, function = _row(name, argument)
    if (row is None or row.advice == AT_CALL) and argument in _in_python(name):
        return f". In Python, {PYTHON[name].__name__} has {argument} for it"
    if row is None:
        return _guess(command, name, typed)
    if row.ours is None:
        return f". In Python: {row.advice}"
    return f". In Python, {function} has {listed([row.ours])} for it"


def _guess(command: argparse.ArgumentParser, name: str, typed: str) -> str:
    """Return "did you mean" with the known option that a misspelt one resembles, and advice if it is theirs; or ""."""
    others = [each for each in _names_of_others(name) if row_of(command, name, each) is not None]
    known, spelled = [*_options(command), *others, *map(_as_option, _in_python(name))], _as_option(typed)
    [guess] = closest(spelled, known, SURE) or closest(spelled, _options(command)) or [""]
    if not guess:
        return ""
    row = row_of(command, name, guess)
    if row is not None and row.ours is not None and row.ours.startswith("-") and not row.values:
        guess = row.ours
    is_taken = is_ours(command, guess) if row is None else row.ours is not None
    return f" (did you mean {guess}?){'' if is_taken else _advice(command, name, guess)}"


def _in_python(name: str) -> Collection[str]:
    """Return the names of the keyword arguments of the method that a command calls, and of settings of generation."""
    if name not in PYTHON:
        return ()
    parameters = [each.name for each in signature(PYTHON[name]).parameters.values() if each.kind.name == "KEYWORD_ONLY"]
    return [*parameters, *(each.name for each in fields(GenerationConfig) if name in ("chat", "generate", "translate"))]


def _row(name: str, argument: str) -> tuple[OtherName | None, str]:
    """Return the row for an argument of another library, and the name of the engine's function that has it.

    Returns (None, "") for an unknown argument.
    """
    for function, rows in ((name, CALLS.get(name, {})), ("load", LOAD)):
        if argument in rows and not rows[argument].earlier:
            return rows[argument], function
    return None, ""
