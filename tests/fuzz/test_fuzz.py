"""The fuzzer finds nothing in a short run; its mutations reach the code behind checksums; its children see faults."""

import json
import mmap
import os
import pickletools
import random
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from engine.base.errors import WeightsError
from engine.families import get_family
from engine.files.npz import read_npz
from engine.files.reading import FormatError
from engine.files.torch_checkpoint import read_checkpoint
from engine.text.vocabularies.sentencepiece import parse_model
from engine.weights.input_layers import Patches
from engine.weights.waveform import Waveform

from ..families.cases import CONFIGS, NEW_CONFIGS
from ..tools.encoders import load_encoder, save_encoder
from ..tools.paths import TOKENIZERS as VOCABULARIES
from ..tools.tiny_models import hf_folder, random_model
from ..tools.torch_files import mapping, program, storage, tensor
from . import image_models, operations
from .__main__ import main
from .archives import Member, members_of, pack
from .binaries import CHECKPOINTS
from .cases import Cases
from .children import Children
from .corpus import family_folder
from .first_calls import KINDS
from .mutate import (
    EXTREME,
    checkpoint_of,
    npz_of,
    pickle_of,
    safetensors_of,
    sentencepiece_of,
    tokenizer_of,
    value_of,
)
from .tokenizer_files import BERT, TOKENIZERS

tokenizers = pytest.importorskip("tokenizers")


def test_a_short_run(capsys):
    assert main(["--cases", "1000", "--seed", "0"]) == 0
    printed = capsys.readouterr().out
    assert ", 0 findings" in printed
    assert "folder fitted to its config" in printed


def test_a_short_run_of_operations(capsys):
    assert main(["--ops", "--cases", "1000", "--seed", "0"]) == 0
    assert ", 0 findings" in capsys.readouterr().out


def test_a_short_run_of_calls(capsys):
    assert main(["--calls", "--cases", "200", "--seed", "0"]) == 0
    printed = capsys.readouterr().out
    assert "200 cases" in printed
    assert all(f"EngineError   {kind}" in printed for kind in KINDS)


def test_a_short_run_of_images_and_recordings(capsys):
    only = [part for kind in image_models.KINDS for part in ("--only", kind)]
    assert main([*only, "--cases", "200", "--seed", "0"]) == 0
    printed = capsys.readouterr().out
    assert ", 0 findings" in printed
    assert not any(" 0 answered" in line or " 0 EngineError" in line for line in printed.splitlines())


def test_a_short_run_of_jobs(capsys):
    pytest.importorskip("pyarrow")
    assert main(["--only", "jobs", "--cases", "30", "--seed", "0"]) == 0
    assert ", 0 findings" in capsys.readouterr().out


def test_a_short_run_of_checkpoints_and_vocabularies(capsys):
    kinds = ("checkpoint", "vocabulary", "folder")
    assert main([*(part for kind in kinds for part in ("--only", kind)), "--cases", "300", "--seed", "0"]) == 0
    printed = capsys.readouterr().out
    assert ", 0 findings" in printed
    assert all(f"EngineError   {kind}" in printed for kind in kinds)
    assert not any(" 0 answered" in line or " 0 EngineError" in line for line in printed.splitlines())


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return Cases(tmp_path_factory.mktemp("cases"), 7).start()


def test_a_source_loads_unchanged(cases):
    for source, name in enumerate(cases.kinds[: -len([*Cases.FITTED, *Cases.OTHERS])]):
        encoder = load_encoder(cases.path(source))
        assert (encoder.text is None) == (name == "npz by hand" or isinstance(encoder.stem, (Patches, Waveform)))


def test_every_family_has_a_folder_that_loads(tmp_path):
    for new, table in ((False, CONFIGS), (True, NEW_CONFIGS)):
        for name, values in table.items():
            for path, data in family_folder(name, values, new=new).items():
                (tmp_path / path).write_bytes(data)
            assert load_encoder(tmp_path).config == get_family({"model_type": name} | values).read_encoder(
                {"model_type": name} | values).config


def test_a_case_leaves_the_sources_as_they_were(cases):
    def contents():
        paths = [path for path in cases._place.rglob("*")
                 if path.is_file() and path.name != "saved.npz" and "other" not in path.parts]
        return {path: path.read_bytes() for path in paths}

    before, answers = contents(), [0, 0]
    for index in range(300):
        kind, answered = cases.run(index)
        answers[answered] += 1
        assert 0 <= kind < len(cases.kinds)
    assert contents() == before
    assert min(answers) > 30


def test_a_case_depends_on_its_number_alone(cases):
    some = [cases.run(index) for index in range(1000, 1100)]
    assert [cases.run(index) for index in reversed(range(1000, 1100))] == some[::-1]


FAULTS = {
    3: (lambda: os.kill(os.getpid(), 11), "killed by SIGSEGV"),
    5: (lambda: [None for _ in iter(int, 1)], "of CPU time"),
    9: (lambda: bytearray(b"x") * 300_000_000 and None, "bytes of memory"),
    10: (lambda: bytearray(2_000_000_000), "MemoryError"),
    11: (lambda: [][1], "IndexError"),
    12: (lambda: warnings.warn("odd", stacklevel=1), "UserWarning"),
    13: (lambda: os.abort(), "killed by SIGABRT"),
    14: (lambda: (_ for _ in ()).throw(SystemExit(0)), "SystemExit"),
}


def test_the_children_find_every_fault():
    def run(index):
        if index in FAULTS:
            FAULTS[index][0]()
        return index % 2, index >= 10

    children = Children(lambda: run, 2, cpu_seconds=1)
    found = dict(children.run(0, 20))
    assert found.keys() == FAULTS.keys()
    for index, what in found.items():
        assert FAULTS[index][1] in what
    assert children.counts.sum() == 20 - len(FAULTS) + 1  # the case that takes much memory gives an answer, too
    assert children.run(20, 30) == []


def test_the_children_find_a_case_that_waits():
    children = Children(lambda: lambda index: time.sleep(100), 1, seconds=1)
    assert children.run(3, 5) == [(3, "took over 1 s"), (4, "took over 1 s")]


def test_a_case_that_waits_once_is_no_finding(tmp_path):
    def wait_once(index):
        if index == 4 and not (tmp_path / "waited").exists():
            (tmp_path / "waited").touch()
            time.sleep(100)
        return 0, True

    children = Children(lambda: wait_once, 1, seconds=1)
    assert children.run(3, 6) == []
    assert children.counts.tolist() == [[0, 3]]


def test_the_children_find_a_leak():
    kept = []

    def leak(index):
        # A mapping of its own: the allocator would give memory that was used before, and is still resident.
        kept.append(mmap.mmap(-1, 40_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(bytes(40_000))
        return 0, True

    children = Children(lambda: leak, 1)
    [(first, what)] = children.run(100, 3200)
    assert first == 100
    assert "leak" in what


def test_mutated_archives_are_read(tmp_path):
    save_encoder(random_model(), tmp_path / "m.npz")
    data, read = (tmp_path / "m.npz").read_bytes(), 0
    for seed in range(60):
        (tmp_path / "x.npz").write_bytes(npz_of(random.Random(seed), data))
        try:
            read_npz(tmp_path / "x.npz")
            read += 1
        except WeightsError:
            pass
    assert read > 8


@pytest.mark.parametrize("wide", [False, True])
def test_archives_are_written_in_every_way_of_the_format(tmp_path, wide):
    save_encoder(random_model(), tmp_path / "m.npz")
    contents = members_of((tmp_path / "m.npz").read_bytes())
    members = [Member(one.name, one.contents, method=8 * (i % 2), flags=8 * (i % 3 == 1), zip64=wide and i % 3 == 0)
               for i, one in enumerate(contents)]
    (tmp_path / "x.npz").write_bytes(pack(members, zip64=wide))
    found, expected = read_npz(tmp_path / "x.npz"), read_npz(tmp_path / "m.npz")
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()}
    assert members_of((tmp_path / "x.npz").read_bytes()) == contents


def test_mutated_headers_are_read(tmp_path):
    file: Path = hf_folder(tmp_path) / "model.safetensors"
    data, messages = file.read_bytes(), set()
    for seed in range(100):
        file.write_bytes(safetensors_of(random.Random(seed), data))
        try:
            load_encoder(tmp_path)
        except WeightsError as error:
            messages.add(str(error).split(":")[1][:20])
    assert len(messages) >= 5


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
    data, read = (VOCABULARIES / "t5" / "spiece.model").read_bytes(), 0
    for seed in range(200):
        with suppress(FormatError, NotImplementedError):
            parse_model(sentencepiece_of(random.Random(seed), data))
            read += 1
    assert 50 < read < 200


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_tokenizers_are_read(name):
    tokenizer = tokenizers.Tokenizer.from_buffer(TOKENIZERS[name])
    assert len(tokenizer.encode("the cat").ids) > 1


def test_many_mutated_tokenizers_are_read():
    read = 0
    for seed in range(100):
        try:
            tokenizers.Tokenizer.from_buffer(tokenizer_of(random.Random(seed), BERT))
            read += 1
        except ValueError:
            pass
    assert 20 < read < 90


def test_operations_give_answers():
    answered = {name for i in range(500) for number, answer in [operations.call(random.Random(i))] if answer
                for name in [operations.NAMES[number]]}
    assert answered == set(operations.NAMES)


def test_a_mutation_leaves_its_source_alone():
    source = {"a": [1, {"b": 2}]}
    changed = [value_of(random.Random(seed), source) for seed in range(50)]
    assert source == {"a": [1, {"b": 2}]}
    assert sum(value != source for value in changed) > 30
    assert EXTREME.count([]) == 1
    assert json.loads(BERT) == json.loads(TOKENIZERS["BERT"])
