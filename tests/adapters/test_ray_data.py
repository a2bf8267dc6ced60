"""Ray Data on a cluster of this machine: the bits of `engine embed`, also if a worker is killed, and the example."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")

import pyarrow.parquet as pq
from ray.data import ActorPoolStrategy

from engine.adapters.ray_data import Embed, require_unique_ids
from engine.base.errors import InputError

from ..tools import minilm
from ..tools.paths import ROOT
from .conftest import bits_of

pytestmark = [pytest.mark.filterwarnings("default"),
              pytest.mark.skipif(not minilm.FOLDER.exists(), reason=minilm.MISSING)]

BATCH = 128


class Watched(Embed):
    """`Embed`, and a file for each batch with the process and the threads that computed it."""

    def __init__(self, model, journal, **options):
        super().__init__(model, **options)
        self.journal = Path(journal)

    def __call__(self, batch):
        result = super().__call__(batch)
        first = batch.column("id")[0].as_py()
        (self.journal / f"{os.getpid()}.{first}.{self._engine.threads}").touch()
        return result


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=300 * 2**20)
    yield
    ray.shutdown()


def kill_one(journal, killed):
    """Kill a worker as soon as it has finished its second batch."""
    while not killed:
        done = [path.name.split(".")[0] for path in journal.iterdir()]
        for pid in {pid for pid in done if done.count(pid) >= 2}:
            os.kill(int(pid), signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.01)


def test_a_killed_worker_changes_no_bit(by_command, tmp_path):
    rows, vectors = by_command
    dataset = ray.data.from_arrow([rows.slice(start, BATCH) for start in range(0, len(rows), BATCH)])
    killed = []
    killer = threading.Thread(target=kill_one, args=(tmp_path, killed))
    killer.start()
    try:
        table = pa.concat_tables(dataset.map_batches(
            Watched, compute=ActorPoolStrategy(size=2), num_cpus=1, batch_size=BATCH, batch_format="pyarrow",
            fn_constructor_kwargs={"model": str(minilm.FOLDER), "journal": str(tmp_path)},
        ).iter_batches(batch_size=None, batch_format="pyarrow"))
    finally:
        stopped = killed or killed.append(None)
        killer.join()
    assert stopped, "no worker was killed"
    runs = [path.name.split(".") for path in tmp_path.iterdir()]
    assert len({pid for pid, _, _ in runs}) == 3, "two workers, and the one that took the place of the killed one"
    assert {threads for _, _, threads in runs} == {"1"}
    assert table.column_names == ["id", "text", "vector"]
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 384)
    table = table.sort_by("id").combine_chunks()
    assert table["id"].equals(rows["id"])
    assert (bits_of(table["vector"]) == vectors.view(np.uint32)).all()


def test_the_example_leaves_out_what_is_done(by_command, tmp_path):
    rows, vectors = by_command[0].slice(0, 300), by_command[1][:300]
    folder = {name: tmp_path / name for name in ("in", "out", "checkpoint")}
    folder["in"].mkdir()
    program = ROOT / "examples/embed_with_ray.py"
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 60
    command = [sys.executable, str(program), str(minilm.FOLDER.absolute()), *map(str, folder.values()), "id", "text"]
    environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    for start in (0, 200):
        pq.write_table(rows.slice(start, 200), folder["in"] / f"{start}.parquet")
        subprocess.run(command, check=True, env=environment)
    table = pq.read_table(folder["out"]).sort_by("id").combine_chunks()
    assert table["id"].equals(rows["id"]), "each row is there once"
    assert (bits_of(table["vector"]) == vectors.view(np.uint32)).all()


@pytest.mark.parametrize(("ids", "twice"), [([3, 1, 2, 3], "3"), (["b", "a", "c", "a"], "a")])
def test_ids_that_are_not_unique_are_refused(ids, twice):
    require_unique_ids(ray.data.from_arrow(pa.table({"id": ids[:-1]})), "id")
    with pytest.raises(InputError, match=f"ids of id must be unique, and 1 are not: {twice}$"):
        require_unique_ids(ray.data.from_arrow([pa.table({"id": ids[:2]}), pa.table({"id": ids[2:]})]), "id")
