"""Read and write the engine's own weights file: an `.npz` whose arrays are memory-mapped.

Members are stored uncompressed, and each array's numbers start at a multiple of 64 bytes in the file. Therefore reading
needs no copy: an array is a read-only view into one shared map, and processes that load the same file share its pages.
`numpy.load` reads these files. This module also reads the files of `numpy.savez` and `numpy.savez_compressed`.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..base.errors import WeightsError
from ..model.precision import BLOCKS, FORMATS
from .reading import FormatError, map_file, naming, read_only
from .writing import replacing
from .zip import ZipMember, check_inflation, list_members, read_member

ALIGNMENT = 64
"""Alignment in bytes of an array's first byte in the file: one cache line, and the widest vector register."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ADVICE = "write it again with engine.save or numpy.savez, or copy it again from its source"
_LOCAL_HEADER, _EXTRA_HEADER, _ZIP64_EXTRA = 30, 4, 20
"""Bytes before a member's data, besides its name: the fixed header, the head of an extra field, 64-bit sizes."""
_ZIP64_FROM = 2**31 - 2**16
"""Arrays of at least this many bytes get 64-bit sizes, which zipfile must be told before it writes."""
_PADDING_ID = 0xD935
"""Identifier of a zip extra field that holds padding; Android's zipalign uses the same one, and readers skip it."""

_READABLE = ("f2", "f4", "f8", "u2", "i1", "u1")
"""The dtypes that are read, without their byte order; integers keep theirs, and floats become float32."""

_LARGE = 2**18
"""The size in bytes from which an array counts as large, and stays unread if the caller allows it."""
_MAX_NPY_HEADER = 10_000
"""Limit on the bytes before the numbers of an array."""
_BLOCKS = {repr(dtype.descr): dtype for dtype in (FORMATS[name].dtype for name in BLOCKS)}
"""The structs (blocks of weights) that a header may describe, by the text that NumPy writes for each."""
_NPY_VALUES = {"descr": "|".join(["'[<>|=]?[b-zA-Z][0-9]{0,9}'", *map(re.escape, _BLOCKS)]),
               "fortran_order": "True|False",
               "shape": r"\((?:-?[0-9]{1,20}L?, ?)*(?:-?[0-9]{1,20}L?)?\)"}
"""Regular expressions for the value of each key of a header; they leave out the type "a", of which NumPy warns."""
_NPY_ENTRY = "|".join(f"'{key}': ?(?:{value})" for key, value in _NPY_VALUES.items())
_NPY_HEADER = re.compile(rf"\{{(?:(?:{_NPY_ENTRY}),? ?){{3}}\}} *\n?")
"""Matches the text of a header: a dictionary with three entries."""
_MAX_DIMENSIONS = 8


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under their names, aligned and uncompressed; equal arrays give equal files.

    The file appears at `path`, or replaces an older file, only when it is complete. Raises `WeightsError` for a name
    that has characters other than letters, digits, `_`, `.` and `-`, for an array that is empty or holds Python
    objects, and when the file cannot be written.
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
                padding = -(end_of_header + _EXTRA_HEADER) % ALIGNMENT
                member.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
                with archive.open(member, "w", force_zip64=zip64) as stream:
                    # NumPy pads the .npy header to a multiple of 64 bytes, so aligning the member aligns its numbers.
                    np.lib.format.write_array(stream, np.require(array, requirements="C"), (1, 0), allow_pickle=False)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_npz(path: str | os.PathLike[str], *, keep_float16: bool = False, memory: str = "map",
             unread: str = "") -> dict[str, np.ndarray]:
    """Return all arrays of an `.npz`, read-only and C-contiguous.

    Floats are returned as float32, or float16 as it is with keep_float16; int8, uint8, uint16, str and the structs of
    `engine.weights.blocks` keep their dtype.
    Little-endian arrays that keep their dtype and are stored uncompressed are views of one memory map, or with
    memory="copy" of one block of private memory. Every byte is checked against the archive's checksums, with one
    exception: if the name of an array begins with `unread`, large arrays of the file are mapped without being read. A
    file that is damaged, hostile or of another kind raises `WeightsError`. Nothing is ever unpickled, and the memory
    allocated is limited to a fixed multiple of the file's size.
    """
    path = Path(path)
    with naming(path, _ADVICE):
        data = map_file(path, memory)
        members = list_members(data)
        check_inflation(data, members)
        skips = memory == "map" and unread and any(member.name.startswith(unread) for member in members)
        return {_array_name(member): _parse_npy(read_member(data, member, verify=not skips or member.size < _LARGE),
                                                member.name, keep_float16) for member in members}


def _array_name(member: ZipMember) -> str:
    """Return the name of the array in a member NAME.npy; raises `FormatError` for another name."""
    name = member.name.removesuffix(".npy")
    if name == member.name or not _NAME.fullmatch(name):
        raise FormatError(f"member {member.name!r} is not letters, digits, '_', '.' and '-', followed by '.npy'")
    return name


def _parse_npy(contents: memoryview, name: str, keep_float16: bool) -> np.ndarray:
    """Return the array of one `.npy` member: a view of `contents` if its layout allows, otherwise a converted copy."""
    shape, fortran_order, dtype, start = _npy_header(contents, name)
    if dtype.hasobject:
        raise FormatError(f"member {name!r} holds pickled Python objects, which are never loaded")
    if dtype.str[1:] not in _READABLE and dtype.names is None and (dtype.kind != "U" or dtype.itemsize == 0):
        raise FormatError(f"member {name!r} has dtype {dtype}; expected float16, 32 or 64, uint16 for the bits of "
                          "bfloat16, int8 or, for text, uint8 or str")
    if len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and n > 0 for n in shape):
        raise FormatError(f"member {name!r} has the impossible shape {str(shape)[:80]}")
    if math.prod(shape) * dtype.itemsize != len(contents) - start:
        raise FormatError(f"member {name!r} has {len(contents) - start:,} bytes of numbers, which is not shape "
                          f"{list(shape)} of {dtype}")
    flat = np.frombuffer(contents, dtype, offset=start)
    array = flat.reshape(shape[::-1]).T if fortran_order else flat.reshape(shape)
    if dtype.kind == "U" or dtype.names is not None:    # text, or structs: blocks of GGUF
        return array
    return read_only(array, kept=dtype.kind in "iu" or (keep_float16 and dtype.itemsize == 2))


def _npy_header(contents: memoryview, name: str) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return (shape, whether the order is Fortran's, dtype, offset of the numbers) from the header of a `.npy` member.

    NumPy's own reader evaluates the header as Python, which can warn, recurse and build huge integers. This reader
    accepts the text that NumPy writes, and nothing else that Python understands.
    """
    version = bytes(contents[6:8])
    width = 2 if version == b"\1\0" else 4
    start = 8 + width + int.from_bytes(contents[8:8 + width], "little")
    if bytes(contents[:6]) != b"\x93NUMPY" or version not in (b"\1\0", b"\2\0") or start > _MAX_NPY_HEADER:
        raise FormatError(f"member {name!r} does not start with a valid .npy header")
    text = bytes(contents[8 + width:start]).decode("latin-1")
    if start > len(contents) or not _NPY_HEADER.fullmatch(text):
        raise FormatError(f"member {name!r} does not start with a valid .npy header")
    values = [re.search(f"'{key}': ?({value})", text) for key, value in _NPY_VALUES.items()]
    if None in values:      # three entries, of which two have the same key
        raise FormatError(f"member {name!r} does not start with a valid .npy header")
    descr, order, shape = (match[1] for match in values if match)
    try:
        dtype = _BLOCKS.get(descr) or np.dtype(descr[1:-1])
    except (TypeError, ValueError):
        raise FormatError(f"member {name!r} has the unknown dtype {descr}") from None
    return tuple(int(size) for size in re.findall(r"-?[0-9]+", shape)), order == "True", dtype, start
