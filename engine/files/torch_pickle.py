"""Read the small part of Python's pickle format that `torch.save` writes, and build nothing but plain values.

A pickle is a program for a stack machine. Python's own machine calls whatever function a pickle names, allocates a memo
as long as the largest index in it, and copies lists as often as a pickle asks. This machine knows the instructions of
`torch.save` only. It looks every name up in a table of its caller, calls only functions of that table, and limits
bytes and instructions. Each instruction allocates at most a constant amount, beside bytes that the file has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import shown
from .reading import FormatError

MAX_PICKLE = 16_000_000
"""Limit on the bytes of a pickle; a tensor's entry has about 200."""
MAX_STEPS = 1_000_000
"""Limit on the instructions of a pickle, each of up to 200 bytes of memory; a tensor's entry has about 45."""
MAX_NAME = 200
"""Limit on the characters of a line that names a module or a function."""
MAX_KEY = 2**31
"""Integer keys of a dictionary lie below it, in absolute value: Python gives each of them another hash, and the numbers
k (2^61 - 1) all have the hash 0, which makes a dictionary quadratic. A state dict has texts; the state of an optimizer
numbers its tensors."""
MAX_INTEGER = 16
"""Limit on the bytes of an integer; the largest one of `torch.save` is its magic number of 10."""
_CUT_SHORT = f"the pickle is cut short, or has more than {MAX_PICKLE:,} bytes"


@dataclass(frozen=True)
class Function:
    """A function that a pickle may call, with one argument: the tuple of the arguments that the pickle gives."""

    call: Callable[[tuple[Any, ...]], Any]


def read_pickle(data: memoryview, names: Mapping[str, Any],
                persistent: Callable[[Any], Any] | None = None) -> tuple[Any, int]:
    """Return the value of the pickle at the start of `data`, and the number of its bytes; raises `FormatError`.

    names: the value of each name that a pickle may use, by its dotted path; it may call a value that is a `Function`.
    persistent: returns the value of a persistent id; without it, persistent ids are refused.
    The value is made of None, bool, int, float, str, tuples, lists, dicts, and values of `names` and `persistent`.
    Lists and dicts may hold themselves, and a value may hold another one very often: never print or compare one whole.
    """
    machine = _Machine(data[:MAX_PICKLE], names, persistent)
    return machine.run(), machine.position


class _Machine:
    """The stack machine, which runs a pickle once. Its methods raise `FormatError` for a wrong instruction."""

    def __init__(self, data: memoryview, names: Mapping[str, Any], persistent: Callable[[Any], Any] | None):
        """data: the pickle, and perhaps bytes after it. names, persistent: as in `read_pickle`."""
        self.data, self.names, self.persistent = data, names, persistent
        self.position = 0
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        """The stacks below the marks, the lowest first."""
        self.memo: dict[int, Any] = {}
        """Values that instructions keep for later ones, by number."""

    def run(self) -> Any:
        """Run the instructions of the pickle up to STOP, and return the object that it makes."""
        for _ in range(MAX_STEPS):
            if self.position >= len(self.data):
                raise FormatError(_CUT_SHORT)
            opcode = self.data[self.position]
            self.position += 1
            if opcode == _STOP:
                return self.pop()
            instruction = _INSTRUCTIONS.get(opcode)
            if instruction is None:
                raise FormatError(f"the pickle has the instruction {bytes([opcode])!r} at byte {self.position - 1:,}, "
                                  "which torch.save does not write")
            instruction(self)
        raise FormatError(f"the pickle has more than {MAX_STEPS:,} instructions")

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes of the pickle."""
        end = self.position + size
        if end > len(self.data):
            raise FormatError(_CUT_SHORT)
        taken = self.data[self.position:end]
        self.position = end
        return taken

    def number(self, size: int, signed: bool = False) -> int:
        """Read a little-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def text(self, size: int) -> str:
        """Read a text of `size` bytes of UTF-8."""
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise FormatError("the pickle has a text that is not UTF-8") from None

    def line(self) -> str:
        """Read the text up to the next line feed, which is read as well."""
        length = bytes(self.data[self.position:self.position + MAX_NAME]).find(b"\n")
        if length < 0:
            raise FormatError("the pickle has a name without end")
        line = self.text(length)
        self.position += 1
        return line

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Remove the top of the stack, and return it."""
        if not self.stack:
            raise FormatError("the pickle takes a value from an empty stack")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        """Remove all values above the last mark, and the mark; return the values, the lowest first."""
        if not self.outer:
            raise FormatError("the pickle has no mark where it needs one")
        values, self.stack = self.stack, self.outer.pop()
        return values

    def top(self, kind: type) -> Any:
        """Return the top of the stack, which must be of this type and stays there."""
        if not self.stack or type(self.stack[-1]) is not kind:
            raise FormatError(f"the pickle needs a {kind.__name__} on its stack")
        return self.stack[-1]

    def mark(self) -> None:
        """Begin a new stack, until `pop_to_mark` goes back to the one before."""
        self.outer.append(self.stack)
        self.stack = []

    def put(self, index: int) -> None:
        """Keep the top of the stack in the memo."""
        if not self.stack:
            raise FormatError("the pickle keeps a value of an empty stack")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        """Put a value of the memo on the stack."""
        if index not in self.memo:
            raise FormatError(f"the pickle asks for the value {index}, which it has not kept")
        self.push(self.memo[index])

    def tuple_of(self, size: int) -> None:
        """Replace the top `size` values of the stack by a tuple of them."""
        first = len(self.stack) - size
        if first < 0:
            raise FormatError("the pickle takes a value from an empty stack")
        self.stack[first:] = [tuple(self.stack[first:])]

    def set_items(self, items: list[Any]) -> None:
        """Put pairs of keys and values into the dictionary on the top of the stack."""
        target = self.top(dict)
        if len(items) % 2 or not all(type(key) in (str, int) for key in items[::2]):
            raise FormatError("the pickle has a dictionary whose keys are neither texts nor integers")
        if large := [key for key in items[::2] if type(key) is int and not -MAX_KEY < key < MAX_KEY]:
            raise FormatError(f"the pickle has a dictionary with the key {large[0]}; integers below {MAX_KEY:,} are "
                              "allowed")
        target.update(zip(items[::2], items[1::2], strict=True))

    def look_up(self, module: Any, name: Any) -> None:
        """Put the value in `names` of a name of a module on the stack; nothing is imported."""
        path = f"{module}.{name}" if type(module) is str and type(name) is str else ""
        if path not in self.names:
            raise FormatError(f"the pickle asks for {shown(path)[1:-1]}, and a pickle may ask for nothing but tensors "
                              "here")
        self.push(self.names[path])

    def call(self) -> None:
        """Replace a `Function` and the tuple of its arguments, the top of the stack, by its result."""
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Function) or type(arguments) is not tuple:
            raise FormatError("the pickle calls something that is no function")
        self.push(function.call(arguments))

    def resolve(self) -> None:
        """Replace a persistent id, by which torch.save names a storage, by its value."""
        if self.persistent is None:
            raise FormatError("the pickle has a persistent id where none is allowed")
        self.push(self.persistent(self.pop()))

    def build(self) -> None:
        """Drop the attributes that a pickle gives to a dict; torch.save keeps versions of modules there."""
        self.pop()
        self.top(dict)

    def integer(self) -> None:
        """Read an integer with its length in one byte in front, and put it on the stack."""
        size = self.number(1)
        if size > MAX_INTEGER:
            raise FormatError(f"the pickle has an integer of {size} bytes")
        self.push(self.number(size, signed=True))

    def check_version(self) -> None:
        """Read the version of the pickle format, and refuse unknown ones."""
        if not 2 <= (version := self.number(1)) <= 5:
            raise FormatError(f"the pickle has version {version}; expected 2 to 5")


_STOP = ord(".")
_BY_LETTER: dict[str, Callable[[_Machine], None]] = {
    "(": _Machine.mark,                                                 # MARK
    "N": lambda m: m.push(None),                                        # NONE
    "J": lambda m: m.push(m.number(4, signed=True)),                    # BININT
    "K": lambda m: m.push(m.number(1)),                                 # BININT1
    "M": lambda m: m.push(m.number(2)),                                 # BININT2
    "G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),           # BINFLOAT
    "U": lambda m: m.push(m.text(m.number(1))),                         # SHORT_BINSTRING
    "T": lambda m: m.push(m.text(m.number(4))),                         # BINSTRING
    "X": lambda m: m.push(m.text(m.number(4))),                         # BINUNICODE
    ")": lambda m: m.push(()),                                          # EMPTY_TUPLE
    "t": lambda m: m.push(tuple(m.pop_to_mark())),                      # TUPLE
    "]": lambda m: m.push([]),                                          # EMPTY_LIST
    "a": lambda m: _extend(m, [m.pop()]),                               # APPEND
    "e": lambda m: _extend(m, m.pop_to_mark()),                         # APPENDS
    "}": lambda m: m.push({}),                                          # EMPTY_DICT
    "s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),               # SETITEM: a key, then its value
    "u": lambda m: m.set_items(m.pop_to_mark()),                        # SETITEMS
    "q": lambda m: m.put(m.number(1)),                                  # BINPUT
    "r": lambda m: m.put(m.number(4)),                                  # LONG_BINPUT
    "h": lambda m: m.get(m.number(1)),                                  # BINGET
    "j": lambda m: m.get(m.number(4)),                                  # LONG_BINGET
    "c": lambda m: m.look_up(m.line(), m.line()),                       # GLOBAL
    "R": _Machine.call,                                                 # REDUCE
    "Q": _Machine.resolve,                                              # BINPERSID
    "b": _Machine.build,                                                # BUILD
    "\x80": _Machine.check_version,                                     # PROTO
    "\x85": lambda m: m.tuple_of(1),                                    # TUPLE1
    "\x86": lambda m: m.tuple_of(2),                                    # TUPLE2
    "\x87": lambda m: m.tuple_of(3),                                    # TUPLE3
    "\x88": lambda m: m.push(True),                                     # NEWTRUE
    "\x89": lambda m: m.push(False),                                    # NEWFALSE
    "\x8a": _Machine.integer,                                           # LONG1
    # Version 4, for torch.save(..., pickle_protocol=4).
    "\x8c": lambda m: m.push(m.text(m.number(1))),                      # SHORT_BINUNICODE
    "\x8d": lambda m: m.push(m.text(m.number(8))),                      # BINUNICODE8
    "\x93": lambda m: m.look_up(*[m.pop(), m.pop()][::-1]),             # STACK_GLOBAL: a module, then a name
    "\x94": lambda m: m.put(len(m.memo)),                               # MEMOIZE
    "\x95": lambda m: _skip(m.number(8)),                               # FRAME
}
"""The instructions by their letters; the comments are their names in `pickletools`."""
_INSTRUCTIONS = {ord(letter): instruction for letter, instruction in _BY_LETTER.items()}


def _extend(machine: _Machine, values: list[Any]) -> None:
    """Append values to the list on the top of the stack."""
    machine.top(list).extend(values)


def _skip(length: int) -> None:
    """Do nothing with the length of a frame, which only helps readers that buffer."""
