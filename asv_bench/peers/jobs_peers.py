"""The peers of a job, each as a user runs it: a new process that reads rows of Parquet and writes ids and vectors.

    python -m peers.jobs_peers NAME FOLDER ROWS OUT CORES

A peer is a class with `settings`, which the page shows, and `run(folder, rows, out, cores)`, which does the job.
`prepare(folder, cores)` writes the files that `run` reads. `command` is how the process is started, and `threads` the
number for OMP_NUM_THREADS. `folder` holds the model, in `hf`; `rows` is a file of Parquet with id and text; `out` is a
folder. This module imports a library only where it runs.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path

from .work import BATCH
from .worker import Worker


class Peer:
    settings = ""

    @classmethod
    def prepare(cls, folder: Path, cores: int) -> None:
        """Write what `run` reads."""

    @classmethod
    def command(cls, name: str, folder: Path, rows: Path, out: Path, cores: int) -> list[str]:
        """Return the command of the job."""
        return [sys.executable, "-m", "peers.jobs_peers", name, str(folder), str(rows), str(out), str(cores)]

    @classmethod
    def threads(cls, cores: int) -> int:
        """Return the threads of each process."""
        return cores


class Engine(Peer):
    settings = "`engine embed`: one process with all cores."

    @classmethod
    def command(cls, name, folder, rows, out, cores):
        return [sys.executable, "-m", "engine", "embed", str(folder / "hf"), "--input", str(rows), "--id", "id",
                "--output", str(out), "--threads", str(cores)]  # fmt: skip


class SentenceTransformers(Peer):
    settings = f"one process with all cores, and `encode(texts, batch_size={BATCH})`."

    @staticmethod
    def run(folder, rows, out, cores):
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(cores)
        ids, texts = read(rows)
        model = SentenceTransformer(str(folder / "hf"), device="cpu")
        write(out, ids, model.encode(texts, batch_size=BATCH))


class SentenceTransformersPool(Peer):
    settings = "`start_multi_process_pool`: a process with one thread for each core, and `encode(texts, pool=pool, " \
               f"batch_size={BATCH})`."

    @classmethod
    def threads(cls, cores):
        return 1

    @staticmethod
    def run(folder, rows, out, cores):
        from sentence_transformers import SentenceTransformer

        ids, texts = read(rows)
        model = SentenceTransformer(str(folder / "hf"), device="cpu")
        pool = model.start_multi_process_pool(["cpu"] * cores)
        vectors = model.encode(texts, pool=pool, batch_size=BATCH)
        model.stop_multi_process_pool(pool)
        write(out, ids, vectors)


class RayData(Peer):
    batch = 256
    settings = "`map_batches` with an actor of sentence-transformers with one thread for each core, and blocks of " \
               f"{batch} rows. Ray counts one CPU more than there are, because actors that hold all of them leave " \
               "none for tasks that read."

    @classmethod
    def threads(cls, cores):
        return 1

    @classmethod
    def run(cls, folder, rows, out, cores):
        import ray

        class Embed:
            def __init__(self, folder):
                from sentence_transformers import SentenceTransformer

                self.model = SentenceTransformer(folder, device="cpu")

            def __call__(self, batch):
                vectors = self.model.encode(list(batch["text"]), batch_size=BATCH)
                return {"id": batch["id"], "vector": vectors}

        ray.init(num_cpus=cores + 1, include_dashboard=False)
        # One file would be one block, and so the work of one actor.
        dataset = ray.data.read_parquet(str(rows)).repartition(target_num_rows_per_block=cls.batch)
        dataset = dataset.map_batches(Embed, compute=ray.data.ActorPoolStrategy(size=cores), num_cpus=1,
                                      batch_size=cls.batch, fn_constructor_args=[str(folder / "hf")])  # fmt: skip
        dataset.write_parquet(str(out))
        ray.shutdown()


class Fastembed(Peer):
    batch = 4
    settings = f"`embed(texts, batch_size={batch}, parallel=N)`: a process with one thread for each core. It does " \
               "not sort texts by length, so that small batches need less padding. Its model is the graph that ONNX " \
               "Runtime's optimiser has fused."

    @classmethod
    def prepare(cls, folder, cores):
        """Write a folder as fastembed expects it.

        fastembed truncates at `model_max_length`, and it keeps a padding of the tokenizer, which is 128 tokens for
        every text here. Without one it pads each batch to its longest text.
        """
        with closing(Worker("ONNX Runtime", "float32", folder, cores)) as maker:
            maker.call("prepare")
        own = folder / "fastembed"
        shutil.copytree(folder / "hf", own, ignore=shutil.ignore_patterns("model.safetensors"), dirs_exist_ok=True)
        shutil.copy(folder / "float32.onnx", own / "model.onnx")
        limit = json.loads((own / "sentence_bert_config.json").read_text(encoding="utf-8"))["max_seq_length"]
        changed = {"tokenizer_config.json": {"model_max_length": limit}, "tokenizer.json": {"padding": None}}
        for file, changes in changed.items():
            values = json.loads((own / file).read_text(encoding="utf-8"))
            (own / file).write_text(json.dumps(values | changes), encoding="utf-8")

    @classmethod
    def threads(cls, cores):
        return 1

    @classmethod
    def run(cls, folder, rows, out, cores):
        import numpy as np
        from fastembed import TextEmbedding

        ids, texts = read(rows)
        model = TextEmbedding("sentence-transformers/all-MiniLM-L6-v2", threads=1, local_files_only=True,
                              specific_model_path=str(folder / "fastembed"))  # fmt: skip
        write(out, ids, np.stack(list(model.embed(texts, batch_size=cls.batch, parallel=cores))))


PEERS: dict[str, type[Peer]] = {
    "engine": Engine,
    "sentence-transformers": SentenceTransformers,
    "sentence-transformers, pool": SentenceTransformersPool,
    "Ray Data": RayData,
    "fastembed": Fastembed,
}


def read(rows: Path) -> tuple:
    """Return the column of ids, and the texts as strings."""
    from pyarrow.parquet import read_table

    table = read_table(rows)
    return table["id"], table["text"].to_pylist()


def write(out: Path, ids, vectors) -> None:
    """Write one file of ids and vectors, float32 [N,D]."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    column = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1])
    out.mkdir(exist_ok=True)
    write_table(pa.table({"id": ids, "vector": column}), out / "vectors.parquet")


if __name__ == "__main__":
    name, folder, rows, out, cores = sys.argv[1:]
    PEERS[name].run(Path(folder), Path(rows), Path(out), int(cores))
