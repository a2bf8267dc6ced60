"""Vectors of a column of texts in Ray Data: `ds.map_batches(Embed, ...)`.

    import ray
    from ray.data import ActorPoolStrategy
    from engine.adapters.ray_data import Embed

    ds = ray.data.read_parquet("in/")
    ds = ds.map_batches(Embed, compute=ActorPoolStrategy(size=NODES), num_cpus=CPUS_OF_A_NODE, batch_size=4096,
                        batch_format="pyarrow", fn_constructor_kwargs={"model": "all-MiniLM-L6-v2.npz"})
    ds.write_parquet("out/")

One actor for each machine is best: the threads of one engine share its weights, and each further actor holds a copy.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import InputError, listed
from ..base.install import needs_package
from ..interface.engine import Engine
from .arrow import check_encode, encode_column

with needs_package("'ray[data]'", __name__):
    import pandas as pd
    import pyarrow as pa
    import ray


class Embed:
    """A callable class for `map_batches` with `batch_format="pyarrow"`: one engine, kept for the life of an actor."""

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        column: str = "text",
        output: str = "vector",
        method: str = "encode",
        load: dict[str, Any] | None = None,
        **options: Any,
    ):
        """Load a model, which must lie at the same path on every machine.

        column, output: the column of texts, and the name of the column of vectors that is added; a null text gets a
        null. method: "encode", "encode_query" or "encode_document", which gets the `options`.
        load: options of `Engine.load`; without "threads" the engine has as many as Ray assigned CPUs to the actor.
        """
        check_encode(method, options)
        assigned = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        self._engine = Engine.load(model, **{"threads": max(1, int(assigned)), **(load or {})})
        self._encode = partial(getattr(self._engine, method), **{"truncation": True} | options)
        self._column, self._output = column, output

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Return the rows of a batch with the column of vectors after all other columns."""
        if not isinstance(batch, pa.Table):
            raise InputError(f'Embed takes tables of Arrow, not {type(batch).__name__}; map_batches needs '
                             'batch_format="pyarrow"')
        if self._column not in batch.column_names:
            raise InputError(f"there is no column {self._column}; the columns are {listed(batch.column_names)}")
        return batch.append_column(self._output, encode_column(self._encode, batch.column(self._column)))


def require_unique_ids(ds: Any, column: str) -> None:
    """Raise `InputError` if two rows of a Ray dataset have one id: Ray's `CheckpointConfig` would count them as one.

    It reads the column of ids once, and holds a hash of 8 bytes for each row in the driver. Different hashes prove
    different ids, so the ids themselves are read again only if two hashes are equal.
    """
    ids = ds.select_columns([column])
    hashes = ids.map_batches(lambda frame: {"hash": _hashes(frame[column])}, batch_format="pandas")
    in_order = np.sort(np.concatenate([batch["hash"] for batch in hashes.iter_batches(batch_format="numpy")]))
    twice = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])      # hashes that occur more than once
    if not len(twice):
        return
    suspects = ids.map_batches(lambda frame: frame[np.isin(_hashes(frame[column]), twice)], batch_format="pandas")
    named = suspects.to_pandas()[column]
    if len(repeated := named[named.duplicated()].unique()):
        raise InputError(f"ids of {column} must be unique, and {len(repeated):,} are not: {listed(map(str, repeated))}")


def _hashes(ids: Any) -> np.ndarray:
    """Return a 64-bit hash of each id of a pandas Series, the same in every process: uint64 [n]."""
    return pd.util.hash_array(ids.to_numpy())
