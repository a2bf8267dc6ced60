"""Read the structs, enums and functions of the kernel table from table.pxd, for ctypes, Numba and the packer."""

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
    """Its type in C without `const`, such as `float*`; for a function, the type of its result."""
    length: str | None = None
    """The name of the constant that is the length of an array; None for anything else."""
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
    """Return the values of an enum's constants, from lines such as "NAME" (the next integer) or "NAME = 3"."""
    values: dict[str, int] = {}
    for line in lines:
        name, value = _match(r"(\w+)(?: = (\d+))?", line)
        values[name] = int(value) if value else max(values.values(), default=-1) + 1
    return values


def _member(line: str) -> Member:
    """Return the member that a line of a struct declares."""
    if "(" not in line:
        kind, name, length = _match(_FIELD, line)
        return Member(name, kind, length)
    kind, name, arguments = _match(_FUNCTION, line)
    return Member(name, kind, arguments=tuple(_match(_FIELD, argument)[0] for argument in arguments.split(", ")
                                              if argument))


def read(text: str) -> tuple[dict[str, dict[str, int]], dict[str, tuple[Member, ...]], set[str]]:
    """Return the enums, the structs, and the names of the function types that a .pxd file declares.

    Enums without a name are merged to one, whose name is empty.
    """
    enums: dict[str, dict[str, int]] = {}
    structs: dict[str, tuple[Member, ...]] = {}
    functions: set[str] = set()
    code = re.sub(r",\n +", ", ", re.sub(r" *#.*", "", text))      # without comments; arguments on one line
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
"""The declarations of table.pxd: constants and members by the name of their enum or struct, names of function types."""


def name_of(declared: tuple[dict[str, dict[str, int]], dict[str, tuple[Member, ...]], set[str]]) -> bytes:
    """Return a capsule name that is different for each set of declarations, but not for other comments."""
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
    """Return the kernel table in a capsule, which owns its memory, as a ctypes structure."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = get(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, TABLE_NAME)
    return structures()["KernelTable"].from_address(address)


def capsule_of(table: ctypes.Structure) -> object:
    """Return a capsule with a kernel table, whose memory the caller keeps alive."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(table), TABLE_NAME, None)


@cache
def structures() -> dict[str, type[ctypes.Structure]]:
    """Return the structs of table.pxd as ctypes structures by name; their functions are addresses."""
    made: dict[str, type[ctypes.Structure]] = {}

    def field_type(member: Member) -> Any:
        if member.arguments is not None:
            return ctypes.c_void_p
        return made[member.type] * ENUMS["ProductKind"][member.length] if member.length else ctype(member.type)

    for struct, members in STRUCTS.items():
        fields = [(member.name, field_type(member)) for member in members]
        made[struct] = type(struct, (ctypes.Structure,), {"_fields_": fields})
    return made
