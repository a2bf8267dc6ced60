"""The kernel table for Python and for ctypes, read from table.pxd, which Cython compiles."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Member(NamedTuple):
    """A field of a struct, or one of its functions."""

    name: str
    type: str
    """Its type in C without `const`, such as `float*`; of a function the type of what it returns."""
    length: str | None = None
    """Of an array, the constant that says how long it is."""
    arguments: tuple[str, ...] | None = None
    """The types of the arguments of a function; None for a field."""


_TYPE = r"(?:const )?((?:unsigned )?\w+\*?)"
_FIELD = re.compile(rf"{_TYPE} (\w+)(?:\[(\w+)\])?")
_FUNCTION = re.compile(rf"{_TYPE} \(\*(\w+)\)\((.*)\) noexcept nogil")


def _match(pattern: str | re.Pattern[str], code: str) -> tuple[Any, ...]:
    """Return the groups of a pattern that matches the whole code. What it does not match is an error, never skipped."""
    if (found := re.fullmatch(pattern, code)) is None:
        raise ValueError(f"layout.py cannot read this part of table.pxd: {code}")
    return found.groups()


def _constants(lines: Iterable[str]) -> dict[str, int]:
    values: dict[str, int] = {}
    for line in lines:
        name, value = _match(r"(\w+)(?: = (\d+))?", line)
        values[name] = int(value) if value else max(values.values(), default=-1) + 1
    return values


def _member(line: str) -> Member:
    if "(" not in line:
        kind, name, length = _match(_FIELD, line)
        return Member(name, kind, length)
    kind, name, arguments = _match(_FUNCTION, line)
    return Member(name, kind, arguments=tuple(_match(_FIELD, each)[0] for each in arguments.split(", ") if each))


def read(text: str) -> tuple[dict[str, dict[str, int]], dict[str, tuple[Member, ...]], set[str]]:
    """Return the enums, the structs, and the names of the types of functions that a .pxd file declares.

    Enums without a name are one, whose name is empty.
    """
    enums: dict[str, dict[str, int]] = {}
    structs: dict[str, tuple[Member, ...]] = {}
    functions: set[str] = set()
    code = re.sub(r",\n +", ", ", re.sub(r" *#.*", "", text))      # without comments, a statement a line
    for statement in re.split(r"\n+(?=\S)", code.strip()):
        head, *lines = (line.strip() for line in statement.splitlines() if line.strip())
        if head.startswith("ctypedef "):
            functions.add(_member(head.removeprefix("ctypedef ")).name)
        else:
            kind, name = _match(r"cdef (enum|struct) ?(\w*):", head)
            if kind == "enum":
                enums[name] = enums.get(name, {}) | _constants(lines)
            else:
                structs[name] = tuple(map(_member, lines))
    return enums, structs, functions


ENUMS, STRUCTS, FUNCTIONS = read(Path(__file__).with_name("table.pxd").read_text(encoding="utf-8"))
"""What table.pxd declares."""


def name_of(declared: tuple[dict[str, dict[str, int]], dict[str, tuple[Member, ...]], set[str]]) -> bytes:
    """Return a name of a kernel table that changes with what table.pxd declares, but not with its comments."""
    enums, structs, functions = declared
    fields = {name: [tuple(member) for member in members] for name, members in structs.items()}
    digest = hashlib.sha256(repr((enums, fields, sorted(functions))).encode()).hexdigest()
    return f"engine.KernelTable.{digest[:16]}".encode()


TABLE_NAME = name_of((ENUMS, STRUCTS, FUNCTIONS))
"""The name of capsules with a kernel table. setup.py compiles it into each module: one that was built before the table
changed has another name, and is refused."""

PRODUCT_PLACES = {name.removesuffix("_PRODUCT").lower(): place for name, place in ENUMS["ProductKind"].items()
                  if name != "PRODUCTS"}  # fmt: skip
"""The place of each product in a kernel table, by the name that Python gives it."""

STORAGE = {name.lower(): value for name, value in ENUMS["Storage"].items()}
"""The value of enum Storage for each format of weights that is computed in, and for each precision of a cache."""

ACTIVATIONS = {name.lower(): value for name, value in ENUMS["Activation"].items() if name != "IDENTITY"}
"""The value of enum Activation for each activation."""

CELL, RANGE, KEYS, QUERIES = (ENUMS[""][name] for name in ("CELL", "RANGE", "KEYS", "QUERIES"))
"""How many tokens, keys and queries kernels work on together: the constants of table.pxd."""

_CTYPES = {"int": ctypes.c_int, "bint": ctypes.c_int, "Py_ssize_t": ctypes.c_ssize_t, "float": ctypes.c_float,
           "double": ctypes.c_double, "void": None}  # fmt: skip


def ctype(name: str) -> Any:
    """Return the ctypes type of a type in C; all pointers are addresses."""
    return ctypes.c_void_p if name.endswith("*") or name in FUNCTIONS else _CTYPES[name]


def table_in(capsule: object) -> Any:
    """Return the kernel table in a capsule, which keeps its memory."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    found = get(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, TABLE_NAME)
    return structures()["KernelTable"].from_address(found)


def capsule_of(table: ctypes.Structure) -> object:
    """Return a capsule with a kernel table, whose memory the caller keeps."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(table), TABLE_NAME, None)


@cache
def structures() -> dict[str, type[ctypes.Structure]]:
    """Return the structs for ctypes by name; their functions are addresses."""
    made: dict[str, type[ctypes.Structure]] = {}
    for struct, members in STRUCTS.items():
        fields = [(member.name, ctypes.c_void_p if member.arguments is not None
                   else made[member.type] * ENUMS["ProductKind"][member.length] if member.length
                   else ctype(member.type)) for member in members]  # fmt: skip
        made[struct] = type(struct, (ctypes.Structure,), {"_fields_": fields})
    return made
