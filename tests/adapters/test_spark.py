"""Spark with four workers on this machine: the bits of `Engine.encode`, and the memory of the workers."""

import os
import shutil
import sys

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
if shutil.which("java") is None:
    pytest.skip("Spark needs a Java virtual machine", allow_module_level=True)

from pyspark.sql import SparkSession

from engine import Engine
from engine.adapters.spark import embedder

from ..tools import minilm
from .texts import manual

pytestmark = [pytest.mark.filterwarnings("default"),
              pytest.mark.skipif(not minilm.FOLDER.exists(), reason=minilm.MISSING)]
WORKERS = 4


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (SparkSession.builder.master(f"local[{WORKERS}]").config("spark.ui.enabled", False)
               .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
    yield session
    session.stop()


def test_vectors_have_the_bits_of_encode(spark):
    texts = list(manual()[:1000])
    texts[10] = None
    frame = spark.createDataFrame([*enumerate(texts)], "id long, text string").repartition(WORKERS)
    table = frame.withColumn("vector", embedder(minilm.FOLDER)("text")).toArrow().sort_by("id").combine_chunks()
    assert table["id"].to_pylist() == list(range(len(texts)))
    column = table["vector"].combine_chunks()
    assert column[10].as_py() is None
    vectors = Engine.load(minilm.FOLDER, threads=1).encode([text for text in texts if text is not None])
    assert (column.flatten().to_numpy().view(np.uint32) == vectors.reshape(-1).view(np.uint32)).all()


def test_integers(spark):
    frame = spark.createDataFrame([(text,) for text in manual()[:10]], "text string").coalesce(1)
    engine = Engine.load(minilm.FOLDER, threads=1)
    for precision in ("binary", "ubinary"):
        found = frame.select(embedder(minilm.FOLDER, precision=precision)("text").alias("vector")).collect()
        wanted = engine.encode(list(manual()[:10]), precision=precision)
        assert [row.vector for row in found] == wanted.tolist()
