"""Write GGUF files, right ones and wrong ones, as bytes in memory."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SCALARS = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12}
"""The number of the type of a setting, by its NumPy dtype."""
PLAIN = {"f4": 0, "f2": 1, "u2": 30}
"""The number of the type of a tensor of plain numbers, by its dtype; u2 holds the bits of bfloat16."""


@dataclass(frozen=True)
class Blocks:
    """A tensor of quantized blocks: the number of its type, its shape and its bytes."""

    kind: int
    shape: Sequence[int]
    data: bytes


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def setting(value: Any) -> bytes:
    """Return the type and the value of a setting: bool, int, float, str, a list of str, or an array."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<Iq", 11, value) if value < 0 else struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    kind = 7 if value.dtype == bool else SCALARS[value.dtype.str[1:]]
    return struct.pack("<IIQ", 9, kind, value.size) + value.tobytes()


def gguf(settings: Mapping[str, Any], tensors: Mapping[str, np.ndarray | Blocks], *, version: int = 3,
         alignment: int = 32) -> bytes:
    """Return a GGUF file; settings of type bytes are written as they are, after their key."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(settings))
    for key, value in settings.items():
        head += text(key) + (value if isinstance(value, bytes) else setting(value))
    body = b""
    for name, tensor in tensors.items():
        if isinstance(tensor, Blocks):
            kind, shape, data = tensor.kind, tensor.shape, tensor.data
        else:
            kind, shape, data = PLAIN[tensor.dtype.str[1:]], tensor.shape, tensor.tobytes()
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        body += data + bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + body
