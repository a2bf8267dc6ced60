"""Ray Data on a cluster of this machine: the bits of `Engine.encode`, also after a worker was killed."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")

from ray.data import ActorPoolStrategy

from engine import Engine
from engine.adapters.ray_data import Embed, require_unique_ids
from engine.base.errors import InputError

from ..tools import minilm
from .texts import manual

pytestmark = [pytest.mark.filterwarnings("default"),
              pytest.mark.skipif(not minilm.FOLDER.exists(), reason=minilm.MISSING)]

ROWS, BATCH = 2048, 128


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


@pytest.fixture(scope="module")
def texts():
    return list(manual()[:ROWS])


@pytest.fixture(scope="module")
def vectors(texts):
    return Engine.load(minilm.FOLDER, threads=1).encode(texts)


def dataset(texts, first=0):
    table = pa.table({"id": pa.array(range(first, first + len(texts))), "text": texts})
    return ray.data.from_arrow([table.slice(start, BATCH) for start in range(0, len(texts), BATCH)])


def kill_one(journal, killed):
    """Kill a worker as soon as it has finished its second batch."""
    while not killed:
        done = [path.name.split(".")[0] for path in journal.iterdir()]
        for pid in {pid for pid in done if done.count(pid) >= 2}:
            os.kill(int(pid), signal.SIGKILL)
            killed.append(pid)
            return
        time.sleep(0.01)


def test_a_killed_worker_changes_no_bit(texts, vectors, tmp_path):
    killed = []
    killer = threading.Thread(target=kill_one, args=(tmp_path, killed))
    killer.start()
    try:
        table = pa.concat_tables(dataset(texts).map_batches(
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
    assert table["id"].to_pylist() == list(range(ROWS))
    found = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 384)
    assert (found.view(np.uint32) == vectors.view(np.uint32)).all()




@pytest.mark.parametrize(("ids", "twice"), [([3, 1, 2, 3], "3"), (["b", "a", "c", "a"], "a")])
def test_ids_that_are_not_unique_are_refused(ids, twice):
    require_unique_ids(ray.data.from_arrow(pa.table({"id": ids[:-1]})), "id")
    with pytest.raises(InputError, match=f"ids of id must be unique, and 1 are not: {twice}$"):
        require_unique_ids(ray.data.from_arrow([pa.table({"id": ids[:2]}), pa.table({"id": ids[2:]})]), "id")
