"""A short run of the fuzzer of checkpoints and vocabularies: it reaches the code behind, and finds nothing."""

from __future__ import annotations

import pickletools
import random
from contextlib import suppress

import pytest

from engine.base.errors import WeightsError
from engine.files.reading import FormatError
from engine.files.torch_checkpoint import read_checkpoint
from engine.text.vocabularies.sentencepiece import parse_model

from ..tools.paths import TOKENIZERS
from ..tools.torch_files import mapping, program, storage, tensor
from .pickles import CHECKPOINTS, KINDS, checkpoint_of, main, pickle_of, sentencepiece_of

pytest.importorskip("tokenizers")


def test_a_short_run(capsys):
    assert main(300, 0) == 0
    printed = capsys.readouterr().out
    for kind in KINDS:
        assert f"{kind} answered" in printed
        assert f"{kind} EngineError" in printed


def test_mutated_checkpoints_are_read_and_refused_for_many_reasons(tmp_path):
    read, messages = 0, set()
    for seed in range(300):
        rng = random.Random(seed)
        (tmp_path / "x.bin").write_bytes(checkpoint_of(rng, rng.choice(CHECKPOINTS)))
        try:
            read_checkpoint(tmp_path / "x.bin", lambda key: None if key == "position_ids" else key)
            read += 1
        except WeightsError as error:
            messages.add(str(error).partition(": ")[2][:30])
    assert read > 20
    assert len(messages) > 20


def test_most_mutated_pickles_are_still_pickles():
    data, whole = program(mapping({"a": tensor(storage())})), 0
    for seed in range(200):
        with suppress(ValueError):
            whole += all(pickletools.genops(pickle_of(random.Random(seed), data)))
    assert whole > 100


def test_mutated_sentencepiece_models_are_read():
    data, read = (TOKENIZERS / "t5" / "spiece.model").read_bytes(), 0
    for seed in range(200):
        with suppress(FormatError, NotImplementedError):
            parse_model(sentencepiece_of(random.Random(seed), data))
            read += 1
    assert 50 < read < 200
