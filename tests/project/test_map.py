"""The map from modules to tests: each module has its tests, and nothing in the map is left over."""

import pytest

from ..map import ENGINE, OTHERS, files_of, fit_of, main, modules, named
from ..mistakes.cases import MISTAKES
from ..tools.paths import TESTS

MODULES = modules()


def test_each_module_has_its_tests():
    assert [module for module in MODULES if not files_of(module)] == []


def test_each_test_of_the_table_is_there():
    assert [test for tests in OTHERS.values() for test in tests.split() if not (TESTS / test).is_file()] == []


def test_the_tests_of_each_module_catch_its_mistakes():
    """The seeded mistakes say which tests see a mistake in a module: one of these is among the tests of the module."""
    unseen = [mistake.name for mistake in MISTAKES if mistake.file.startswith("engine/")
              and not {test.partition("::")[0] for test in mistake.caught_by}
              & {f"tests/{test}" for test in files_of(mistake.file.removeprefix("engine/"))}]
    assert unseen == []


def test_each_pattern_of_the_table_is_needed():
    """Without it, a module would have other tests or none."""
    needed = set()
    for module in MODULES:
        pattern, row = fit_of(module) or ("", "")
        if pattern and (pattern == module or not named(module)):
            needed.add(pattern)
            assert not {*named(module)} & {*OTHERS[row].split()}, f"{module} has these tests by its name"
    assert [pattern for row in OTHERS for pattern in row.split() if pattern not in needed] == []


@pytest.mark.parametrize(("module", "tests"), [
    ("files/npz.py", ["files/test_npz.py"]),
    ("backends/__init__.py", ["backends/test_backends.py"]),
    ("backends/cython_cpu/kernels/softmax.pxi", ["backends/kernels/test_softmax.py"]),
    ("backends/numba_cpu/kernels/tile.py", ["backends/numba_cpu/test_tile.py", "backends/kernels/test_linear.py",
                                            "backends/kernels/test_bfloat16.py"]),
    ("backends/numba_cpu/compiled.py", ["backends/numba_cpu/test_compiled.py"]),
    ("families/bert.py", OTHERS["families/*.py"].split()),
    ("files/none.py", []),
])
def test_the_rule(module, tests):
    assert files_of(module) == tests
    assert tests == [] or (ENGINE / module).is_file()


def test_the_command(capsys):
    assert main(["engine/loading/static.py"]) == 0
    assert capsys.readouterr().out == "tests/heads/test_modules.py\n"
    assert main(["engine/loading/none.py"]) == 1
    assert "engine/loading/none.py is no module" in capsys.readouterr().err
