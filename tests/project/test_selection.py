"""What `make test-quick` leaves out, how skipped tests are counted, and the list of what writes golden files."""

from types import SimpleNamespace

from engine.backends import BACKENDS

from ..families.cases import CASES
from ..golden.make.__main__ import WITH_OTHER_FILES, WRITERS, first_line
from ..tools.paths import GOLDEN
from ..tools.quick import SLOW, TESTS, is_quick, other_kernels
from ..tools.running import RUNNING
from ..tools.skips import by_reason


def test_slow_files_are_there():
    assert [name for name in SLOW if not (TESTS / name).exists()] == []


def test_quick_tests():
    file = TESTS / "test_vectors.py"
    assert is_quick(file, {})
    assert is_quick(TESTS.parent / "test_elsewhere.py", {})
    assert not is_quick(TESTS / "soak" / "test_soak.py", {})
    assert not is_quick(TESTS / "backends" / "numba_cpu" / "test_table.py", {})
    assert [name for name in BACKENDS if is_quick(file, {"backend": name})] == [RUNNING[0]]
    for case in CASES:
        assert [name for name in case.golden if is_quick(file, {"name": name})] == list(case.golden[:1])
        assert sum(is_quick(file, {"name": name}) for name in case.generating) == len(case.generates)
    kernels = TESTS / "backends" / "kernels" / "test_linear.py"
    assert not any(is_quick(kernels, {"kernels": name}) for name in other_kernels())


def test_the_writers_of_golden_files_are_listed():
    files = {path.stem for path in (GOLDEN / "make").glob("[a-z]*.py")} - {"scaffold", "quiet"}
    assert files == WRITERS.keys() >= {*WITH_OTHER_FILES}
    assert all((GOLDEN / "make" / f"requirements-{kind}.txt").exists() for kind in WRITERS.values())
    assert all(first_line(name) for name in WRITERS)


def test_skipped_tests_are_counted_by_reason():
    reports = [SimpleNamespace(longrepr=("file", 3, f"Skipped: no {what}")) for what in ("AMX", "model", "AMX")]
    assert by_reason(reports) == ["    2 skipped: no AMX", "    1 skipped: no model"]
