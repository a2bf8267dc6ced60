"""Spark with four workers on this machine: the bits of `engine embed`."""

import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="the package pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("Spark needs a Java virtual machine, java, which is not on the PATH", allow_module_level=True)

from pyspark.sql import SparkSession

from engine import Engine
from engine.adapters.spark import THREAD_TOKENS, embedder, loaded
from engine.cli.main import main

from ..tools import minilm
from ..tools.module_folders import write_router
from .conftest import bits_of

pytestmark = [pytest.mark.filterwarnings("default"),
              pytest.mark.skipif(not minilm.FOLDER.exists(), reason=minilm.MISSING)]
WORKERS = 4


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("packed") / "packed.npz")
    assert main(["convert", str(minilm.FOLDER), path, "--packed"]) == 0
    return path


@pytest.fixture(scope="module")
def spark(packed):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", False)
               .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
               .config("spark.python.daemon.module", "engine.adapters.spark_daemon")
               .config("spark.executorEnv.ENGINE_SPARK_MODEL", packed).getOrCreate())
    yield session
    session.stop()


def test_vectors_have_the_bits_of_the_command(spark, packed, by_command):
    rows, vectors = by_command
    texts = [None if number == 10 else text for number, text in enumerate(rows["text"].to_pylist())]
    frame = spark.createDataFrame(rows.set_column(1, "text", pa.array(texts))).repartition(WORKERS)
    table = frame.withColumn("vector", embedder(packed)("text")).toArrow().sort_by("id").combine_chunks()
    assert table["id"].equals(rows["id"])
    assert table["vector"][10].as_py() is None
    given = np.arange(len(rows)) != 10
    assert (bits_of(table.filter(pa.array(given))["vector"]) == vectors[given].view(np.uint32)).all()


def test_a_route_without_a_limit_may_have_long_texts(tmp_path):
    path = str(write_router(tmp_path / "model", "static query"))
    assert loaded(str(minilm.FOLDER), 1, ()).max_batch_tokens == THREAD_TOKENS
    long = "red " * (THREAD_TOKENS + 1)
    found = loaded(path, 1, ()).encode_query([long])
    assert found.tobytes() == Engine.load(path, threads=1).encode_query([long]).tobytes()


def children(pid):
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux counts the private memory of a process")
def test_workers_share_what_the_daemon_loaded(spark, packed, by_command):
    """A worker held 55 MB of its own when it imported pandas for itself, and holds 20."""
    frame = spark.createDataFrame(by_command[0]).repartition(WORKERS)
    frame.select(embedder(packed)("text")).write.format("noop").mode("overwrite").save()
    daemons = [pid for java in children(os.getpid()) for pid in children(java)
               if b"spark_daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    workers = [worker for daemon in daemons for worker in children(daemon)]
    assert len(workers) >= WORKERS
    for worker in workers:
        [kilobytes] = re.findall(r"^Private_Dirty: +(\d+) kB", Path(f"/proc/{worker}/smaps_rollup").read_text(), re.M)
        assert int(kilobytes) < 35_000


def test_integers(spark, by_command):
    rows = by_command[0].slice(0, 10)
    engine = Engine.load(minilm.FOLDER, threads=1)
    for precision in ("binary", "ubinary"):
        found = spark.createDataFrame(rows).coalesce(1).select(
            embedder(minilm.FOLDER, precision=precision)("text").alias("vector")).collect()
        assert [row.vector for row in found] == engine.encode(rows["text"].to_pylist(), precision=precision).tolist()
