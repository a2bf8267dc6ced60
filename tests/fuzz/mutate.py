"""Change model files where it hurts: inside the structure, with checksums and offsets made right again.

A random change of an archive nearly always stops at a checksum. These changes pass it, and reach the code behind.
Pickles are changed instruction by instruction, and SentencePiece models field by field.
"""

import copy
import inspect
import io
import json
import pickletools
import random
import re
import zipfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from tests.fuzz.archives import Member, members_of, odd_archive, pack
from tests.fuzz.tokenizer_files import PARTS, SEQUENCES, WORDS, added
from tests.tools.torch_files import name, text

EXTREME: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 2**15, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63, 2**64, 10**400, -(10**400), 0.5,
    1e-300, 1e30, float("inf"), float("nan"), True, False, None, "", "x", "\ud800", "\0", "a" * 1000, "[UNK]", "mean",
    [], {}, [[]], [1] * 100, {"a": 1}, [None], "(a+)+$", "(?=a)", "a", "NFC", "Sequence", "int8", "../x", "F16",
)
PLAIN: tuple[Any, ...] = (0, 1, 2, 3, 4, 5, 6, 8, 16, True, False, None, 1e-12, 0.01, 1.0, 2.0, 300.0, "gelu", "silu")
"""Values that a model may well have."""

_DTYPES = ("<f4", "<f2", "<f8", ">f4", "|i1", "|u1", "<u2", "<i8", "|b1", "|O", "<U9", "<U0", "<U99999999", ">U4",
           "|S5", "<M8", "<c8", "|V4", "=f4", "f4", "<f16", "", "a" * 300)
_SHAPES = ("()", "(0,)", "(1,)", "(1)", "(-1,)", "(8, 8)", "(8, 8,)", "(2, 2, 2)", "(99999999999999999999,)",
           "(1, 1, 1)", "(1L,)", "(1,1,1,1,1,1,1,1,1)", "[8]", "(9e9,)", "(0x8,)")

INSTRUCTIONS = [
    *(bytes([one]) for one in b"N(t)]}eusaRQb021.o\x81\x85\x87\x88\x93\x94"),
    b"h\x00", b"h\xff", b"q\x00", b"j" + bytes(4), b"r" + b"\xff" * 4, b"K\x07", b"J" + b"\xff" * 4,
    b"J\xff\xff\xff\x7f", b"\x8a\x00", b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8a\xff" + b"\x7f" * 255,
    b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f", b"X" + bytes(4), b"\x8d" + b"\xff" * 8, b"\x95" + b"\xff" * 8,
    b"\x80\x05", b"G\x7f\xf0" + bytes(6), text("storage"), text("0"), text("state_dict"),
    name("os", "system"), name("builtins", "eval"), name("torch", "FloatStorage"), name("torch", "LongStorage"),
    name("torch", "float32"), name("torch", "Size"), name("torch._utils", "_rebuild_tensor_v2"), name("", ""),
    name("torch._utils", "_rebuild_parameter"), name("collections", "OrderedDict"),
]  # fmt: skip
"""Instructions that a pickle gets somewhere: those of our table, others, and ones with extreme operands."""


def words_of(*modules: ModuleType) -> tuple[str, ...]:
    """Return the names in the string literals of modules: the keys and values that a reader looks for."""
    found = {word: None for module in modules
             for word in re.findall(r'"([A-Za-z_][\w.-]{1,40})"', inspect.getsource(module))}
    return tuple(found)


def changed_file(rng: random.Random, path: str, data: bytes, words: Sequence[str] = ()) -> bytes:
    """Return a file with changes that fit the kind of file that its name says."""
    if path.endswith(".npz"):
        return npz_of(rng, data, words)
    if path.endswith(".safetensors"):
        return safetensors_of(rng, data)
    if path.endswith("tokenizer.json"):
        return tokenizer_of(rng, data)
    if path.endswith(".json"):
        return json_of(rng, data, words)
    if path.endswith(".bin"):
        return checkpoint_of(rng, data)
    if path.endswith((".model", ".spm")):
        return sentencepiece_of(rng, data)
    if path.endswith(".txt"):
        return lines_of(rng, data)
    return bytes_of(rng, data)


def bytes_of(rng: random.Random, data: bytes) -> bytes:
    """Overwrite, remove or repeat up to four pieces."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(result) + 1)
        end = min(len(result), at + rng.choice([1, 1, 2, 4, 8, 40]))
        old, size = bytes(result[at:end]), end - at
        result[at:end] = rng.choice([rng.randbytes(size), b"", old * 2, b"\xff" * size, bytes(size)])
    return bytes(result)


def value_of(rng: random.Random, value: Any, words: Sequence[str] = ()) -> Any:
    """Change one to three places of a JSON value: put another value there, or remove, repeat, rename or move one.

    words: keys and texts that mean something in this file.
    """
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(value))
        if not places:
            return rng.choice(EXTREME)
        container, key = rng.choice(places)
        match rng.randrange(7):
            case 0 | 1 | 2:
                container[key] = _any_value(rng, words)
            case 3 if words and isinstance(value, dict):
                value[rng.choice(words)] = _any_value(rng, words)
            case 3 | 4:
                del container[key]
            case 5 if isinstance(container, list):
                container[key:key] = [copy.deepcopy(container[key]) for _ in range(rng.choice([1, 3, 30]))]
            case 5:
                container[rng.choice(["x", "\ud800", f"{key}.weight", "type", "", *words])] = container[key]
            case _:
                other, name = rng.choice(places)
                container[key] = copy.deepcopy(other[name])
    return value


def _any_value(rng: random.Random, words: Sequence[str]) -> Any:
    pool: Sequence[Any] = rng.choice((EXTREME, EXTREME, PLAIN, words or PLAIN))
    return copy.deepcopy(rng.choice(pool))


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def json_of(rng: random.Random, data: bytes, words: Sequence[str] = ()) -> bytes:
    """Change the value of a JSON text, or one time in five its bytes."""
    try:
        value = json.loads(data)
    except ValueError:  # changed before
        return bytes_of(rng, data)
    return bytes_of(rng, data) if rng.random() < 0.2 else json.dumps(value_of(rng, value, words)).encode()


def tokenizer_of(rng: random.Random, data: bytes) -> bytes:
    """Change a tokenizer.json as `json_of` does, or put other parts into it."""
    try:
        document = json.loads(data)
    except ValueError:  # changed before
        return bytes_of(rng, data)
    kind = rng.randrange(5)
    if kind < 2 or not isinstance(document, dict):
        return json_of(rng, data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        key = rng.choice([*PARTS, "added_tokens"])
        if key == "added_tokens":
            flags = {name: rng.random() < 0.5 for name in ("special", "normalized", "lstrip", "single_word")}
            text = rng.choice([*WORDS, *(value for value in EXTREME if isinstance(value, str))])
            document[key] = [*(document.get(key) or []), added(rng.choice((0, 4, 23, 24, 2**32 - 1)), text, **flags)]
            continue
        part = copy.deepcopy(rng.choice(PARTS[key]))
        if key in SEQUENCES and rng.random() < 0.3:
            parts = [part, *rng.choices(PARTS[key], k=rng.choice((0, 1, 2, 20)))]
            part = {"type": "Sequence", SEQUENCES[key]: [one for one in parts if one is not None]}
        document[key] = value_of(rng, part) if kind == 4 else part
    return json.dumps(document).encode()


def safetensors_of(rng: random.Random, data: bytes) -> bytes:
    """Change the header, and often make its length and the offsets right again."""
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        header, numbers = json.loads(data[8:start]), data[start:]
    except ValueError:  # changed before
        return bytes_of(rng, data)
    kind = rng.randrange(4)
    if kind == 0:
        return bytes_of(rng, data)
    if kind == 1:
        return _packed(header, bytes_of(rng, numbers)[: len(numbers)].ljust(len(numbers), b"\0"))
    header = value_of(rng, header, ("F32", "F16", "BF16", "F64", "I8", "F4", "BOOL", "__metadata__"))
    if kind == 2 and isinstance(header, dict):
        end = 0
        for entry in header.values():
            if isinstance(entry, dict) and isinstance(entry.get("data_offsets"), list):
                size = _size(entry)
                entry["data_offsets"] = [end, end + size]
                end += size
        numbers = numbers[:end].ljust(min(end, 2**20), b"\0")
    return _packed(header, numbers)


def _packed(header: Any, numbers: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def _size(entry: dict[str, Any]) -> int:
    widths = {"F64": 8, "I64": 8, "F16": 2, "BF16": 2, "I8": 1, "U8": 1, "BOOL": 1}
    dtype, shape = entry.get("dtype"), entry.get("shape")
    size = widths.get(dtype, 4) if isinstance(dtype, str) else 4
    for n in shape if isinstance(shape, list) else []:
        size *= n if type(n) is int and 0 <= n < 2**20 else 1
    return size


@lru_cache(maxsize=64)
def _members(data: bytes) -> tuple[Member, ...]:
    return tuple(members_of(data))


def npz_of(rng: random.Random, data: bytes, words: Sequence[str] = ()) -> bytes:
    """Change members of an archive, and write it again with right checksums; sometimes change its headers or bytes."""
    kind = rng.randrange(10)
    if kind == 0:
        return bytes_of(rng, data)
    members = list(_members(data))
    if kind < 3:
        return odd_archive(rng, members)
    for _ in range(rng.choice([1, 1, 2])):
        i = rng.choice([0, len(members) - 1, *range(len(members))])
        one = members[i]
        if one.name in ("config.npy", "tokenizer.npy") and rng.random() < 0.9:
            start = 10 + int.from_bytes(one.contents[8:10], "little")
            text = one.contents[start:]
            text = json_of(rng, text, words) if one.name == "config.npy" else tokenizer_of(rng, text)
            members[i] = Member(one.name, npy(text))
            continue
        match rng.randrange(7):
            case 0:
                members[i] = Member(one.name, bytes_of(rng, one.contents[:128]) + one.contents[128:])
            case 1:
                members[i] = Member(one.name, bytes_of(rng, one.contents))
            case 2:
                del members[i]
            case 3:
                members.append(Member(rng.choice(members).name, one.contents))
            case 4:
                members.append(Member(f"x{one.name}", one.contents))
            case _:
                members[i] = Member(one.name, npy_of(rng, one.contents))
        if not members:
            break
    method = rng.choice([0, 0, 0, 8])
    return pack([Member(one.name, one.contents, method) for one in members])


def npy(data: bytes, dtype: str = "|u1", shape: str | None = None, order: str = "False") -> bytes:
    """Return a `.npy` file of these bytes, by default a vector of uint8, as a text is kept."""
    shape = f"({len(data)},)" if shape is None else shape
    header = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data


def npy_of(rng: random.Random, data: bytes) -> bytes:
    """Return a `.npy` file with another header, and often with as many bytes of numbers as the header asks for."""
    numbers = data[10 + int.from_bytes(data[8:10], "little"):]
    count = rng.choice((1, 6, 8, 48, 64))
    dtype = rng.choice(_DTYPES)
    shape = rng.choice((f"({count},)", f"({count}, 1)", f"(2, {count // 2})", rng.choice(_SHAPES)))
    width = int(dtype[2:]) * (4 if "U" in dtype else 1) if dtype[2:].isdigit() else 4
    if rng.random() < 0.7 and width < 100:
        numbers = (numbers * (1 + count * width // max(1, len(numbers))))[: count * width]
    return npy(numbers, dtype, shape, rng.choice(("False", "False", "True", "1", "None")))


def pickle_of(rng: random.Random, data: bytes) -> bytes:
    """Change up to five instructions of a pickle."""
    places = [place for _, _, place in pickletools.genops(data) if place is not None]
    parts = [data[start:end] for start, end in zip(places, [*places[1:], len(data)], strict=True)]
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        at = rng.randrange(len(parts))
        end = min(len(parts), at + rng.choice([1, 1, 1, 2, 5, 30]))
        match rng.randrange(7):
            case 0:
                parts[at] = rng.choice(INSTRUCTIONS)
            case 1:
                parts.insert(at, rng.choice(INSTRUCTIONS))
            case 2:
                del parts[at:end]
            case 3:
                parts[at:end] = parts[at:end] * rng.choice([2, 3, 100])
            case 4:
                parts[at] = parts[at][:1] + bytes_of(rng, parts[at][1:])
            case 5:
                parts[at] = rng.choice(parts)
            case 6:
                rng.shuffle(parts[at:end])
                parts[at:end] = reversed(parts[at:end])
        parts = parts or [b"."]
    return b"".join(parts)


def checkpoint_of(rng: random.Random, data: bytes) -> bytes:
    """Change the pickles of a file of torch.save, its members, or one time in five its bytes."""
    if rng.random() < 0.2:
        return bytes_of(rng, data)
    try:
        return _archive_of(rng, data) if data[:2] == b"PK" else _older_of(rng, data)
    except (ValueError, zipfile.BadZipFile):  # changed before
        return bytes_of(rng, data)


def _archive_of(rng: random.Random, data: bytes) -> bytes:
    """Change a member of a file of torch.save, most often its pickle."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    [main] = [name for name in members if name.endswith("data.pkl")]
    others = [name for name in members if name != main]
    match rng.randrange(10):
        case 0:
            del members[rng.choice(others)]
        case 1:
            name = rng.choice(others)
            members[name] = bytes_of(rng, members[name])
        case 2:
            members[rng.choice([*others, "x/data.pkl", "archive/constants.pkl"])] = members[rng.choice(others)]
        case _:
            members[main] = pickle_of(rng, members[main])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    return out.getvalue()


def _older_of(rng: random.Random, data: bytes) -> bytes:
    """Change one of the five pickles of the older format, or what follows them."""
    pieces, start = [], 0
    for _ in range(5):
        stream = io.BytesIO(data[start:])
        for _ in pickletools.genops(stream):
            pass
        pieces.append(data[start:start + stream.tell()])
        start += stream.tell()
    pieces.append(data[start:])
    at = rng.choice([0, 1, 2, 3, 3, 3, 3, 4, 5])
    pieces[at] = bytes_of(rng, pieces[at]) if at == 5 else pickle_of(rng, pieces[at])
    return b"".join(pieces)


def sentencepiece_of(rng: random.Random, data: bytes) -> bytes:
    """Change fields of a SentencePiece model, and fields inside them."""
    if rng.random() < 0.1:
        return bytes_of(rng, data)
    fields = list(_fields(data))
    for _ in range(rng.choice([1, 1, 2, 4])):
        # Pieces are many: the settings and the first pieces, which are special, get more than their share.
        at = rng.choice([rng.randrange(len(fields)), rng.randrange(min(6, len(fields))), -1, -min(2, len(fields))])
        key, value = fields[at]
        match rng.randrange(6):
            case 0 | 1 | 2 if key & 7 == 2:
                fields[at] = key, _message_of(rng, value)
            case 3:
                fields[at] = rng.choice([key, key ^ 1, key + 8, 10, 18, 26]), value
            case 4:
                fields.insert(at, rng.choice(fields))
            case 5 if len(fields) > 1:
                del fields[at]
            case _:
                fields[at] = key, bytes_of(rng, value)
    return b"".join(_varint(key) + (_varint(len(value)) if key & 7 == 2 else b"") + value for key, value in fields)


def _message_of(rng: random.Random, data: bytes) -> bytes:
    try:
        fields = list(_fields(data))
    except (IndexError, ValueError):
        fields = []
    if not fields:
        return bytes_of(rng, data)
    at = rng.randrange(len(fields))
    key, value = fields[at]
    if key & 7 == 2 and len(value) > 1000:  # the table of the normalizer: its size, its tree and its texts
        place = rng.choice([0, 4, rng.randrange(len(value)), len(value) - 8])
        value = value[:place] + rng.choice([rng.randbytes(4), b"\xff" * 4, bytes(4), b"a"]) + value[place + 4:]
    else:
        value = rng.choice([bytes_of(rng, value), b"\0\0\x80\x7f", b"\x03", b"", b"a" * 2000, "▁".encode()])
    fields[at] = key, value
    return b"".join(_varint(key) + (_varint(len(value)) if key & 7 == 2 else b"") + value for key, value in fields)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (key, bytes) of each field."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        if key & 7 == 2:
            size, position = _read_varint(data, position)
        elif key & 7 == 0:
            size = _read_varint(data, position)[1] - position
        else:
            size = 4 if key & 7 == 5 else 8
        yield key, data[position:position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value, position, shift = value | (byte & 127) << shift, position + 1, shift + 7
        if byte < 128:
            return value, position


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)


def lines_of(rng: random.Random, data: bytes) -> bytes:
    """Change lines of a vocab.txt or merges.txt."""
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 2, 5])):
        at = rng.randrange(len(lines))
        lines[at:at + 1] = rng.choice([[], [lines[at]] * 3, [rng.choice(lines)], [bytes_of(rng, lines[at])], [b""],
                                       [b"a b"], [b"##" * 200], [b" "], [b"\xff"], [lines[at] + b"\r"]])  # fmt: skip
        lines = lines or [b""]
    return b"\n".join(lines)
