"""The engine's own weights file: an `.npz` that is memory-mapped.

Members are stored uncompressed, and each array's numbers start at a multiple of 64 bytes in the file, so that reading
is mapping: an array is a read-only view into one shared map, and processes that load the same file share its pages.
`numpy.load` reads these files, and files of plain `numpy.savez` and `numpy.savez_compressed` are read here too.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from mmap import mmap
from pathlib import Path

import numpy as np

from ..errors import WeightsError
from .archive import STORED, Member, list_members
from .files import FormatError, map_file, naming, replacing

ALIGNMENT = 64
"""Of an array's first byte in the file: a cache line, and the widest vector register."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ADVICE = "write it again with save_model or numpy.savez, or copy it again from its source"
_LOCAL_HEADER = 30
_ZIP64_EXTRA = 20
_ZIP64_FROM = 2**31 - 2**16
"""Bytes of an array from which its member gets 64-bit sizes: zipfile must be told before it writes."""
_PADDING_ID = 0xD935
"""The zip extra field that Android's zipalign uses for the same purpose; readers skip it."""

_READABLE = {"f2": np.float32, "f4": np.float32, "f8": np.float32, "u2": np.uint16, "i1": np.int8, "u1": np.uint8}
"""What becomes of numbers, by their dtype without its byte order."""

_MAX_NPY_HEADER = 10_000
_MAX_DIMENSIONS = 8
_MAX_INFLATION = 100
"""Most bytes that one byte of the file may unpack to, on the whole; trained weights stay far below it."""
_FREE_INFLATION = 2**26
"""What any file may unpack to, however small it is."""


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under their names, aligned and uncompressed; equal arrays give equal bytes.

    The file appears, or replaces an older one, only when it is complete. Raises `WeightsError` for a name that is not
    made of letters, digits, `_`, `.` and `-`, for an array that is empty or holds Python objects, and when the file
    cannot be written.
    """
    for name, array in arrays.items():
        if not _NAME.fullmatch(name):
            raise WeightsError(f"an array's name must be made of letters, digits, '_', '.' and '-', not {name!r}")
        if array.dtype.hasobject:
            raise WeightsError(f"array {name!r} holds Python objects, which are never written; convert it to numbers")
        if array.size == 0:
            raise WeightsError(f"array {name!r} is empty, shape {list(array.shape)}; leave it out")
    try:
        with replacing(Path(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                member = zipfile.ZipInfo(f"{name}.npy")
                zip64 = array.nbytes >= _ZIP64_FROM
                end_of_header = file.tell() + _LOCAL_HEADER + len(member.filename) + zip64 * _ZIP64_EXTRA
                padding = -(end_of_header + 4) % ALIGNMENT
                member.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
                with archive.open(member, "w", force_zip64=zip64) as stream:
                    # The .npy header is itself padded to 64 bytes: an aligned member has aligned numbers.
                    np.lib.format.write_array(stream, np.require(array, requirements="C"), (1, 0), allow_pickle=False)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays of an `.npz`, read-only and C-contiguous: floats as float32; int8, uint8, uint16 and str as they are.

    Stored little-endian float32, uint16, int8 and uint8 come back as views of one memory map, anything else is
    converted. Every byte is checked against the archive's checksums. A file that is damaged, hostile or of another kind
    raises `WeightsError`; nothing is ever unpickled, and no more is allocated than a fixed multiple of the file's size.
    """
    path = Path(path)
    with naming(path, _ADVICE):
        data = map_file(path)
        members = list_members(data)
        unpacked = sum(member.size for member in members if member.method != STORED)
        if unpacked > max(_FREE_INFLATION, _MAX_INFLATION * len(data)):
            raise FormatError(f"its compressed members would unpack to {unpacked:,} bytes, more than weights in a "
                              f"file of {len(data):,} bytes can")
        return {_array_name(member): _read_member(data, member) for member in members}


def _array_name(member: Member) -> str:
    name = member.name.removesuffix(".npy")
    if name == member.name or not _NAME.fullmatch(name):
        raise FormatError(f"member {member.name!r} is not letters, digits, '_', '.' and '-', followed by '.npy'")
    return name


def _read_member(data: mmap, member: Member) -> np.ndarray:
    contents = memoryview(data)[member.start:member.start + member.compressed_size]
    if member.method != STORED:
        contents = memoryview(_inflate(contents, member))
    if zlib.crc32(contents) != member.crc:
        raise FormatError(f"the checksum of member {member.name!r} is wrong")
    return _parse_npy(contents, member.name)


def _inflate(contents: memoryview, member: Member) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        unpacked = inflater.decompress(contents, member.size + 1)
    except zlib.error as error:
        raise FormatError(f"member {member.name!r} cannot be decompressed: {error}") from None
    if len(unpacked) != member.size or not inflater.eof or inflater.unused_data:
        raise FormatError(f"member {member.name!r} does not unpack to the {member.size:,} bytes it states")
    return unpacked


def _parse_npy(contents: memoryview, name: str) -> np.ndarray:
    """The array of one `.npy` member: a view of `contents` where its layout allows that, a converted copy where not."""
    shape, fortran_order, dtype, start = _npy_header(contents, name)
    if dtype.hasobject:
        raise FormatError(f"member {name!r} holds pickled Python objects, which are never loaded")
    if dtype.str[1:] not in _READABLE and dtype.kind != "U":
        raise FormatError(f"member {name!r} has dtype {dtype}; expected float16, 32 or 64, uint16 for the bits of "
                          "bfloat16, int8 or, for text, uint8 or str")
    if len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and n > 0 for n in shape):
        raise FormatError(f"member {name!r} has the impossible shape {str(shape)[:80]}")
    if math.prod(shape) * dtype.itemsize != len(contents) - start:
        raise FormatError(f"member {name!r} has {len(contents) - start:,} bytes of numbers, which is not shape "
                          f"{list(shape)} of {dtype}")
    flat = np.frombuffer(contents, dtype, offset=start)
    array = flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
    if dtype.kind == "U":
        return array
    with np.errstate(over="ignore"):  # a float64 too large becomes infinity, which is reported with all else
        array = np.require(array, _READABLE[dtype.str[1:]], ["C", "A"])
    array.flags.writeable = False
    return array


def _npy_header(contents: memoryview, name: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, order and dtype from a `.npy` header, and the offset at which the numbers start."""
    stream = io.BytesIO(contents[:_MAX_NPY_HEADER + 12])
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        read = readers[np.lib.format.read_magic(stream)]
        shape, fortran_order, dtype = read(stream, max_header_size=_MAX_NPY_HEADER)
    except Exception:  # the header is a Python literal: a hostile one fails in the tokenizer, the parser or in dtype()
        raise FormatError(f"member {name!r} does not start with a valid .npy header") from None
    return shape, fortran_order, dtype, stream.tell()
