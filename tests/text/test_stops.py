"""A text ends at the first stop text that is complete in it, as a loop finds it that decodes all ids after each id."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text import stops
from engine.text.stops import StopText
from engine.text.tokenizer import Tokenizer

from ..tools.kinds_of_tokenizers import MADE, NAMES, some_ids, tokenizer_of


def slow(tokenizer: Tokenizer, ids: list[int], stops: list[str], include: bool, least: int
         ) -> tuple[int, str, str | None]:
    """Return how many ids the text has, the text, and the stop text that ended it."""
    ignored = 0
    for n in range(1, len(ids) + 1):
        text = tokenizer.continuation(ids[:n])
        if n < least:
            ignored = len(text)
            continue
        places = [(begin + len(stop), begin) for stop in stops for begin in range(len(text))
                  if text.startswith(stop, begin) and begin + len(stop) > ignored]
        if places:
            end, begin = min(places)
            return n, text[: end if include else begin], text[begin:end]
    return len(ids), tokenizer.continuation(ids), None


def beginning(text: str, stops: list[str]) -> int:
    """Return how many characters at the end of a text are the beginning of a stop text."""
    return max(n for n in range(len(text) + 1)
               if not n or any(len(stop) > n and stop.startswith(text[-n:]) for stop in stops))


def some_stops(name: str, ids: list[int]) -> st.SearchStrategy[list[str]]:
    """Return lists of stop texts: parts of the text, which begin and end inside tokens, and others."""
    text = tokenizer_of(name).continuation(ids)
    places = st.integers(0, max(len(text) - 1, 0))
    parts = st.tuples(places, st.integers(1, 5)).map(lambda part: text[part[0] : part[0] + part[1]] or "a")
    others = st.sampled_from(["a", "aa", "aab", " ", "\n\n", "日本", "é", "\ufffd", "\x00"])
    return st.lists(st.one_of(parts, parts, others, parts.map(lambda part: part + "!")), min_size=1, max_size=4)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_text_ends_where_the_slow_loop_ends_it(name: str, data: st.DataObject) -> None:
    tokenizer, ids = tokenizer_of(name), data.draw(some_ids(name))
    stops = data.draw(some_stops(name, ids))
    include, least = data.draw(st.booleans()), data.draw(st.integers(0, 3))
    length, text, stop = slow(tokenizer, ids, stops, include, least)
    found, certain = StopText(tokenizer.incremental(), stops, include, least), tokenizer.incremental()
    given_text = known = ""
    for number in ids[:length]:
        assert found.found is None
        found = found.fork()
        given_text += found.add(number)
        known += certain.add(number)
        if found.found is None:     # nothing is held back but what may be the beginning of a stop text
            assert given_text == known[: len(known) - beginning(known, stops)]
        assert text.startswith(given_text)
    assert found.found == stop
    assert found.waits or given_text == text
    assert given_text + found.end() == text


def test_the_longest_of_stop_texts_with_one_end_counts() -> None:
    tokens, _ = MADE["no decoder"]
    text = StopText(tokenizer_of("no decoder").incremental(), ["#b", "##b", "b"])
    assert [text.add(tokens.index("a")), text.add(tokens.index("##b")), text.found] == ["a", " ", "##b"]


def test_a_stop_text_inside_the_beginning_of_a_longer_one_counts() -> None:
    tokens, _ = MADE["no decoder"]
    text = StopText(tokenizer_of("no decoder").incremental(), ["a ##b a", "##b"])
    assert [text.add(tokens.index("a")), text.add(tokens.index("##b")), text.found] == ["", "a ", "##b"]


def test_each_character_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = StopText(tokenizer_of("gpt2").incremental(), ["no such text", "xxx"])
    after, read = stops._Automaton.after, list[str]()

    def counted(self: stops._Automaton, state: int, character: str) -> int:
        read.append(character)
        return after(self, state, character)

    monkeypatch.setattr(stops._Automaton, "after", counted)
    given = "".join(text.add(300) for _ in range(2000)) + text.end()
    assert "".join(read) == given == text.whole()
