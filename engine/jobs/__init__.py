"""Jobs over files: rows in, results out, in parts that are whole or absent, so that a stopped job goes on."""

from .job import REJECTED, Job, JobSettings, Unit, find_units, is_own_name, open_job, option_of, own_names, shard_of
from .manifest import drop_old_manifest, entry_of, refuse_stale, write_manifest
from .parts import COUNTS, JobPart
from .readers import FORMATS, Columns
from .results import Recipe
from .storage import find_inputs, open_folder, refuse_own_files, refuse_own_patterns
from .verify import diff, verify

__all__ = [
    "COUNTS",
    "FORMATS",
    "REJECTED",
    "Columns",
    "Job",
    "JobPart",
    "JobSettings",
    "Recipe",
    "Unit",
    "diff",
    "drop_old_manifest",
    "entry_of",
    "find_inputs",
    "find_units",
    "is_own_name",
    "open_folder",
    "open_job",
    "option_of",
    "own_names",
    "refuse_own_files",
    "refuse_own_patterns",
    "refuse_stale",
    "shard_of",
    "verify",
    "write_manifest",
]
