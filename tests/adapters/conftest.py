"""Print the versions of the packages that the adapters are tested with; share the models and vectors of the command."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest


def pytest_report_header():
    """List what is installed of the packages that the files of requirements name."""
    found = []
    for path in sorted(Path(__file__).parent.glob("requirements*.txt")):
        for name in re.findall(r"^[\w-]+", path.read_text(encoding="utf-8"), re.MULTILINE):
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                found.append(f"{name} is not installed")
    return f"adapters: {', '.join(found)}"


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return the folder with the models that the adapters read."""
    from .models import write_models

    folder = tmp_path_factory.mktemp("adapters")
    write_models(folder)
    return folder


@pytest.fixture(scope="session")
def by_command(tmp_path_factory):
    """Return 2,048 texts in a table with ids, and the vectors that `engine embed` wrote for them, [2048,384]."""
    import numpy as np

    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from engine.cli.main import main

    from ..tools import minilm
    from .texts import manual

    if not minilm.FOLDER.exists():
        pytest.skip(minilm.MISSING)
    folder, texts = tmp_path_factory.mktemp("command"), manual()[:2048]
    table = pa.table({"id": pa.array(range(len(texts))), "text": texts})
    pq.write_table(table, folder / "rows.parquet")
    assert main(["embed", str(minilm.FOLDER), "--input", str(folder / "rows.parquet"), "--output",
                 str(folder / "out"), "--id", "id"]) == 0
    parts = pa.concat_tables(pq.read_table(path) for path in (folder / "out").glob("*.parquet"))
    rows = dict(zip(parts["id"].to_pylist(), parts["vector"].to_numpy(), strict=True))
    return table, np.stack([rows[type(next(iter(rows)))(number)] for number in range(len(texts))])


def bits_of(column):
    """Return the bits of a column of lists of float32, [n,D], in which no row is null."""
    import numpy as np

    column = column.combine_chunks()
    return column.flatten().to_numpy().view(np.uint32).reshape(len(column), -1)
