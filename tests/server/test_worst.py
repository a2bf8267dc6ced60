"""The worst bodies of a route neither end a server nor take its memory, and another client goes on.

`python -m tests.server.worst` attacks all routes, for a minute each, and prints how long others wait.
"""

import pytest

from engine.server.settings import MAX_HELD

from .worst import attack, model_of, served, worst

pytest.importorskip("uvicorn")


@pytest.mark.parametrize(("model", "path"), [("bert_tag", "/tag"), ("bert_pairs", "/rerank")])
def test_the_worst_bodies_of_a_client_take_nothing_from_others(tmp_path, model, path):
    with served(model_of(model, tmp_path), tmp_path) as (port, process):
        seen = attack(port, process, path, worst(path)[:6], seconds=0.5, connections=6)
        assert process.poll() is None
    assert {200, 413} <= seen.statuses.keys() <= {200, 400, 413, 429}
    assert seen.single
    assert seen.many
    assert not seen.refused
    assert seen.memory < 1.2 * MAX_HELD
