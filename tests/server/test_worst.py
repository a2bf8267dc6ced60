"""The worst bodies of a route neither end a server nor take its memory, and another client goes on.

`python -m tests.server.worst` attacks all routes, for a minute each, and prints how long others wait.
"""

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")
pytest.importorskip("soundfile")

from .bodies import CHAT, COMPLETE, TRANSCRIBE
from .worst import attack, bound, model_of, served, worst


@pytest.mark.parametrize(("model", "routes"), [
    ("bert_tag", {"/tag": slice(6)}), ("bert_pairs", {"/rerank": slice(2)}),
    ("text", {CHAT: slice(4, 6), COMPLETE: slice(4)}), ("speech", {TRANSCRIBE: slice(1, 4)})])
def test_the_worst_bodies_of_a_client_take_nothing_from_others(tmp_path, model, routes):
    with served(model_of(model, tmp_path), tmp_path) as (port, process):
        for path, some in routes.items():
            asked = worst(path)[some]
            seen = attack(port, process, path, asked, seconds=0.5, connections=len(asked))
            assert process.poll() is None
            assert seen.statuses.keys() <= {200, 400, 413, 415, 429}
            assert seen.statuses.keys() & {400, 413}
            assert seen.single
            assert seen.many
            assert not seen.refused
            assert seen.memory < 1.2 * bound(path)
