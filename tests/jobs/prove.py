"""Prove what `engine embed` promises: killed at random, on a full disk and with two claimants, parts keep their bytes.

    python -m tests.jobs.prove FOLDER --model MODEL --rows 1000000

Every step compares the parts with those of an undisturbed run, byte for byte. The tests of this folder take the same
steps with a few rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engine.jobs.batch_api import URL

WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "ran", "far", "away", "house", "river", "mountain", "light",
         "green", "happy", "quickly", "never", "always", "paper", "window", "garden", "winter", "silver", "market",
         "engine", "letter", "music", "number", "water")
ROW_GROUP = 100_000


def write_rows(path, rows, seed=0):
    """Write a Parquet file with so many short rows: an id, and a text that few others have."""
    rng = random.Random(seed)
    schema = pa.schema({"id": pa.int64(), "text": pa.string()})
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, rows, ROW_GROUP):
            ids = range(first, min(first + ROW_GROUP, rows))
            texts = [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in ids]
            writer.write_table(pa.table({"id": list(ids), "text": texts}, schema=schema), row_group_size=ROW_GROUP)


class Command:
    """The command that is proved, for one model and one file of rows."""

    def __init__(self, model, rows, *options):
        self.arguments = [str(model), "--input", str(rows), "--id", "id", *options]

    def start(self, output, *options, **settings):
        """Start a process that writes into a folder."""
        command = [sys.executable, "-m", "engine", "embed", *self.arguments, "--output", str(output), *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)

    def run(self, output, *options, **settings):
        """Run it to its end, and return its exit status, its output and its messages."""
        process = self.start(output, *options, **settings)
        out, err = process.communicate()
        return process.returncode, out, err

    def measure(self, output):
        """Run it to its end; return the seconds, and the most memory that it held in MB."""
        started = time.monotonic()
        process = self.start(output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, process.stderr.read()
        process.stdout.close(), process.stderr.close()
        return time.monotonic() - started, usage.ru_maxrss / 1024


def parts(folder):
    """Return the paths of the parts in a folder, by name."""
    return {path.name: path for path in sorted(Path(folder).glob("part-*"))}


def same_parts(folder, expected):
    """Assert that two folders hold the same parts with the same bytes, and nothing half-written."""
    own, others = parts(folder), parts(expected)
    assert own.keys() == others.keys(), (len(own), len(others))
    for name, path in own.items():
        assert path.read_bytes() == others[name].read_bytes(), name
    assert (folder / "manifest.json").read_bytes() == (expected / "manifest.json").read_bytes()


def every_row_once(folder, rows):
    """Assert that parts hold the ids from 0 to rows - 1, each once and in order."""
    tables = [pq.read_table(path, columns=["id"]) for path in parts(folder).values()]
    ids = [number for table in tables for number in table["id"].to_pylist()]
    assert ids == list(range(rows))


def kill_at_random(command, output, kills, longest, seed=0):
    """Kill runs of a job with -9 after random times, then let it end; return the lost seconds of each kill.

    longest: the most seconds between the first sign of a run and its kill. What is lost is the time since the newest
    part was written, or since the start of computing.
    """
    rng = random.Random(seed)
    lost = []
    while len(lost) < kills:
        process = command.start(output, "--json")
        process.stdout.readline()                # the model is loaded, and computing begins
        begun = time.time()
        time.sleep(rng.uniform(0, longest))
        finished = process.poll() is not None
        process.kill()
        now = time.time()
        process.communicate()
        if finished:
            break
        newest = max((path.stat().st_mtime for path in parts(output).values()), default=0)
        lost.append(now - max(newest, begun))
    status, _, err = command.run(output)
    assert status == 0, err
    return lost


def two_claimants(command, output):
    """Run two processes on the same units; return how many parts each wrote."""
    processes = [command.start(output, "--json") for _ in range(2)]
    found = []
    for process in processes:
        out, err = process.communicate()
        assert process.returncode == 0, err
        found.append(json.loads(out.splitlines()[-1])["parts"])
    return found


@contextmanager
def small_disk(folder, size):
    """Mount a disk of so many bytes; the caller must be allowed to."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_disk(command, folder, expected):
    """Run a job on a disk that holds half of its parts, then give it room; return the message of the full disk."""
    size = sum(path.stat().st_size for path in parts(expected).values())
    with small_disk(folder, size // 2):
        status, _, message = command.run(folder / "out")
        assert status == 1, message
        done = parts(folder / "out")
        assert 0 < len(done) < len(parts(expected))
        assert not [path for path in (folder / "out").iterdir() if path.name.endswith(".tmp")]
        subprocess.run(["mount", "-o", f"remount,size={2 * size + 2**22}", str(folder)], check=True)
        status, _, err = command.run(folder / "out")
        assert status == 0, err
        same_parts(folder / "out", expected)
    return message.strip()


def damage(folder, count, seed=0):
    """Change one bit of so many parts; return their names."""
    rng = random.Random(seed)
    chosen = rng.sample(sorted(parts(folder)), count)
    for name in chosen:
        data = bytearray((folder / name).read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(data)
    return chosen


def find_damage(command, output, count, *options):
    """Assert that a verification names exactly the parts in which one bit is changed."""
    chosen = damage(output, count)
    status, out, err = command.run(output, "--verify", *options, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 1, err
    assert {event["name"] for event in events if event["fault"]} == set(chosen)
    assert len(events) == len(parts(output))


def write_batch(path, count):
    """Write a batch of requests to /v1/embeddings."""
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            body = {"model": "m", "input": [f"{WORDS[i]} {word}" for word in WORDS[: 1 + i % 3]]}
            if i % 2:
                body |= {"encoding_format": "base64", "dimensions": 4}
            file.write(json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": URL, "body": body}) + "\n")


def main():
    """Take every step, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--unit-rows", type=int, default=16384)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damaged", type=int, default=20)
    parser.add_argument("--fewer", type=int, help="rows of another run, whose memory is compared")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    rows, expected, output = args.folder / "rows.parquet", args.folder / "expected", args.folder / "out"
    if not rows.exists():
        write_rows(rows, args.rows)
    command = Command(args.model, rows, "--unit-rows", str(args.unit_rows))
    for old in (expected, output):
        shutil.rmtree(old, ignore_errors=True)
    seconds, memory = command.measure(expected)
    every_row_once(expected, args.rows)
    units = len(parts(expected))
    print(f"undisturbed: {args.rows:,} rows in {units} parts, {seconds:.0f} s with loading, {memory:.0f} MB",
          flush=True)
    if args.fewer:
        few = args.folder / "few.parquet"
        write_rows(few, args.fewer)
        shutil.rmtree(args.folder / "few", ignore_errors=True)
        _, less = Command(args.model, few, "--unit-rows", str(args.unit_rows)).measure(args.folder / "few")
        print(f"memory: {less:.0f} MB with {args.fewer:,} rows, {memory:.0f} MB with {args.rows:,}", flush=True)
    lost = kill_at_random(command, output, args.kills, seconds / args.kills)
    same_parts(output, expected)
    unit = seconds / units
    print(f"{len(lost)} kills: same bytes; lost {sum(lost):.1f} s, {sum(lost) / len(lost) / unit:.2f} units a kill, "
          f"at most {max(lost) / unit:.2f}", flush=True)
    shutil.rmtree(output)
    print(f"two claimants wrote {two_claimants(command, output)} of {units} parts", flush=True)
    same_parts(output, expected)
    print(fill_disk(command, args.folder / "disk", expected), flush=True)
    find_damage(command, output, args.damaged)
    print(f"--verify names the {args.damaged} parts in which one bit is changed, and no other", flush=True)


if __name__ == "__main__":
    main()
