"""Fuzz each parser with atheris, which goes on from the inputs that reach new lines.

    python -m tests.fuzz.guided TARGET FOLDER [options of libFuzzer, such as -max_total_time=60]

FOLDER keeps the inputs that reached new lines. An input that raises anything but an `EngineError` is written to a file
crash-... in the current folder; `python -m tests.fuzz.guided TARGET FILE` repeats it.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["engine"]):
    import numpy as np

    from engine.base.errors import EngineError
    from engine.files.gguf import GgufFile
    from engine.files.npz import read_npz
    from engine.files.reading import FormatError, parse_object
    from engine.files.safetensors import read_safetensors
    from engine.files.torch_checkpoint import read_checkpoint
    from engine.model.text_config import TextConfig
    from engine.text.tokenizer import Tokenizer
    from engine.text.vocabularies.gguf import read_gguf_tokenizer
    from engine.text.vocabularies.sentencepiece import BPE, UNIGRAM, parse_model
    from engine.weights.bfloat16 import from_bfloat16, to_bfloat16
    from engine.weights.parameters import expected_shapes
    from tests.families.cases import CONFIGS, NEW_CONFIGS
    from tests.fuzz import mutate, operations
    from tests.fuzz.archives import Member, members_of, pack
    from tests.fuzz.binaries import CHECKPOINTS, integers_of, tokenizer_settings
    from tests.fuzz.cases import WORDS_OF_FAMILIES, encoder_of
    from tests.fuzz.corpus import NPZ, json_bytes, sources
    from tests.fuzz.tokenizer_files import TOKENIZERS
    from tests.tools.encoders import load_encoder
    from tests.tools.gguf_files import gguf
    from tests.tools.paths import FILES, MARIAN_TOKENIZER
    from tests.tools.paths import TOKENIZERS as VOCABULARIES

FIRST_INPUTS = 20
LARGEST = 20_000
"""The most bytes of an input; larger first inputs are cut."""
GGUF = FILES / "small.gguf"
GGUF_TOKENIZERS = [gguf(tokenizer_settings(random.Random(i)), {}) for i in range(4)]
SENTENCEPIECE = [path.read_bytes()[:LARGEST] for path in (
    *sorted(VOCABULARIES.glob("*/*.model")), *sorted(MARIAN_TOKENIZER.glob("*.spm")))]


@dataclass(frozen=True)
class Target:
    """A parser, the inputs to start from, and a change of an input that keeps its structure."""

    seeds: list[bytes]
    mutate: Callable[[random.Random, bytes], bytes]
    run: Callable[[bytes], Any]


class Choices(random.Random):
    """Random choices that are read from bytes, so that a small change of the bytes changes few of them."""

    def __new__(cls, data: bytes) -> Choices:
        return super().__new__(cls)

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def getrandbits(self, k: int, /) -> int:
        size = (k + 7) // 8
        part = self._data[self._at : self._at + size].ljust(size, b"\0")
        self._at += size
        return int.from_bytes(part, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) / 2**53


def targets(place: Path) -> dict[str, Target]:
    """Return all targets by their names; `place` is a folder for the files that they read."""
    models = sources(place)
    archives = [files[NPZ] for files in models.values() if NPZ in files]
    tensors = [files["model.safetensors"] for files in models.values() if "model.safetensors" in files]
    folder = models["sentence folder, BERT"]
    settings = {name: json.loads(data) for name, data in folder.items()
                if name.endswith(".json") and name != "tokenizer.json"}
    configs = [json_bytes({"model_type": name} | values) for table in (CONFIGS, NEW_CONFIGS)
               for name, values in table.items()]
    members = [member.contents for data in archives[2:] for member in members_of(data)]

    def with_words(rng: random.Random, data: bytes) -> bytes:
        return mutate.json_of(rng, data, WORDS_OF_FAMILIES)

    def written(name: str, data: bytes) -> Path:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path

    def run_config(data: bytes) -> None:
        values = parse_object(data)
        config = encoder_of(values).config
        if config.num_layers < 100:
            expected_shapes(config)

    def run_settings(data: bytes) -> None:
        values = parse_object(data)
        for name, contents in folder.items():
            written(f"folder/{name}", json_bytes(values[name]) if name in values else contents)
        load_encoder(place / "folder")

    def run_tokenizer(data: bytes) -> None:
        tokenizer = Tokenizer(TextConfig(data), 12, 1)
        tokenizer(["the cat", ("a b", "query: Äé")])
        tokenizer.decode([4, 20, 5, 5])

    def run_gguf(data: bytes) -> None:
        file = GgufFile(written("m.gguf", data))
        with np.errstate(all="ignore"):
            file.read()
        Tokenizer(TextConfig(read_gguf_tokenizer(file.settings)), 12, 1)(["the cat"])

    def run_sentencepiece(data: bytes) -> None:
        parse_model(data, UNIGRAM, BPE)

    def run_numbers(data: bytes) -> None:
        wide = np.frombuffer(data[: len(data) // 4 * 4], np.float32)
        if np.isfinite(wide).all() and (np.abs(wide) < 3e38).all():
            to_bfloat16(from_bfloat16(to_bfloat16(wide)))
        read_npz(written("x.npz", pack([Member("x.npy", data)])))

    def change_numbers(rng: random.Random, data: bytes) -> bytes:
        return rng.choice((mutate.npy_of, mutate.bytes_of))(rng, data)

    return {
        "npz": Target(archives, mutate.npz_of, lambda data: load_encoder(written("m.npz", data))),
        "safetensors": Target(tensors, mutate.safetensors_of,
                              lambda data: read_safetensors(written("m.safetensors", data))),
        "config": Target(configs, with_words, run_config),
        "settings": Target([json_bytes(settings)], with_words, run_settings),
        "tokenizer": Target(list(TOKENIZERS.values()), mutate.tokenizer_of, run_tokenizer),
        "gguf": Target([GGUF.read_bytes(), *GGUF_TOKENIZERS], integers_of, run_gguf),
        "pickles": Target(CHECKPOINTS, mutate.checkpoint_of, lambda data: read_checkpoint(written("m.bin", data))),
        "sentencepiece": Target(SENTENCEPIECE, mutate.sentencepiece_of, run_sentencepiece),
        "numbers": Target(members, change_numbers, run_numbers),
        "ops": Target([random.Random(i).randbytes(200) for i in range(FIRST_INPUTS)], mutate.bytes_of,
                      lambda data: operations.call(Choices(data))),
    }


def main() -> None:
    """Run one target as the command line says; atheris ends the process."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        found = targets(Path(place))
        if len(sys.argv) < 3 or sys.argv[1] not in found:
            sys.exit(f"{__doc__}\nTargets: {', '.join(found)}")
        target, path = found[sys.argv[1]], Path(sys.argv[2])
        if not path.is_file():
            path.mkdir(parents=True, exist_ok=True)
            for i, seed in enumerate(target.seeds):
                (path / f"seed-{i}").write_bytes(seed)
        warnings.simplefilter("error")

        def run(data: bytes) -> None:
            with suppress(EngineError, FormatError):
                target.run(data)

        def change(data: bytes, largest: int, seed: int) -> bytes:
            rng = random.Random(seed)
            if rng.random() < 0.8:
                try:
                    changed = target.mutate(rng, data)
                except Exception:  # the input has no structure left
                    changed = b""
                if 0 < len(changed) <= largest:
                    return changed
            return atheris.Mutate(data, largest)

        atheris.Setup(
            [sys.argv[0], str(path), "-timeout=10", "-rss_limit_mb=500", f"-max_len={LARGEST}", *sys.argv[3:]],
            run, custom_mutator=change)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
