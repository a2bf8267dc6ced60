"""Vectors of a column of texts in Spark: `df.withColumn("vector", embedder("model.npz")("text"))`.

    from engine.adapters.spark import embedder

    spark = SparkSession.builder.config("spark.task.cpus", 4).getOrCreate()
    embed = embedder("packed.npz", normalize_embeddings=True)
    spark.read.parquet("in/").withColumn("vector", embed("text")).write.parquet("out/")

Spark runs one Python process for each task of a machine, and each loads the model. Processes that load a packed file
(`engine convert MODEL packed.npz --packed`) share its memory.

This is an `arrow_udf`, which Spark has since version 4.1. `predict_batch_udf` is older, but it makes each number of a
vector an object of pandas: it cost five times the CPU time in our measurement (docs/decisions.md), and has no nulls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..base.install import needs_package
from ..interface.engine import Engine
from .arrow import check_encode, encode_column

with needs_package("'pyspark[sql]>=4.1'", __name__):
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import ArrayType, ByteType, DataType, FloatType, ShortType

_NUMBERS: dict[str, tuple[DataType, pa.DataType]] = {
    "float32": (FloatType(), pa.float32()), "int8": (ByteType(), pa.int8()), "binary": (ByteType(), pa.int8()),
    "uint8": (ShortType(), pa.int16()), "ubinary": (ShortType(), pa.int16())}
"""The type of a vector's numbers in Spark, which has no unsigned types, and in Arrow, by the vector's precision."""

THREAD_ROWS = 256
"""The most rows of a result for each thread. Spark sends 10,000 texts at once, and accepts their vectors in parts."""
THREAD_TOKENS = 2048
"""The most tokens that a thread computes at a time, unless a text of the model can be longer. It bounds the memory for
the vectors of tokens, which each process of Spark holds."""


def embedder(
    model: str | os.PathLike[str],
    *,
    method: str = "encode",
    load: dict[str, Any] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """Return a function from a column of texts to a column of vectors: array<float>, or integers for `precision=`.

    model: a path that holds the model on every machine. method: "encode", "encode_query" or "encode_document", which
    gets the `options`. load: options of `Engine.load`; "threads" is spark.task.cpus unless you set it.
    A null text gets a null. Raises `InputError`; the errors of `Engine.load` and of `encode` stop the job.
    """
    check_encode(method, options)
    numbers, in_arrow = _NUMBERS[options.get("precision") or "float32"]
    path, settings = os.fspath(model), tuple(sorted((load or {}).items()))

    def embed(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """Yield the vectors of the columns of texts of one task, in parts; Spark calls it in its Python process."""
        context = TaskContext.get()
        engine = loaded(path, context.cpus() if context else None, settings)
        encode, rows = partial(getattr(engine, method), **{"truncation": True} | options), THREAD_ROWS * engine.threads
        for column in columns:
            for start in range(0, len(column), rows):
                yield encode_lists(column.slice(start, rows), encode, in_arrow)

    # Spark reads the annotations to find the kind of function, and cannot read them as strings.
    embed.__annotations__ = {"columns": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return arrow_udf(embed, ArrayType(numbers))


def encode_lists(texts: pa.Array, encode: Callable[[list[str]], np.ndarray], numbers: pa.DataType) -> pa.ListArray:
    """Return the vectors of texts as lists of a variable size, the form that Spark reads.

    numbers: the type of the numbers. The lists share the memory of the vectors, which `cast` to lists would copy.
    """
    vectors = encode_column(encode, texts)
    width = vectors.type.list_size
    ends = pa.array(np.arange(0, (len(vectors) + 1) * width, width, dtype=np.int32))
    return pa.ListArray.from_arrays(ends, vectors.values.cast(numbers), mask=vectors.is_null())


@lru_cache(maxsize=3)
def loaded(path: str, threads: int | None, settings: tuple[tuple[str, Any], ...]) -> Engine:
    """Return the engine of this process for a path, loaded once: Spark reuses a process for its next tasks.

    settings: options of `Engine.load`, which may replace `threads`.
    """
    options: dict[str, Any] = {"threads": threads, **dict(settings)}
    # Batches of few tokens need little memory. They serve if no text of the model can have more tokens.
    few = {"max_batch_tokens": THREAD_TOKENS * (options["threads"] or 1)}
    engine = Engine.load(path, **few | options)
    limits = [one.max_seq_length for one in (engine, *engine.routes.values())]
    fits = all(limit is not None and limit <= engine.max_batch_tokens for limit in limits)
    return engine if fits or "max_batch_tokens" in options else Engine.load(path, **options)
