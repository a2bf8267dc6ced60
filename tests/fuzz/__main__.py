"""Load mutated models, run them, and report what is neither an answer nor an `EngineError`.

    python -m tests.fuzz SECONDS [SEED]
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from engine import Engine
from engine.errors import EngineError
from engine.model import load_model, save_model
from tests.fuzz.mutate import folder_of, npz_of
from tests.limited import outcome
from tests.model_files import st_folder
from tests.tiny_models import hf_folder, random_model
from tests.tiny_text import tiny_text

CASES_PER_CHILD = 20


def main(seconds: float, seed: int) -> int:
    """Run for about `seconds`, and return the number of findings."""
    print(f"seed {seed}")
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = _sources(folder)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            _step(sources, folder / "case", seed, counts)
            seed += CASES_PER_CHILD
    print(f"{sum(counts.values()):8,}  files")
    for kind, count in counts.most_common():
        print(f"{count:8,}  {kind}")
    return sum(count for name, count in counts.items() if name.startswith("FOUND"))


def _sources(folder: Path) -> list[Path]:
    text = tiny_text(prompts={"q": "query: "})
    st = st_folder(folder / "st", "Transformer", "Pooling", "Normalize")
    (st / "tokenizer.json").write_bytes(text.tokenizer_json)
    save_model(random_model(text), folder / "m.npz")
    return [st, hf_folder(folder / "hf", "roberta"), hf_folder(folder / "distil", "distilbert"), folder / "m.npz",
            folder / "m.npz"]


def _step(sources: list[Path], place: Path, seed: int, counts: Counter[str]) -> None:
    """Run some cases in one child; where that fails, each in a child of its own, to find the one that failed."""
    result = outcome(_run, sources, place, range(seed, seed + CASES_PER_CHILD), memory=1_000_000_000, seconds=30)
    if result.startswith("ok: "):
        answered, total = map(int, result[5:-1].split(","))
        counts["answered"] += answered
        counts["EngineError"] += total - answered
        return
    for one in range(seed, seed + CASES_PER_CHILD):
        result = outcome(_run, sources, place, range(one, one + 1), memory=500_000_000, seconds=8)
        if result.startswith("ok: "):
            counts["answered" if result == "ok: (1, 1)" else "EngineError"] += 1
        else:
            counts[f"FOUND {result[:150]}"] += 1
            print(f"seed {one}: {result[:1000]}", flush=True)


def _run(sources: list[Path], place: Path, seeds: range) -> tuple[int, int]:
    answered = 0
    for seed in seeds:
        path = _mutated(sources, place, random.Random(seed))
        try:
            engine = Engine(load_model(path), threads=1, backend=("auto", "reference")[seed % 2])
            with np.errstate(all="ignore"):  # finite weights can still be so large that their products are not
                engine.forward([[0, 1, 2], []])
                if engine.text is not None:
                    engine.encode(["the cat sat on a mat", "", ("a" * 300, "x")])
            answered += 1
        except EngineError:
            pass
    return answered, len(seeds)


def _mutated(sources: list[Path], place: Path, rng: random.Random) -> Path:
    source = rng.choice(sources)
    for old in sorted(place.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()
    place.mkdir(exist_ok=True)
    if source.is_dir():
        folder_of(rng, source, place)
        return place
    (place / "m.npz").write_bytes(npz_of(rng, source.read_bytes()))
    return place / "m.npz"


if __name__ == "__main__":
    given = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    sys.exit(min(1, main(float(sys.argv[1]), given)))
