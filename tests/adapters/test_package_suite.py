"""sentence-transformers' own tests pass with the engine's classes where they pass with the package's.

ST_TESTS names the folder of these tests, of which nothing is here. They load models by names on the hub, for which
drop_in/cache.py writes small ones, so that tests which need others fail with both.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("sentence_transformers", "torch"):
    pytest.importorskip(package, reason=f"the package {package} is not installed", exc_type=ImportError)

from ..tools import minilm

COMMIT = "85ec6455"
PLACE = "build/sentence-transformers"
HOW = (f"ST_TESTS names no folder of sentence-transformers' own tests: git clone https://github.com/UKPLab/"
       f"sentence-transformers {PLACE} && git -C {PLACE} checkout {COMMIT} && make adapters ST_TESTS={PLACE}/tests")
FILES = ("test_sentence_transformer.py", "cross_encoder/test_cross_encoder.py", "sparse_encoder/test_sparse_encoder.py",
         "test_multi_process.py", "sparse_encoder/test_multi_process.py", "test_compute_embeddings.py", "util")
TIMED = "tests/util/test_similarity.py::test_performance_with_large_vectors"
"""A test that asserts a time, of functions that no class has a part in; it is not run."""
HOME = Path(__file__).with_name("drop_in")
LEAST = 400
"""How many tests pass with the package, at least; fewer would mean that something is missing here."""


@pytest.fixture(scope="module")
def suite():
    """Return the folder of the package's own tests."""
    if not (given := os.environ.get("ST_TESTS")):
        pytest.skip(HOW)
    if not minilm.FOLDER.exists():
        pytest.skip(minilm.MISSING)
    folder = Path(given).resolve()
    assert folder.name == "tests", f"ST_TESTS must name a folder called tests, which its files import, not {folder}"
    missing = [name for name in FILES if not (folder / name).exists()]
    assert not missing, f"{folder} has no {', '.join(missing)}; is it of commit {COMMIT}?"
    return folder


@pytest.fixture(scope="module")
def cache(suite, tmp_path_factory):
    """Return the folder of a cache of the hub with the models that the tests load."""
    from .drop_in.cache import write_cache

    folder = tmp_path_factory.mktemp("cache")
    write_cache(folder, tmp_path_factory.mktemp("models"))
    return folder


def outcomes(classes, suite, cache, folder):
    """Return why each test failed with these classes, "package" or "engine", by its id; "" for one that passed."""
    written, settings = folder / f"{classes}.json", folder / "pytest.ini"
    settings.write_text("[pytest]\nmarkers = slow\n    custom\n", encoding="utf-8")   # and none of a folder above
    environment = os.environ | {
        "DROP_IN_CLASSES": classes, "DROP_IN_OUTCOMES": str(written), "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(HOME), "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "--tb=short", "--show-capture=no", "-p", "behind_names", "-p",
                    "no:cacheprovider", "-c", settings, "--rootdir", suite.parent, "--deselect", TIMED,
                    *(suite / name for name in FILES)],
                   cwd=suite.parent, env=environment, stdout=subprocess.DEVNULL, check=False)
    return json.loads(written.read_text(encoding="utf-8"))


def test_the_tests_of_the_package(suite, cache, tmp_path, capsys):
    expected = {name for name, reason in outcomes("package", suite, cache, tmp_path).items() if not reason}
    assert len(expected) >= LEAST
    found = outcomes("engine", suite, cache, tmp_path)
    failed = {name: found.get(name, "it was not run") for name in sorted(expected) if found.get(name) != ""}
    with capsys.disabled():
        print(f"\n{len(expected) - len(failed)} of {len(expected)} tests of sentence-transformers pass")
    rows = (HOME / "cannot_pass.tsv").read_text(encoding="utf-8").splitlines()[1:]
    listed = dict(row.split("\t") for row in rows)
    assert not {name: reason for name, reason in failed.items() if name not in listed}, "these fail, and are not listed"
    assert not listed.keys() - failed, "these are in cannot_pass.tsv, and pass, or fail with the package, too"
    assert all(listed.values())
