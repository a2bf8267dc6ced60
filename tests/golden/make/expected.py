"""Write the expected.npz of a golden model: random sequences and the vectors that an independent framework computes.

Every writer of models in this folder calls `make_expected`. The file holds, for sequence i of the lengths, ids_{i} [T],
rows_{i} (some of 0..T-1) and hidden_{i} [rows, D] in float32. A model with several token types has types_{i} [T], too.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.tools.paths import ENCODERS

VOCAB = 120
"""The number of words of every golden model."""
CHECKED = 129
"""The length of the sequence in which each mistake must show."""



@dataclass(frozen=True)
class Golden:
    """One golden model of a script with a computation in NumPy beside that of the framework."""

    kind: str
    """The class of transformers, such as NomicBertModel; or the name of a model that transformers does not have."""
    config: dict[str, Any]
    """Arguments of the class's config."""
    dtype: torch.dtype
    plain: Any
    """What the NumPy computation needs beside the tensors, in the script's own class."""
    own_config: dict[str, Any] = field(default_factory=dict)
    """What config.json says in place of the config that transformers writes."""
    new_names: bool = False
    """Whether the tensors have the names of transformers 5 rather than those of the checkpoints on the hub."""


Forward = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
"""Takes the ids [T] and the token types [T] of a sequence, and returns its vectors: float64 [T, D].

A model without several token types gets None for them, or the mask [T] where `make_expected` is given holes.
"""


def make_expected(
    folder: Path,
    run: Forward,
    lengths: tuple[int, ...],
    *,
    first_id: int = 4,
    kinds: int = 0,
    step: Callable[[int], int],
    holes: tuple[int, ...] = (),
    second: Forward | None = None,
    mistakes: Iterable[tuple[str, Forward]] = (),
    least: float = 1e-2,
) -> None:
    """Write expected.npz into a model's folder, and stop if two computations disagree or a mistake would not show.

    kinds: the number of token types. step: of a length, each how many rows one row is stored. holes: columns where the
    mask is 0 of one more sequence, "holes", whose last column is one of them. second: the same computation as `run`, by
    hand, which must agree within 1e-10. mistakes: names and wrong computations; each must change the stored rows of the
    sequence of `CHECKED` tokens by at least `least`, and so must the loss of the token types.
    """
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    sequences: list[tuple[int | str, int]] = [*enumerate(lengths), *([("holes", holes[-1] + 1)] if holes else [])]
    for suffix, length in sequences:
        ids = rng.integers(first_id, VOCAB, length)
        types = rng.integers(0, kinds, length) if kinds > 1 else None
        mask = np.ones(length, bool)
        if suffix == "holes":
            mask[list(holes)] = False
            arrays["mask_holes"] = mask
        beside = mask if holes else types
        rows = np.flatnonzero(mask)
        rows = np.union1d(rows[:: step(length)], rows[-1:])
        hidden = run(ids, beside)
        if second is not None:
            error = np.abs(hidden - second(ids, beside))[mask].max()
            print(f"{folder.name}, {length} tokens: NumPy differs by {error:.1e}")
            if not error < 1e-10:
                raise SystemExit("the two computations disagree")
            if length == CHECKED:
                without = [("no token types", second)] * (types is not None)
                for name, wrong in without:
                    check_mistake(name, wrong(ids, None)[rows], hidden[rows], least)
                for name, wrong in mistakes:
                    check_mistake(name, wrong(ids, beside)[rows], hidden[rows], least)
        arrays |= {f"ids_{suffix}": ids.astype(np.uint8), f"rows_{suffix}": rows.astype(np.uint16),
                   f"hidden_{suffix}": hidden[rows].astype(np.float32)}  # fmt: skip
        if types is not None:
            arrays[f"types_{suffix}"] = types.astype(np.uint8)
    np.savez_compressed(folder / "expected.npz", **arrays)
    print(f"{folder.name}: vectors up to {max(np.abs(a).max() for n, a in arrays.items() if 'hidden' in n):.1f}")


def check_mistake(name: str, wrong: np.ndarray, expected: np.ndarray, least: float) -> None:
    """Stop unless a mistake changes the result by at least `least`."""
    change = np.abs(wrong - expected).max()
    print(f"    {name}: changes the result by {change:.4f}")
    if not change >= least:
        raise SystemExit("this mistake would not show")


def sparse(length: int) -> int:
    """Return each how many rows one row of a sequence is stored, for the tests of windows of about 64 tokens."""
    return 1 if length < 63 else 3 if length < 67 else 8


def write_models(models: Mapping[str, Any], save_model: Callable[[Path, Any], None],
                 save_expected: Callable[[Path, Any], None]) -> None:  # fmt: skip
    """Write the folders of golden models by their names, or only the folders named on the command line.

    A model with `own_config` gets it as its config.json, in place of the config.json that transformers writes.
    """
    torch.set_num_threads(1)
    for name in sys.argv[1:] or models:
        folder, golden = ENCODERS / name, models[name]
        save_model(folder, golden)
        save_expected(folder, golden)
        if golden.own_config:
            text = json.dumps(golden.own_config, indent=2) + "\n"
            (folder / "config.json").write_text(text, encoding="utf-8")
