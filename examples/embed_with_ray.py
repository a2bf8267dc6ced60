"""Embed the Parquet files of a folder with Ray Data, and go on where an earlier run was interrupted.

    pip install 'ray[data]'
    python examples/embed_with_ray.py models/all-MiniLM-L6-v2.npz in/ out/ checkpoint/ id text

It runs on the cluster of RAY_ADDRESS, or on this machine. The paths must mean the same on every machine. Ray keeps the
ids that are done in `checkpoint/`, and a run leaves them out. Two rows with one id would count as one, so ids are
checked first.
"""

import sys

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig

from engine.adapters.ray_data import Embed, require_unique_ids


def main(model: str, source: str, output: str, checkpoint: str, key: str, text: str, rows: str = "4096") -> None:
    ray.init()
    nodes = [node["Resources"]["CPU"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    require_unique_ids(ray.data.read_parquet(source), key)
    DataContext.get_current().checkpoint_config = CheckpointConfig(key, checkpoint, delete_checkpoint_on_success=False)
    ray.data.read_parquet(source).map_batches(
        Embed,
        compute=ActorPoolStrategy(size=len(nodes)),         # one engine for each machine
        num_cpus=max(1, min(nodes) - 1),                    # one CPU of each reads, filters and writes
        batch_size=int(rows),
        batch_format="pyarrow",
        fn_constructor_kwargs={"model": model, "column": text},
    ).write_parquet(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
