"""Embed the Parquet files of a folder with Ray Data, and go on where an earlier run was interrupted.

    pip install 'ray[data]'
    python examples/embed_with_ray.py models/all-MiniLM-L6-v2.npz in/ out/ checkpoint/ id text

It runs on the cluster of RAY_ADDRESS, or on this machine. The paths must mean the same on every machine. Ray keeps the
ids that are done in `checkpoint/`, and a run leaves them out. Two rows with one id would count as one, so ids are
checked first. Ray counts a whole CPU for the filter that leaves ids out, so that an engine that takes CPUs of a small
machine would wait for ever.
"""

import sys
from os.path import abspath

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig

from engine.adapters.ray_data import Embed, require_unique_ids

LIGHT = {"num_cpus": 0.25}
"""What Ray counts for a task that reads or writes. By default it counts a whole CPU for each."""


def main(model: str, source: str, output: str, checkpoint: str, key: str, text: str, rows: str = "4096") -> None:
    checkpoint = checkpoint if "://" in checkpoint else abspath(checkpoint)
    ray.init()
    nodes = [node["Resources"]["CPU"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    require_unique_ids(ray.data.read_parquet(source), key)
    DataContext.get_current().checkpoint_config = CheckpointConfig(key, checkpoint, delete_checkpoint_on_success=False)
    ray.data.read_parquet(source, ray_remote_args=LIGHT).map_batches(
        Embed,
        compute=ActorPoolStrategy(size=len(nodes)),         # one engine for each machine
        num_cpus=0, scheduling_strategy="SPREAD",           # Ray's own tasks find room beside them
        batch_size=int(rows),
        batch_format="pyarrow",
        fn_constructor_kwargs={"model": model, "column": text, "load": {"threads": max(1, int(min(nodes)) - 1)}},
    ).write_parquet(output, ray_remote_args=LIGHT)


if __name__ == "__main__":
    main(*sys.argv[1:])
