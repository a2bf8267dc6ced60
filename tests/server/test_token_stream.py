"""The reasoning of an answer, divided from its text at every place at which pieces may end; and news of a work."""

from concurrent.futures import wait

import pytest

from engine.base.errors import Cancelled
from engine.server.text_service import TextService
from engine.server.token_stream import MARKERS, Reasoning

from ..tools.text_models import text_model
from ..tools.threads import wait_for
from .bodies import Gate, Waiters

CASES = {
    "none": ("Sun. <think> is a word.", False, ("", "Sun. <think> is a word.")),
    "reasoning": ("<think>\nLook outside.\n\n</think>\n\nSun.\n", False, ("Look outside.", "Sun.\n")),
    "spaces before": (" \n<think>a</think>b", False, ("a", "b")),
    "begun by the prompt": ("Look.\n</think>\nSun.", True, ("Look.", "Sun.")),
    "empty": ("\n\n</think>\n\n", True, ("", "")),
    "no end": ("\nLook </thin\n", True, ("Look </thin", "")),
    "no end of a marker": ("a\n</thi", True, ("a\n</thi", "")),
    "half a marker": ("<thin", False, ("", "<thin")),
    "two ends": ("a</think>b</think>", True, ("a", "b</think>")),
    "line feeds inside": ("a\n\nb\n</think>\n c", True, ("a\n\nb", " c")),
    "nothing": ("", False, ("", "")),
}


@pytest.mark.parametrize("name", CASES)
def test_reasoning_and_text_are_divided_whatever_the_pieces(name):
    text, begun, expected = CASES[name]
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            one = Reasoning(MARKERS[0], begun)
            parts = [one.add(piece) for piece in (text[:first], text[first:second], text[second:])] + [one.end()]
            assert ("".join(a for a, _ in parts), "".join(b for _, b in parts)) == expected
    letters = Reasoning(MARKERS[0], begun)
    parts = [letters.add(letter) for letter in text] + [letters.end()]
    assert ("".join(a for a, _ in parts), "".join(b for _, b in parts)) == expected


def test_a_stream_gives_what_came_before_an_error():
    with TextService(text_model()) as service:
        future = service.submit("generate", [[70, 71]], {"max_new_tokens": 280, "ignore_eos": True}, streams=True)
        stream = future.result(30).value
        wait([Waiters().news(stream)], 30)
        first = stream.take()
        stream.cancel()
        wait([Waiters().news(stream)], 30)
        while True:
            try:
                first += stream.take()
            except Cancelled:
                break
        assert first
        assert stream.ended
        wait_for(lambda: service.statistics().cancelled == 1)


def test_the_streams_of_a_step_wake_an_event_loop_once(monkeypatch):
    """All of them are told at the end of the step; what is there already is told at once."""
    told, waiters = [], Waiters()
    add = waiters.add
    monkeypatch.setattr(waiters, "add", lambda calls: (told.append(len(calls)), add(calls)))
    model = text_model()
    with TextService(model) as service:
        gate = Gate(model, monkeypatch)
        futures = [service.submit("generate", [[70, 71, i]], {"max_new_tokens": 9, "ignore_eos": True}, streams=True)
                   for i in range(5)]
        streams = [future.result(30).value for future in futures]
        news = [waiters.news(stream) for stream in streams]
        queue = model.prepared.queue
        wait_for(lambda: len(queue._open) + len(queue._arrived) == 5)       # a step may wait with the first of them
        gate.let(100)
        while not all(stream.ended for stream in streams):
            wait(news, 30)
            taken = [stream.take() for stream in streams]
            news = [waiters.news(stream) for stream in streams if not stream.ended]
            assert any(taken)
    assert max(told) == 5
