"""The process that Spark forks its Python workers from, with a model that it loads once for all of them.

    SparkSession.builder.config("spark.python.daemon.module", "engine.adapters.spark_daemon")
                        .config("spark.executorEnv.ENGINE_SPARK_MODEL", "/models/packed.npz")

The workers share the modules of Python, the tokenizer and the weights, also of a file that is not packed. `embedder`
finds the engine if it gets the same path, and no options for `Engine.load`.
"""

import ctypes
import gc
import importlib
import os
import sys
from zipimport import zipimporter

# Modules that each worker of Spark would import before it runs a function, or when it runs the first one.
import pyarrow as pa
import pyarrow.pandas_compat
import pyspark.logger.worker_io
import pyspark.sql.conversion
import pyspark.worker  # noqa: F401
from pyspark import daemon

from ..base.errors import InputError
from .spark import encode_lists, loaded

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h. glibc raises both values when it frees large arrays, unless a
program sets them."""


def main() -> None:
    """Load the model that ENGINE_SPARK_MODEL names, and serve Spark."""
    path = os.environ.get("ENGINE_SPARK_MODEL")
    if not path:
        raise InputError("engine.adapters.spark_daemon loads the model of the variable ENGINE_SPARK_MODEL, which is "
                         'not set; set it with .config("spark.executorEnv.ENGINE_SPARK_MODEL", path)')
    pa.set_memory_pool(pa.system_memory_pool())     # so that `_return_memory` also rules Arrow's memory
    engine = loaded(path, int(os.environ.get("OMP_NUM_THREADS", "1")), ())  # Spark sets it to spark.task.cpus
    encode_lists(pa.array([""]), engine.encode, pa.float32())       # makes what the first call makes, before the fork
    _keep_directories()
    gc.collect()
    _return_memory()
    gc.freeze()     # a collection in a worker would write to every object, and so copy the pages that it shares
    daemon.manager()


def _keep_directories() -> None:
    """Let the workers share the lists of files in the zip archives that Python imports from.

    Every worker of Spark drops these lists (`importlib.invalidate_caches`), and would read the thousands of names in
    pyspark.zip again, into 9 MB of its own. Archives that Spark adds for a job come later, and are read as usual.
    """
    importlib.invalidate_caches()
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            vars(finder)["invalidate_caches"] = lambda: None


def _return_memory() -> None:
    """Let the C library return freed memory to the system: otherwise each worker would keep that of its activations."""
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:    # musl has none, and keeps nothing
        mallopt(_TRIM_THRESHOLD, 2**17)     # bytes free at the end of the heap from which they are returned
        mallopt(_MMAP_THRESHOLD, 2**18)     # bytes of an array from which it gets pages of its own


if __name__ == "__main__":
    main()
