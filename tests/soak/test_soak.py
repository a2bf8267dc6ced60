"""A short soak: every action runs and is right. What the soak looks for, it finds: growth, wrong bits, exceptions."""

import gc
import mmap
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from .__main__ import main
from .measure import BOUNDS, Record, growth, report, sample
from .work import Worker, World, WrongBits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("soak"), 0, numba=False)


@pytest.fixture
def worker(world):
    worker = Worker(world, [], random.Random(0))
    worker._engines += [(worker.loaded(source), source) for source in world.sources]
    return worker


def test_every_action(worker):
    gc.collect()        # else files that the tests before have left in cycles would be closed meanwhile
    before, engines = sample(worker._world.folder), list(worker._engines)
    for action in worker.actions:
        for _ in range(3):
            action()
    assert {worker.interrupt() for _ in range(30)} >= {"interrupted"}
    worker._engines[:] = engines    # some actions load others, each with a descriptor of its file or without one
    after = sample(worker._world.folder)
    assert after["descriptors"] == before["descriptors"]
    assert after["files"] == before["files"]


def test_a_short_run(tmp_path, capsys):
    record = tmp_path / "record"
    assert main(1.5, record=record, numba=False) == 0
    printed = capsys.readouterr().out
    assert "too short to judge" in printed
    assert "\n0 wrong results or errors" in printed
    assert "forward" in printed
    assert "tokens of prompts were shared, and sequences gave way" in printed
    assert record.read_text().count('"rss"') >= 1


def test_a_wrong_bit_is_found(worker, world, monkeypatch):
    source = world.sources[0]
    rows = [row.copy() for row in world.vectors[source]]
    for row in rows:
        row.view(np.uint32)[-1:] ^= 1
    monkeypatch.setitem(world.vectors, source, rows)
    worker._engines[:] = [(worker.loaded(source), source)]
    monkeypatch.setattr(worker, "_ragged", lambda most: ([9], [world.sequences[9]]))
    with pytest.raises(WrongBits):
        worker.forward()


def test_a_failing_child_is_found(worker, world, monkeypatch, capfd):
    monkeypatch.setattr(world, "plan_result", world.plan_result + 1)
    with pytest.raises(AssertionError, match="status 1"):
        worker.fork()
    assert "WrongBits" in capfd.readouterr().err


@pytest.mark.parametrize(("slope", "noise"), [(0.0, 3.0), (20.0, 3.0), (-7.0, 0.0)])
def test_the_fitted_line(slope, noise):
    seconds = np.arange(0, 3600, 4.0)
    rng = np.random.default_rng(0)
    drift = np.convolve(rng.standard_normal(1000), np.ones(30) / 30, "same")[: len(seconds)]  # neighbours resemble
    line = growth(seconds, 100 + slope * seconds / 3600 + noise * drift)
    assert abs(line.slope - slope) <= 1.5 * line.error + 1e-9
    assert abs(line.start - 100) < 1
    assert line.error < 2


def test_growth_is_reported(capsys):
    steady = dict.fromkeys(BOUNDS, 100.0)
    record = Record()
    for seconds in np.arange(0, 3600, 4.0):
        record.add(seconds, steady | {"rss": 100 + 20 * seconds / 3600})
    found = report(record, 600)
    assert len(found) == 1
    assert found[0].startswith("rss grew by 20.00")
    assert "descriptors" in capsys.readouterr().out


def test_what_is_sampled_is_really_there(tmp_path):
    before = sample(tmp_path)
    held = [open(os.devnull) for _ in range(5)]  # noqa: SIM115, to be found
    # A mapping of its own: the allocator would give memory that was used before, and is still resident.
    block = mmap.mmap(-1, 30_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(bytes(len(block)))
    Path(tmp_path / "x").touch()
    after = sample(tmp_path)
    assert after["descriptors"] - before["descriptors"] == len(held)
    assert after["files"] - before["files"] == 1
    for name in ("rss", "anonymous"):
        assert 25 < after[name] - before[name] < 60, name
    assert 25 < after["pss"] <= after["rss"]    # it also changes when other processes map the same files
    assert after["maps"] >= 10
    del block
    for file in held:
        file.close()
