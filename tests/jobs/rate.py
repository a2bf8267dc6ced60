"""Compare the rate of `engine embed` with that of `Engine.encode` for the same rows, in turns, without loading.

    python -m tests.jobs.rate FOLDER --model MODEL

Each turn loads the model for either, so that both begin with fresh threads and buffers. Loading is not timed, and
writing the parts is.
"""

import argparse
import contextlib
import io
import json
import shutil
import time
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from engine import Engine
from engine.cli.main import main as engine_main

from .prove import write_rows


def encode_seconds(model, rows):
    """Return the seconds of `Engine.encode` for the texts of a file."""
    engine, texts = Engine.load(model), pq.read_table(rows)["text"].to_pylist()
    started = time.perf_counter()
    engine.encode(texts)
    return time.perf_counter() - started


def embed_seconds(model, rows, output):
    """Return the seconds of `engine embed` between loading and the manifest, in a new folder."""
    shutil.rmtree(output, ignore_errors=True)
    events = io.StringIO()
    with contextlib.redirect_stdout(events):
        status = engine_main(["embed", str(model), "--input", str(rows), "--id", "id", "--output", str(output),
                              "--json"])
    assert status == 0
    return json.loads(events.getvalue().splitlines()[-1])["seconds"]


def main():
    """Time both in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rows = args.folder / "rate.parquet"
    write_rows(rows, args.rows)
    encode, embed = [], []
    for _ in range(args.turns):
        encode.append(encode_seconds(args.model, rows))
        embed.append(embed_seconds(args.model, rows, args.folder / "rate"))
        print(f"encode {args.rows / encode[-1]:,.0f} rows/s, embed {args.rows / embed[-1]:,.0f}", flush=True)
    print(f"median of {args.turns} turns, {args.rows:,} rows: encode {args.rows / median(encode):,.0f} rows/s, embed "
          f"{args.rows / median(embed):,.0f}; ratio {median(encode) / median(embed):.3f}")


if __name__ == "__main__":
    main()
