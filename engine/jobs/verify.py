"""Compare parts with their rows computed again, and the parts of two jobs: `engine embed --verify` and `--diff`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError, WeightsError
from .columns import as_json
from .job import Job, Unit, part_names
from .manifest import read_manifest, read_rejected, rejected_fault
from .parts import PLACE, read_part
from .storage import Folder


def verify(job: Job, units: Sequence[Unit], sample: int | None) -> Iterator[tuple[Unit, str | None]]:
    """Yield each of the units that has a part, and the fault of the part; None for a part that is right to the bit.

    Raises `InputError` if no unit of the job has a part, since nothing would then be verified.

    sample: how many rows of each part to compute again, beside a comparison of its checksum with the manifest's; None
    for all rows, where the whole files are compared.
    """
    there, in_manifest = part_names(job.folder), read_manifest(job.folder)["parts"]
    if job.units and there.isdisjoint(unit.name for unit in job.units):
        raise InputError(f"none of the {len(there):,} parts in the output folder is one of this job; give the model, "
                         "the inputs and the options that the parts were computed with")
    for unit in units:
        if unit.name in there:
            data = job.folder.read(unit.name)
            entry = in_manifest.get(unit.name)
            if entry is not None and hashlib.sha256(data).hexdigest() != entry["sha256"]:
                yield unit, "its checksum is not that of the manifest"
            elif entry is not None and (fault := rejected_fault(unit, job.folder, entry)):
                yield unit, fault
            elif sample is None or unit.format == "openai":
                yield unit, _compare_whole(job, unit, data)
            else:
                yield unit, _compare_rows(job, unit, data, sample)


def _compare_whole(job: Job, unit: Unit, data: bytes) -> str | None:
    """Compute all rows of a part again, and return how the part `data` differs; None if it is right to the bit."""
    expected = job.compute_again(unit)
    if data == expected.data:
        is_right = read_rejected(unit, job.folder) == expected.rejected
        return None if is_right else f"{unit.rejected} is not what its rows give"
    if unit.format == "openai":
        return "its bytes are not those of its requests"
    try:
        stored, metadata = read_part(data, unit.name, check=False)
        computed, _ = read_part(expected.data, unit.name)
    except WeightsError as error:
        return str(error).removeprefix(f"{unit.name}: ")
    if metadata.get("isa", job.isa) != job.isa:
        return _elsewhere(metadata["isa"], job)
    if other := _other_shape(stored, computed):
        return f"it has {other} that its input gives"
    rows = list(different_rows(stored, computed))
    return f"{len(rows)} rows differ, the first is {rows[0]}" if rows else "its bytes differ, and its rows do not"


def _compare_rows(job: Job, unit: Unit, data: bytes, sample: int) -> str | None:
    """Compute `sample` rows of a part again, and return how the part `data` differs; None if they are equal."""
    try:
        stored, metadata = read_part(data, unit.name)
    except WeightsError as error:
        return str(error).removeprefix(f"{unit.name}: ")
    if metadata["isa"] != job.isa:
        return _elsewhere(metadata["isa"], job)
    computed_data, indices, unreadable = job.compute_sample(unit, sample)
    # The indices count rows with a text. They are those of the part's rows unless the model refused one of the texts.
    if metadata["rejected"] != unreadable:
        return _compare_whole(job, unit, data)
    if metadata["rows"] != len(stored) or (indices and indices[-1] >= len(stored)):
        return f"it has {len(stored)} rows, and its input has others"
    computed, _ = read_part(computed_data, unit.name)
    stored = stored.take(np.array(indices, np.int64))
    if other := _other_shape(stored, computed):
        return f"it has {other} that its input gives"
    rows = list(different_rows(stored, computed))
    return f"{len(rows)} of {len(indices)} rows differ, the first is {rows[0]}" if rows else None


def _elsewhere(isa: str, job: Job) -> str:
    """Return the fault of a part that was computed with another instruction set, and where it can be verified."""
    return (f"it was computed by {isa}, and this is {job.isa}; verify it on a CPU that has these kernels, where "
            "ENGINE_ISA chooses them. Parts of a job with --bits portable can be verified on every CPU")


def _other_shape(one: Any, other: Any) -> str:
    """Return the numbers of rows and the columns of two Arrow tables as a text; empty if both have the same."""
    if len(one) == len(other) and one.column_names == other.column_names:
        return ""
    return f"{len(one)} rows of {one.column_names} and not the {len(other)} rows of {other.column_names}"


def different_rows(one: Any, other: Any) -> Iterator[str]:
    """Yield the id, which is the first column, of each row that differs in a bit between two tables of one shape."""
    differ = np.zeros(len(one), bool)
    for a, b in zip(one.columns, other.columns, strict=True):
        differ |= _different(a.combine_chunks(), b.combine_chunks())
    for i in np.flatnonzero(differ):
        yield str(as_json(one.column(0)[int(i)]))


def _different(one: Any, other: Any) -> np.ndarray:
    """Return which of the n rows of two Arrow arrays differ: bool [n]."""
    if one.type == other.type and hasattr(one.type, "list_size"):       # vectors: compare their bytes
        a, b = (np.ascontiguousarray(x.flatten().to_numpy(zero_copy_only=False)) for x in (one, other))
        width = one.type.list_size * a.itemsize
        if a.nbytes == b.nbytes == width * len(one):
            return np.any(a.view(np.uint8).reshape(-1, width) != b.view(np.uint8).reshape(-1, width), axis=1)
    pairs = zip(map(as_json, one), map(as_json, other), strict=True)
    return np.array([repr(a) != repr(b) for a, b in pairs], bool)


def diff(one: Folder, other: Folder) -> Iterator[tuple[str, list[str] | str]]:
    """Yield (name of the part, ids of its different rows) for each part in which two jobs over the same inputs differ.

    The jobs may be unfinished. Two parts are compared if they hold the same rows of an input. A sentence stands in
    place of the ids where one job lacks the part, or where shapes differ. Raises `InputError` for no parts in a folder.
    """
    folders = {"the output folder": one, "the folder to compare with": other}
    names = [part_names(folder) for folder in folders.values()]
    for title, names_of in zip(folders, names, strict=True):
        if not names_of:
            raise InputError(f"{title} holds no part of a job")
    if not all(name.endswith(".parquet") for name in names[0] | names[1]):
        raise InputError("only parts in Parquet are compared by row; compare answers to a batch as files")
    # A name has 32 bits of the hash of its input, so that two inputs may share them: the metadata of a part decides.
    places = [_grouped(names_of) for names_of in names]
    for place in sorted(places[0].keys() | places[1].keys()):
        yield from _diff_place(*(_read_place(title, folder, grouped.get(place, []))
                                 for (title, folder), grouped in zip(folders.items(), places, strict=True)))


def _grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names of parts by all but their digest: by the hash of the input's name, and the number of the unit."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rpartition("-")[0], []).append(name)
    return groups


def _read_place(title: str, folder: Folder, names: Iterable[str]) -> dict[str, tuple[str, Any]]:
    """Return (name, table) of each of these parts of a folder, by the rows that it holds. title: names the folder."""
    parts: dict[str, tuple[str, Any]] = {}
    for name in sorted(names):
        table, metadata = read_part(folder.read(name), f"{name} in {title}")
        place = str([metadata.get(key) for key in PLACE])
        if place in parts:
            raise InputError(f"{title} holds two parts of the same rows, {parts[place][0]} and {name}; delete the one "
                             "that is not of the job")
        parts[place] = name, table
    return parts


def _diff_place(one: dict[str, tuple[str, Any]], other: dict[str, tuple[str, Any]]
                ) -> Iterator[tuple[str, list[str] | str]]:
    """Yield the results of `diff` for parts of two folders, each given as (name, table) by the rows that it holds."""
    for place in sorted(one.keys() | other.keys()):
        if place not in one or place not in other:
            yield (one.get(place) or other[place])[0], "only one of the two jobs has a part of these rows"
            continue
        (name, a), (_, b) = one[place], other[place]
        if shapes := _other_shape(a, b):
            yield name, shapes
        elif rows := list(different_rows(a, b)):
            yield name, rows
