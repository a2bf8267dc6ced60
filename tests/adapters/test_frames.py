"""The examples of Polars and DuckDB print the nearest of some texts, as `Engine` finds them."""

import numpy as np
import pytest

from engine import Engine

from ..tools.examples import example
from ..tools.head_models import folder_of

pytestmark = pytest.mark.filterwarnings("default")
TEXTS = ["Anna lives in Berlin.", "The cat sat on a mat.", "It was very good!", "Chen saw Dario in Tokyo.", "No."]
QUERY = "Who lives in Berlin?"


@pytest.mark.parametrize(("name", "packages"), [("polars_frame", ["polars"]), ("duckdb_search", ["duckdb", "pyarrow"])])
def test_an_example_prints_the_nearest(name, packages, tmp_path, capsys):
    for package in packages:
        pytest.importorskip(package)
    model = str(folder_of("bert_classify"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    functions = example(name)
    functions["main"](model, str(tmp_path / "texts.txt"), QUERY)
    printed = capsys.readouterr().out
    vectors = Engine.load(model).encode([*TEXTS, QUERY], normalize_embeddings=True)
    best = np.argsort(-(vectors[:-1] @ vectors[-1]))[:3]
    places = [printed.find(TEXTS[place]) for place in best]
    assert -1 not in places
    assert places == sorted(places)
    assert sum(text in printed for text in TEXTS) == 3


def test_polars_keeps_nulls():
    pl = pytest.importorskip("polars")
    engine = Engine.load(folder_of("bert_classify"))
    given = pl.Series(["a", None, "b", None])
    found = example("polars_frame")["embed"](engine, given).to_list()
    assert found[1] is found[3] is None
    assert found[::2] == engine.encode(["a", "b"], normalize_embeddings=True).tolist()
