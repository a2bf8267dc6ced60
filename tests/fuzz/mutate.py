"""Change model files where it hurts: inside the structure, with checksums and offsets made right again.

A random change of an archive nearly always stops at a checksum. These changes pass it, and reach the code behind.
"""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

EXTREME: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 2**15, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63, 2**64, 10**400, -(10**400), 0.5,
    1e-300, 1e30, float("inf"), float("nan"), True, False, None, "", "x", "\ud800", "\0", "a" * 1000, "[UNK]", "mean",
    [], {}, [[]], [1] * 100, {"a": 1}, [None], "(a+)+$", "(?=a)", "a", "NFC", "Sequence", "int8", "../x", "F16",
)


def bytes_of(rng: random.Random, data: bytes) -> bytes:
    """Overwrite, remove or repeat up to four pieces."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(result) + 1)
        end = min(len(result), at + rng.choice([1, 1, 2, 4, 8, 40]))
        old, size = bytes(result[at:end]), end - at
        result[at:end] = rng.choice([rng.randbytes(size), b"", old * 2, b"\xff" * size, bytes(size)])
    return bytes(result)


def value_of(rng: random.Random, value: Any) -> Any:
    """Change one to three places of a JSON value: put another value there, or remove, repeat, rename or move one."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(value))
        if not places:
            return rng.choice(EXTREME)
        container, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1 | 2:
                container[key] = copy.deepcopy(rng.choice(EXTREME))
            case 3:
                del container[key]
            case 4 if isinstance(container, list):
                container[key:key] = [copy.deepcopy(container[key]) for _ in range(rng.choice([1, 3, 30]))]
            case 4:
                container[rng.choice(["x", "\ud800", f"{key}.weight", "type", ""])] = container[key]
            case _:
                other, name = rng.choice(places)
                container[key] = copy.deepcopy(other[name])
    return value


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def json_of(rng: random.Random, data: bytes) -> bytes:
    """Change the value of a JSON text, or one time in five its bytes."""
    try:
        value = json.loads(data)
    except ValueError:  # changed before
        return bytes_of(rng, data)
    return bytes_of(rng, data) if rng.random() < 0.2 else json.dumps(value_of(rng, value)).encode()


def safetensors_of(rng: random.Random, data: bytes) -> bytes:
    """Change the header, and often make its length and the offsets right again."""
    start = 8 + int.from_bytes(data[:8], "little")
    header, numbers = json.loads(data[8:start]), data[start:]
    kind = rng.randrange(4)
    if kind == 0:
        return bytes_of(rng, data)
    if kind == 1:
        return _packed(header, bytes_of(rng, numbers)[: len(numbers)].ljust(len(numbers), b"\0"))
    header = value_of(rng, header)
    if kind == 2 and isinstance(header, dict):
        end = 0
        for entry in header.values():
            if isinstance(entry, dict) and isinstance(entry.get("data_offsets"), list):
                size = _size(entry.get("shape"))
                entry["data_offsets"] = [end, end + size]
                end += size
        numbers = numbers[:end].ljust(min(end, 2**20), b"\0")
    return _packed(header, numbers)


def _packed(header: Any, numbers: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def _size(shape: Any) -> int:
    size = 4
    for n in shape if isinstance(shape, list) else []:
        size *= n if type(n) is int and 0 <= n < 2**20 else 1
    return size


def npz_of(rng: random.Random, data: bytes) -> bytes:
    """Change members of an archive, and write it again with right checksums; one time in five change its bytes."""
    if rng.random() < 0.2:
        return bytes_of(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(["config.npy", "tokenizer.npy", *members])
        if name not in members:
            continue
        if name in ("config.npy", "tokenizer.npy"):
            start = 10 + int.from_bytes(members[name][8:10], "little")
            members[name] = npy(json_of(rng, members[name][start:]))
            continue
        match rng.randrange(5):
            case 0:
                members[name] = bytes_of(rng, members[name][:128]) + members[name][128:]
            case 1:
                members[name] = bytes_of(rng, members[name])
            case 2:
                del members[name]
            case 3:
                members[rng.choice(list(members))] = members[name]
            case 4:
                members[f"x{name}"] = members[name]
    out = io.BytesIO()
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    return out.getvalue()


def npy(data: bytes) -> bytes:
    """Return the `.npy` file of a text, as a vector of uint8."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(data)},), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data


def folder_of(rng: random.Random, source: Path, target: Path) -> None:
    """Copy a model folder with one or two of its files changed."""
    files = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    changed = {rng.choice(files) for _ in range(rng.choice([1, 1, 2]))}
    for path in files:
        data = (source / path).read_bytes()
        if path in changed:
            data = (safetensors_of if path.suffix == ".safetensors" else json_of)(rng, data)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(data)
