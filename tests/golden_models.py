"""The golden models of the families, and how a result is compared with a golden file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, UnsupportedError
from engine.model import Model

GOLDEN = Path(__file__).parent / "golden"
SEQUENCES = 8
"""Number of sequences in a golden file, beside one with holes in its mask that a few files have."""


class Golden:
    """The contents of an expected.npz."""

    def __init__(self, name):
        self.name = name
        with np.load(GOLDEN / name / "expected.npz") as file:
            self.arrays = dict(file)
        self.ids = [self.arrays[f"ids_{i}"].astype(int) for i in range(SEQUENCES)]
        self.types = None
        if "types_0" in self.arrays:
            self.types = [self.arrays[f"types_{i}"].astype(int) for i in range(SEQUENCES)]

    def expected(self, key):
        """(rows, vectors of these rows) of sequence `key`."""
        return self.arrays[f"rows_{key}"].astype(int), self.arrays[f"hidden_{key}"]

    def padded(self, pad_token_id, right=True):
        """(ids, mask, token types or None) of all sequences in arrays, padded on the right or on the left."""
        mask = np.zeros((SEQUENCES, max(map(len, self.ids))), int)
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


def load(source, backend, **options):
    """An engine for a path or for a model in memory; skips where the GPU's backend refuses the model."""
    make = Engine if isinstance(source, Model) else Engine.load
    try:
        return make(source, backend=backend, **options)
    except UnsupportedError as error:
        if backend == "cuda":
            pytest.skip(str(error))
        raise


def gate_and_up_swapped(model):
    """The model with the two maps of each gate in each other's place; there must be a gate in every layer."""
    weights = dict(model.weights)
    for i in range(model.config.num_layers):
        for kind in ("weight", "bias"):
            gate, up = f"layers.{i}.ffn.gate.{kind}", f"layers.{i}.ffn.up.{kind}"
            assert (gate in weights) == (up in weights)
            if gate in weights:
                weights[gate], weights[up] = weights[up], weights[gate]
        assert f"layers.{i}.ffn.gate.weight" in weights
    return replace(model, weights=weights)


def assert_near(hidden, golden, key):
    """The stored rows of sequence `key` are those of the golden file within 3e-5."""
    rows, expected = golden.expected(key)
    assert hidden.dtype == np.float32
    assert np.abs(hidden[rows] - expected).max() <= 3e-5


def assert_wrong(engine, golden, least=0.1):
    """The vectors are far from those of the golden file, in every sequence that is long enough to show a mistake."""
    for i, hidden in enumerate(golden.forward(engine)):
        rows, expected = golden.expected(i)
        assert len(rows) < 3 or np.abs(hidden[rows] - expected).max() > least


def assert_same_bits(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert np.array_equal(a, b)


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
