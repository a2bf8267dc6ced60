"""Write and read the manifest of a finished job, with the checksum of every part, and delete parts of old inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import InputError, WeightsError, listed, shown
from .batch_api import is_answers
from .job import JOB, MANIFEST, Unit, json_file, part_names, read_object, rejected_name, rejected_names
from .parts import COUNTS, JobPart, is_part, read_part
from .storage import Folder

_ADVICE = "restore it, or delete it and run the job again"


def write_manifest(units: Sequence[Unit], folder: Folder, known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Write the manifest of units that all have their parts, unless the folder has the same one, and return it.

    known: the entries of the parts that this process wrote; the other parts are read once. The manifest is the same
    whichever process writes it. Raises `WeightsError` for a part that is damaged, that holds other rows than its name
    says, or that differs from an earlier manifest, so that the checksum of a damaged part is never recorded.
    """
    old = read_manifest(folder)
    before = old["parts"]
    parts = {unit.name: known.get(unit.name) or _entry(unit, folder) for unit in units}
    for unit in units:
        if unit.name not in known and (fault := _fault(unit, parts[unit.name], before.get(unit.name))):
            raise WeightsError(f"{fault}; delete {unit.name}, and run the job again")
    totals = {name: sum(entry.get(name, 0) for entry in parts.values()) for name in COUNTS}
    manifest = read_object(folder, JOB, "run the job again") | totals | {"parts": parts}
    if manifest != old:         # a finished job may be on a disk that cannot be written
        folder.write(MANIFEST, json_file(manifest))
    return dict(manifest)


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Return the manifest, or a dictionary without parts if the job is not finished; raises `WeightsError`."""
    if not folder.has(MANIFEST):
        return {"parts": {}}
    manifest = read_object(folder, MANIFEST, _ADVICE)
    parts = manifest.get("parts")
    if not isinstance(parts, dict) or not all(isinstance(part, dict) and "sha256" in part for part in parts.values()):
        raise WeightsError(f"{MANIFEST} in the output folder is damaged: it lists no parts with checksums; {_ADVICE}")
    return manifest


def drop_old_manifest(units: Sequence[Unit], folder: Folder) -> None:
    """Delete the manifest if it is not of these units, since a manifest means that a folder has all of its parts.

    Such a manifest is left from before inputs were added or removed.
    """
    if read_manifest(folder)["parts"].keys() != {unit.name for unit in units}:
        folder.delete(MANIFEST)


def refuse_stale(units: Sequence[Unit], folder: Folder, prune: bool) -> None:
    """Raise `InputError` if the folder has parts or rejected rows of no unit, such as those of a changed input.

    Otherwise a row could be there twice. prune: delete these files instead, but no file of another program: the
    manifest, or the metadata of a part, must say that a job wrote it. A file of rejected rows may be left without its
    part, because it is written before the part.
    """
    names = {unit.name for unit in units}
    parts = sorted(part_names(folder) - names)
    rejected = sorted(rejected_names(folder) - {rejected_name(name) for name in names})
    if not prune:
        if stale := parts or rejected:
            what = "parts" if parts else "files of rejected rows"
            raise InputError(f"the output folder holds {len(stale)} {what} of inputs that have changed or are not "
                             f"given: {listed(stale[:3])}; say --prune to delete them, or give another folder")
        return
    known = read_manifest(folder)["parts"]
    if foreign := [name for name in parts if name not in known and not _is_job_part(name, folder)]:
        raise InputError("neither the manifest nor its metadata says that a job wrote it, so that --prune does not "
                         f"delete it; move {listed(foreign[:3])} to another folder")
    for name in [*parts, *rejected]:
        folder.delete(name)


def _is_job_part(name: str, folder: Folder) -> bool:
    """Return whether the contents of a file, not only its name, are those of a part."""
    data = folder.read(name)
    return is_answers(data) if name.endswith(".jsonl") else is_part(data)


def entry_of(part: JobPart) -> dict[str, Any]:
    """Return the manifest's entry of a part: its checksum, size and counts, and the checksum of its rejected rows."""
    entry = {"sha256": hashlib.sha256(part.data).hexdigest(), "bytes": len(part.data), **part.counts}
    return entry | ({"rejected_sha256": hashlib.sha256(part.rejected).hexdigest()} if part.rejected else {})


def _fault(unit: Unit, entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Return the fault of a part or of the file of its rejected rows, or "".

    entry: made from the files as they are. before: the entry in the manifest; None if it has none.
    """
    if entry.get("rejected") and "rejected_sha256" not in entry:
        return f"{unit.rejected}: is missing"
    if before is not None and before["sha256"] != entry["sha256"]:
        return f"{unit.name}: its checksum is not that of {MANIFEST}"
    if before is not None and before.get("rejected_sha256") != entry.get("rejected_sha256"):
        return f"{unit.rejected}: its checksum is not that of {MANIFEST}"
    return ""


def rejected_fault(unit: Unit, folder: Folder, entry: Mapping[str, Any]) -> str:
    """Return the fault of the file of a part's rejected rows, by the part's entry in the manifest; "" for none."""
    data = read_rejected(unit, folder)
    stored = {"rejected_sha256": hashlib.sha256(data).hexdigest()} if data else {}
    as_it_is = {name: entry.get(name) for name in ("sha256", "rejected")} | stored      # as if the part were right
    return _fault(unit, as_it_is, entry)


def _entry(unit: Unit, folder: Folder) -> dict[str, Any]:
    """Return the entry of a part, made from its files; raises `WeightsError` if they are damaged or of other rows."""
    data = folder.read(unit.name)
    refused = read_rejected(unit, folder)
    if unit.format == "openai":
        try:
            tokens = [int(json.loads(line)["response"]["body"]["usage"]["total_tokens"]) for line in data.splitlines()]
        except (ValueError, KeyError, TypeError) as error:
            raise WeightsError(f"{unit.name}: is damaged: {error}; delete it, and run the job again") from error
        counts = {"rows": len(tokens), "rejected": len(refused.splitlines()), "tokens": sum(tokens)}
    else:
        _, metadata = read_part(data, unit.name)     # whole, with the checksums of its pages
        place = unit.place
        if others := {name: metadata.get(name) for name in place if metadata.get(name) != place[name]}:
            raise WeightsError(f"{unit.name}: holds the rows of another part ({shown(others)[1:-1]}); delete it, and "
                               "run the job again")
        counts = {name: metadata[name] for name in COUNTS}
        if refused and len(refused.splitlines()) != counts["rejected"]:
            raise WeightsError(f"{unit.rejected}: is damaged, because {unit.name} has {counts['rejected']:,} rejected "
                               f"rows; delete {unit.name}, and run the job again")
    return entry_of(JobPart(data, refused, counts))


def read_rejected(unit: Unit, folder: Folder) -> bytes:
    """Return the file of the rejected rows of a unit; empty if there is none."""
    return folder.read(unit.rejected) if folder.has(unit.rejected) else b""
