"""Each route has a row in docs/server.md, and each form of a request is sent by the fuzzer and by the attacks."""

import re

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")
pytest.importorskip("soundfile")

from engine.server import app, transcriptions

from ..tools.paths import ROOT
from . import fuzz, worst

EVERY = (*app.ROUTES, *transcriptions.ROUTES)


def paths_by_form():
    """Return the paths whose requests have a form, by the name of its class; routes of texts make a class each."""
    found = {}
    for route in EVERY:
        for kind in (route.kind, *route.others.values()):
            found.setdefault(kind.form.__name__, set()).add(route.path)
    return found


@pytest.mark.parametrize("asked", [fuzz.MODELS, worst.ROUTES], ids=["fuzz.MODELS", "worst.ROUTES"])
def test_each_form_is_asked(asked):
    paths = {path for routes in asked.values() for path in routes}
    assert not [(form, sorted(own)) for form, own in paths_by_form().items() if not own & paths]


def test_each_route_has_a_row_in_the_documents():
    table = (ROOT / "docs/server.md").read_text(encoding="utf-8").partition("\n## Routes\n")[2].partition("\n### ")[0]
    named = set(re.findall(r"`(?:POST )?(/[\w/-]+)`", table))
    named |= {path.removeprefix("/v1") for path in named if path.startswith("/v1/audio/")}    # "also without `/v1`"
    assert not [route.path for route in EVERY if route.path not in named]
