"""Test the parts of the comparison of whole jobs, without any peer."""

import sys

import numpy as np
import pytest

from ..tools.paths import ROOT
from .conftest import numbers


def turn(wall, **values):
    return {"wall": wall, "first": wall - 1, "cpu": 2 * wall, "others": 0.5, "memory": 100e6, "moved": 5e6,
            "start": 2.0, "difference": 1e-7} | values  # fmt: skip


def jobs(rows):
    job = {"rows": 1032, "few": 32, "sentences": 1032, "tokens": 30000, "median": 19.0, "95 %": 80.0, "longest": 159}
    return numbers([]) | {"tool": "jobs", "job": job, "rows": [{"settings": "as it is", **row} for row in rows]}


SLOW = {"library": "fastembed", "turns": [turn(10.0), turn(22.0), turn(14.0, memory=300e6)]}
OWN = {"library": "engine", "turns": [turn(7.0), turn(6.0, memory=50e6), turn(9.0)]}
ABSENT = {"library": "Ray Data", "why": "no | ray"}


def test_the_table_has_medians_and_how_far_the_engine_is_ahead():
    from peers.jobs_report import index, table

    found = jobs([OWN, ABSENT, SLOW])
    lines = table(found, "zen3-jobs.json").splitlines()
    same = " | **100 MB** | **5 MB** | 0.5 s | 1.0e-07 |"
    assert "| engine | **147.4** | **200.0** | **2.0 s** | 6.0 s | **14.0 s**" + same in lines
    assert "| fastembed | 73.7 | 83.3 | **2.0 s** | 13.0 s | 28.0 s" + same in lines
    assert "| Ray Data | no \\| ray | | | | | | | | |" in lines
    assert "| **ahead by** | 2.00 | 2.40 | 1.00 |  | 2.00 | 1.00 | 1.00 |  |  |" in lines
    assert any("median of 3 turns" in line for line in lines)
    assert "| [zen3-jobs](zen3-jobs.md) | 2.00 | 2.40 | 2.00 | 1.00 |" in index({"zen3-jobs": found}).splitlines()
    alone = table(jobs([OWN]), "zen3-jobs.json").splitlines()
    assert "| **ahead by** |  |  |  |  |  |  |  |  |  |" in alone
    assert index({}) == ""


def test_turns_are_added_to_those_that_are_there():
    from peers.jobs import merged

    rows = merged(jobs([OWN, ABSENT, SLOW])["rows"], {"engine": turn(1.0), "Ray Data": {"why": "still none"}})
    assert [row["library"] for row in rows] == ["engine", "Ray Data", "fastembed"]
    assert [one["wall"] for one in rows[0]["turns"]] == [7.0, 6.0, 9.0, 1.0]
    assert rows[1]["why"] == "still none"
    assert rows[2]["turns"] == SLOW["turns"]


def test_rows_are_different_and_the_same_every_time():
    from peers.work import rows

    found = rows(700)
    assert len(found) == len(set(found)) == 700
    assert rows(300) == found[:300]
    assert 10 < np.median([len(text.split()) for text in found]) < 15


def test_vectors_are_read_by_their_ids(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra [files]")
    from peers.jobs import is_complete, vectors, write_rows
    from peers.jobs_peers import read, write
    from peers.worker import Failed

    expected = np.arange(12, dtype=np.float32).reshape(4, 3)
    write(tmp_path / "one", pa.array([2, 0, 3, 1]), expected[[2, 0, 3, 1]])
    file = tmp_path / "one" / "vectors.parquet"
    assert is_complete(file)
    np.testing.assert_array_equal(vectors(tmp_path / "one", 4), expected)
    with pytest.raises(Failed, match="wrote 4 rows, and not each of the 5 ids once"):
        vectors(tmp_path / "one", 5)
    with pytest.raises(Failed, match="wrote 0 rows"):
        vectors(tmp_path / "none", 4)
    file.write_bytes(file.read_bytes()[:-1])
    assert not is_complete(file)
    assert not is_complete(tmp_path / "none")
    write_rows(tmp_path / "rows.parquet", ["a", "b"])
    ids, texts = read(tmp_path / "rows.parquet")
    assert (ids.to_pylist(), texts) == ([0, 1], ["a", "b"])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_command_is_measured_with_the_processes_that_it_starts(tmp_path):
    from peers.process_tree import run, status
    from peers.worker import Failed

    child = "import time\nopen('made', 'wb').write(bytes(50_000_000))\nwhile time.process_time() < 0.2: pass"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-Sc', {child!r}], check=True)"
    used = run([sys.executable, "-Sc", parent], tmp_path, tmp_path / "log", (tmp_path / "made").exists)
    assert used.cpu >= 0.2
    assert used.moved >= 50_000_000
    assert 0 < used.first <= used.wall
    assert used.memory > 0
    assert used.others >= 0
    with pytest.raises(Failed, match=r"^broken$"):
        run([sys.executable, "-Sc", "import sys; sys.exit('broken')"], tmp_path, tmp_path / "log", lambda: False)
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(0.5)"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("peers.process_tree.LEAVING", 0.0)
        run([sys.executable, "-Sc", code], tmp_path, tmp_path / "log", lambda: False)
    left = status(int((tmp_path / "log").read_text()))
    assert left is None or not left.lives


def test_a_page_follows_from_the_stored_numbers(tmp_path):
    """This holds for the published pages too."""
    from peers.jobs_report import table
    from peers.results import machine, read, write

    found = jobs([OWN, ABSENT, SLOW]) | {"machine": machine(2)}
    write(tmp_path / "zen3-jobs.json", found)
    assert table(read(tmp_path / "zen3-jobs.json"), "zen3-jobs.json") == table(found, "zen3-jobs.json")
    for path in (ROOT / "docs/peers").glob("*-jobs.json"):
        assert path.with_suffix(".svg").exists()
        assert path.with_suffix(".md").read_text(encoding="utf-8") == table(read(path), path.name)
