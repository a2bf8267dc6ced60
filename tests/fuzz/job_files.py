"""Run jobs on mutated files of rows, and run them again on a folder whose own files were changed.

A command that ends with an error of the engine or of the system has answered; so has one whose arguments are refused.
"""

import contextlib
import csv
import io
import json
import os
import random
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.base.errors import InputError
from engine.cli.main import main
from engine.jobs.batch_api import URL
from tests.fuzz.mutate import EXTREME, bytes_of, value_of
from tests.tools.encoders import save_encoder
from tests.tools.tiny_models import random_model
from tests.tools.tiny_text import tiny_text

_TEXTS: tuple[Any, ...] = ("the cat sat", "", "a b", "Äé中", '"a", b;c', "a\nb", "\ud800", None, "cat " * 40, 3, ["a"])
_VALUES: tuple[Any, ...] = (*EXTREME, "x;y", "2026-01-01", 1, 2, None, None)
_SUFFIXES = ("jsonl", "csv", "txt", "parquet", "jsonl", "csv", "parquet", "ndjson", "csv.gz", "x")
_OPTIONS: tuple[tuple[str, ...], ...] = (
    ("--id", "id"), ("--id", "text"), ("--id", "x"), ("--keep", "value"), ("--keep", "id,value"), ("--keep", ",,"),
    ("--column", "value"), ("--format", "text"), ("--format", "csv"), ("--format", "jsonl"), ("--format", "openai"),
    ("--unit-rows", "2"), ("--unit-rows", "0"), ("--unit-bytes", "99"), ("--unit-bytes", "0"), ("--dtype", "float16"),
    ("--dtype", "ubinary"), ("--result", "tokens"), ("--normalize",), ("--truncate-dim", "2"), ("--shard", "0/2"),
    ("--shard", "2/2"), ("--prune",), ("--json",))  # fmt: skip
_AGAIN: tuple[tuple[str, ...], ...] = ((), ("--verify",), ("--verify", "1"), ("--prune",), ("--diff", "{out}"))


@lru_cache(maxsize=1)
def _model() -> str:
    folder = tempfile.mkdtemp(prefix="fuzz-jobs-")
    save_encoder(random_model(tiny_text()), Path(folder, "model.npz"))
    return str(Path(folder, "model.npz"))


def _rows(rng: random.Random) -> list[dict[str, Any]]:
    return [{"id": rng.choice((i, i, i, rng.choice(_VALUES))), "text": rng.choice(_TEXTS),
             "value": rng.choice(_VALUES) if rng.random() < 0.5 else i} for i in range(rng.choice((0, 1, 3, 8)))]


def _json_lines(rng: random.Random) -> bytes:
    values = [value_of(rng, row, ("text", "id")) if rng.random() < 0.2 else row for row in _rows(rng)]
    end = rng.choice(("\n", "\n", "\r\n", "\n\n"))
    return end.join(json.dumps(value, ensure_ascii=rng.random() < 0.5) for value in values).encode(
        "utf-8", "surrogatepass")


def _requests(rng: random.Random) -> bytes:
    lines = []
    for i in range(rng.choice((0, 1, 4))):
        body = {"model": "m", "input": rng.choice(("a", ["a", "b"], "", [], [[1, 2]]))}
        request: Any = {"custom_id": f"r{i}", "method": "POST", "url": URL, "body": body}
        if rng.random() < 0.5:
            request = value_of(rng, request, ("input", "encoding_format", "dimensions"))
        lines.append(request)
    return "\n".join(map(json.dumps, lines)).encode()


def _csv(rng: random.Random) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=rng.choice(",,,;\t|"), quoting=rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
    writer.writerow(rng.choice((["id", "text", "value"], ["id", "text", "value"], ["text"], ["text", "text"], [])))
    for row in _rows(rng):
        writer.writerow([*row.values()])
    text = rng.choice(("", "", "\ufeff")) + file.getvalue()
    return text.encode(rng.choice(("utf-8", "utf-8", "utf-16", "latin-1")), "replace")


def _parquet(rng: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    for name in ("id", "text", "value"):
        values = [row[name] for row in _rows(random.Random(rng.random()))][:3]
        values = [*values, *[None] * (3 - len(values))]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            strings = [value if isinstance(value, str) and value != "\ud800" else None for value in values]
            columns[name] = pa.array(strings, pa.string())
            with contextlib.suppress(pa.ArrowException, ValueError):
                columns[name] = columns[name].cast(rng.choice((pa.large_string(), pa.binary(), pa.string_view())))
        if rng.random() < 0.2:
            with contextlib.suppress(pa.ArrowException, ValueError, NotImplementedError):
                columns[name] = columns[name].dictionary_encode()
    file = io.BytesIO()
    try:
        pq.write_table(pa.table(columns), file, row_group_size=rng.choice((1, 2, 100)), version="2.6",
                       compression=rng.choice(("none", "snappy", "zstd")))
    except (pa.ArrowException, NotImplementedError):
        return b""
    return file.getvalue()


_WRITERS: dict[str, Callable[[random.Random], bytes]] = {
    "jsonl": _json_lines, "ndjson": _json_lines, "csv": _csv, "parquet": _parquet, "csv.gz": _csv, "x": _requests,
    "txt": lambda rng: b"\n".join(str(row["text"]).encode("utf-8", "replace") for row in _rows(rng)),
}


def _run(arguments: list[str]) -> bool:
    """Run the command; return whether it gave an answer. Raises `MemoryError` where it was refused memory."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        try:
            ended = main(arguments)
        except SystemExit:
            return False
    if "out of memory" in errors.getvalue():
        raise MemoryError(errors.getvalue())
    return ended == 0


def _job(rng: random.Random, place: Path) -> None:
    """Run a job on one or two files, and mostly again, after one of the files or of its own files has changed."""
    inputs = []
    for i in range(rng.choice((1, 1, 2))):
        suffix = rng.choice(_SUFFIXES)
        data = _WRITERS[suffix](rng)
        inputs.append(place / f"rows{i}.{suffix}")
        inputs[-1].write_bytes(bytes_of(rng, data) if data and rng.random() < 0.3 else data)
    out = place / "out"
    options = [word for option in rng.sample(_OPTIONS, rng.choice((0, 1, 1, 2))) for word in option]
    if any(path.suffix == ".x" for path in inputs) and rng.random() < 0.8:
        options += ["--format", "openai"]
    arguments = ["embed", _model(), *map(str, inputs), "--output", str(out), "--threads", "1", *options]
    answered = _run(arguments)
    files = [path for path in out.rglob("*") if path.is_file()] if out.is_dir() else []
    if files and rng.random() < 0.7:
        changed = rng.choice([*files, *inputs])
        if rng.random() < 0.2:
            os.unlink(changed)
        elif changed.suffix == ".json":
            data = changed.read_bytes()
            with contextlib.suppress(ValueError):
                data = json.dumps(value_of(rng, json.loads(data))).encode()
            changed.write_bytes(data)
        else:
            changed.write_bytes(bytes_of(rng, changed.read_bytes()))
        again = [word.format(out=out) for word in rng.choice(_AGAIN)]
        answered = _run([*arguments, *again]) or answered
    if not answered:
        raise InputError("the job was refused")


KINDS: dict[str, Callable[[random.Random, Path], None]] = {"jobs": _job}
