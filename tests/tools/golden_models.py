"""The golden models of the families, and how a result is compared with a golden file."""

import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from engine import Engine, Transformer, load_model
from engine.families import get_family
from engine.model.config import ModelConfig

from ..families.cases import CASES
from .encoders import engine_of
from .paths import ENCODERS as GOLDEN


@cache
def config_of(name: str) -> ModelConfig:
    """Return the config of a golden encoder, without its weights."""
    values = json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))
    return get_family(values).read_encoder(values).config


@cache
def arrays_of(name: str) -> frozenset[str]:
    """Return the names of the arrays in a golden file, of which none is read; no names if there is no such file."""
    path = GOLDEN / name / "expected.npz"
    if not path.exists():
        return frozenset()
    with np.load(path) as file:
        return frozenset(file.files)


ENCODERS = tuple(name for case in CASES for name in case.golden)
"""All golden encoders."""

MODELS = tuple(name for name in ENCODERS if arrays_of(name) & {"ids_0", "input_ids"})
"""The golden encoders that read token ids."""


def models_with(holds: Callable[[ModelConfig], Any]) -> tuple[str, ...]:
    """Return the models of ids whose config has something, for the parameters of tests.

    A config that cannot be read counts as having it, so that a mistake in one family fails the tests of this family
    and does not keep all tests from being collected.
    """
    return tuple(name for name in MODELS if _asked(holds, name, True))


def one_of_each(kind: Callable[[ModelConfig], Any]) -> tuple[str, ...]:
    """Return the first model of ids of each kind, for tests whose answer depends on the kind alone.

    A config that cannot be read is a kind of its own, for the reason that `models_with` has.
    """
    first: dict[Any, str] = {}
    for name in MODELS:
        first.setdefault(_asked(kind, name, name), name)
    return tuple(first.values())


def _asked(question: Callable[[ModelConfig], Any], name: str, otherwise: Any) -> Any:
    """Return what a function says of the config of a model; `otherwise` where the config cannot be read."""
    try:
        return question(config_of(name))
    except Exception:
        return otherwise


@cache
def _contents_of(name: str) -> dict[str, np.ndarray]:
    """Return the arrays of an expected.npz, which dozens of tests read, and none may change."""
    with np.load(GOLDEN / name / "expected.npz") as file:
        found = dict(file)
    for array in found.values():
        array.setflags(write=False)
    return found


class Golden:
    """The contents of an expected.npz."""

    def __init__(self, name):
        self.name, self.types, self.least_cosine, self.allowed = name, None, -1.0, 3e-5
        self.arrays = dict(_contents_of(name))
        if "input_ids" in self.arrays:      # a batch of bert.py, whose vectors are those of float32
            self.least_cosine, self.allowed = 0.999999, 2e-5
            self._read_batch()
        else:
            self.ids = [self.arrays[f"ids_{i}"].astype(int) for i in range(8)]
        if "types_0" in self.arrays:
            self.types = [self.arrays[f"types_{i}"].astype(int) for i in range(len(self.ids))]

    def _read_batch(self):
        """Make sequences of the rows of a batch whose tokens begin at the first column and have no holes."""
        mask = self.arrays["attention_mask"].astype(bool)
        lengths = mask.sum(1)
        hidden = np.split(self.arrays["hidden"], lengths.cumsum()[:-1])
        whole = [b for b, length in enumerate(lengths) if mask[b, :length].all()]
        assert len(whole) == 4
        self.ids = [self.arrays["input_ids"][b, : lengths[b]].astype(int) for b in whole]
        for i, b in enumerate(whole):
            self.arrays |= {f"rows_{i}": np.arange(lengths[b]), f"hidden_{i}": hidden[b]}
            if config_of(self.name).token_types:
                self.arrays[f"types_{i}"] = self.arrays["token_type_ids"][b, : lengths[b]]

    def expected(self, key):
        """(rows, vectors of these rows) of sequence `key`."""
        return self.arrays[f"rows_{key}"].astype(int), self.arrays[f"hidden_{key}"]

    def padded(self, pad_token_id, right=True):
        """(ids, mask, token types or None) of all sequences in arrays, padded on the right or on the left."""
        mask = np.zeros((len(self.ids), max(map(len, self.ids))), int)
        for row, ids in zip(mask, self.ids, strict=True):
            row[slice(0, len(ids)) if right else slice(len(row) - len(ids), None)] = 1
        padded, types = np.full(mask.shape, pad_token_id), np.zeros(mask.shape, int)
        padded[mask == 1] = np.concatenate(self.ids)
        if self.types is None:
            return padded, mask, None
        types[mask == 1] = np.concatenate(self.types)
        return padded, mask, types

    def forward(self, engine):
        """The vectors of all sequences, computed in one ragged batch."""
        return engine.forward(self.ids, None, self.types)

    def forward_alone(self, engine, i):
        """The vectors of one sequence, computed alone."""
        return engine.forward(self.ids[i][None], None, None if self.types is None else self.types[i][None])[0]


_model = cache(partial(load_model, kind="encode"))


def load(source, backend, task=None, **options):
    """An engine for a path or for a model in memory. A process reads each golden model once."""
    if isinstance(source, Transformer):
        return engine_of(source, backend=backend, **options)
    if source.is_relative_to(GOLDEN):
        return Engine(_model(source, task=task), backend=backend, **options)
    return Engine.load(source, backend=backend, task=task, **options)


def assert_near(hidden, golden, key):
    """The stored rows of sequence `key` are those of the golden file, within what the file allows."""
    rows, expected = golden.expected(key)
    assert_vectors(hidden[rows], expected, golden)


def assert_vectors(found, expected, golden):
    """Vectors [n,D] are within what a golden file allows: 3e-5, or 2e-5 if it was computed in float32."""
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= golden.allowed
    assert cosine(found, expected).min() >= golden.least_cosine


def assert_same_bits(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert np.array_equal(a, b)


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
