"""Test that the seeded mistakes fit the files as they are now."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..tools.paths import ROOT
from .cases import MISTAKES
from .tree import failed_tests

TEXTS = {file: (ROOT / file).read_text(encoding="utf-8") for file in sorted({m.file for m in MISTAKES})
         if (ROOT / file).is_file()}

COMPILED = {".pyx", ".pxi", ".pxd", ".h", ".c"}


def test_each_mistake_changes_one_place():
    for mistake in MISTAKES:
        assert mistake.file in TEXTS, f"{mistake.name}: there is no {mistake.file}"
        assert TEXTS[mistake.file].count(mistake.right) == 1, mistake.name
        assert mistake.wrong != mistake.right, mistake.name
        assert mistake.right.count("\n") <= 3, mistake.name
        assert mistake.what.endswith("."), mistake.name
        assert bool(mistake.build) == (Path(mistake.file).suffix in COMPILED), mistake.name


def test_the_tests_of_each_mistake_are_there():
    for mistake in MISTAKES:
        assert mistake.caught_by, mistake.name
        for test in mistake.caught_by:
            file, _, function = test.partition("::")
            assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), (mistake.name, test)


def test_the_cases_of_each_mistake_are_there(request):
    """Each word that chooses cases occurs in the name of one, where the file of its tests is part of this run."""
    options = request.config.option
    if options.quick or options.keyword or options.markexpr or any("[" in each for each in request.config.args):
        pytest.skip("this run leaves out cases of the tests that it has")
    tools = pytest.importorskip("tests.backends.kernels.tools", reason="the compiled kernels are not built")
    ids, lacking = {}, {*tools.PROVIDERS} - {*tools.available()}
    for item in request.session.items:
        ids.setdefault(item.nodeid.partition("[")[0], []).append(item.nodeid)
    for mistake in MISTAKES:
        found = [one for name, of_name in ids.items() if name.startswith(mistake.caught_by) for one in of_name]
        words = {*re.findall(r"(?<!not )\b\w+", mistake.cases)} - {"and", "or", "not"} - lacking
        for word in words if found else ():
            assert any(word in one for one in found), (mistake.name, word)


def test_there_are_enough_of_every_kind():
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 60
    assert sum(bool(mistake.build) for mistake in MISTAKES) >= 18
    assert sum("/numba_cpu/" in mistake.file for mistake in MISTAKES) >= 8
    assert sum("/numba_cuda/" in mistake.file for mistake in MISTAKES) >= 4


def test_what_pytest_prints_is_read():
    printed = ("FAILED tests/a.py::test_b[c - d-1] - assert 1 == 2\nFAILED tests/a.py::test_b[e]\n"
               "ERROR tests/a.py::test_f - OSError\n1 failed\n")
    assert failed_tests(printed) == ("tests/a.py::test_b", "tests/a.py::test_f")


def test_the_command_lists_them():
    found = subprocess.run([sys.executable, "-m", "tests.mistakes", "--list", "--only", MISTAKES[0].what], cwd=ROOT,
                           capture_output=True, text=True, check=True)
    assert found.stdout == f"{MISTAKES[0].name}\n"
