"""The map from modules to tests: each module has its tests, and nothing in the map is left over."""

from fnmatch import fnmatchcase

import pytest

from ..map import ENGINE, OTHERS, files_of, main, modules, named, row_of
from ..mistakes.cases import MISTAKES
from ..tools.paths import TESTS


def test_each_module_has_its_tests():
    """A module without a test of its name or in the table has at least the tests of its package's folder."""
    for module in modules():
        found = files_of(module)
        assert found not in ([], ["."]), module
        assert all((TESTS / test).is_file() or [*(TESTS / test).glob("test_*.py")] for test in found), module


def test_each_pattern_of_the_table_is_needed():
    """Without it, a module that has no tests of its name and no mistakes would have other tests."""
    seeded = {mistake.file.removeprefix("engine/") for mistake in MISTAKES}
    alone = [module for module in modules() if not named(module) and module not in seeded]
    assert [pattern for row in OTHERS for pattern in row.split()
            if not any(fnmatchcase(module, pattern) and row_of(module) == row for module in alone)] == []


@pytest.mark.parametrize(("module", "tests"), [
    ("files/npz.py", ["files/test_npz.py"]),
    ("backends/__init__.py", ["backends/test_backends.py"]),
    ("backends/cython_cpu/kernels/softmax.pxi", ["backends/kernels/test_softmax.py"]),
    ("backends/numba_cpu/kernels/tile.py", ["backends/numba_cpu/test_tile.py"]),
    ("backends/cython_cpu/kernels/ranges.pxi", ["backends/kernels/test_cached_attention.py"]),
    ("loading/static.py", OTHERS["loading/modules.py loading/router.py loading/static.py"].split()),
    ("families/phi.py", ["families"]),
    ("backends/cpu/native/machine.pxi", ["backends/cpu"]),
])
def test_the_rule(module, tests):
    assert files_of(module) == tests
    assert (ENGINE / module).is_file()


def test_the_command(capsys):
    assert main(["engine/cli/fetch.py"]) == 0
    assert capsys.readouterr().out == "tests/loading/test_hub.py\n"
    assert main(["engine/loading/none.py"]) == 1
    assert "engine/loading/none.py is no module" in capsys.readouterr().err
