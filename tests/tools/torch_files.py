"""Write files as torch.save writes them, without torch; the pickle is put together from its instructions.

A test can thus write what torch.save would never write. `tests/golden/files/checkpoints` has files of torch itself.
"""

import io
import zipfile
from collections.abc import Mapping

import numpy as np

KINDS = {"float32": "Float", "float16": "Half", "float64": "Double", "uint16": "BFloat16", "int64": "Long"}
MAGIC = 0x1950A86A20F9469CFC6C


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def integer(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def items(*values: bytes) -> bytes:
    return b"(" + b"".join(values) + b"t"


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def mapping(entries: Mapping[str, bytes]) -> bytes:
    pairs = b"".join(text(key) + value for key, value in entries.items())
    return name("collections", "OrderedDict") + b")R(" + pairs + b"u"


def storage(key: str = "0", kind: str = "Float", size: int = 6, end: bytes = b"") -> bytes:
    return items(text("storage"), name("torch", f"{kind}Storage"), text(key), text("cpu"), integer(size), end) + b"Q"


def tensor(place: bytes, shape: tuple[int, ...] = (2, 3), strides: tuple[int, ...] = (3, 1), offset: int = 0) -> bytes:
    sizes, steps = (items(*map(integer, numbers)) for numbers in (shape, strides))
    arguments = items(place, integer(offset), sizes, steps, b"\x89", mapping({}))
    return name("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def program(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def archive(pickle: bytes, storages: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, **others: bytes) -> bytes:
    """Return a zip archive with a pickle, the bytes of storages by key, and other members by name."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr("archive/data.pkl", pickle)
        for key, data in storages.items():
            file.writestr(f"archive/data/{key}", data)
        for key, data in others.items():
            file.writestr(f"archive/{key}", data)
    return out.getvalue()


def older(pickle: bytes, keys: list[str], storages: bytes, little_endian: bytes = b"\x88") -> bytes:
    """Return a file of the format before torch 1.6."""
    system = b"}(" + text("little_endian") + little_endian + b"u"
    listed = b"](" + b"".join(map(text, keys)) + b"e"
    return (program(integer(MAGIC)) + program(integer(1001)) + program(system) + pickle + program(listed) + storages)


def checkpoint(tensors: Mapping[str, np.ndarray], legacy: bool = False) -> bytes:
    """Return a file with these tensors, each in a storage of its own; uint16 stands for bfloat16."""
    entries, contents = {}, {}
    for i, (key, array) in enumerate(tensors.items()):
        strides = tuple(step // array.itemsize for step in np.require(array, requirements="C").strides)
        place = storage(str(i), KINDS[array.dtype.name], array.size, b"N" * legacy)
        entries[key] = tensor(place, array.shape, strides)
        contents[str(i)] = array.tobytes()
    pickle = program(mapping(entries))
    if not legacy:
        return archive(pickle, contents, version=b"3\n", byteorder=b"little")
    sizes = [array.size.to_bytes(8, "little") for array in tensors.values()]
    return older(pickle, list(contents), b"".join(map(b"".join, zip(sizes, contents.values(), strict=True))))
