"""Whose recording is heard next, where a model hears fewer than there are, and what an answer takes."""

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("soundfile")

from engine.server.speech_service import HearingTurns, TranscriptStream

from .bodies import Waiters


class One:
    """A recording of an owner, with some windows."""

    def __init__(self, owner, left):
        self.owner, self.left = owner, left


@pytest.mark.parametrize("most", [1, 2])
def test_owners_take_turns_and_then_their_recordings(most):
    heard: list[One] = []
    turns = HearingTurns(most, heard.append)
    ones = [One(owner=owner, left=left) for owner, left in (("a", 4), ("a", 2), ("a", 1), ("b", 2), ("c", 1))]
    for one in ones:
        turns.enter(one)
    assert len(heard) == most
    assert turns.before_first("d") == 4
    assert turns.before_last("d", 1) == most + 3
    assert turns.before_last("d", 2) == most + 5, "seven windows of one owner count as two"
    assert turns.before_last("a", 1) == most + 6
    order = []
    while heard:
        order.append(one := heard.pop(0))
        one.left -= 1
        (turns.go_on if one.left else turns.leave)(one)
    assert turns.cost >= 0
    owners = "".join(one.owner for one in order)
    assert len(order) == 10
    assert set(owners[: 3 + most - 1]) == {"a", "b", "c"}       # all have a window before an owner has many
    assert owners.index("c") < 4
    first = [ones.index(one) for one in order if one.owner == "a"]
    assert first[:3] == [0, 1, 2]       # each of them before one has its second window
    assert (turns._lines, turns._heard, turns._latest) == ({}, {}, {})


def test_an_owner_of_one_recording_has_no_more_turns_than_others():
    heard: list[One] = []
    turns = HearingTurns(1, heard.append)
    for owner in "ccdda":
        turns.enter(One(owner, 9))
    order = ""
    while heard:
        one = heard.pop()
        order, one.left = order + one.owner, one.left - 1
        (turns.go_on if one.left else turns.leave)(one)
    assert order[1:16] == "dac" * 5, order


def test_a_recording_leaves_the_line():
    heard: list[One] = []
    turns = HearingTurns(1, heard.append)
    first, second, third = ones = [One(owner=owner, left=1) for owner in "aab"]
    for one in ones:
        turns.enter(one)
    turns.leave(second)
    turns.leave(second)
    turns.go_on(second)
    assert heard == [first]
    turns.leave(first)
    turns.leave(third)
    assert heard == [first, third]
    assert (turns._lines, turns._heard, turns._latest) == ({}, {}, {})


@pytest.mark.parametrize("pieces", [["  a ", " b", "c \n", "  "], ["", " "], [" a"], ["\n", "a", "", " b "]])
def test_the_pieces_of_a_stream_joined_are_the_stripped_text(pieces):
    stream = TranscriptStream()
    for piece in pieces:
        stream.add(piece)
    assert "".join(stream.take()) == "".join(pieces).strip()


def test_news_of_a_stream():
    stream, told = TranscriptStream(), []
    stream.news.listen(Waiters(), lambda: told.append(1))
    assert not told
    stream.add("a")
    stream.add(" b")
    assert len(told) == 1       # as long as nobody has taken anything
    assert stream.take() == ["a", " b"]
    stream.end(ValueError("wrong"))
    assert len(told) == 2
    stream.news.end()
    with pytest.raises(ValueError, match="wrong"):
        stream.take()
    assert stream.ended
