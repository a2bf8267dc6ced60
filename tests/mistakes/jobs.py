"""Mistakes in jobs over files: rows lost, twice or in another place, and parts that are there in half."""

from __future__ import annotations

from .mistake import Mistake

TESTS = "tests/jobs"

MISTAKES = (
    Mistake(
        name="line-at-a-border",
        what="A line that begins exactly where a range begins is lost.",
        file="engine/jobs/readers.py",
        right="stream.seek(position - 1)\n            position += _skip_line(stream, part.last - position + 1) - 1",
        wrong="stream.seek(position)\n            position += _skip_line(stream, part.last - position)",
        tests=TESTS,
        caught_by=("tests/jobs/test_readers.py::test_each_row_is_in_one_range",),
    ),
    Mistake(
        name="last-rows-of-a-group",
        what="The rows at the end of a row group that fill no whole unit are lost.",
        file="engine/jobs/readers.py",
        right="for group, size in enumerate(sizes) for first in range(0, size, self._size)]",
        wrong="for group, size in enumerate(sizes) for first in range(0, size - self._size, self._size)]",
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_the_bits_of_encode_and_resume",),
    ),
    Mistake(
        name="prune-by-name",
        what="--prune deletes files of other programs that are called like parts.",
        file="engine/jobs/manifest.py",
        right="if name not in known and not _is_job_part(name, folder)]",
        wrong="if name not in known and not name]",
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_prune_deletes_what_a_job_wrote_and_nothing_else",),
    ),
    Mistake(
        name="equal-texts-once",
        what="Of rows with equal texts, the first alone is written.",
        file="engine/jobs/parts.py",
        right="    good = [i for i in used if i not in reasons]",
        wrong="    good = [i for k, i in enumerate(used) if i not in reasons and owners[k] not in owners[:k]]",
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_bad_rows_go_to_a_side_file",),
    ),
    Mistake(
        name="chunks-out-of-order",
        what="Results are taken from the newest call and not from the oldest one.",
        file="engine/jobs/job.py",
        right="    while waiting:\n        yield waiting.popleft().result()",
        wrong="    while waiting:\n        yield waiting.pop().result()",
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_a_unit_of_many_chunks",),
    ),
    Mistake(
        name="part-in-half",
        what="A part is written under its own name, so that a stop leaves half of it.",
        file="engine/jobs/storage.py",
        right="        with replacing(path) as file:",
        wrong='        with open(path, "wb") as file:',
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_a_file_that_cannot_be_written",),
    ),
    Mistake(
        name="parts-of-others",
        what="The manifest lacks the parts that an earlier run or another process wrote.",
        file="engine/jobs/manifest.py",
        right="    parts = {unit.name: known.get(unit.name) or _entry(unit, folder) for unit in units}",
        wrong="    parts = {unit.name: known[unit.name] for unit in units if unit.name in known}",
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_the_bits_of_encode_and_resume",
                   "tests/jobs/test_embed.py::test_shards_divide_the_units"),
    ),
    Mistake(
        name="checksum-of-a-part",
        what="The verification of some rows of each part does not look at the checksum of the whole part.",
        file="engine/jobs/verify.py",
        right='if entry is not None and hashlib.sha256(data).hexdigest() != entry["sha256"]:',
        wrong='if entry is not None and len(data) != entry["bytes"]:',
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_verification_names_damaged_parts",),
    ),
    Mistake(
        name="instruction-set-of-a-folder",
        what="A job goes on with another instruction set, without a word.",
        file="engine/jobs/job.py",
        right="    if not allow_mixed_isa:",
        wrong="    if not sets:",
        tests=TESTS,
        caught_by=("tests/jobs/test_embed.py::test_another_instruction_set_is_refused",),
    ),
)
