"""Read mutated checkpoints, vocabularies and configs, and report what is neither an answer nor an `EngineError`.

    python -m tests.fuzz.pickles FILES [SEED]

Pickles are changed instruction by instruction, and SentencePiece models field by field; checksums are made right again.
"""

from __future__ import annotations

import io
import json
import os
import pickletools
import random
import sys
import tempfile
import time
import zipfile
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from engine.base.errors import EngineError
from engine.files.folder import ModelFolder
from engine.files.torch_checkpoint import read_checkpoint
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies import read_vocabulary
from tests.fuzz.mutate import bytes_of, json_of
from tests.tools import paths
from tests.tools.limited import outcome
from tests.tools.tiny_models import CONFIGS, hf_tensors, write_json
from tests.tools.torch_files import checkpoint, name, text

from ..tools.encoders import engine_of, load_encoder

CASES_PER_CHILD = 200
MEMORY = 500_000_000

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

TEXTS = ["the cat sat", "", "Grüße 北京 😀 \u200b\x07 １", ("a b", "c"), "x" * 300, "<s> [MASK] ▁"]


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
    if data[:2] != b"PK":
        return _older_of(rng, data)
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


MUTATORS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    ".bin": checkpoint_of, ".model": sentencepiece_of, ".txt": lines_of, ".json": json_of,
}


def _checkpoint(rng: random.Random, place: Path) -> None:
    source = rng.choice(CHECKPOINTS)
    path = place / "pytorch_model.bin"
    path.write_bytes(checkpoint_of(rng, source))
    read_checkpoint(path, lambda key: None if key == "position_ids" else key, keep_float16=rng.random() < 0.5,
                    memory=rng.choice(["map", "copy"]))


def _vocabulary(rng: random.Random, place: Path) -> None:
    source = rng.choice(VOCABULARIES)
    files = dict(source)
    files.setdefault("tokenizer_config.json", b'{"do_lower_case": true, "unk_token": "[UNK]"}')
    large = [file for file in files if not file.endswith("g.json")]
    changed = {rng.choice(sorted(files)), rng.choice(large or [*files])}
    for file, data in files.items():
        (place / file).write_bytes(MUTATORS[Path(file).suffix](rng, data) if file in changed else data)
    made = read_vocabulary(ModelFolder(place))
    if made is not None:
        Tokenizer(made, 64, 1)(TEXTS)


def _folder(rng: random.Random, place: Path) -> None:
    family = rng.choice(sorted(FOLDERS))
    config, weights = json.dumps(CONFIGS[family]).encode(), FOLDERS[family]
    changed = rng.randrange(4)
    (place / "config.json").write_bytes(json_of(rng, config) if changed < 3 else config)
    (place / "pytorch_model.bin").write_bytes(checkpoint_of(rng, weights) if changed > 1 else weights)
    if rng.random() < 0.2:
        write_json(place / "pytorch_model.bin.index.json", {"weight_map": {"a": "pytorch_model.bin"}})
        (place / "pytorch_model.bin.index.json").write_bytes(
            json_of(rng, (place / "pytorch_model.bin.index.json").read_bytes()))
    engine = engine_of(load_encoder(place), threads=1, backend="reference")
    with np.errstate(all="ignore"):  # finite weights can still be so large that their products are not
        engine.forward([[0, 1, 2], []])


CHECKPOINTS = [path.read_bytes() for path in sorted(paths.CHECKPOINTS.glob("*.bin"))]
VOCABULARIES = [{path.name: path.read_bytes() for path in folder.iterdir() if path.name != "expected.json"}
                for folder in sorted(paths.TOKENIZERS.iterdir())]
FOLDERS = {family: checkpoint(hf_tensors(family), legacy=family == "roberta") for family in CONFIGS}
KINDS = {"checkpoint": _checkpoint, "vocabulary": _vocabulary, "folder": _folder}


def run(place: Path, seeds: range) -> dict[str, int]:
    """Return how many files of each kind were answered and refused; raises what is neither."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        kind = rng.choice(["checkpoint", "checkpoint", "vocabulary", "folder"])
        for old in place.iterdir():
            old.unlink()
        try:
            KINDS[kind](rng, place)
            counts[f"{kind} answered"] += 1
        except EngineError:
            counts[f"{kind} EngineError"] += 1
    return dict(counts)


def main(files: int, seed: int) -> int:
    """Run this number of files, and return the number of findings."""
    print(f"seeds {seed} to {seed + files - 1}")
    counts: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for first in range(seed, seed + files, CASES_PER_CHILD):
            seeds = range(first, min(first + CASES_PER_CHILD, seed + files))
            result = outcome(run, Path(folder), seeds, memory=MEMORY, seconds=300)
            if result.startswith("ok: "):
                counts.update(literal_eval(result[4:]))
                continue
            for one in seeds:  # each in a child of its own, to find the one that failed
                result = outcome(run, Path(folder), range(one, one + 1), memory=MEMORY, seconds=20)
                if result.startswith("ok: "):
                    counts.update(literal_eval(result[4:]))
                else:
                    counts[f"FOUND {result[:150]}"] += 1
                    print(f"seed {one}: {result[:1000]}", flush=True)
    print(f"{sum(counts.values()):8,}  files in {time.monotonic() - start:.0f} s")
    for kind, count in sorted(counts.items()):
        print(f"{count:8,}  {kind}")
    return sum(count for name, count in counts.items() if name.startswith("FOUND"))


if __name__ == "__main__":
    given = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    sys.exit(min(1, main(int(sys.argv[1]), given)))
