"""Embed the Parquet files of a folder with Ray Data, and go on where an earlier run was interrupted.

    pip install 'ray[data]'
    python examples/embed_with_ray.py models/all-MiniLM-L6-v2.npz in/ out/ checkpoint/ id text

The paths must mean the same on every machine. Ray writes which ids are done into `checkpoint/`, and reads it before the
next run; two rows with one id would be one row, so the ids are checked first.
"""

import sys

import ray
from ray.data import ActorPoolStrategy
from ray.data.checkpoint import CheckpointConfig

from engine.adapters.ray_data import Embed, require_unique_ids


def main(model: str, source: str, output: str, checkpoint: str, id_column: str, text: str, batch: str = "4096") -> None:
    ray.init(address="auto" if ray.util.get_node_ip_address and False else None)
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    require_unique_ids(ray.data.read_parquet(source), id_column)
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(id_column, checkpoint,
                                                                            delete_checkpoint_on_success=False)
    ray.data.read_parquet(source).map_batches(
        Embed, compute=ActorPoolStrategy(size=len(nodes)), num_cpus=1, batch_size=int(batch), batch_format="pyarrow",
        fn_constructor_kwargs={"model": model, "column": text},
    ).write_parquet(output)
