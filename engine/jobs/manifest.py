"""The manifest of a finished job: its rows, its tokens, and the checksum of every part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .job import JOB, Unit
from .parts import read_metadata
from .storage import Folder

MANIFEST = "manifest.json"
COUNTS = ("rows", "rejected", "tokens")


def write_manifest(units: Sequence[Unit], folder: Folder, known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Write the manifest of units that all have their parts, and return it.

    known: the entries of the parts that this process wrote. The others are read once. The manifest is the same
    whichever process writes it.
    """
    parts = {unit.name: known.get(unit.name) or _entry(unit, folder) for unit in units}
    totals = {name: sum(entry[name] for entry in parts.values()) for name in COUNTS}
    manifest = json.loads(folder.read(JOB)) | totals | {"parts": parts}
    folder.write(MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n")
    return dict(manifest)


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Return the manifest, or a dictionary without parts if the job is not finished."""
    return dict(json.loads(folder.read(MANIFEST))) if folder.has(MANIFEST) else {"parts": {}}


def entry_of(data: bytes, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return what the manifest says about a part."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), **counts}


def _entry(unit: Unit, folder: Folder) -> dict[str, Any]:
    data = folder.read(unit.name)
    if unit.format == "openai":
        lines = [json.loads(line)["response"]["body"]["usage"]["total_tokens"] for line in data.splitlines()]
        refused = folder.read(unit.rejected) if folder.has(unit.rejected) else b""
        counts = {"rows": len(lines), "rejected": len(refused.splitlines()), "tokens": sum(lines)}
    else:
        metadata = read_metadata(data, unit.name)
        counts = {name: metadata[name] for name in COUNTS}
    return entry_of(data, counts)
