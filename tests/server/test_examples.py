"""The example of a client finds what the library finds."""

import numpy as np
import pytest

from ..tools.encoders import engine_of
from ..tools.examples import example
from ..tools.paths import ROOT
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

pytest.importorskip("uvicorn")

from ..tools.serving import serving

TEXTS = ["the cat sat on a mat", "a dog ran", "far and away"]


def test_ask_server():
    assert len((ROOT / "examples/ask_server.py").read_text(encoding="utf-8").splitlines()) <= 40
    functions = example("ask_server")
    model = engine_of(random_model(tiny_text(prompts={"query": "query : "}, normalize=True)), threads=1)
    with serving(model) as client:
        found = functions["search"](f"http://127.0.0.1:{client.port}", "a cat", TEXTS, 2)
        with pytest.raises(SystemExit, match="empty"):
            functions["ask"](f"http://127.0.0.1:{client.port}", [], "query")
    scores = model.encode_document(TEXTS) @ model.encode_query("a cat")
    assert [text for _, text in found] == [TEXTS[i] for i in np.argsort(-scores)[:2]]
    assert [score for score, _ in found] == [float(scores[i]) for i in np.argsort(-scores)[:2]]
