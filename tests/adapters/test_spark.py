"""Spark with four workers on this machine: the bits of `engine embed`, and the memory of the workers."""

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
from engine.adapters.spark import embedder
from engine.interface.cli.main import main

from ..tools import minilm
from .conftest import bits_of

pytestmark = [pytest.mark.filterwarnings("default"),
              pytest.mark.skipif(not minilm.FOLDER.exists(), reason=minilm.MISSING)]
WORKERS = 4
ROWS = 250
"""The rows of a worker when its memory is measured."""


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


def workers():
    """Return the processes of Spark's daemon and its workers, by their numbers, the daemon first."""
    found, new = [], [os.getpid()]
    while new:
        new = [int(child) for parent in new for path in Path(f"/proc/{parent}/task").glob("*/children")
               for child in path.read_text().split()]
        found += [pid for pid in new if b"spark_daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def memory(spark, packed, texts, count):
    """Return the megabytes of the daemon and its workers, after each of `count` workers embedded its rows."""
    rows = pa.table({"text": texts[:count * ROWS]})
    for _ in range(5):
        # A job whose first task ends before the last begins needs fewer workers.
        spark.createDataFrame(rows).repartition(count).select(embedder(packed)("text")).write.format("noop").mode(
            "overwrite").save()
        found = workers()
        if len(found) == 1 + count:
            break
    assert len(found) == 1 + count
    sizes = [int(re.search(r"^Pss: +([0-9]+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
             for pid in found]
    return sum(sizes) / 1000


def test_four_workers_share_what_one_holds(spark, packed, by_command, capsys):
    texts = by_command[0]["text"].to_pylist()
    one, four = (memory(spark, packed, texts, count) for count in (1, WORKERS))
    with capsys.disabled():
        print(f"\nSpark: one worker and its daemon {one:.0f} MB, {WORKERS} workers {four:.0f} MB: {four / one:.2f}")
    assert four <= 1.5 * one


def test_vectors_have_the_bits_of_the_command(spark, packed, by_command):
    rows, vectors = by_command
    texts = [None if number == 10 else text for number, text in enumerate(rows["text"].to_pylist())]
    frame = spark.createDataFrame(rows.set_column(1, "text", pa.array(texts))).repartition(WORKERS)
    table = frame.withColumn("vector", embedder(packed)("text")).toArrow().sort_by("id").combine_chunks()
    assert table["id"].equals(rows["id"])
    assert table["vector"][10].as_py() is None
    given = np.arange(len(rows)) != 10
    assert (bits_of(table.filter(pa.array(given))["vector"]) == vectors[given].view(np.uint32)).all()


def test_integers(spark, by_command):
    rows = by_command[0].slice(0, 10)
    engine = Engine.load(minilm.FOLDER, threads=1)
    for precision in ("binary", "ubinary"):
        found = spark.createDataFrame(rows).coalesce(1).select(
            embedder(minilm.FOLDER, precision=precision)("text").alias("vector")).collect()
        assert [row.vector for row in found] == engine.encode(rows["text"].to_pylist(), precision=precision).tolist()
