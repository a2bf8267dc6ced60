"""Check the messages of a chat and all other values for a template, and turn them into plain JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError, listed, shown
from ..model.config_checks import is_unicode

MAX_CHARACTERS = 4_000_000
"""The most characters of all texts of a conversation, its tools, documents and options included."""
MAX_VALUES = 200_000
"""The most JSON values of a conversation, its tools, documents and options included."""
MAX_DEPTH = 100
"""How deep lists and objects may be nested in one another."""
MAX_BITS = 1024
"""The most bits of an integer."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""The keys under which a message may have its reasoning. Templates read the first one."""
_EXPECTED = ('messages must be a text, which is one message of a user, a list such as [{"role": "user", "content": '
             '"Hello"}], or a list of such lists')
_MEDIA = ("image", "audio", "video", "file")
"""The beginnings, perhaps after "input_", of the types of parts that are no text."""

Message = dict[str, Any]


class Plain:
    """Turns values into plain JSON, and counts them against the limits of one conversation."""

    def __init__(self, change: Callable[[str], str] = str):
        """change: is applied to each text, but not to keys that are identifiers, by which a template reads a value."""
        self._change, self._values, self._characters = change, 0, 0

    def value(self, value: Any, where: str, depth: int = 0) -> Any:
        """Return a value as None, bool, int, float, str, list and dict alone, at all depths.

        where: the name of the value in messages. Raises `InputError` for a value that is no JSON, or above a limit.
        """
        self._values += 1
        if self._values > MAX_VALUES:
            raise InputError(f"{where}: there are more than {MAX_VALUES:,} values in one conversation")
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._change(self._text(value, where))
        if isinstance(value, int):
            number = int.__int__(value)     # of a subclass, too, such as IntEnum
            if number.bit_length() > MAX_BITS:
                raise InputError(f"{where} has an integer of more than {MAX_BITS:,} bits")
            return number
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InputError(f"{where} has {float(value)}, which is no JSON; leave it out, or write it as a text")
            return float.__float__(value)
        return self._collection(value, where, depth)

    def _collection(self, value: Any, where: str, depth: int) -> Any:
        """Return a list, mapping, dataclass or object of pydantic as plain JSON; raises `InputError` for others."""
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        elif not isinstance(value, (Mapping, list, tuple)) and callable(getattr(value, "model_dump", None)):
            value = value.model_dump()      # an object of pydantic
        if not isinstance(value, (Mapping, list, tuple)):
            raise InputError(f"{where} has {shown(value)}, a {type(value).__name__}; a template gets plain JSON alone: "
                             "texts, numbers, true, false, null, lists, and objects with texts as keys")
        if depth >= MAX_DEPTH:
            raise InputError(f"{where} is nested deeper than {MAX_DEPTH} levels")
        if not isinstance(value, Mapping):
            return [self.value(item, where, depth + 1) for item in value]
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {shown(key)}; the keys of an object must be texts")
            name = self._text(key, where)
            plain[name if name.isidentifier() else self._change(name)] = self.value(item, where, depth + 1)
        return plain

    def _text(self, text: str, where: str) -> str:
        """Count the characters of a text, and return it as a plain str, and not an object of a subclass."""
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise InputError(f"{where}: the texts of one conversation have more than {MAX_CHARACTERS:,} characters")
        if not is_unicode(text):
            raise InputError(f"{where} has the text {shown(text)}, which has half of a surrogate pair and so is no "
                             "valid Unicode")
        return str.__str__(text)


def conversations_of(messages: Any) -> tuple[list[Sequence[Any]], bool]:
    """Return (a list of conversations, whether the argument is one conversation, not a list); raises `InputError`.

    A text is a conversation of one message of a user.
    """
    if isinstance(messages, str):
        return [[{"role": "user", "content": messages}]], True
    if isinstance(messages, Mapping):
        raise InputError(f"{_EXPECTED}; one message alone has to be in a list, too")
    if not isinstance(messages, (list, tuple)):
        raise InputError(f"{_EXPECTED}, not {shown(messages)}")
    if not messages:
        raise InputError("there are no messages; a conversation needs one at least")
    if any(isinstance(item, str) for item in messages):
        raise InputError(f"{_EXPECTED}; a text in a list may be a message or a conversation, so write what it is")
    are_lists = [isinstance(item, (list, tuple)) for item in messages]
    if not any(are_lists):
        return [messages], True
    if not all(are_lists):
        raise InputError(f"{_EXPECTED}; this list has both, a message at place {are_lists.index(False)} and a list at "
                         f"place {are_lists.index(True)}")
    return list(messages), False


def plain_messages(messages: Sequence[Any], plain: Plain) -> list[Message]:
    """Return the messages of one conversation as plain JSON, without keys whose value is None; raises `InputError`."""
    if not messages:
        raise InputError("there are no messages; a conversation needs one at least")
    entries = []
    for i, message in enumerate(messages):
        where = f"message {i}"
        entry = plain.value(message, where)
        if not isinstance(entry, dict):
            raise InputError(f"{where} must be an object with role and content, not {shown(message)}")
        if "role" not in entry and isinstance(entry.get("message"), dict):
            raise InputError(f"{where} is an answer as a whole, and no message; append its .message")
        entry = {name: value for name, value in entry.items() if value is not None}
        if not isinstance(entry.get("role"), str):
            raise InputError(f'{where} must have a role, such as "user", not {shown(entry.get("role"))}')
        if entry["role"] == "user" and "content" not in entry:
            raise InputError(f"{where} must have a content; it has {listed(entry)}")
        _check_content(entry.get("content"), where)
        entries.append(entry)
    return entries


def _check_content(content: Any, where: str) -> None:
    """Raise `InputError` for a content that is neither a text nor a list of parts that are texts."""
    if content is None or isinstance(content, str):
        return
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type", "text") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind.removeprefix("input_").startswith(_MEDIA):
            raise InputError(f"{where} has a part of the type {shown(kind)}; images, audio and files are not "
                             "supported, only texts")
        if not isinstance(content, list) or not isinstance(part, dict) or not isinstance(part.get("text"), str):
            raise InputError(f'the content of {where} must be a text, or a list of parts such as {{"type": "text", '
                             f'"text": "Hello"}}, not {shown(content)}')


def with_one_text(message: Message) -> Message:
    """Return a message whose content, if it has parts, is their texts joined with line feeds."""
    if not isinstance(message.get("content"), list):
        return message
    return message | {"content": "\n".join(part["text"] for part in message["content"])}


def with_reasoning(messages: Sequence[Message]) -> list[Message]:
    """Return messages whose reasoning, if any, also stands under "reasoning_content" and "thinking" for templates."""
    changed = []
    for message in messages:
        reasoning = next((message[name] for name in REASONING if message.get(name) is not None), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        changed.append(message)
    return changed


def plain_tools(tools: Any, plain: Plain) -> Any:
    """Return tools as plain JSON; raises `InputError` for anything but a list of JSON schemas."""
    return None if tools is None else _objects(tools, "tools", 'JSON schemas, such as {"type": "function", "function": '
                                               '{"name": "now", "description": "...", "parameters": {...}}}', plain)


def plain_documents(documents: Any, plain: Plain) -> Any:
    """Return documents as plain JSON; raises `InputError` for anything but a list of objects."""
    return None if documents is None else _objects(documents, "documents", "objects with title and text", plain)


def printable(text: str) -> str:
    """Return an untrusted text for a terminal, with U+FFFD for control characters, which could change its state."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def _objects(values: Any, name: str, expected: str, plain: Plain) -> list[Any]:
    """Return a list of objects as plain JSON; raises `InputError`. name, expected: argument and items, for it."""
    if callable(values) or (isinstance(values, (list, tuple)) and any(map(callable, values))):
        raise InputError(f"{name} has a function of Python, which is no JSON; describe it: {name} must be a list of "
                         f"{expected}")
    if not isinstance(values, (list, tuple)) or not all(isinstance(item, Mapping) for item in values):
        raise InputError(f"{name} must be a list of {expected}, not {shown(values)}")
    return [plain.value(item, f"{name}[{i}]") for i, item in enumerate(values)]
