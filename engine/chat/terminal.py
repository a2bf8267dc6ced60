"""`Talk`: a conversation with a model in a terminal, or over a pipe with one message a line, for `engine chat`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from ..base.errors import EngineError, InputError, shown
from ..files.reading import FormatError, parse_list, read_bytes
from ..files.writing import replacing
from ..model.config_checks import is_unicode
from ..model.generation_config import CHECKS, GenerationConfig
from .messages import printable

MAX_FILE = 16_000_000
"""The most bytes of a file with a conversation."""
HELP = """\
/system TEXT     give the model this instruction, and begin a new conversation; without TEXT, show it
/set NAME VALUE  change a setting, such as temperature 0.7; without VALUE, back to the model's; alone, show them
/retry           drop the last answer, and answer again (with --do-sample, from another seed)
/clear           begin a new conversation
/save FILE       write the conversation as JSON
/load FILE       read one, and go on with it
/help            show this list; so does /?
/quit            end; so do /exit, /bye and Ctrl-D. Ctrl-C ends an answer
A line that ends with a backslash goes on in the next line, and one that begins with // is a message with one slash."""
_ENDS = ("/quit", "/exit", "/bye")


class Streams(Protocol):
    """A model that streams its answers, such as a `Generator`."""

    def stream_chat(self, messages: Any, **settings: Any) -> Any:
        """Return an iterator of pieces with an id and a text, which `cancel` ends."""


class Talk:
    """A conversation: reads messages and commands line by line, and writes the answers piece by piece."""

    def __init__(self, model: Streams, lines: Iterator[str], out: TextIO, *, system: str | None = None,
                 interactive: bool = False, **settings: Any):
        """lines: what the user types; its `next` may raise KeyboardInterrupt. interactive: whether a person types.

        system: the first instruction. settings: the arguments of `stream_chat`. If a person types, an error or Ctrl-C
        ends one answer; otherwise it ends the talk.
        """
        self._model, self._lines, self._out, self._interactive = model, lines, out, interactive
        self._settings = settings
        self._system = system
        self.messages: list[dict[str, Any]] = []
        """The conversation, with the system message."""
        self._clear("")

    def run(self) -> None:
        """Talk until there are no more lines, or until /quit."""
        while (line := self._line()) is not None:
            if line.rstrip() in _ENDS:
                return
            try:
                self._do(line)
            except KeyboardInterrupt:       # outside an answer, or a second Ctrl-C while the first one ends it
                if not self._interactive:
                    raise
                self._say("\n[stopped]")
            except (EngineError, OSError) as error:
                if not self._interactive:
                    raise
                self._say(f"{error}")

    def answer(self, text: str) -> None:
        """Answer a text as a message, even if it looks like a command."""
        if not is_unicode(text):
            raise InputError("the message is not UTF-8 text")
        self._answer({"role": "user", "content": text})

    def _line(self) -> str | None:
        """Return the next message or command, joined from lines that end with a backslash; None at the end."""
        parts: list[str] = []
        while True:
            try:
                line = next(self._lines, None)
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                parts.clear()
                self._say("\nCtrl-D or /quit ends the talk.")
                continue
            if line is None:
                return "\n".join(parts) or None
            line = line.rstrip("\r\n")
            if line.endswith("\\"):
                parts.append(line[:-1])
                continue
            if line.strip() or parts:
                return "\n".join([*parts, line])

    def _do(self, line: str) -> None:
        """Answer a message, or obey a command."""
        if not is_unicode(line):
            raise InputError("the line is not UTF-8 text")
        if line.startswith("//") or not line.startswith("/"):
            self.answer(line.removeprefix("/") if line.startswith("//") else line)
            return
        name, argument = [*line[1:].split(None, 1), "", ""][:2]     # "" for a missing one
        commands: Mapping[str, Callable[[str], None]] = {
            "system": self._set_system, "set": self._set, "retry": self._retry, "clear": self._clear,
            "save": self._save, "load": self._load, "help": self._help, "?": self._help}
        if name not in commands:
            raise InputError(f"there is no command /{name}; /help lists the commands, and // begins a message with a "
                             "slash")
        commands[name](argument.strip())

    def _answer(self, message: dict[str, Any]) -> None:
        """Write the answer to a message, and append both to the conversation; after an error it is as before."""
        before = list(self.messages)
        self.messages.append(message)
        parts: list[str] = []
        end, reason = "\n", None
        try:
            with self._model.stream_chat(self.messages, **self._settings) as stream:
                for piece in stream:
                    parts.append(piece.text)
                    self._write(piece.text)
                reason = stream.finish_reason
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            end = " [stopped]\n"
        except BaseException:
            self.messages = before
            raise
        self.messages.append({"role": "assistant", "content": "".join(parts)})
        self._write(end)
        if reason == "length":
            self._say("[the answer has its greatest length; /set max_new_tokens changes it]")

    def _set_system(self, text: str) -> None:
        """/system: begin a new conversation with an instruction; without a text, show the present instruction."""
        if not text:
            self._say("no instruction" if self._system is None else self._system)
            return
        self._system = text
        self._clear("")

    def _set(self, text: str) -> None:
        """/set: change a setting of the next answers; raises `InputError` for an unknown name or a wrong value."""
        name, value = [*text.split(None, 1), "", ""][:2]
        if not name:
            self._say(", ".join(f"{name}={shown(self._settings[name])}" for name in self._settings
                                if name in CHECKS) or "no settings; the model's own hold")
            return
        name = name.replace("-", "_")
        try:
            parsed = json.loads(value) if value else None       # a word without quotation marks is no JSON
        except ValueError:
            parsed = value
        GenerationConfig().changed(**{name: parsed})        # checks it
        self._settings.pop(name, None)
        if value:
            self._settings[name] = parsed

    def _clear(self, _: str) -> None:
        """/clear: begin a new conversation, with the instruction if there is one."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def _retry(self, _: str) -> None:
        """/retry: drop the last answer and answer again, with the next seed if tokens are drawn."""
        is_answered = bool(self.messages) and self.messages[-1]["role"] == "assistant"
        place = len(self.messages) - (2 if is_answered else 1)      # of the message to answer again
        if place < 0 or self.messages[place]["role"] in ("system", "assistant"):
            raise InputError("there is no answer to try again")
        dropped, self.messages = self.messages[place:], self.messages[:place]
        seed = self._settings.get("seed") or 0
        if self._settings.get("do_sample") and seed != "random":
            self._settings["seed"] = seed + 1
        try:
            self._answer(dropped[0])
        except BaseException:
            self.messages += dropped
            raise

    def _help(self, _: str) -> None:
        self._say(HELP)

    def _save(self, name: str) -> None:
        """/save: write the conversation into a file as JSON."""
        with replacing(_path(name, "/save")) as file:
            file.write(json.dumps(self.messages, ensure_ascii=False, indent=1).encode() + b"\n")
        self._say(f"{len(self.messages)} messages are in {name}")

    def _load(self, name: str) -> None:
        """/load: go on with the conversation in a file of `_save`; raises `InputError` for another file."""
        path = _path(name, "/load")
        try:
            messages = parse_list(read_bytes(path, MAX_FILE))
        except FormatError as error:
            raise InputError(f"{name}: {error}; /load reads a file that /save wrote") from None
        if not all(isinstance(message, dict) and is_unicode(message.get("role"))
                   and is_unicode(message.get("content")) for message in messages):
            raise InputError(f"{name} must be a list of messages with role and content, not {shown(messages)}")
        self.messages = messages
        self._system = messages[0]["content"] if messages and messages[0]["role"] == "system" else None
        self._say(f"{len(messages)} messages are there")

    def _write(self, text: str) -> None:
        """Write a part of an answer at once; for a person, without control characters of terminals."""
        self._out.write(printable(text) if self._interactive else text)
        self._out.flush()

    def _say(self, text: str) -> None:
        """Write a line of the program itself, if a person types."""
        if self._interactive:
            self._write(f"{text}\n")


def _path(name: str, command: str) -> Path:
    """Return the path that a user has typed behind a command; raises `InputError` for no path."""
    if not name:
        raise InputError(f"{command} needs the name of a file")
    if "\0" in name:
        raise InputError(f"{shown(name)} is no name of a file, because it has a NUL")
    return Path(os.path.expanduser(name))
