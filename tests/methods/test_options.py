"""docs/options.md is made from the code of today, and signatures have the defaults of the dataclasses of options."""

import inspect
from dataclasses import MISSING, fields

import pytest

from engine import Generator, Transcriber

from . import options


def test_the_page_shows_the_options():
    """If this fails, run `python -m tests.methods.options`."""
    assert options.DOCUMENT.read_text(encoding="utf-8") == options.document()


METHODS = options.COMPUTING | options.WRITING
SAME = {"results": "generate", "stream_chat": "chat", "transcriptions": "transcribe"}
"""Methods of users whose options are those of another one."""


@pytest.mark.parametrize("name", [*METHODS, *SAME])
def test_a_signature_has_the_defaults_of_the_options(name):
    """The explicit signature is for the reader; the options are where a default is stated."""
    function, method = METHODS[SAME.get(name, name)]
    if name in SAME:
        function = getattr(Transcriber if name == "transcriptions" else Generator, name)
    found = inspect.signature(function).parameters
    for one in fields(method.options):
        if one.name == "settings":      # of a generation: their defaults are those of the model
            assert found["settings"].kind.name == "VAR_KEYWORD"
            continue
        assert one.default is not MISSING
        assert found[one.name].default == one.default or set(found[one.name].default) == set(one.default)


def test_what_one_docstring_says_of_another():
    def first(*, a=1, b="x"):
        """Do it.

        a: the number,
            of two lines.
        b: the other | one.
        """

    def second(*, a=1, b="y"):
        """Do it.

        a, b: as in `first`.
        """

    rows = [*options.options([("first", first), ("X.second", second)])]
    assert [row.text for row in rows] == ["the number, of two lines.", "the other | one."] * 2
    assert options.table(rows).splitlines()[2:] == [
        "| `a` | `1` | `first`, `X.second` | the number, of two lines. |",
        '| `b` | `"x"` | `first` | the other \\| one. |', '| `b` | `"y"` | `X.second` | the other \\| one. |']
