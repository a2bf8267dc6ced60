"""Run a job: find its units, compute those whose part is missing, and write each part whole or not at all.

A unit is a range of a file, and a part is what is written for it. The name of a part follows from the state of the
file, the range, the model and the options, so that the parts that exist are the whole memory of a job.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.ahead import Pool, ahead
from ..base.errors import InputError, WeightsError, listed
from ..base.lazy import lazy
from .columns import common_types
from .parts import PLACE, JobPart, make_part, unique_texts
from .readers import FORMATS, Format, Range, check_fields, format_of, refuse_compressed
from .results import Computed, Recipe, StreamEncoder, joined
from .rows import ColumnNames, JobRows
from .storage import CLAIMS, Folder, InputFile

UNITS_AHEAD = 2
"""How many units are read before they are computed."""
CHUNKS_AHEAD = 2
"""How many chunks of texts wait or are computed while a part is written."""
JOB = "_job.json"
"""The file that records the job of a folder: its model, options and version. Parquet readers skip names with a `_`."""
MANIFEST = "_manifest.json"
"""The file that says that a job is finished, and what its parts are."""
_STEM = re.compile(r"part-[0-9a-f]{8}-\d{6,}-[0-9a-f]{16}")
"""Matches the name of a part without its suffix. Other programs, such as Spark, write files called part-*, too."""
_SUFFIXES = (".parquet", ".jsonl")
REJECTED = "_rejected"
"""The folder, inside the one of the parts, of the files of rejected rows, which could not be encoded."""
_OPTIONS = {"engine": "the version of the engine", "model": "the checksum of the model", "adapter": "--task",
            "computation": "--precision", "normalize_embeddings": "--normalize", "task": "--route"}
"""Names for messages of the entries of `JobSettings.description` that are called otherwise in `engine embed`."""
_FULL = (errno.ENOSPC, errno.EDQUOT)        # a full disk, and a used up quota


@dataclass(frozen=True)
class Unit:
    """A range of a file, and the name of its part."""

    file: InputFile
    format: str
    """A key of `readers.FORMATS`."""
    range: Range
    name: str
    columns: ColumnNames
    """The columns to read, with the types that they have in all parts."""

    @property
    def place(self) -> dict[str, Any]:
        """The entries of its part's metadata that say which rows it has."""
        rows = self.range
        return dict(zip(PLACE, (self.file.name, rows.first, rows.last, rows.group), strict=True))

    @property
    def rejected(self) -> str:
        """The name of the file of its rows that could not be encoded."""
        return rejected_name(self.name)


def rejected_name(part: str) -> str:
    """Return the name of the file of the rejected rows of a part."""
    return f"{REJECTED}/{part.rpartition('.')[0]}.jsonl"


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job: beside the rows and the instruction set, they alone decide the bytes of a part."""

    model: str
    """The checksum of the model."""
    columns: ColumnNames
    recipe: Recipe
    options: dict[str, Any]
    """All options that change results, as JSON can hold them."""
    format: str | None
    """The format of all files; None for the format that the end of each name says."""
    rows: int
    """The most rows of a unit."""
    size: int
    """The most bytes of a unit."""

    @lazy
    def formats(self) -> dict[str, Format]:
        """The reader of each format, by the format's name; it may keep a file open between units."""
        return {name: make(self.rows, self.size) for name, make in FORMATS.items()}

    @property
    def description(self) -> dict[str, Any]:
        """The record, as JSON, of the settings that all parts of a folder have in common."""
        return {"model": self.model, "options": self.options, "unit": {"rows": self.rows, "bytes": self.size}}


def own_names(format: str | None) -> list[str]:
    """Return an example of each kind of name that a job gives to its files, to test patterns of inputs with them.

    format: of the inputs; None if it may vary.
    """
    part = _part_name("0" * 8, 0, "0" * 16)
    return [f"{part}.{_suffix(format)}", f"{REJECTED}/{part}.jsonl", JOB, MANIFEST]


def is_own_name(name: str) -> bool:
    """Return whether a path in the output folder is one that a job gives to its files."""
    folder, _, file = name.rpartition("/")
    return folder in (REJECTED, CLAIMS) or (not folder and (file in (JOB, MANIFEST) or _is_part_name(file)))


def _part_name(name_hash: str, number: int, digest: str) -> str:
    """Return the name of a part without its suffix.

    name_hash: 8 hexadecimal digits, of the input's name. number: of the unit in the input. digest: 16 hexadecimal
    digits, of all that the part's bytes depend on.
    """
    return f"part-{name_hash}-{number:06}-{digest}"


def _is_part_name(name: str) -> bool:
    return name.endswith(_SUFFIXES) and _STEM.fullmatch(name.rpartition(".")[0]) is not None


def _suffix(format: str | None) -> str:
    return "jsonl" if format == "openai" else "parquet"


def find_units(files: Sequence[InputFile], settings: JobSettings) -> list[Unit]:
    """Return the units of files, in order; raises `InputError` for a file that cannot be read or lacks a column."""
    units = []
    for file in files:
        refuse_compressed(file)
    formats = [settings.format or format_of(file) for file in files]
    check_fields([file for file, name in zip(files, formats, strict=True) if name == "jsonl"], settings.columns)
    readers = [settings.formats[name] for name in formats]
    ranges = [reader.ranges(file, settings.columns) for file, reader in zip(files, readers, strict=True)]
    types = [reader.types(file, settings.columns) for file, reader in zip(files, readers, strict=True)]
    common = common_types(zip([file.name for file in files], types, strict=True))
    columns = replace(settings.columns, types=common)
    if not any(ranges) and files:       # a job without rows writes one empty part, which has all columns
        ranges[0] = [Range(0, 0)]
    for file, name, file_types, file_ranges in zip(files, formats, types, ranges, strict=True):
        # Types that a column has here because of another file: they change the part, so its digest depends on them.
        widened = [str(common[column]) for column in file_types if file_types[column] != common[column]]
        name_hash = hashlib.sha256(file.name.encode()).hexdigest()[:8]
        for i, rows in enumerate(file_ranges):
            key = json.dumps([file.name, file.size, file.modified, name, rows.first, rows.last, rows.group,
                              settings.description, *widened], sort_keys=True)
            digest = hashlib.sha256(key.encode()).hexdigest()[:16]
            units.append(Unit(file, name, rows, f"{_part_name(name_hash, i, digest)}.{_suffix(name)}", columns))
    return units


def shard_of(units: Sequence[Unit], number: int, shards: int) -> list[Unit]:
    """Return the units of shard `number`, of 0 to `shards` - 1; the digest in its name puts a unit into one shard."""
    return [unit for unit in units if int(_digest(unit), 16) % shards == number]


def _digest(unit: Unit) -> str:
    """Return the digest in the name of a unit's part, 16 hexadecimal digits."""
    return unit.name.rpartition("-")[2].partition(".")[0]


def part_names(folder: Folder) -> set[str]:
    """Return the names of the parts that a folder holds, and of no other file."""
    return {name for name in folder.names() if _is_part_name(name)}


def rejected_names(folder: Folder) -> set[str]:
    """Return the names of the files of rejected rows that a folder holds."""
    return {f"{REJECTED}/{name}" for name in folder.names(REJECTED) if _is_part_name(name)}


class Job:
    """A job: its units, the folder of their parts, and the encoder that computes them."""

    def __init__(self, units: Sequence[Unit], folder: Folder, encoder: StreamEncoder, settings: JobSettings, isa: str):
        """isa: the backend and its instruction set, or that bits are portable, for the metadata of each part."""
        self.units, self.folder = units, folder
        self._encoder, self.settings, self.isa = encoder, settings, isa

    def run(self, chosen: Sequence[Unit], report: Callable[[Unit, JobPart], None]) -> list[Unit]:
        """Compute the chosen units that have no part; return the units that other processes are computing.

        report: called after each part. Raises `OSError` where a part cannot be written, such as on a full disk; the
        parts before it stay.
        """
        # Passes go on while they compute something, because another process may have given up a claim meanwhile.
        while True:
            missing = self.missing(chosen)
            if not missing or not self._compute_unclaimed(missing, report):
                return self.missing(chosen)

    def missing(self, units: Iterable[Unit]) -> list[Unit]:
        """Return the units that have no part."""
        there = part_names(self.folder)
        return [unit for unit in units if unit.name not in there]

    def _compute_unclaimed(self, missing: Sequence[Unit], report: Callable[[Unit, JobPart], None]) -> int:
        """Compute and write the missing units that no process has claimed, and return their number.

        One thread claims and reads units, two tokenize and compute chunks, and this thread writes parts, all at the
        same time; `UNITS_AHEAD` and `CHUNKS_AHEAD` bound how far they run ahead, and so the memory.
        """
        claims: dict[str, Callable[[], None]] = {}      # by name of the unit, a function that gives up its claim
        count = 0
        with ExitStack() as stack:
            stack.callback(lambda: [give_up() for give_up in claims.values()])      # after an error
            reader, computer = stack.enter_context(Pool(1)), stack.enter_context(Pool(2))
            read = ahead(self._read, self._claimed(missing, claims), UNITS_AHEAD, reader)
            chunks = ((unit, rows, texts, last) for unit, rows in read for texts, last in self._chunks(rows))
            for unit, rows, computed in self._complete_units(ahead(self._compute, chunks, CHUNKS_AHEAD, computer)):
                part = self.make(unit, rows, computed)
                self._write(unit, part)
                claims.pop(unit.name)()         # give up the claim, as the part is there now
                report(unit, part)
                count += 1
        return count

    def _claimed(self, units: Sequence[Unit], claims: dict[str, Callable[[], None]]) -> Iterator[Unit]:
        """Claim units one by one, note each claim in `claims`, and yield each unit that is got and is still missing."""
        for unit in units:
            give_up = self.folder.claim(unit.name)
            if give_up is None:
                continue
            claims[unit.name] = give_up
            if self.folder.has(unit.name):      # its owner has just finished it
                claims.pop(unit.name)()
            else:
                yield unit

    def _read(self, unit: Unit) -> tuple[Unit, JobRows]:
        """Return a unit with its rows; raises `InputError` if its file has changed."""
        unit.file.check()               # before reading, which would block on a pipe that took the file's place
        try:
            return unit, self.settings.formats[unit.format].rows(unit.file, unit.range, unit.columns)
        finally:
            unit.file.check()       # its error replaces another one, which the change may have caused

    def _compute(self, chunk: tuple[Unit, JobRows, list[Any], bool]) -> tuple[Unit, JobRows, Computed, bool]:
        """Return a chunk (unit, all its rows, texts, whether they are the unit's last) with results for its texts."""
        unit, rows, texts, last = chunk
        return unit, rows, self.settings.recipe.compute(self._encoder, texts), last

    def _write(self, unit: Unit, part: JobPart) -> None:
        """Write the files of a part; a full disk gets advice in its error."""
        try:
            if part.rejected:
                self.folder.write(unit.rejected, part.rejected)     # first, so that a part has all that belongs to it
            self.folder.write(unit.name, part.data)
        except OSError as error:
            if error.errno in _FULL:
                raise OSError(error.errno, f"{error.strerror}; the parts that are done stay. Free some space, and run "
                              "the same command again", error.filename) from error
            raise

    def make(self, unit: Unit, rows: JobRows, computed: Computed) -> JobPart:
        """Return the part of a unit from its rows, or some of them, and the results of their distinct texts."""
        columns = self.settings.columns
        id_column = columns.id if columns.id or "id" not in columns.keep else "id"      # None: ids are made by position
        metadata = {"id": id_column, **unit.place, "isa": self.isa, "model": self.settings.model}
        return make_part(unit.file.name, rows, computed, lambda: self._empty_columns, self.settings.recipe, metadata)

    def compute_again(self, unit: Unit) -> JobPart:
        """Return the part of a unit, computed again from its file, to compare it with the part in the folder."""
        _, rows = self._read(unit)
        recipe = self.settings.recipe
        parts = [recipe.compute(self._encoder, texts) for texts, _ in self._chunks(rows) if texts]
        return self.make(unit, rows, joined(parts, sizes=[recipe.at_once] * len(parts)))

    def compute_sample(self, unit: Unit, count: int) -> tuple[bytes, list[int], int]:
        """Compute `count` random rows of a unit, the same ones in every run, as its digest is the seed.

        Returns the bytes of a part of these rows alone, their indices among the rows with a text, in ascending order,
        and how many rows have no text.
        """
        _, rows = self._read(unit)
        with_text = [i for i, text in enumerate(rows.texts) if text is not None]
        order = np.random.default_rng(int(_digest(unit), 16)).permutation(len(with_text))
        indices: list[int] = sorted(order[:count].tolist())
        chosen = rows.select([with_text[i] for i in indices])
        computed = self.settings.recipe.compute(self._encoder, unique_texts(chosen)[0])
        return self.make(unit, chosen, computed).data, indices, len(rows.reasons)

    @lazy
    def _empty_columns(self) -> dict[str, Any]:
        """The columns of results, without a row, for a part without rows; a sample is computed for their types."""
        recipe = self.settings.recipe
        columns = recipe.columns(recipe.compute(self._encoder, [recipe.sample]).results)
        return {name: column[:0] for name, column in columns.items()}

    def _chunks(self, rows: JobRows) -> Iterator[tuple[list[Any], bool]]:
        """Yield (distinct texts, whether they are the last) in chunks; rows without a text give one empty chunk."""
        texts, _, _ = unique_texts(rows)
        count = self.settings.recipe.at_once
        for first in range(0, max(1, len(texts)), count):
            yield texts[first : first + count], first + count >= len(texts)

    def _complete_units(self, chunks: Iterable[tuple[Unit, JobRows, Computed, bool]]
                        ) -> Iterator[tuple[Unit, JobRows, Computed]]:
        """Yield each unit with all its rows and the results of all its chunks.

        chunks: (unit, all its rows, the results of one chunk of its texts, whether it is the last one of the unit), in
        order, and those of a unit one after the other.
        """
        parts: list[Computed] = []
        for unit, rows, computed, last in chunks:
            parts.append(computed)
            if last:
                yield unit, rows, joined(parts, sizes=[self.settings.recipe.at_once] * len(parts))
                parts = []


def open_job(folder: Folder, settings: JobSettings, version: str, isa: str, allow_mixed_isa: bool) -> None:
    """Record a job in the folder of its parts, or compare it with the record there; raises `InputError` if they differ.

    Otherwise parts of another model, other options or another version of the engine would stand beside its parts. A
    folder that has the record is only read, so that it may be on a disk that cannot be written.
    """
    description = {"engine": version, **settings.description}
    if _sets_to_record(folder, description, isa, allow_mixed_isa) is None:
        return
    # Two jobs that begin at once would both see no record, so only the one that has the claim looks and writes. An
    # object store gives the claim to everybody: there, two jobs of different options must not begin at once.
    while (give_up := folder.claim(JOB)) is None:
        time.sleep(0.01)        # seconds; the other job holds the claim for one write of a small file
    try:
        sets = _sets_to_record(folder, description, isa, allow_mixed_isa)
        if sets is not None:
            folder.write(JOB, json_file(description | {"instruction_sets": sets}))
    finally:
        give_up()


def _sets_to_record(folder: Folder, description: dict[str, Any], isa: str, allow_mixed_isa: bool) -> list[str] | None:
    """Return the instruction sets that the record of a folder shall name; None if it already names `isa`.

    Raises `InputError` for the record of another job, and for another instruction set without `allow_mixed_isa`.
    """
    if not folder.has(JOB):
        return [isa]
    recorded = read_object(folder, JOB, "restore it, or give another folder")
    sets = recorded.pop("instruction_sets", None)
    if not isinstance(sets, list) or not all(isinstance(name, str) for name in sets):
        raise WeightsError(f"{JOB} in the output folder is damaged: it names no instruction sets; restore it, or "
                           "give another folder")
    if different := sorted(_differences(recorded, description)):
        raise InputError(f"the output folder holds the parts of another job. What differs: {'; '.join(different)}. "
                         "Give the job that is there its own options, or this one another folder")
    if isa in sets:
        return None
    if not allow_mixed_isa:
        raise InputError(f"the parts in the output folder were computed by {listed(sets)}, and this is {isa}, "
                         "whose vectors differ in their last bits; set ENGINE_ISA to one that all machines have, "
                         "give another folder, or say --allow-mixed-isa. A job with --bits portable needs none of this")
    return sorted({*sets, isa})


def json_file(value: dict[str, Any]) -> bytes:
    """Return the bytes of a JSON file with an object, the same for equal objects."""
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def read_object(folder: Folder, name: str, advice: str) -> dict[str, Any]:
    """Return the object in a file of JSON that a job wrote; raises `WeightsError` with advice for a damaged one."""
    try:
        contents = json.loads(folder.read(name))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{name} in the output folder is damaged: {error}; {advice}") from error
    if not isinstance(contents, dict):
        raise WeightsError(f"{name} in the output folder is damaged: it is no JSON object; {advice}")
    return contents


def _differences(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield a text for each option that differs between two records of jobs, with both values.

    prefix: stands before the names in a nested object, so that rows in "unit" become the option --unit-rows.
    """
    for name in there.keys() | here.keys():
        a, b = there.get(name), here.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, "unit_" if name == "unit" else "")
        elif a != b:
            yield f"{option_of(prefix + name)} ({_as_option(a)} there, {_as_option(b)} now)"


def option_of(name: str) -> str:
    """Return, for messages, the option of `engine embed` of an entry of `JobSettings.description`, or a description."""
    return _OPTIONS.get(name) or f"--{name.replace('_', '-')}"


def _as_option(value: Any) -> str:
    """Return the value of an option for a message, of at most 40 characters."""
    if not value or value is True:
        return "given" if value else "not given"
    return str(",".join(map(str, value)) if isinstance(value, list) else value)[:40]
