"""Load mutated files of models that generate or hear, packed files, checkpoints and sounds, and make the first calls.

A call that takes too long ends by its timeout, which is an answer as any other `EngineError`.
"""

import json
import random
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine import Generator, Model, Transcriber, load_model, read_audio, save
from engine.backends.cpu.packer import pack_transformer
from engine.backends.cython_cpu import isa
from engine.model.generation_config import GenerationConfig
from engine.model.precision import CACHED, LOADABLE, ROUNDED
from tests.fuzz.binaries import write_gguf_model
from tests.fuzz.mutate import EXTREME, PLAIN, json_of, npz_of, tokenizer_of, value_of
from tests.fuzz.tokenizer_files import DECODERS, TOKENIZERS
from tests.tools.encoders import engine_of, load_encoder
from tests.tools.paths import DECODERS as GENERATING
from tests.tools.speech import recording, timed
from tests.tools.tiny_models import CONFIGS, hf_tensors, random_model
from tests.tools.tiny_text import tiny_text
from tests.tools.torch_files import archive, mapping, program, storage, tensor

TIMEOUT = 1.0
"""Seconds that a call may take, below the limit on a case."""
_VOCABULARY = 61
"""Tokens of the golden models that generate."""
_SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {"num_beams": 2}, {"num_beams": 3, "num_return_sequences": 2, "early_stopping": "never"},
    {"do_sample": True, "seed": 1}, {"do_sample": True, "top_k": 3, "top_p": 0.5, "temperature": 0.7},
    {"max_new_tokens": 3}, {"max_new_tokens": 3, "num_beams": 4},
)
_NUMBERS: tuple[Any, ...] = (
    *EXTREME, *PLAIN, 1e-300, 1e-38, 1e-7, 1e38, 1e300, -1.0, 100.0, 10**5, 10**9, 10**12, [[1]], [[1, 2], [3]], [0, 2],
    [61], [[1]] * 3000, [[i % 61] for i in range(3000)], list(range(61)), [60] * 5000, [[]], [[0] * 3000],
)  # fmt: skip
_TYPES = {field.name: str(field.type) for field in fields(GenerationConfig)}
_NAMES = tuple(_TYPES)
_OF_CALLS = ("seed", "return_timestamps", "prefix")
"""Settings that no file has."""
_PRECISIONS = (None, None, *LOADABLE)
_CACHES = (None, None, *CACHED)


def _copied(source: Path, place: Path) -> None:
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (place / name).write_bytes((source / name).read_bytes())


def _call(rng: random.Random, place: Path, **settings: Any) -> None:
    """Load a model that generates, in any precision, and generate from two inputs of it, or stream one."""
    generator = Generator.load(place, threads=1, precision=rng.choice(_PRECISIONS), cache=rng.choice(_CACHES))
    settings = {"timeout": TIMEOUT, **rng.choice(_SETTINGS), **settings}
    if rng.random() < 0.3:
        one = {"num_beams": 1, "num_return_sequences": 1}
        list(generator.stream([3, 4, 5], **({"max_new_tokens": 4} | settings | one)))
    generator.generate([[3, 4, 5], [6]], **settings)


def _decoded(rng: random.Random, place: Path) -> None:
    """Change the tokenizer of a language model, mostly its decoder, and generate texts."""
    _copied(GENERATING / "llama", place)
    document = json.loads(TOKENIZERS["words"])
    words = [*document["model"]["vocab"], *(f"w{i}" for i in range(_VOCABULARY))][:_VOCABULARY]
    document["model"]["vocab"] = {word: i for i, word in enumerate(words)}
    parts = rng.choices(DECODERS[1:], k=rng.choice((1, 1, 2, 4, 20)))
    decoder: Any = parts[0] if len(parts) == 1 else {"type": "Sequence", "decoders": parts}
    document["decoder"] = value_of(rng, decoder) if rng.random() < 0.7 else decoder
    data = json.dumps(document).encode()
    (place / "tokenizer.json").write_bytes(tokenizer_of(rng, data) if rng.random() < 0.4 else data)
    _call(rng, place, max_new_tokens=rng.choice((1, 6, 30)))


def _first_call(rng: random.Random, place: Path) -> None:
    """Change generation_config.json, and generate with the settings that it states."""
    _copied(rng.choice(_GENERATING), place)
    path = place / "generation_config.json"
    values = json.loads(path.read_bytes()) | {"max_new_tokens": rng.choice((1, 4, 12))}
    for name in rng.choices(_NAMES, k=rng.choice((1, 1, 2, 3, 5))):
        fits = rng.random() < 0.8
        if not (fits and name in _OF_CALLS):
            values[name] = _fitting(rng, _TYPES[name]) if fits else rng.choice(_NUMBERS)
    data = json.dumps(values).encode()
    path.write_bytes(json_of(rng, data, _NAMES) if rng.random() < 0.2 else data)
    _call(rng, place)


def _fitting(rng: random.Random, kind: str) -> Any:
    """Return a value that a setting of this type may have."""
    ids = [rng.randrange(_VOCABULARY) for _ in range(rng.choice((0, 1, 1, 3, 70)))]
    if kind.startswith("tuple[tuple"):
        return [ids[i:i + 2] for i in range(0, len(ids), 2)]
    if kind.startswith("tuple"):
        return ids
    if kind.startswith("float"):
        return rng.choice((0.0, 1e-7, 0.01, 0.3, 0.9, 1.0, 1.2, 2.0, 50.0))
    return rng.random() < 0.5 if kind.startswith("bool") else rng.choice((0, 1, 1, 2, 2, 3, 5, 8, 40))


def _blocks(rng: random.Random, place: Path) -> None:
    """Generate with a GGUF file, whose blocks the kernels read as they are."""
    write_gguf_model(rng, place / "m.gguf", untouched=0.8)
    _call(rng, place / "m.gguf", max_new_tokens=4)


@lru_cache(maxsize=1)
def _packed_models(place: Path) -> list[bytes]:
    """Return an encoder and language models, packed in each precision; `place` is for temporary files."""
    found = []
    for number in (2, 3):   # q4_0 and q4_1, in which only files are
        write_gguf_model(random.Random(0), place / "source.gguf", untouched=1.0, kinds=(number,))
        model = load_model(place / "source.gguf", kind="generate")
        product = isa.chosen().product(model.decoder.precision, decodes=True)
        save(replace(model, decoder=pack_transformer(model.decoder, product)), place / "source.npz")
        found.append((place / "source.npz").read_bytes())
    for precision in ROUNDED:
        encoder = pack_transformer(random_model(tiny_text()), isa.chosen().product(precision))
        generating = load_model(GENERATING / "llama", kind="generate")
        decoder = pack_transformer(generating.decoder, isa.chosen().product(precision, decodes=True))
        for model in (Model(encoder=encoder), replace(generating, decoder=decoder)):
            save(model, place / "source.npz")
            found.append((place / "source.npz").read_bytes())
    return found


def _packed(rng: random.Random, place: Path) -> None:
    """Change a packed file, whose panels the kernels read as they are."""
    data = rng.choice(_packed_models(place.parent))
    words = ("packed", "columns", "lanes", "int8", "int4")
    (place / "m.npz").write_bytes(npz_of(rng, data, words) if rng.random() < 0.9 else data)
    model = load_model(place / "m.npz", memory=rng.choice(("map", "copy")))
    if model.decoder is not None:
        generator = Generator(model, threads=1, cache=rng.choice(_CACHES))
        generator.generate([[3, 4, 5], [6]], max_new_tokens=4, timeout=TIMEOUT)
        return
    engine = engine_of(model.encoder, threads=1)
    engine.forward([[0, 1, 2], []])
    if engine.text is not None:
        engine.encode(["the cat sat", ""])


@lru_cache(maxsize=2)
def _hearing(several: bool) -> tuple[Model, dict[str, Any]]:
    model = timed(several)
    return model, json.loads(model.decoder.text.tokenizer_json)


def _whisper(rng: random.Random, place: Path) -> None:
    """Change the special tokens of a model of speech, and transcribe a recording."""
    model, document = _hearing(rng.random() < 0.05)
    tokens = [dict(token) for token in document["added_tokens"]]
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3)) if tokens else 0):
        at = rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                tokens[at] = {}
            case 1:
                tokens[at]["id"] = rng.choice((*EXTREME, 40, 10**6, model.decoder.config.vocab_size))
            case 2:
                tokens[at]["content"] = rng.choice((*EXTREME, "<|de|>", "<|zz|>", "<|endoftext|>", "<|notimestamps|>"))
            case 3:
                tokens.append(tokens[at] | {"content": rng.choice(("<|xx|>", 5)), "id": rng.randrange(99)})
            case _:
                tokens[at] |= {key: rng.choice(EXTREME) for key in tokens[at] if rng.random() < 0.3}
    tokens = [token for token in tokens if token or rng.random() < 0.1]
    data = json.dumps(document | {"added_tokens": tokens if rng.random() < 0.9 else value_of(rng, tokens)}).encode()
    text_of = replace(model.decoder.text, tokenizer_json=data)
    changed = replace(model, decoder=replace(model.decoder, text=text_of), encoder=replace(model.encoder, text=text_of))
    transcriber = Transcriber(changed, threads=1)
    transcriber.transcribe([recording(0.3)], timestamps=rng.choice((False, True, "word")), max_new_tokens=2,
                           language=rng.choice((None, None, "de")), timeout=TIMEOUT)


def _key(rng: random.Random, i: int, step: int) -> bytes:
    """Return the pickle of an integer, i times a step whose multiples may have one hash."""
    value = i * step
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([min(size, 255)]) + value.to_bytes(size, "little", signed=True)[:255]


_ARRAYS = hf_tensors("bert")
_TENSORS = {name: tensor(storage(name, size=array.size), array.shape, tuple(step // 4 for step in array.strides))
            for name, array in _ARRAYS.items()}
_STORAGES = {name: array.tobytes() for name, array in _ARRAYS.items()}


def _integer_keys(rng: random.Random, place: Path) -> None:
    """Write a checkpoint that also has a dictionary with integer keys, and run its model."""
    count = rng.choice((1, 3, 100, 3000))
    step = rng.choice((1, -1, 2**20, 2**31 - 1, 2**31, 2**61 - 1, 1 - 2**61, 2**64, rng.getrandbits(8),
                       rng.getrandbits(70)))
    keys = [_key(rng, i, step) + b"N" for i in range(rng.choice((0, -count)), count)]
    state = b"}(" + b"".join(keys) + b"u" if rng.random() < 0.5 else b"}" + b"".join(key + b"s" for key in keys)
    (place / "config.json").write_text(json.dumps(CONFIGS["bert"]))
    (place / "pytorch_model.bin").write_bytes(archive(program(mapping(
        {"model": mapping(_TENSORS), rng.choice(("state", "optimizer")): state})), _STORAGES))
    engine_of(load_encoder(place), threads=1).forward([[0, 1, 2], []])


def wav(rng: random.Random) -> bytes:
    """Return a WAV file of any rate, channels and coding, often with extreme samples, sometimes cut or odd."""
    coding, bits = rng.choice(((1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (1, 12), (7, 8), (3, 16)))
    rate = rng.choice((1, 2, 7, 999, 8000, 11025, 15999, 16000, 16001, 44100, 48000, 96000, 191_999, 192_000, 192_001,
                       2**32 - 1, rng.randrange(1, 200_000)))
    channels = rng.choice((0, 1, 1, 2, 3, 8, 64, 65, 255, 65_535))
    frame = channels * bits // 8
    count = rng.choice((0, 1, 2, 10, 1000, 20_000))
    data = rng.randbytes(min(200_000, frame * count))
    if bits in (32, 64) and coding == 3 and rng.random() < 0.7:
        value = rng.choice((0.0, 1.0, -1.0, 1e30, 3e38, 1e300, 1e-40, float("nan"), float("inf")))
        with np.errstate(all="ignore"):
            data = np.full(min(5000, count * channels), value, f"<f{bits // 8}").tobytes()
    form = struct.pack("<HHIIHH", coding, channels, rate, 0, frame & 0xFFFF, bits)
    size = rng.choice((len(data), len(data), len(data), 2**32 - 1, 0, len(data) // 2, len(data) + 1))
    chunks = [b"fmt " + struct.pack("<I", len(form)) + form, b"data" + struct.pack("<I", size) + data]
    chunks[:0] = [b"LIST" + struct.pack("<I", 0)] * rng.choice((0, 0, 1, 2000))
    if rng.random() < 0.05:
        rng.shuffle(chunks)
    return struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE") + b"".join(chunks)


def _audio(rng: random.Random, place: Path) -> None:
    """Read a recording."""
    (place / "sound.wav").write_bytes(wav(rng))
    read_audio(place / "sound.wav")


_GENERATING = [path for path in sorted(GENERATING.iterdir())
               if (path / "generation_config.json").exists() and "whisper" not in path.name]
KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "decoded texts": _decoded, "generation_config.json, first call": _first_call, "packed files": _packed,
    "blocks of a GGUF file, first call": _blocks,
    "special tokens of Whisper": _whisper, "integer keys of a pickle": _integer_keys, "audio": _audio,
}
