"""Write zip archives whose headers state what a mutation wants them to state."""

import random
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

_WIDEST = {"H": 0xFFFF, "L": 0xFFFFFFFF, "Q": 2**64 - 1}
_NUMBERS = (0, 1, 2, 8, 0x0800, 0xFFFE, 0xFFFF, 2**31, 2**32 - 2, 2**32 - 1)


@dataclass(frozen=True)
class Member:
    """A file in an archive. A field that is None is written as the contents ask for it."""

    name: str
    contents: bytes
    method: int = 0
    flags: int = 0
    crc: int | None = None
    size: int | None = None
    compressed_size: int | None = None
    offset: int | None = None
    local_size: int | None = None
    local_name: str | None = None
    """What only the local header states."""
    extra: bytes = b""
    zip64: bool = False
    comment: bytes = b""
    is_packed: bool = False
    """Whether the contents are compressed already."""


def members_of(data: bytes) -> list[Member]:
    """Return the members of an archive, uncompressed."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        return [Member(name, archive.read(name)) for name in archive.namelist()]


def pack(members: list[Member], *, zip64: bool = False, end: dict[int, int] | None = None,
         tail: bytes = b"") -> bytes:
    """Return the archive. `zip64` adds the wide end record; `end` replaces values of the end record by their place."""
    out, directory = bytearray(), bytearray()
    for member in members:
        compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        packs = member.method == 8 and not member.is_packed
        data = compressor.compress(member.contents) + compressor.flush() if packs else member.contents
        crc = zlib.crc32(member.contents) if member.crc is None else member.crc
        sizes = [_or(member.compressed_size, len(data)), _or(member.size, len(member.contents))]
        offset, name = _or(member.offset, len(out)), member.name.encode(errors="replace")
        wide = struct.pack("<HHQQ", 1, 16, sizes[1], sizes[0]) if member.zip64 else b""
        if member.zip64:
            sizes = [0xFFFFFFFF, 0xFFFFFFFF]
        extra = wide + member.extra
        local = [0, 0, 0] if member.flags & 8 else [crc, sizes[0], _or(member.local_size, sizes[1])]
        directory += _packed("<4s6H3L5H2L", b"PK\1\2", 20, 20, member.flags, member.method, 0, 33, crc, *sizes,
                             len(name), len(extra), len(member.comment), 0, 0, 0, offset) + name + extra
        directory += member.comment
        name = name if member.local_name is None else member.local_name.encode()
        out += _packed("<4s5H3L2H", b"PK\3\4", 20, member.flags, member.method, 0, 33, *local, len(name), len(extra))
        out += name + extra + data
    values = [0, 0, len(members), len(members), len(directory), len(out)]
    start = len(out) + len(directory)
    if zip64:
        directory += _packed("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, *values)
        directory += _packed("<4sLQL", b"PK\6\7", 0, start, 1)
        values[2:] = [0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF]
    for place, value in (end or {}).items():
        values[place] = value
    return bytes(out + directory + _packed("<4s4H2LH", b"PK\5\6", *values, 0) + tail)


def odd_archive(rng: random.Random, members: list[Member]) -> bytes:
    """Return the archive with one of its headers changed, or written in a rarer way that the format allows."""
    i = rng.randrange(len(members))
    one, number = members[i], rng.choice(_NUMBERS)
    changes: list[dict[str, Any]] = [
        {"flags": number}, {"method": rng.choice((8, 8, 1, 12, 0xFFFF))}, {"crc": number}, {"size": number},
        {"compressed_size": number}, {"offset": number}, {"local_size": number}, {"zip64": True}, {"flags": 8},
        {"zip64": True, "size": 2**64 - 1}, {"extra": rng.randbytes(rng.choice((1, 4, 9)))}, {"comment": b"x" * 5},
        {"extra": struct.pack("<HH", 0xD935, 5) + bytes(5)}, {"size": 0xFFFFFFFF}, {"method": 8, "flags": 8},
        {"name": rng.choice(("", "x", "config.npy", "../x.npy", "é.npy", "a" * 70000, "config.npy.npy", "\0.npy"))},
    ]
    members = [*members[:i], replace(one, **rng.choice(changes)), *members[i + 1:]]
    match rng.randrange(5):
        case 0:
            return pack(members, zip64=True)
        case 1:
            return pack(members, zip64=rng.random() < 0.5, end={rng.randrange(6): number})
        case 2:
            return pack(members, tail=rng.choice((b"\0", b"x" * 100, b"PK\5\6")))
        case _:
            return pack(members)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _packed(layout: str, magic: bytes, *values: int) -> bytes:
    """Pack a record of the format, with each integer cut to the width of its field."""
    fields = [letter for count, letter in re.findall(r"([0-9]*)([HLQ])", layout) for _ in range(int(count or 1))]
    cut = [value & _WIDEST[field] for field, value in zip(fields, values, strict=True)]
    return struct.pack(layout, magic, *cut)
