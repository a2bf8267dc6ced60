"""List and read the members of a zip archive and check every header: the part of the format that NumPy and torch write.

The standard library's `zipfile` cannot say where a member's data starts, uses sizes without comparing the two places
that state them, and builds an object per directory entry before anything can be checked. This reader accepts a file
only if it has exactly one reading: the archive must fill the file, both headers of a member must agree, and no two
members may share a byte. Layout and field names follow PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.

    member 0: local header, name, extra, data   member 1 ...   directory   [zip64 end record, its locator]   end record
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from mmap import mmap
from typing import Any

from .reading import FormatError

STORED, DEFLATED = 0, 8     # compression methods

_MAX_MEMBERS = 100_000
# The fixed parts of the records of the format: headers, entries of the directory, and end records.
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_ZIP64_LOCATOR = struct.Struct("<4sLQL")
_ZIP64_END = struct.Struct("<4sQ2H2L4Q")
_SATURATED = 0xFFFFFFFF
"""The value of a 32-bit size or offset that only the zip64 record, or the zip64 block of an extra field, states."""
_END_LIMITS = (0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF, _SATURATED, _SATURATED)
"""The value of each number of the end record if only the zip64 record states it."""
_STREAMED, _UTF8, _DEFLATE_OPTIONS = 0x0008, 0x0800, 0x0006
"""Flags of a member: its sizes follow its data, its name is UTF-8, and how hard the writer compressed it."""
_ZIP64_BLOCK = 1
"""The identifier of the block with 64-bit sizes in an extra field."""
_MAX_INFLATION = 100
"""Limit on the unpacked size of all members, in bytes per byte of the file; trained weights stay far below it."""
_FREE_INFLATION = 2**26
"""Unpacked size in bytes that is always allowed, however small the file is."""


@dataclass(frozen=True)
class ZipMember:
    """One file in an archive; its data is `compressed_size` bytes from offset `start`."""

    name: str
    method: int
    crc: int
    """The CRC-32 of the unpacked bytes."""
    compressed_size: int
    size: int
    """The number of unpacked bytes."""
    header: int
    """The offset of the local header."""
    start: int


def list_members(data: mmap) -> list[ZipMember]:
    """Return the members of the archive that fills `data`, in order of position; raises `FormatError`."""
    count, directory, end = _find_directory(data)
    members = []
    position = directory
    for _ in range(count):
        member, position = _read_entry(data, position, directory, end)
        members.append(member)
    if position != end:
        raise FormatError("the zip directory does not have the length that the end record states")
    if len({member.name for member in members}) != count:
        raise FormatError("two members of the archive have the same name")
    members.sort(key=lambda member: member.header)
    for one, following in pairwise(members):
        if one.start + one.compressed_size > following.header:
            raise FormatError(f"members {one.name!r} and {following.name!r} overlap")
    return members


def check_inflation(data: mmap, members: Iterable[ZipMember]) -> None:
    """Raise `FormatError` for compressed members that unpack to more than weights in a file of this size can hold."""
    unpacked = sum(member.size for member in members if member.method != STORED)
    if unpacked > max(_FREE_INFLATION, _MAX_INFLATION * len(data)):
        raise FormatError(f"the compressed members would unpack to {unpacked:,} bytes, more than weights in a "
                          f"file of {len(data):,} bytes can hold")


def read_member(data: mmap, member: ZipMember, verify: bool = True) -> memoryview:
    """Return the contents of a member: a view of the map if it is stored; raises `FormatError` for a wrong checksum.

    verify: whether to read a stored member, and compare its checksum.
    """
    contents = memoryview(data)[member.start:member.start + member.compressed_size]
    if member.method != STORED:
        contents = memoryview(_inflate(contents, member))
    if (verify or member.method != STORED) and zlib.crc32(contents) != member.crc:
        raise FormatError(f"the checksum of member {member.name!r} is wrong")
    return contents


def _inflate(contents: memoryview, member: ZipMember) -> bytes:
    """Return the unpacked bytes of a member, in no more memory than the size that it states."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        unpacked = inflater.decompress(contents, member.size + 1)
    except zlib.error as error:
        raise FormatError(f"member {member.name!r} cannot be decompressed: {error}") from None
    if len(unpacked) != member.size or not inflater.eof or inflater.unused_data:
        raise FormatError(f"member {member.name!r} does not unpack to the {member.size:,} bytes it states")
    return unpacked


def _find_directory(data: mmap) -> tuple[int, int, int]:
    """Return (number of entries, start, end) of the central directory, from the end records of the archive."""
    last = len(data) - _END.size
    if last < 0 or data[:2] != b"PK":
        raise FormatError("the file is not a zip archive")
    magic, *narrow, comment = _END.unpack_from(data, last)
    if magic != b"PK\5\6" or comment:
        raise FormatError("the zip end record is missing: the file is cut short or has bytes after its end")
    end, values = last, narrow
    if data[max(0, last - _ZIP64_LOCATOR.size):last].startswith(b"PK\6\7"):
        end, values = _read_zip64_end(data, last)
        if any(value not in (wide, limit) for value, wide, limit in zip(narrow, values, _END_LIMITS, strict=True)):
            raise FormatError("the two zip end records disagree")
    disk, first_disk, here, count, size, start = values
    if disk or first_disk or here != count:
        raise FormatError("an archive of several parts is not supported")
    if start + size != end:
        raise FormatError("the zip directory is not where the end record says")
    if count > _MAX_MEMBERS:
        raise FormatError(f"the archive has {count:,} members; at most {_MAX_MEMBERS:,} are allowed")
    return count, start, end


def _read_zip64_end(data: mmap, last: int) -> tuple[int, list[int]]:
    """Return the position of the zip64 end record, and its six values in the order of the ordinary end record.

    last: the position of the ordinary end record, which follows it.
    """
    at = last - _ZIP64_LOCATOR.size - _ZIP64_END.size
    if at < 0 or _ZIP64_LOCATOR.unpack_from(data, last - _ZIP64_LOCATOR.size) != (b"PK\6\7", 0, at, 1):
        raise FormatError("the zip64 end record is not where its locator says")
    magic, _, _, _, *values = _ZIP64_END.unpack_from(data, at)
    if magic != b"PK\6\6":
        raise FormatError("the zip64 end record is missing")
    return at, values


def _read_entry(data: mmap, position: int, directory: int, end: int) -> tuple[ZipMember, int]:
    """Return the member whose directory entry is at `position`, checked, and the position of the next entry.

    directory, end: the start and the end of the directory.
    """
    if position + _CENTRAL.size > end:
        raise FormatError("the zip directory is cut short")
    (magic, _, _, flags, method, _, _, crc, compressed_size, size, name_length, extra_length, comment_length,
     disk, _, _, header) = _CENTRAL.unpack_from(data, position)
    name_at = position + _CENTRAL.size
    extra_at = name_at + name_length
    following = extra_at + extra_length + comment_length
    if magic != b"PK\1\2" or following > end:
        raise FormatError("the zip directory is damaged")
    raw_name = data[name_at:extra_at]
    if not raw_name.isascii() or not raw_name.decode().isprintable():
        raise FormatError(f"the member name {raw_name[:80]!r} is not printable ASCII")
    name = raw_name.decode()
    if flags & ~(_STREAMED | _UTF8 | _DEFLATE_OPTIONS):
        raise FormatError(f"member {name!r} is encrypted or needs another zip feature (flags {flags:#06x})")
    if method not in (STORED, DEFLATED):
        raise FormatError(f"member {name!r} has compression method {method}; it must be stored or deflated")
    size, compressed_size, header = _widen(data[extra_at:extra_at + extra_length], name, size, compressed_size, header)
    if disk or header + _LOCAL.size > directory:
        raise FormatError(f"member {name!r} lies outside the file")
    start = _check_local(data, header, raw_name, (flags, method, crc, size, compressed_size))
    if start + compressed_size > directory:
        raise FormatError(f"member {name!r} reaches beyond the data of the archive")
    if method == STORED and size != compressed_size:
        raise FormatError(f"member {name!r} is stored but has two sizes, {size:,} and {compressed_size:,}")
    return ZipMember(name, method, crc, compressed_size, size, header, start), following


def _check_local(data: mmap, header: int, name: bytes, stated: tuple[int, int, int, int, int]) -> int:
    """Return the offset of a member's data, after a check that its local header agrees with the directory entry.

    header: the offset of the local header. stated: (flags, method, crc, size, compressed size) in the directory.
    """
    fields: tuple[Any, ...] = _LOCAL.unpack_from(data, header)
    magic, _, flags, method, _, _, crc, compressed_size, size, name_length, extra_length = fields
    name_at = header + _LOCAL.size
    extra_at: int = name_at + name_length
    start: int = extra_at + extra_length
    size, compressed_size = _widen(data[extra_at:start], name.decode(), size, compressed_size)
    local = (flags, method, crc, size, compressed_size)
    if flags & _STREAMED and not (crc or size or compressed_size):
        # A writer that cannot seek back leaves zeros here and states the sizes in the directory only.
        local = (flags, method, *stated[2:])
    if magic != b"PK\3\4" or data[name_at:extra_at] != name or local != stated:
        raise FormatError(f"the two headers of member {name.decode()!r} disagree")
    return start


def _widen(extra: bytes, name: str, *values: int) -> list[int]:
    """Return `values` in order, each saturated one replaced by its 64-bit form in the extra field of member `name`."""
    wide = _zip64_block(extra, name) if _SATURATED in values else b""
    result = []
    for value in values:
        if value == _SATURATED:
            if len(wide) < 8:
                raise FormatError(f"member {name!r} lacks its zip64 sizes")
            value, wide = int.from_bytes(wide[:8], "little"), wide[8:]
        result.append(value)
    return result


def _zip64_block(extra: bytes, name: str) -> bytes:
    """Return the contents of the block of an extra field that has 64-bit sizes; nothing without that block."""
    while len(extra) >= 4:
        identifier, length = struct.unpack_from("<HH", extra)
        if 4 + length > len(extra):
            raise FormatError(f"the extra field of member {name!r} is damaged")
        if identifier == _ZIP64_BLOCK:
            return extra[4:4 + length]
        extra = extra[4 + length:]
    return b""
