"""The process that Spark forks its Python workers from, with a model that it loads once for all of them.

    SparkSession.builder.config("spark.python.daemon.module", "engine.adapters.spark_daemon")
                        .config("spark.executorEnv.ENGINE_SPARK_MODEL", "/models/packed.npz")

The workers share the modules of Python, the tokenizer and the weights, also of a file that is not packed. `embedder`
finds the engine if it gets the same path, and no options for `Engine.load`.
"""

import gc
import os

import pandas  # noqa: F401, because each worker of Spark imports it
from pyspark import daemon

from ..base.errors import InputError
from .spark import loaded


def main() -> None:
    """Load the model that ENGINE_SPARK_MODEL names, and serve Spark."""
    path = os.environ.get("ENGINE_SPARK_MODEL")
    if not path:
        raise InputError("engine.adapters.spark_daemon loads the model of the variable ENGINE_SPARK_MODEL, which is "
                         'not set; set it with .config("spark.executorEnv.ENGINE_SPARK_MODEL", path)')
    loaded(path, int(os.environ.get("OMP_NUM_THREADS", "1")), ()).encode([""])  # Spark sets it to spark.task.cpus
    gc.freeze()     # a collection in a worker would write to every object, and so copy the pages that it shares
    daemon.manager()


if __name__ == "__main__":
    main()
