"""docs/limits.md has every limit of what the engine reads, with the number in the code, and each limit holds.

Each probe takes a size. It succeeds with the limit, and raises with one more. Where a limit is too large to try, the
test lowers the constant.
"""

import asyncio
import base64
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine import GenerationConfig, Model, ModelConfig, TextConfig, ops, read_audio, save
from engine.backends.cpu.packer import Packer
from engine.base.errors import EngineError
from engine.chat.messages import Plain
from engine.chat.render import TEXT as RENDERED
from engine.chat.render import Templates
from engine.chat.terminal import Talk
from engine.encoding.packing import pack
from engine.files import npz, zip
from engine.files.ctranslate2 import CTranslate2File
from engine.files.folder import ModelFolder
from engine.files.gguf import GgufFile
from engine.files.gguf_parts import part_paths
from engine.files.npz import read_npz
from engine.files.reading import FormatError, parse_json
from engine.files.safetensors import read_safetensors
from engine.files.torch_checkpoint import read_checkpoint
from engine.files.torch_pickle import read_pickle
from engine.generation.results import Request
from engine.images.sources import check_pixels, opened
from engine.loading.ctranslate2 import _words
from engine.loading.hub_guard import guard
from engine.loading.modules import read_modules
from engine.loading.npz_model import NpzSource
from engine.loading.router import find_routes
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.chat_config import ChatConfig
from engine.model.head import HeadConfig, HeadLinear
from engine.model.image_config import ImageConfig
from engine.model.late_config import LateConfig
from engine.programs.operations import Rotary
from engine.speech.samples import check_samples
from engine.speech.spectrogram import log_mel
from engine.text.safety import check_added, check_size, check_tokenizer
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies import read_vocabulary
from engine.text.vocabularies.byte_pairs import joined_pieces
from engine.text.vocabularies.sentencepiece import parse_model
from engine.text.windows import Windows

from ..generation.table_stepper import TableStepper
from ..tools.ctranslate2_files import ctranslate2
from ..tools.encoders import engine_of
from ..tools.gguf_files import gguf
from ..tools.paths import ROOT
from ..tools.sound_files import wav
from ..tools.step_queues import generate
from ..tools.tiny_models import random_model, safetensors, write_json
from ..tools.tiny_text import tiny_text
from ..tools.torch_files import archive, integer, mapping, name, program, storage, tensor

pytest.importorskip("tokenizers")
pytest.importorskip("soundfile")
pytest.importorskip("uvicorn")
pytest.importorskip("PIL")

from PIL import Image

from engine.server.admission import Memory, Room
from engine.server.app import ROUTES, Exchange
from engine.server.images import SentImages, inputs_of
from engine.server.keys import ApiKeys
from engine.server.multipart import FormParts
from engine.server.protocol import Protocol
from engine.server.settings import MAX_HELD, MAX_ON_DISK, Settings
from engine.server.tei import DecodeForm, TokenizeForm, decode, tokenize
from engine.server.text_fields import check_choices
from engine.server.zero_shot import ZeroShotForm, ZeroShotParameters, zero_shot

ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<limit>[\d,]+) \| `(?P<file>[\w/]+)\.py: (?P<name>\w+)` \|"
                 r"(?P<argument>[^|]*)\|")
FOLDERS = ("base", "files", "text", "images", "loading", "model", "families", "weights", "encoding", "ops", "speech",
           "interface", "uncertainty", "generation", "studies", "chat", "server", "cli")
LIMIT = re.compile(r"_?(?:MAX|MOST|LONGEST|LARGEST|FREE)(?:_[A-Z]+)*")
NO_LIMITS = {
    "text/safety.py: _FREE_TREE": "below it nothing is counted",
    "generation/groups.py: MOST_TOP": "above it all logits are given, and the result is the same",
    "weights/quantize.py: MOST_OFFSET": "a number of an algorithm",
    "interface/reranker.py: MAX_LENGTH": "the default of an argument",
    "base/errors.py: _MOST_COMPARED": "names that a suggestion is looked for among",
    "base/errors.py: _LONGEST_COMPARED": "characters of these names",
    "uncertainty/temperature.py: MOST": "the range in which a temperature is searched",
    "uncertainty/shift.py: MOST_COMPARED": "the numbers of a sample that a test of shift reads",
    "generation/schedule.py: MOST_SCORES": "one step has no more, and a prompt goes on in the next one",
    "uncertainty/plot.py: LONGEST_LABEL": "characters of a drawing",
    "uncertainty/plot.py: MOST_TOKENS": "tokens of a drawing, an argument",
    "chat/render.py: MAX_ERROR": "a longer message is cut",
    "server/event_loop.py: LONGEST_REST": "seconds that the event loop rests",
    "chat/renderer.py: _MOST_BYTES": "more than the longest answer of the engine's own process has",
}
"""Constants with such a name that do not bound what the engine reads."""


def rows() -> dict[str, int]:
    found = {}
    for line in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| what"):
            match = ROW.fullmatch(line)
            assert match, line
            found[f"{match['file']}.py: {match['name']}"] = int(match["limit"].replace(",", ""))
    return found


def constants() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / "engine" / folder).rglob("*.py")):
            for line in path.read_text(encoding="utf-8").splitlines():
                names, equals, _ = line.partition(" = ")
                for one in names.split(", ") if equals else ():
                    if LIMIT.fullmatch(one):
                        yield f"{path.relative_to(ROOT / 'engine')}: {one}"


def test_every_limit_has_a_row_and_a_probe():
    assert set(rows()) - set(constants()) == {
        f"backends/cpu/packer.py: MOST_{name}_BYTES" for name in ("BIAS", "POSITION")}
    assert set(constants()) - set(rows()) == set(NO_LIMITS)
    assert set(PROBES) == set(rows())


def test_every_number_is_that_of_the_code():
    for row, limit in rows().items():
        file, _, constant = row.partition(": ")
        assert getattr(module_of(file), constant) == limit, row


@dataclass(frozen=True)
class Probe:
    run: Callable[[int, Path], Any]
    """Tries a size; files go to an empty folder."""
    lowered: int | None = None
    """The limit that is tried where the real one is too large."""
    where: tuple[str, ...] = ()
    """Modules that have the constant under the same name, whose value is lowered too."""
    others: tuple[tuple[str, int], ...] = ()
    """Constants beside it, which are set to these numbers."""
    above: Callable[[int], int] = lambda n: n + 1


def module_of(file: str) -> Any:
    return import_module("engine." + file.removesuffix(".py").replace("/", "."))


def test_limits_hold_just_below_and_just_above(tmp_path, monkeypatch):
    for i, (row, limit) in enumerate(rows().items()):
        probe, (file, _, constant) = PROBES[row], row.partition(": ")
        with monkeypatch.context() as patch:
            if probe.lowered is not None:
                limit = probe.lowered
                for module in (file, *probe.where):
                    patch.setattr(module_of(module), constant, limit)
            for other, value in probe.others:
                patch.setattr(module_of(file), other, value)
            places = [tmp_path / f"{i}{side}" for side in ("below", "above")]
            for place in places:
                place.mkdir()
            try:
                probe.run(limit, places[0])
            except (EngineError, FormatError) as error:
                pytest.fail(f"{row}: {limit:,} is refused: {error}")
            try:
                probe.run(probe.above(limit), places[1])
            except (EngineError, FormatError):
                continue
            pytest.fail(f"{row}: more than {limit:,} is accepted")


def written(place: Path, file: str, data: bytes) -> Path:
    (place / file).write_bytes(data)
    return place / file


def npy_header(n: int, place: Path) -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(n - 10)
    npz._npy_header(memoryview(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text), "x.npy")


def arrays(place: Path, *found: np.ndarray) -> dict[str, np.ndarray]:
    np.savez(place / "x.npz", *found)
    return read_npz(place / "x.npz")


def inflation(n: int, size: int) -> None:
    zip.check_inflation(bytes(size), [zip.ZipMember("x", zip.DEFLATED, 0, 1, n, 0, 0)])     # type: ignore[arg-type]


def pickled(value: bytes, **names: Any) -> None:
    read_pickle(memoryview(program(value)), {key.replace("_", "."): one for key, one in names.items()})


def image_file(kind: str, width: int = 4) -> bytes:
    """Return the file of an image of one row of pixels."""
    file = io.BytesIO()
    Image.new("L", (width, 1)).save(file, kind)
    return file.getvalue()


def saved(place: Path, *values: bytes, size: int = 24) -> None:
    tensors = mapping({f"t{i}": value for i, value in enumerate(values)})
    read_checkpoint(written(place, "x.bin", archive(program(tensors), {"0": bytes(size)})))


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def rendered(n: int, place: Path) -> None:
    kind, text = Templates().answer({"template": "{{ 'a' * n }}", "values": {"n": n}, "date": [2000, 1, 1]})
    if kind != RENDERED:
        raise EngineError(text)


def conversation(n: int, place: Path) -> None:
    file = written(place, "talk.json", b"[" + b" " * (n - 2) + b"]")
    Talk(SimpleNamespace(), iter([f"/load {file}"]), io.StringIO()).run()


def ones(dimensions: int) -> np.ndarray:
    return np.ones((1,) * dimensions, np.float32)


def gguf_of(place: Path, settings: dict[str, Any], tensors: Any = None, **options: Any) -> None:
    GgufFile(written(place, "x.gguf", gguf(settings, tensors or {}, **options)))


def converted(place: Path, *found: np.ndarray) -> None:
    CTranslate2File(written(place, "model.bin", ctranslate2({f"v{i}": one for i, one in enumerate(found)})))


def modules(dense: int, place: Path) -> None:
    kinds = ["Transformer", "Pooling", *["Dense"] * dense]
    write_json(place / "modules.json", [{"type": f"sentence_transformers.models.{kind}", "path": str(i)}
                                        for i, kind in enumerate(kinds)])
    find_routes(ModelFolder(place))


def named_module(letters: int, place: Path) -> None:
    write_json(place / "config.json", {"module_output_name": "x" * letters})
    read_modules([("Normalize", ModelFolder(place))], "sentence_embedding", "map")


def routes(count: int, place: Path) -> None:
    write_json(place / "modules.json", [{"type": "sentence_transformers.models.Router", "path": ""}])
    write_json(place / "router_config.json", {
        "types": {"s": "sentence_transformers.models.StaticEmbedding"}, "parameters": {},
        "structure": {f"route {i}": ["s"] for i in range(count)}})
    find_routes(ModelFolder(place))


def parts(count: int, place: Path) -> None:
    encoders = {f"task {i}": random_model(seed=i) for i in range(count)}
    save(Model(routes=encoders), place / "model.npz")
    NpzSource(place / "model.npz", "map")


def config(**changes: Any) -> ModelConfig:
    return replace(random_model().config, **changes)


def tokenizer(**parts: Any) -> None:
    document = json.loads(tiny_text().tokenizer_json)
    document["model"] |= parts.pop("model", {})
    check_tokenizer(json.dumps(document | parts).encode())


def special(n: int) -> dict[str, Any]:
    template = json.loads(tiny_text().tokenizer_json)["post_processor"]
    tokens = {"[CLS]": {"id": "[CLS]", "ids": [2] * n, "tokens": ["[CLS]"] * n}}
    return template | {"special_tokens": template["special_tokens"] | tokens}


def steps(*found: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": list(found)}


def unigram(n: int, place: Path) -> None:
    tokenizer(model={"type": "Unigram", "unk_id": 0, "vocab": [["x" * n, 0.0]]})


UNKNOWN = b"\x0a\x09\x0a\x05<unk>\x18\x02"
"""The piece of a SentencePiece model for unknown text."""


def pieces(n: int, place: Path) -> None:
    parse_model(UNKNOWN + b"".join(b"\x0a\x05\x0a\x03" + b"%03d" % i for i in range(n - 1)))


def vocabulary(place: Path, family: str, file: str, data: bytes, **settings: Any) -> None:
    write_json(place / "config.json", {"model_type": family})
    write_json(place / "tokenizer_config.json", settings)
    written(place, file, data)
    assert read_vocabulary(ModelFolder(place)) is not None


def biased(n: int, place: Path) -> None:
    """Prepare a model with biases of n bytes: 4 for each of three heads and each of 2 T - 1 distances."""
    tokens = -(-(n // 12 + n % 12 + 1) // 2)
    engine_of(random_model(attention_bias="alibi"), threads=1, max_batch_tokens=tokens)


BERT = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
HALF = "Half"
def silence(channels: int) -> bytes:
    return wav(bytes(4 * channels), channels=channels)



def tags(n: int, place: Path) -> None:
    read_audio((b"ID3\4" + bytes(6)) * n + silence(1))


def fetched(n: int) -> None:
    library = SimpleNamespace(http_get=lambda url, file: file.write(bytes(n)))
    guard(library)
    library.http_get("https://hub/a/b/resolve/main/config.json", io.BytesIO())


def sent(n: int) -> None:
    """Let a server read a body of n bytes."""
    exchange = exchanging(n)
    asyncio.run(exchange._body(Room(Memory())))


def recorded(n: int) -> None:
    """Let a server read a body with a recording, of n bytes."""
    limit = Settings().max_recording
    asyncio.run(exchanging(n)._read_body(lambda part: None, limit, "--max-recording-bytes", 10))


def exchanging(n: int) -> Exchange:
    """Return an exchange whose client sends a body of n bytes in parts of 1 MB."""
    left = n

    async def receive() -> dict[str, Any]:
        nonlocal left
        size = min(left, 2**20)
        left -= size
        return {"type": "http.request", "body": bytes(size), "more_body": left > 0}

    served = SimpleNamespace(settings=Settings(), id_of=lambda headers: "1")
    return Exchange(served, ROUTES[0], {"headers": []}, receive, receive)     # type: ignore[arg-type]


def filled(n: int) -> None:
    """Read a form with a field that counts n bytes: its own, and 1,024."""
    body = b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n%b\r\n--b--\r\n' % bytes(n - 1024)
    FormParts(b"multipart/form-data; boundary=b", "file", None).feed(body)     # type: ignore[arg-type]


def held(n: int, most: int = MAX_HELD) -> None:
    """Hold n bytes together, in parts that are small enough to use all of the memory."""
    memory = Memory(most)
    for size in [2**20] * (n // 2**20) + [n % 2**20]:
        Room(memory).hold(size)


def headers(n: int) -> None:
    """Give this many headers of a request to a connection."""
    one = Protocol.__new__(Protocol)
    one._in_headers, one.headers = True, []
    for _ in range(n):
        one.on_header(b"a", b"")


def overlapping(n: int) -> None:
    """Cut a text into windows of 4 tokens that move by one, which have 4 (tokens - 3) tokens together."""
    Windows(4, 0, 3).check_overlap(lambda most: n // 4 + 3)


PROBES: dict[str, Probe] = {
    "server/settings.py: MAX_BODY": Probe(lambda n, place: sent(n)),
    "server/settings.py: MAX_HEADER": Probe(
        lambda n, place: Protocol._check_headers(SimpleNamespace(url=bytes(n - 7), headers=[(b"a", b"bc")]))),
    "server/settings.py: MAX_HEADERS": Probe(lambda n, place: headers(n)),
    "server/settings.py: MAX_HELD": Probe(lambda n, place: held(n)),
    "server/settings.py: MAX_RECORDING": Probe(lambda n, place: recorded(n)),
    "server/settings.py: MAX_ON_DISK": Probe(lambda n, place: held(n, MAX_ON_DISK)),
    "server/settings.py: MAX_FIELDS": Probe(lambda n, place: filled(n)),
    "server/settings.py: MAX_SKIPPED": Probe(lambda n, place: Protocol._skip(SimpleNamespace(_skipped=0), n)),
    "server/settings.py: MAX_TOKENIZED": Probe(
        lambda n, place: tokenize(TokenizeForm(inputs="a" * n), engine_of(random_model(tiny_text()), threads=1))),
    "server/settings.py: MAX_LABELS": Probe(lambda n, place: zero_shot(
        ZeroShotForm(inputs="a", parameters=ZeroShotParameters(candidate_labels=["a"] * n)),
        engine_of(random_model(tiny_text()), threads=1))),
    "server/settings.py: MAX_IMAGES": Probe(
        lambda n, place: inputs_of("input", ["data:image/png;base64,AAAA"] * n, SimpleNamespace(reads_images=True,
                                                                                               text=None))),
    "server/settings.py: MAX_IMAGE_PIXELS": Probe(
        lambda n, place: SentImages([image_file("PNG", n)], places=["input"]).passing(range(1)), 5000,
        ("server/images.py",)),
    "server/settings.py: MAX_DECODED": Probe(
        lambda n, place: decode(DecodeForm(ids=[1] * n), engine_of(random_model(tiny_text()), threads=1))),
    "server/settings.py: MAX_CHOICES": Probe(lambda n, place: check_choices(n, "n")),
    "server/settings.py: MAX_KEYS": Probe(lambda n, place: ApiKeys(["a"] * n)),
    "server/settings.py: MAX_KEY": Probe(lambda n, place: ApiKeys(["a" * n])),
    "loading/hub_guard.py: MOST_OF_UNKNOWN_SIZE": Probe(lambda n, place: fetched(n), 1000),
    "files/reading.py: MAX_JSON": Probe(lambda n, place: parse_json(b'"' + b"a" * (n - 2) + b'"')),
    "files/reading.py: _MAX_DEPTH": Probe(lambda n, place: parse_json(b"[" * n + b"]" * n)),
    "files/folder.py: _LONGEST_NAME": Probe(lambda n, place: ModelFolder(place).folder("a" * n, "modules.json")),
    "files/zip.py: _MAX_MEMBERS": Probe(lambda n, place: arrays(place, *[ones(1)] * n), 3),
    "files/zip.py: _FREE_INFLATION": Probe(lambda n, place: inflation(n, 1)),
    "files/zip.py: _MAX_INFLATION": Probe(lambda n, place: inflation(10 * n, 10), others=(("_FREE_INFLATION", 0),)),
    "files/npz.py: _MAX_NPY_HEADER": Probe(npy_header),
    "files/npz.py: _MAX_DIMENSIONS": Probe(lambda n, place: arrays(place, ones(n))),
    "files/safetensors.py: _MAX_DIMENSIONS": Probe(
        lambda n, place: read_safetensors(written(place, "x.safetensors", safetensors({"x": ones(n)})))),
    "files/torch_pickle.py: MAX_PICKLE": Probe(
        lambda n, place: pickled(b"X" + (n - 8).to_bytes(4, "little") + b"a" * (n - 8)), 100),
    "files/torch_pickle.py: MAX_STEPS": Probe(lambda n, place: pickled(b"N" * (n - 2)), 50),
    "files/torch_pickle.py: MAX_NAME": Probe(lambda n, place: read_pickle(
        memoryview(program(name("m" * (n - 1), "x"))), {"m" * (n - 1) + ".x": 1})),
    "files/torch_pickle.py: MAX_KEY": Probe(lambda n, place: pickled(b"}" + integer(n - 1) + b"Ns")),
    "files/torch_pickle.py: MAX_INTEGER": Probe(lambda n, place: pickled(b"\x8a" + bytes([n]) + bytes(n))),
    "files/torch_checkpoint.py: _MAX_DIMENSIONS": Probe(
        lambda n, place: saved(place, tensor(storage(), (1,) * n, (1,) * n))),
    "files/torch_checkpoint.py: _MAX_SIZE": Probe(
        lambda n, place: saved(place, tensor(storage(size=n - 1), (1,), (1,)), size=4 * (n - 1)), 7),
    "files/torch_checkpoint.py: _FREE_COPIES": Probe(
        lambda n, place: saved(place, tensor(storage(kind=HALF, size=-(-n // 4)), (-(-n // 4),), (1,)),
                               size=2 * -(-n // 4)), 4000, others=(("_MAX_COPIES", 0),)),
    "files/torch_checkpoint.py: _MAX_COPIES": Probe(    # each copy of the storage has twice its bytes
        lambda n, place: saved(place, *[tensor(storage(kind=HALF, size=10**5), (10**5,), (1,))] * -(-n // 2),
                               size=2 * 10**5), others=(("_FREE_COPIES", 0),)),
    "files/gguf.py: _MAX_SETTINGS": Probe(lambda n, place: gguf_of(place, {f"k{i}": i for i in range(n)}), 5),
    "files/gguf.py: _MAX_TENSORS": Probe(lambda n, place: gguf_of(place, {}, {f"t{i}": ones(1) for i in range(n)}), 3),
    "files/gguf.py: _MAX_TEXTS": Probe(lambda n, place: gguf_of(place, {"a": ["x"] * (n - 1), "b": ["x"]}), 5),
    "files/gguf.py: _MAX_TEXT": Probe(lambda n, place: gguf_of(place, {"a": "x" * n})),
    "files/gguf.py: _MAX_NAME": Probe(lambda n, place: gguf_of(place, {"x" * n: 1})),
    "files/gguf.py: _MAX_DIMENSIONS": Probe(lambda n, place: gguf_of(place, {}, {"t": ones(n)})),
    "files/gguf.py: _MAX_ALIGNMENT": Probe(
        lambda n, place: gguf_of(place, {"general.alignment": n}, alignment=n), above=lambda n: 2 * n),
    "files/gguf_parts.py: _MAX_PARTS": Probe(
        lambda n, place: part_paths(place / f"m-00001-of-{n:05}.gguf", {"split.count": n})),
    "files/ctranslate2.py: _MAX_VARIABLES": Probe(lambda n, place: converted(place, *[ones(1)] * n), 2),
    "files/ctranslate2.py: _MAX_DIMENSIONS": Probe(lambda n, place: converted(place, ones(n))),
    "weights/modules.py: MOST_MODULES": Probe(modules, where=("loading/module_list.py",)),
    "loading/modules.py: _LONGEST_NAME": Probe(named_module),
    "loading/router.py: _MOST_ROUTES": Probe(routes),
    "loading/npz_model.py: _MOST_PARTS": Probe(parts, 3),
    "model/head.py: MOST_STEPS": Probe(lambda n, place: HeadConfig("classify", "first", tuple(
        HeadLinear(f"map{i}", 2) for i in range(n)), ("A", "B"))),
    "model/config_checks.py: LARGEST": Probe(lambda n, place: config(vocab_size=n)),
    "model/config.py: MOST_LAYERS": Probe(lambda n, place: config(num_layers=n)),
    "model/config.py: _MOST_BIASED_HEADS": Probe(lambda n, place: config(num_heads=n, attention_bias="alibi")),
    "model/config.py: _MAX_FAMILY": Probe(lambda n, place: config(family="x" * n)),
    "model/config_checks.py: _MOST_ROTARY_POSITIONS": Probe(
        lambda n, place: config(max_positions=n, attention_kinds=(AttentionKind(rotary_theta=1e4),))),
    "model/config_checks.py: _LARGEST_FREQUENCY": Probe(
        lambda n, place: config(attention_kinds=(AttentionKind(rotary_theta=1e4, rotary_scale=1 / n),))),
    "model/config_checks.py: _MOST_DISTANCES": Probe(lambda n, place: config(relative=RelativePositions(limit=n))),
    "model/text_config.py: _LONGEST_FILLED": Probe(
        lambda n, place: TextConfig(b"{}", max_seq_length=n, fill_id=0)),
    "model/late_config.py: _LONGEST": Probe(lambda n, place: LateConfig(document_length=n)),
    "model/chat_config.py: MAX_TEMPLATE": Probe(lambda n, place: ChatConfig({"default": "a" * n})),
    "model/chat_config.py: MAX_TEMPLATES": Probe(lambda n, place: ChatConfig({str(i): "" for i in range(n)})),
    "model/chat_config.py: MAX_TOKENS": Probe(lambda n, place: ChatConfig(control_tokens=("a",) * n)),
    "model/chat_config.py: MAX_TOKEN_TEXT": Probe(lambda n, place: ChatConfig(special_tokens={"a": "b" * n})),
    "model/chat_config.py: MAX_RESPONSE": Probe(lambda n, place: ChatConfig(response_template="a" * (n - 2))),
    "chat/messages.py: MAX_CHARACTERS": Probe(lambda n, place: Plain().value(["a", "a" * (n - 1)], "x")),
    "chat/messages.py: MAX_VALUES": Probe(lambda n, place: Plain().value([0] * (n - 1), "x")),
    "chat/messages.py: MAX_DEPTH": Probe(lambda n, place: Plain().value(nested(n), "x")),
    "chat/messages.py: MAX_BITS": Probe(lambda n, place: Plain().value(2**n - 1, "x")),
    "chat/render.py: MAX_ANSWER": Probe(rendered),
    "chat/terminal.py: MAX_FILE": Probe(conversation, 100),
    "text/windows.py: MAX_REPEATED": Probe(
        lambda n, place: overlapping(n), 40, others=(("REPEATS", 0),), above=lambda n: n + 4),
    "text/safety.py: MAX_TOKENIZER": Probe(lambda n, place: check_size(b" " * n), 100),
    "text/safety.py: MAX_VALUES": Probe(lambda n, place: check_size(b":" + b"," * (n - 1))),
    "text/safety.py: MAX_TOKEN": Probe(lambda n, place: tokenizer(model={"vocab": {"[UNK]": 0, "x" * n: 1}})),
    "text/safety.py: MAX_VOCABULARY": Probe(pieces, 10, where=("text/vocabularies/sentencepiece.py",)),
    "text/safety.py: MAX_ADDED_TEXT": Probe(lambda n, place: check_added(["x", "x" * (n - 1)])),
    "text/safety.py: MAX_PIECES": Probe(lambda n, place: tokenizer(post_processor=special(n))),
    "text/safety.py: MAX_AFFIX": Probe(lambda n, place: tokenizer(model={"continuing_subword_prefix": "#" * n})),
    "text/safety.py: MAX_WORD": Probe(lambda n, place: tokenizer(model={"max_input_chars_per_word": n})),
    "text/safety.py: MAX_TREE": Probe(unigram, 50, others=(("_FREE_TREE", 0),)),
    "text/growth.py: MAX_GROWTH": Probe(lambda n, place: tokenizer(
        decoder={"type": "Replace", "pattern": {"String": "a"}, "content": "b" * n})),
    "text/growth.py: MAX_STEPS": Probe(
        lambda n, place: tokenizer(decoder=steps(steps(*[{"type": "Fuse"}] * (n - 1)), {"type": "Fuse"}))),
    "text/patterns.py: MAX_ADDED_BESIDE_PATTERN": Probe(lambda n, place: tokenizer(
        normalizer={"type": "Replace", "pattern": {"Regex": "a+a+b"}, "content": "c"},
        added_tokens=[{"id": 0, "content": "x" * n}])),
    "text/growth.py: MAX_TABLE": Probe(lambda n, place: tokenizer(normalizer={
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(n)).decode()})),
    "text/vocabularies/sentencepiece.py: MAX_MODEL": Probe(
        lambda n, place: vocabulary(place, "t5", "spiece.model", UNKNOWN + b"\x22" + bytes([n - len(UNKNOWN) - 2])
                                    + bytes(n - len(UNKNOWN) - 2)),
        100, where=("text/vocabularies/recipes.py",)),
    "text/vocabularies/recipes.py: MAX_LINES": Probe(
        lambda n, place: vocabulary(place, "bert", "vocab.txt", BERT + b"x" * (n - len(BERT))), 100),
    "text/vocabularies/recipes.py: _MAX_EXTRA": Probe(
        lambda n, place: vocabulary(place, "t5", "spiece.model", UNKNOWN + b"\x0a\x03\x0a\x01a", extra_ids=n)),
    "text/vocabularies/byte_pairs.py: _LONGEST": Probe(lambda n, place: joined_pieces(["x" * n], [0.0])),
    "text/vocabularies/tokenizer_settings.py: MAX_ADDED": Probe(
        lambda n, place: vocabulary(place, "bert", "vocab.txt", BERT, additional_special_tokens=["[X]"] * n), 5),
    "loading/ctranslate2.py: _MAX_LINES": Probe(
        lambda n, place: _words(ModelFolder(written(place, "target_vocabulary.txt", b"a" * n).parent)), 100),
    "speech/samples.py: MAX_SECONDS": Probe(
        lambda n, place: check_samples(np.broadcast_to(np.float32(0), n * 16000)), above=lambda n: n + 1),
    "speech/audio_files.py: MAX_CHANNELS": Probe(lambda n, place: read_audio(silence(n))),
    "speech/sources.py: MAX_STREAM": Probe(lambda n, place: read_audio(io.BytesIO(silence(1).ljust(n, b"\0"))), 100),
    "speech/containers.py: _MAX_TAGS": Probe(tags),
    "images/sources.py: MAX_PIXELS": Probe(lambda n, place: check_pixels(n, 1)),
    "images/sources.py: MAX_BYTES": Probe(lambda n, place: opened(image_file("PNG").ljust(n, b"\0")), 5000),
    "model/image_config.py: MAX_SIDE": Probe(lambda n, place: ImageConfig(size=(n, 1))),
    "generation/checks.py: MOST_ROWS": Probe(
        lambda n, place: generate(TableStepper(), [Request(None, [5], GenerationConfig(
            num_return_sequences=n, do_sample=True, max_new_tokens=1))])),
    "model/generation_config.py: _LARGEST": Probe(lambda n, place: GenerationConfig(bos_token_id=n)),
    "model/generation_config.py: MOST_STOPS": Probe(
        lambda n, place: GenerationConfig(stop_strings=[str(i) for i in range(n)])),
    "model/generation_config.py: LONGEST_STOP": Probe(lambda n, place: GenerationConfig(stop_strings="a" * n)),
    "model/generation_config.py: MOST_IDS": Probe(lambda n, place: GenerationConfig(bad_words_ids=[[1, 2]] * (n // 2),
                                                                                    suppress_tokens=[1] * n)),
    "text/excerpts.py: MAX_CHARACTERS": Probe(lambda n, place: Tokenizer(tiny_text(), 64, 1)([" " * n])),
    "encoding/token_arrays.py: _MOST_TOKENS": Probe(lambda n, place: pack(config(), [[0] * n]), 10),
    "backends/cpu/packer.py: MOST_POSITION_BYTES": Probe(
        lambda n, place: Packer(None, {}).angles(Rotary(1e4, 2, -(-n // 8))), 8_000_000),    # type: ignore[arg-type]
    "speech/spectrogram.py: MAX_CHANNELS": Probe(lambda n, place: log_mel(np.zeros(400, np.float32), n)),
    "backends/cpu/packer.py: MOST_BIAS_BYTES": Probe(biased, 4 * 3 * 31),
    "ops/positions.py: _MOST_HEADS": Probe(lambda n, place: ops.alibi_slopes(n)),
    "ops/positions.py: _MOST_TOKENS": Probe(
        lambda n, place: ops.relative_position_bias(np.ones((4, 1), np.float32), n, 0)),
}
