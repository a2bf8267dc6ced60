"""Prove what `engine embed` promises: killed at random, on a full disk and with two claimants, parts keep their bytes.

    python -m tests.jobs.prove FOLDER --model MODEL --rows 1000000

Every step compares the parts with those of an undisturbed run, byte for byte. The tests of this folder take the same
steps with a few rows.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
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


class Watched:
    """A running job, with the CPU seconds that it used until it began to compute and until it wrote its newest part.

    CPU seconds do not depend on what else the machine does.
    """

    def __init__(self, process):
        self._process, self._started = process, time.monotonic()
        assert '"start"' in process.stdout.readline(), process.stderr.read()     # the model is loaded
        self.begun = self.newest = self.cpu
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            if '"part"' in line:
                self.newest = self.cpu

    @property
    def cpu(self):
        """The CPU seconds that the process has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill_after(self, seconds):
        """Kill it with -9 after some CPU seconds of computing; return the CPU seconds since its newest part."""
        while self.cpu < self.begun + seconds and self._reader.is_alive():
            time.sleep(0.005)
        lost = self.cpu - self.newest
        self._process.kill()
        assert self.end() == -signal.SIGKILL, "the job ended before it was killed"
        return max(0.0, lost)

    def end(self):
        """Wait for its end, and return the exit status; then the attributes say what it used."""
        self._reader.join()
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - self._started
        self.used, self.megabytes = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        assert self._process.returncode <= 0, self._process.stderr.read()
        self._process.stdout.close(), self._process.stderr.close()
        return self._process.returncode


def parts(folder):
    """Return the paths of the parts in a folder, by name."""
    return {path.name: path for path in sorted(Path(folder).glob("part-*"))}


def same_parts(folder, expected):
    """Assert that two folders hold the same parts with the same bytes, and nothing half-written."""
    own, others = parts(folder), parts(expected)
    assert own.keys() == others.keys(), (len(own), len(others))
    for name, path in own.items():
        assert path.read_bytes() == others[name].read_bytes(), name
    assert (folder / "_manifest.json").read_bytes() == (expected / "_manifest.json").read_bytes()


def every_row_once(folder, rows):
    """Assert that parts hold the ids from 0 to rows - 1, each once and in order."""
    tables = [pq.read_table(path, columns=["id"]) for path in parts(folder).values()]
    ids = [number for table in tables for number in table["id"].to_pylist()]
    assert ids == list(range(rows))


def undisturbed(command, output):
    """Run a job to its end, and return it."""
    run = Watched(command.start(output, "--json"))
    run.end()
    return run


def kill_at_random(command, output, kills, computing, seed=0):
    """Kill runs of a job with -9 after random times.

    computing: the CPU seconds of the whole job without loading. The kills are spread over about a half of it.

    Returns the CPU seconds that each kill lost: those since the newest part or since the start of computing.
    """
    rng = random.Random(seed)
    return [Watched(command.start(output, "--json")).kill_after(rng.uniform(0, computing / kills))
            for _ in range(kills)]


def two_claimants(command, output, expected_status=0):
    """Run two processes on the same units; return how many parts each wrote, and the last message."""
    processes = [command.start(output, "--json") for _ in range(2)]
    found = []
    for process in processes:
        out, message = process.communicate()
        assert process.returncode == expected_status, message
        found.append(sum('"part"' in line for line in out.splitlines()))
    return found, message.strip()


@contextmanager
def small_disk(folder, size):
    """Mount a disk of `size` bytes, and yield a function that doubles its room; only root may mount."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield lambda: subprocess.run(["mount", "-o", f"remount,size={2 * size}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill_disk(command, output, expected, resize):
    """Run two claimants until the disk is full, then give it room, and run them again.

    Returns how many parts each wrote before and after, and the message of the full disk.
    """
    done = len(parts(output))
    before, message = two_claimants(command, output, expected_status=1)
    assert done < len(parts(output)) == done + sum(before) < len(parts(expected))
    resize()
    after, _ = two_claimants(command, output)
    assert done + sum(before) + sum(after) == len(parts(expected))
    return before, after, message


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
    parser.add_argument("--unit-rows", type=int, help="by default a 25th of the rows, at least 2048 and at most 16384")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damaged", type=int, default=20)
    parser.add_argument("--verify", nargs=1, default=[], metavar="ROWS", help="how many rows of each part --verify "
                        "computes again; by default all")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    options = ["--unit-rows", str(args.unit_rows or max(2048, min(16384, args.rows // 25)))]
    expected = args.folder / "expected"
    command, run = prove_memory(args, options)
    prove_bytes(command, expected, args.folder / "disk", run.used - run.begun, args.kills)
    find_damage(command, expected, args.damaged, *args.verify)
    print(f"--verify names the {args.damaged} parts in which one bit is changed, and no other", flush=True)


def prove_bytes(command, expected, disk, computing, kills):
    """Kill a job, fill its disk and let two processes share it; its parts are those of the undisturbed run."""
    size, units = sum(path.stat().st_size for path in parts(expected).values()), len(parts(expected))
    with small_disk(disk, size * 3 // 4) as resize:
        lost = kill_at_random(command, disk / "out", kills, computing)
        unit = computing / units
        print(f"{len(lost)} kills, with {len(parts(disk / 'out'))} parts after them; they lost {sum(lost):.1f} CPU s, "
              f"{sum(lost) / len(lost) / unit:.2f} units a kill, at most {max(lost) / unit:.2f}", flush=True)
        before, after, message = fill_disk(command, disk / "out", expected, resize)
        print(f"two claimants wrote {before} parts until the disk was full, then {after}\n{message}", flush=True)
        same_parts(disk / "out", expected)
        print(f"the {units} parts and the manifest have the bytes of the undisturbed run", flush=True)


def prove_memory(args, options):
    """Run the job undisturbed, with all rows and with a tenth of them; return the command and the run of all rows."""
    runs = {}
    for name, count in (("tenth", args.rows // 10), ("expected", args.rows)):
        rows, output = args.folder / f"{name}.parquet", args.folder / name
        write_rows(rows, count)
        shutil.rmtree(output, ignore_errors=True)
        command = Command(args.model, rows, *options)
        runs[name] = run = undisturbed(command, output)
        every_row_once(output, count)
        print(f"undisturbed: {count:,} rows in {len(parts(output))} parts, each once; {run.seconds:.0f} s and "
              f"{run.used:.0f} CPU s, of which {run.begun:.1f} load; {run.megabytes:.0f} MB", flush=True)
    more = runs["expected"].megabytes - runs["tenth"].megabytes
    print(f"memory: {more:+.0f} MB for ten times the rows", flush=True)
    shutil.rmtree(args.folder / "tenth")
    return command, runs["expected"]


if __name__ == "__main__":
    main()
