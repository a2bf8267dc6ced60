"""Write files model.bin of CTranslate2, right ones and wrong ones, as bytes in memory."""

import struct
from collections.abc import Mapping

import numpy as np

TYPES = {"f4": 0, "i1": 1, "i2": 2, "i4": 3, "f2": 4}


def name(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(title: str, array: np.ndarray, kind: int, version: int = 6) -> bytes:
    """Return the entry of a variable, with the number of its type."""
    size = (kind, array.nbytes) if version >= 4 else (array.itemsize, array.size)
    return name(title) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape) + struct.pack(
        "<BI", *size) + array.tobytes()  # fmt: skip


def ctranslate2(arrays: Mapping[str, np.ndarray], aliases: Mapping[str, str] | None = None, *, version: int = 6,
                spec: str = "Spec", raw: Mapping[str, bytes] | None = None) -> bytes:
    """Return a model.bin; raw: entries of further variables, as they are."""
    entries = [variable(title, np.asarray(array), TYPES[np.asarray(array).dtype.str[1:]], version)
               for title, array in arrays.items()]
    entries += (raw or {}).values()
    data = struct.pack("<I", version) + name(spec) + struct.pack("<II", 3, len(entries)) + b"".join(entries)
    if version < 3:
        return data
    pairs = (aliases or {}).items()
    return data + struct.pack("<I", len(pairs)) + b"".join(name(alias) + name(own) for alias, own in pairs)
