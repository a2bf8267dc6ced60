"""Test the words of messages."""

import pytest

from engine.base import errors
from engine.base.errors import nearest

from ..tools.limited import outcome


def test_the_nearest_name():
    assert nearest("txet", ["id", "text"]) == " (did you mean text?)"
    assert nearest("q", ["id", "text"]) == ""


@pytest.mark.parametrize("names", [
    lambda: ["tex"] * 4_000_000, lambda: ["t" * 1_000_000] * 3, lambda: [f"tex{i}" for i in range(10**6)]],
    ids=["many", "long", "many and different"])
def test_a_suggestion_takes_no_time_that_grows_with_the_names(names):
    known = names()
    assert outcome(nearest, "txt", known, seconds=3).startswith("ok: ")
    assert outcome(nearest, "txt" * 10**6, known, seconds=3) == "ok: ''"


def test_only_the_first_names_are_looked_at(monkeypatch):
    monkeypatch.setattr(errors, "_MOST_COMPARED", 2)
    assert nearest("txet", iter(["id", "a", "text"])) == ""
