"""Implement `engine embed`: jobs over files of rows, which write parts into a folder, verify or compare them."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from inspect import signature
from typing import Any

import numpy as np

from ..backends import get_backend
from ..base.arguments import positive_int, positive_int_or_none
from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown, without_credentials
from ..base.version import __version__
from ..encoding.image_encoder import NO_SETTINGS
from ..encoding.vector_precision import PRECISIONS
from ..interface.engine import Engine
from ..jobs.job import (
    REJECTED,
    Job,
    JobSettings,
    Unit,
    find_units,
    is_own_name,
    open_job,
    option_of,
    own_names,
    shard_of,
)
from ..jobs.manifest import drop_old_manifest, entry_of, refuse_stale, write_manifest
from ..jobs.parts import COUNTS, JobPart
from ..jobs.readers import FORMATS
from ..jobs.results import Recipe
from ..jobs.rows import ColumnNames
from ..jobs.storage import find_inputs, open_folder, refuse_own_files, refuse_own_patterns
from ..jobs.verify import diff, verify
from ..loading.load import find_model
from ..loading.model_files import checksum
from ..methods.table import STREAMED
from ..model.bits import DEFINITION, PORTABLE
from .console import add_labels, add_model, label_options, run_options

DTYPES = ("float32", "float16", *PRECISIONS[1:])
"""The types of the numbers of vectors in parts: float32, float16, and the smaller precisions of `Engine.encode`."""
UNIT_ROWS = {"tokens": 1024}
"""The most rows of a unit, by the kind of result; 16,384 of the other kinds, which take less room."""
UNIT_IMAGES = 256
"""The most rows of a unit of images, each of which takes as long as some hundred texts."""
_PORTABLE_BITS = f"portable bits, version {DEFINITION}"
"""The text in parts with portable bits in place of an instruction set."""
RESULT_COLUMNS = {"vector", "vectors", "indices", "values", "label", "score"}
"""The names of columns that parts have for results."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `engine embed`, except those of the backend and the precision."""
    add_model(command, nargs="?")
    command.add_argument("files", nargs="*", metavar="FILE", help="files of rows: paths, or patterns in quotes, such "
                         "as 'in/*.parquet' or 's3://bucket/in/*.jsonl'")
    command.add_argument("--input", action="append", metavar="PATTERN", help="the same; may be given again")
    command.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder of the parts, also of an "
                         "object store, such as s3://bucket/out; a job that was stopped goes on there")
    command.add_argument("--format", choices=FORMATS, help="format of the files; by default the one of their names, "
                         "such as .jsonl. openai is the file of a batch of requests to /v1/embeddings, which is "
                         "answered in its own format")
    command.add_argument("--column", help="column, or field of JSON, with the text or the image; by default text, or "
                         "image")
    command.add_argument("--images", action="store_true", help="the column holds images, paths or the bytes of files, "
                         "of a model that reads texts, too; a model of images alone needs no option")
    command.add_argument("--id", help="column with the id of a row; by default the id is file:position")
    command.add_argument("--keep", default="", metavar="COLUMNS", help="other columns to copy, separated by commas")
    command.add_argument("--result", choices=STREAMED, default="vectors", help="what to compute for each row: "
                         "a vector, a sparse vector, a vector for each token, or its class; by default vectors")
    add_labels(command)
    command.add_argument("--dtype", choices=DTYPES, default="float32", help="type of the numbers of vectors; int8 and "
                         "uint8 need --ranges")
    command.add_argument("--ranges", metavar="FILE", help=".npy file with the smallest and the largest number of each "
                         "dimension, [2, dimensions]")
    command.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    command.add_argument("--truncate-dim", type=int, metavar="N", help="keep the first N dimensions")
    command.add_argument("--prompt-name", help="name of the model's prompt to put in front of each text")
    command.add_argument("--route", help="the encoder to run, such as query or document, of a model that has several")
    command.add_argument("--shard", metavar="I/N", help="compute share I of N of the parts, such as 0/16 to 15/16")
    command.add_argument("--unit-rows", type=int, metavar="N", help="the most rows of a part of Parquet, and a quarter "
                         "of the most rows of one of another format; by default 16384, 1024 for tokens, or 256 for "
                         "images")
    command.add_argument("--unit-bytes", type=int, default=2**20, metavar="N", help="bytes of a file whose lines make "
                         "one part, for the other formats; by default 1048576")
    command.add_argument("--verify", nargs="?", type=_rows_to_verify, const=0, metavar="ROWS",
                         help="compute the parts again, or this many rows of each, and compare them to the bit")
    command.add_argument("--diff", metavar="FOLDER", help="compare this folder with the output folder, and name the "
                         "rows that differ; it needs no model")
    command.add_argument("--prune", action="store_true", help="delete the parts of inputs that have changed "
                         "or are not given any more")
    command.add_argument("--allow-mixed-isa", action="store_true", help="let machines with other instruction sets, "
                         "whose vectors differ in their last bits, write into one folder; with --bits portable "
                         "none differ")
    command.add_argument("--json", action="store_true", help="write progress as lines of JSON to standard output")


def _rows_to_verify(typed: str) -> int:
    """Return the number of rows after --verify, for argparse."""
    if not typed.isdecimal():
        raise argparse.ArgumentTypeError(f"{shown(typed)} is no number of rows; write --verify=ROWS, or --verify at "
                                         "the end to compare whole parts")
    return int(typed)


def embed(args: argparse.Namespace) -> None:
    """Embed the rows of files into the parts of a folder, verify such parts, or compare two folders."""
    if args.diff is not None:
        _diff(args)
        return
    inputs = [*args.files, *(args.input or [])]
    if args.model is None or not inputs:
        raise InputError("give a model and files of rows, such as: engine embed MODEL 'in/*.parquet' --output out")
    number, shards = _shard(args.shard)
    path, _ = find_model(args.model, args.revision)
    engine = Engine.load(path, **run_options(args, "task"))
    settings = _settings(args, engine, checksum(path))
    _check_route(args, engine)
    settings.recipe.check(engine)
    _check_dimensions(args, engine, settings.columns.images)
    isa = _instruction_set(engine)
    refuse_own_patterns(inputs, args.output, own_names(args.format))
    files = find_inputs(inputs)
    refuse_own_files(files, args.output, is_own_name)
    units = find_units(files, settings)
    folder = open_folder(args.output, make=args.verify is None)
    job = Job(units, folder, engine, settings, isa)
    shard = shard_of(units, number, shards)
    if args.verify is None:
        open_job(folder, settings, __version__, isa, args.allow_mixed_isa)
        refuse_stale(units, folder, args.prune)
        drop_old_manifest(units, folder)
        _run(args, job, shard)
    else:
        _verify(args, job, shard)


def _settings(args: argparse.Namespace, engine: Engine, digest: str) -> JobSettings:
    """Return the settings of the job from the options; raises `InputError`. digest: the checksum of the model."""
    images = _reads_images(args, engine)
    columns = ColumnNames(args.column or ("image" if images else "text"), args.id or None,
                          tuple(name for name in args.keep.split(",") if name), images=images)
    if clash := RESULT_COLUMNS.intersection(columns.kept):
        raise InputError(f"--keep cannot copy {listed(sorted(clash))}, because parts have columns of this name")
    # The options of Engine.encode_stream. Its `task` is the option --route, because --task chooses an adapter.
    options: dict[str, Any] = {}
    for name, value in (("prompt_name", args.prompt_name), ("task", args.route),
                        ("truncate_dim", positive_int_or_none("--truncate-dim", args.truncate_dim)),
                        ("normalize_embeddings", args.normalize or None)):
        options |= {} if value is None else {name: value}
    options |= label_options(args)
    described = options | {"result": args.result, "dtype": args.dtype, "column": columns.text, "id": columns.id,
                           "keep": list(columns.keep), "computation": engine.precision, "adapter": args.task,
                           "format": args.format}
    described |= {"images": True} if images else {}
    # Portable bits are those of every backend that has them. A record without bits is one of the fastest arithmetic.
    described |= {"bits": _PORTABLE_BITS} if engine.bits == PORTABLE else {"backend": engine.backend}
    known = signature(getattr(Engine, STREAMED[args.result].name)).parameters
    if other := [option_of(name) for name in options if name not in known]:
        raise InputError(f"--result {args.result} does not go with {listed(other)}")
    if args.dtype != "float32" and args.result != "vectors":
        raise InputError(f"--dtype {args.dtype} is for --result vectors")
    if args.format == "openai" and (args.result != "vectors" or args.dtype != "float32" or columns.kept):
        raise InputError("a batch of requests is answered with float32 vectors; leave --result, --dtype, --id and "
                         "--keep out")
    if args.dtype in PRECISIONS[1:]:
        options["precision"] = args.dtype
    if args.ranges is not None:
        options["ranges"] = ranges = _read_ranges(args.ranges)
        described["ranges"] = hashlib.sha256(ranges.tobytes()).hexdigest()
    usual = UNIT_IMAGES if images else UNIT_ROWS.get(args.result, 16384)
    rows = usual if args.unit_rows is None else positive_int("--unit-rows", args.unit_rows)
    return JobSettings(digest, columns, Recipe(args.result, options, args.dtype, images), options=described,
                       format=args.format, rows=rows, size=positive_int("--unit-bytes", args.unit_bytes))


def _reads_images(args: argparse.Namespace, engine: Engine) -> bool:
    """Return whether the column holds images; raises `InputError` for a model that cannot read them."""
    images = args.images or (engine.reads_images and engine.text is None)
    if images and not engine.reads_images:
        raise InputError("--images: this model reads texts alone; leave the option out, or take a model of images")
    if images and args.format == "openai":
        raise InputError("--format openai is for batches of texts, and this is a job of images")
    if images and STREAMED[args.result].prepare_images is None:
        raise InputError(f"--result {args.result} is for texts; images have vectors or classes")
    if images and engine.image_encoder.settings is None:
        raise UnsupportedError(NO_SETTINGS)
    return images


def _check_route(args: argparse.Namespace, engine: Engine) -> None:
    """Raise `InputError` for a route that the model lacks; the message calls it --route, as --task is an adapter."""
    if args.result not in ("vectors", "sparse"):     # other results have no routes
        return
    try:
        engine.engine_of(args.route)
    except InputError as error:
        if not engine.routes:
            raise InputError(f"--route {args.route}: this model has no routes; leave the option out") from error
        fault = "has to be given" if args.route is None else f"cannot be {shown(args.route)}"
        raise InputError(f"--route {fault}: the routes of this model are {listed(engine.routes)}") from error


def _check_dimensions(args: argparse.Namespace, engine: Engine, images: bool) -> None:
    """Raise `InputError` if --truncate-dim is more than the vectors have; `encode` would silently keep all."""
    if args.truncate_dim is not None:
        reader = engine.engine_of(args.route)
        width = (reader.image_encoder if images else reader.text_encoder).whole_width
        if args.truncate_dim > width:
            raise InputError(f"--truncate-dim {args.truncate_dim}: the vectors of this model have {width} dimensions; "
                             "give fewer, or leave the option out")


def _read_ranges(path: str) -> np.ndarray:
    """Return the array in a file of `np.save`; raises `InputError`."""
    try:
        ranges = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: expected an array that np.save wrote, of the smallest and the largest number of "
                         f"each dimension: {error}") from error
    if not isinstance(ranges, np.ndarray):
        raise InputError(f"{path}: expected one array that np.save wrote, and not an archive of several")
    return ranges


def _instruction_set(engine: Engine) -> str:
    """Return the text for the metadata of parts: the backend and its instruction set, or that bits are portable."""
    if engine.bits == PORTABLE:
        return _PORTABLE_BITS
    described = get_backend(engine.backend).describe().splitlines()[0]
    return f"{engine.backend}, {described.partition(' (')[0]}"      # without the list of other sets in brackets


def _run(args: argparse.Namespace, job: Job, shard: list[Unit]) -> None:
    """Compute the missing units of a shard, write the manifest if then no unit of the job is missing, and report."""
    progress = _Progress(args.json, len(shard), missing=len(job.missing(shard)))
    written: dict[str, dict[str, Any]] = {}

    def report(unit: Unit, part: JobPart) -> None:
        """Note the entry of a part for the manifest, and show the progress."""
        written[unit.name] = entry_of(part)
        progress.show(unit, part)

    by_others = job.run(shard, report)      # units of the shard that other processes are computing
    progress.end()
    missing = job.missing(job.units)        # of all shards
    result: dict[str, Any] = {"event": "end", "parts": len(written), "missing": len(missing),
                              "seconds": round(progress.seconds, 3)}
    if not missing:
        manifest = write_manifest(job.units, job.folder, written)
        result |= {name: manifest[name] for name in COUNTS}
    if args.json:
        print(json.dumps(result), flush=True)
        return
    place = without_credentials(args.output)
    if written or missing:
        print(f"{place}: wrote {len(written):,} of {len(job.units):,} parts in {progress.seconds:.1f} s")
    else:
        print(f"{place}: all {len(job.units):,} parts are there already, and nothing was computed")
    if missing:
        why = f", of which other processes compute {len(by_others):,} now" if by_others else ", of other shards"
        print(f"{len(missing):,} parts are missing{why}; the process that writes the last one writes the manifest")
    else:
        rejected = f", and {manifest['rejected']:,} rejected in {REJECTED}/" if manifest["rejected"] else ""
        empty = f", of which {manifest['empty']:,} have an empty text" if manifest["empty"] else ""
        print(f"the job is finished: {manifest['rows']:,} rows{empty}{rejected}, {manifest['tokens']:,} tokens")


class _Progress:
    """Shows the number of parts, the rate and the remaining time, on a terminal or as lines of JSON."""

    def __init__(self, as_json: bool, units: int, missing: int):
        """units: the number of units of the shard. missing: how many of them have no part yet."""
        self._json, self._units, self._missing = as_json, units, missing
        self._done, self._rows, self._start = 0, 0, time.monotonic()
        if as_json:
            print(json.dumps({"event": "start", "units": units, "missing": missing}), flush=True)

    @property
    def seconds(self) -> float:
        """The seconds since this object was made."""
        return time.monotonic() - self._start

    def show(self, unit: Unit, part: JobPart) -> None:
        """Print that a part is done: as an event in JSON, or as a line that the next one replaces on a terminal."""
        self._done, self._rows = self._done + 1, self._rows + part.counts["rows"]
        rate, left = self._rows / self.seconds, self.seconds / self._done * (self._missing - self._done)
        if self._json:
            print(json.dumps({"event": "part", "name": unit.name, **part.counts, "done": self._done,
                              "missing": self._missing - self._done, "rows_per_second": round(rate, 1),
                              "seconds_left": round(left, 1)}), flush=True)
        elif sys.stderr.isatty():
            done = self._units - self._missing + self._done
            print(f"\r{done:,} of {self._units:,} parts, {rate:,.0f} rows/s, {left:,.0f} s left \x1b[K", end="",
                  file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the line of a terminal."""
        if not self._json and self._done and sys.stderr.isatty():
            print(file=sys.stderr)


def _verify(args: argparse.Namespace, job: Job, shard: list[Unit]) -> None:
    """Compare the parts of a shard with their rows computed again; raises `WeightsError` if any is wrong."""
    wrong, checked = 0, 0
    for unit, fault in verify(job, shard, args.verify or None):     # 0, of --verify without ROWS, is all rows
        checked, wrong = checked + 1, wrong + (fault is not None)
        if args.json:
            print(json.dumps({"event": "verified", "name": unit.name, "fault": fault}), flush=True)
        elif fault is not None:
            print(f"{unit.name}: {fault}", flush=True)
    if wrong:
        raise WeightsError(f"{wrong:,} of {checked:,} parts are not what their rows give; delete them, and run the job "
                           "again")
    if checked < len(shard):
        right = f", and the other {checked:,} are right to the bit" if checked else ""
        raise WeightsError(f"{len(shard) - checked:,} of {len(shard):,} parts are missing in "
                           f"{without_credentials(args.output)}{right}; run the job without --verify to compute them")
    if not args.json:
        how = f"{args.verify:,} rows of each" if args.verify else "whole"
        print(f"all {checked:,} parts are right to the bit ({how})")


def _diff(args: argparse.Namespace) -> None:
    """Print the ids of rows that differ between two folders; raises `WeightsError` if there are any."""
    count = 0
    for name, rows in diff(open_folder(args.output, make=False), open_folder(args.diff, make=False)):
        count += 1
        if args.json:
            print(json.dumps({"event": "different", "name": name, "rows": rows}), flush=True)
        else:
            print(f"{name}: {rows if isinstance(rows, str) else ', '.join(rows)}", flush=True)
    if count:
        raise WeightsError(f"{count:,} parts differ")
    if not args.json:
        print("all parts are equal to the bit")


def _shard(text: str | None) -> tuple[int, int]:
    """Return the number of the shard and of all shards from --shard I/N; (0, 1) without it."""
    if text is None:
        return 0, 1
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(f"--shard must be I/N with I from 0 to N - 1, such as 3/16, not {shown(text)}")
    return int(match[1]), int(match[2])
