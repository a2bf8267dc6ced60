"""The memory of a loaded model: mapped from the file or a private copy, and kernels that refuse advice."""

import ast
import ctypes
import mmap
import os
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, Generator, Model, Transformer, save
from engine.base.errors import InputError, WeightsError
from engine.files import reading
from engine.files.reading import release_freed, release_pages

from ..tools.damage import owner
from ..tools.decoders import DECODERS, make_weights
from ..tools.encoders import engine_of, load_encoder, save_encoder
from ..tools.limited import outcome
from ..tools.model_files import same
from ..tools.tiny_models import hf_folder, random_model


def saved(folder: Path) -> tuple[Path, Path]:
    save_encoder(random_model(), folder / "m.npz")
    return folder / "m.npz", hf_folder(folder / "hf")


def test_a_copy_is_the_same_model(tmp_path):
    for path in saved(tmp_path):
        copy = load_encoder(path, memory="copy")
        assert same(copy, load_encoder(path))
        word = copy.weights["embeddings.word"]
        assert isinstance(owner(word), mmap.mmap)
        assert not word.flags.writeable
        assert word.ctypes.data % 64 == 0 or path.is_dir()


def damaged_after_load(path: Path, memory: str) -> list[float]:
    engine = Engine.load(path, threads=1, memory=memory)
    before = engine.forward([[1, 2, 3]])[0]
    file = path if path.is_file() else path / "model.safetensors"
    os.truncate(file, 10)
    assert np.array_equal(engine.forward([[1, 2, 3]])[0], before)
    return []


def test_a_copy_outlives_its_file(tmp_path):
    for path in saved(tmp_path):
        assert outcome(damaged_after_load, path, "copy") == "ok: []"
    save_encoder(random_model(vocab_size=30_000), tmp_path / "large.npz")
    assert outcome(damaged_after_load, tmp_path / "large.npz", "map") == "killed by SIGBUS"


def test_a_copy_keeps_its_pages_when_pages_are_released(tmp_path):
    path, _ = saved(tmp_path)
    model = load_encoder(path, memory="copy")
    release_pages(model.weights.values())
    assert same(model, random_model())


def resident() -> int:
    """Return the bytes of this process that lie in memory and in no file."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return 1024 * int(line.split()[1])


def freed_and_released() -> list[float]:
    arrays = [np.ones(12_500) for _ in range(2_000)]    # 100 KB each: the C library maps only larger ones
    last = np.ones(12_500)                              # a wall behind which free memory is not returned by itself
    full = resident()
    del arrays
    release_freed()
    assert last.all()
    return [float(full - resident())]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps what was freed")
def test_freed_memory_returns_to_the_system():
    [returned] = ast.literal_eval(outcome(freed_and_released).removeprefix("ok: "))
    assert returned > 150_000_000


def test_a_generator_that_is_loaded_returns_what_it_freed(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(reading, "release_freed", lambda: calls.append(1))
    config = DECODERS["Llama"]
    path = tmp_path / "m.npz"
    save(Model(decoder=Transformer(config, make_weights(config))), path)
    Generator.load(path)
    assert calls == [1]


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    path, _ = saved(tmp_path)
    fstat = os.fstat

    def longer(descriptor):
        result = list(fstat(descriptor))
        result[6] += 100
        return os.stat_result(result)

    monkeypatch.setattr(reading.os, "fstat", longer)
    with pytest.raises(WeightsError, match="changed its length"):
        load_encoder(path, memory="copy")


def test_memory_is_an_option_that_is_pickled(tmp_path):
    path, _ = saved(tmp_path)
    engine = Engine.load(path, backend="reference", threads=1, memory="copy")
    assert b"copy" in pickle.dumps(engine)
    assert pickle.loads(pickle.dumps(engine)).forward([[1]])[0].shape == (1, 12)
    for memory in ("mmap", None, 5):
        with pytest.raises(InputError, match="memory must be 'map' or 'copy'"):
            Engine.load(path, memory=memory)


class _Stubborn(mmap.mmap):
    def madvise(self, *_):
        raise OSError(22, "Invalid argument")


def test_advice_may_be_refused(tmp_path, monkeypatch):
    path, _ = saved(tmp_path)
    monkeypatch.setattr(reading.mmap, "mmap", _Stubborn)
    assert Engine.load(path, threads=1).forward([[1, 2]])[0].shape == (2, 12)


@pytest.mark.parametrize("path", [None, 5, ["a"]])
def test_what_is_no_path(path):
    with pytest.raises(InputError, match="the path of a model must be a str or a Path"):
        Engine.load(path)


def test_the_home_folder(tmp_path, monkeypatch):
    path, _ = saved(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    engine = Engine.load(f"~/{path.name}", backend="reference", threads=1)
    assert pickle.loads(pickle.dumps(engine)).threads == 1


def test_a_mapped_file_holds_a_descriptor_only_where_python_needs_one(tmp_path):
    path, _ = saved(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    model = load_encoder(path)
    assert len(os.listdir("/proc/self/fd")) - before == (sys.version_info < (3, 13))
    del model
    assert len(os.listdir("/proc/self/fd")) == before


def test_too_little_memory_for_the_weights_is_named():
    model = random_model(ffn_size=2_000_000, num_layers=1)
    text = outcome(engine_of, model, memory=150_000_000)
    assert re.fullmatch(r"MemoryError: no memory for [\d,]+ bytes of weights or workspace: Cannot allocate .*", text)
