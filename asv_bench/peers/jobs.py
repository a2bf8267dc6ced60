"""Measure whole jobs, from a file of texts to files of vectors, beside other libraries; write docs/peers/NAME-jobs.*.

    make peers        or, in an environment with requirements.txt and the engine, from the folder asv_bench:
    python -m peers.jobs --minilm FOLDER_OF_ALL_MINILM_L6_V2

Linux only: what a job uses is read from /proc.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .__main__ import named, publish, text, unlike
from .jobs_peers import PEERS
from .machine import environment, short_name
from .process_tree import Used, run
from .results import ROOT, Steal, machine, read, write
from .work import rows, write_folders
from .worker import Failed, variables

FEW = 32
"""Rows of the job that measures the start: one batch of the libraries that make batches."""
QUICK_ROWS = 200
ROWS_A_GROUP = 1024
"""Rows of a row group of the input."""
END = b"PAR1"
"""The last bytes of a complete file of Parquet."""


class Job:
    """The same rows for every peer, in files, and a folder for the results of one run."""

    def __init__(self, folder: Path, model: Path, count: int, cores: int):
        self.folder, self.model, self.cores = folder, model, cores
        folder.mkdir(parents=True, exist_ok=True)
        texts = rows(count)
        for size in (FEW, count):
            write_rows(folder / f"{size}.parquet", texts[:size])

    def run(self, name: str, count: int) -> tuple[Used, np.ndarray]:
        """Run the job on `FEW` or on all rows; return what it used, and its vectors, float32 [count, D]."""
        peer, out, source = PEERS[name], self.folder / "out", self.folder / f"{count}.parquet"
        shutil.rmtree(out, ignore_errors=True)
        with variables(environment(name, peer.threads(self.cores), self.model.parent)):
            command = peer.command(name, self.model, source, out, self.cores)
            log = self.folder / f"{name}.log"
            used = run(command, ROOT / "asv_bench", log, lambda: any(map(is_complete, parts(out))))
        return used, vectors(out, count)


def write_rows(path: Path, texts: list[str]) -> None:
    """Write a file of Parquet with the columns id, which counts, and text."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    write_table(pa.table({"id": np.arange(len(texts)), "text": texts}), path, row_group_size=ROWS_A_GROUP)


def parts(folder: Path) -> list[Path]:
    """Return the files of results, complete or not."""
    return sorted(folder.glob("*.parquet"))


def is_complete(path: Path) -> bool:
    """Return True if a file of Parquet has its end, which is written last."""
    try:
        with path.open("rb") as file:
            return file.seek(0, 2) > 2 * len(END) and file.seek(-len(END), 2) > 0 and file.read() == END
    except OSError:         # a temporary name that is gone already
        return False


def vectors(folder: Path, count: int) -> np.ndarray:
    """Return the vectors of the ids from 0 to count - 1; raises `Failed` if one is missing or there twice."""
    import pyarrow as pa
    from pyarrow.parquet import read_table

    ids, found = [], []
    for path in parts(folder):
        table = read_table(path, columns=["id", "vector"])
        column = table["vector"].combine_chunks()
        column = column.storage if isinstance(column, pa.ExtensionArray) else column
        ids.append(table["id"].to_numpy())
        found.append(column.flatten().to_numpy().reshape(len(table), -1))
    order = np.argsort(np.concatenate(ids)) if ids else np.empty(0, np.int64)
    if not np.array_equal(np.concatenate(ids)[order] if ids else order, np.arange(count)):
        raise Failed(f"wrote {len(order):,} rows, and not each of the {count:,} ids once")
    return np.concatenate(found)[order]


def turn(job: Job, names: list[str], count: int) -> dict[str, dict[str, Any]]:
    """Let each peer do the job once; return what it used, or why it could not."""
    cells: dict[str, dict[str, Any]] = {}
    answers: dict[str, np.ndarray] = {}
    for name in names:
        try:
            start, _ = job.run(name, FEW)
            used, answers[name] = job.run(name, count)
            cells[name] = {**asdict(used), "start": start.wall}
        except Failed as error:
            cells[name] = {"why": str(error)}
        print(f"{name:<28}", cells[name], file=sys.stderr, flush=True)
    for name, answer in answers.items():
        own = answers.get("engine")
        cells[name]["difference"] = None if own is None else float(np.abs(answer - own).max())
    return cells


def merged(rows: list[dict], cells: dict[str, dict]) -> list[dict]:
    """Return the rows with one more turn of the libraries that were measured."""
    before = {row["library"]: row for row in rows}
    found = []
    for name, peer in PEERS.items():
        if name in cells:
            cell, turns = cells[name], before.get(name, {}).get("turns", [])
            result = {"why": cell["why"]} if "why" in cell else {"turns": [*turns, cell]}
            found.append({"library": name, "settings": peer.settings, **result})
        elif name in before:
            found.append(before[name])
    return found


def prepare(names: list[str], model: Path, cores: int) -> dict[str, dict]:
    """Write the files of each peer; return why it is not possible, by name."""
    failed = {}
    for name in names:
        try:
            PEERS[name].prepare(model, cores)
        except (Failed, OSError) as error:
            failed[name] = {"why": str(error)}
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=Path, required=True, help="folder of the real all-MiniLM-L6-v2")
    parser.add_argument("--threads", type=int, default=2, help="cores of each job; by default %(default)s")
    parser.add_argument("--rows", type=int, default=20000, help="rows of the job; by default %(default)s")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help=f"one turn of {QUICK_ROWS} rows: the times mean nothing")
    parser.add_argument("--keep", action="store_true", help="add turns to the present numbers, of the same machine")
    parser.add_argument("--libraries", nargs="+", choices=list(PEERS), default=list(PEERS), metavar="NAME",
                        help=f"only these: {', '.join(PEERS)}")  # fmt: skip
    parser.add_argument("--files", type=Path, default=ROOT / "build/peers/models", help="folder for the model and rows")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/peers", help="folder of the tables and figures")
    parser.add_argument("--name", default=f"{short_name()}-jobs", help="name of the files; by default %(default)s")
    a = parser.parse_args()
    if a.quick:
        a.rows, a.turns = QUICK_ROWS, 1
    if a.rows <= FEW:
        parser.error(f"--rows must be more than the {FEW} of the start, not {a.rows}")
    write_folders(a.files, a.minilm, ["MiniLM"])
    model, path, here = (a.files / "MiniLM").resolve(), a.out / a.name, machine(a.threads)
    described = {"rows": a.rows, "few": FEW, **text(model, rows(a.rows))}
    numbers = {"tool": "jobs", "quick": a.quick, "machine": here, "job": described, "rows": []}
    if a.keep:
        numbers = read(named(path, "json"))
        if why := unlike(numbers["machine"], here):
            parser.error(why)
        if numbers["job"] != described:
            parser.error(f"--keep adds to the same job; the present one is {numbers['job']}, not {described}")
    a.out.mkdir(parents=True, exist_ok=True)
    failed = prepare(a.libraries, model, a.threads)
    job = Job((a.files / "job").resolve(), model, a.rows, a.threads)
    for _ in range(a.turns):
        steal, done = Steal(), max((len(row.get("turns", [])) for row in numbers["rows"]), default=0)
        names = [name for name in a.libraries if name not in failed]
        cells = failed | turn(job, names[::-1] if done % 2 else names, a.rows)
        numbers["rows"] = merged(numbers["rows"], cells)
        share, before = steal.share(), numbers["machine"]["steal"]
        if share is not None:
            numbers["machine"]["steal"] = (share + (before or 0.0) * done) / (done + 1)
        write(named(path, "json"), numbers)
    publish(a.out)


if __name__ == "__main__":
    main()
