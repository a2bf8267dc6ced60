"""Implement `engine chat`: a talk with a language model on a terminal or over a pipe."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

from ..base.errors import InputError, shown
from ..chat import Talk
from ..interface.generator import Generator
from .console import MODEL_OR_GGUF, add_model, check_stdin, run_options
from .generate import add_generation, generation_of

PROMPT = "> "


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command, except those of the backend."""
    add_model(command, MODEL_OR_GGUF)
    command.add_argument("text", nargs="?", help="one message to answer, in place of a talk; it may not be the name of "
                         "a file here, and standard input is not read")
    command.add_argument("--prompt", dest="prompts", action="append", metavar="TEXT", help="message to answer, even "
                         "if it is the name of a file; where the option comes several times, the messages are answered "
                         "one after the other, in one talk")
    command.add_argument("--system", metavar="TEXT", help="instruction in front of the conversation")
    command.add_argument("--template", metavar="FILE", help="template of Jinja to take in place of the model's own")
    command.add_argument("--trust-template", action="store_true", help="render the template also where the system has "
                         "no filter of system calls")
    add_generation(command)


def chat(args: argparse.Namespace) -> None:
    """Talk with a model until the input ends, or answer the messages of the command line."""
    messages = _messages(args)
    if messages is None:
        check_stdin("type in a terminal, or give the messages over a pipe, one a line")
    template = None if args.template is None else _read_template(args.template)
    generator = Generator.load(args.model, **run_options(args, "cache", "revision", "long_context"))
    generator.apply_chat_template([{"role": "user", "content": "Hello"}], template=template,
                                  trust_template=args.trust_template)       # raises its errors before somebody types
    interactive = messages is None and sys.stdin.isatty()
    if interactive:
        print(f"{generator!r}\n/help lists the commands.")
    with generator:
        talk = Talk(generator, _typed() if interactive else _piped(), sys.stdout, system=args.system,
                    interactive=interactive, template=template, trust_template=args.trust_template,
                    **generation_of(args))
        if messages is None:
            talk.run()
        for message in messages or ():
            talk.answer(message)


def _messages(args: argparse.Namespace) -> list[str] | None:
    """Return the messages on the command line; None if they come from standard input. Raises `InputError`."""
    messages: list[str] | None = args.prompts
    if args.text is not None:
        if messages is not None:
            raise InputError(f"--prompt comes in place of a text without an option; leave out {shown(args.text)}")
        if os.path.lexists(args.text):
            raise InputError(f"{shown(args.text)} is the name of a file or a folder here, and engine chat takes the "
                             "message itself; engine chat MODEL < FILE sends each line of a file, and --prompt TEXT "
                             "any text")
        messages = [args.text]
    if any(not message.strip() for message in messages or ()):
        raise InputError("the message is empty; leave it out for a talk")
    return messages


def _piped() -> Iterator[str]:
    """Yield the lines of standard input, which are UTF-8 whatever the locale is; raises `InputError`."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8" if number > 1 else "utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"line {number} of standard input is not UTF-8 text: {error}") from None


def _typed() -> Iterator[str]:
    """Return an iterator over lines typed at a terminal; importing readline adds its keys, where Python has it."""
    with suppress(ImportError):
        import_module("readline")
    return _Typed()


class _Typed(Iterator[str]):
    """The lines that somebody types. Ctrl-C raises KeyboardInterrupt, and the next call goes on.

    A generator would end with the exception, so that it is a class.
    """

    def __next__(self) -> str:
        """Wait for a line, and return it; Ctrl-D ends the iteration."""
        while True:
            try:
                return input(PROMPT)
            except UnicodeDecodeError as error:
                print(f"the line is not UTF-8 text: {error}")
            except EOFError:
                print()
                raise StopIteration from None


def _read_template(name: str) -> str:
    """Return the text of a template's file; raises `InputError` unless it is UTF-8."""
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: {error}") from None
