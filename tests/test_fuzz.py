"""A short run of the fuzzer: its mutations reach the code behind the checksums, and find nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.errors import WeightsError
from engine.model import load_model, save_model
from engine.weights.npz import read_npz

from .fuzz.__main__ import main
from .fuzz.mutate import EXTREME, npz_of, safetensors_of, value_of
from .tiny_models import hf_folder, random_model

pytest.importorskip("tokenizers")


def test_a_short_run(capsys):
    assert main(2.0, 0) == 0
    printed = capsys.readouterr().out
    assert "answered" in printed
    assert "EngineError" in printed


def test_mutated_archives_are_read(tmp_path):
    save_model(random_model(), tmp_path / "m.npz")
    data, read = (tmp_path / "m.npz").read_bytes(), 0
    for seed in range(60):
        (tmp_path / "x.npz").write_bytes(npz_of(random.Random(seed), data))
        try:
            read_npz(tmp_path / "x.npz")
            read += 1
        except WeightsError:
            pass
    assert read > 20


def test_mutated_headers_are_read(tmp_path):
    file: Path = hf_folder(tmp_path) / "model.safetensors"
    data, messages = file.read_bytes(), set()
    for seed in range(100):
        file.write_bytes(safetensors_of(random.Random(seed), data))
        try:
            load_model(tmp_path)
        except WeightsError as error:
            messages.add(str(error).split(":")[1][:20])
    assert len(messages) >= 5


def test_a_mutation_leaves_its_source_alone():
    source = {"a": [1, {"b": 2}]}
    changed = [value_of(random.Random(seed), source) for seed in range(50)]
    assert source == {"a": [1, {"b": 2}]}
    assert sum(value != source for value in changed) > 30
    assert EXTREME.count([]) == 1
