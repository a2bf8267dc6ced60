"""Letters of tokens to texts, words and segments."""

import numpy as np
import pytest

from engine import WeightsError
from engine.model.spelling import Spelling
from engine.speech.letters import Letter, letters_of, text_of, transcript_of

SPELLING = Spelling(("<pad>", "|", "a", "b", "C", ".", "a"), blank=0)
STEP = 320


def heard(text, spelling=SPELLING):
    """Return the outputs of tokens by their texts; the last output has the text of another one."""
    return np.array([spelling.tokens.index(token) if token != "A" else 6 for token in
                     ("<pad>" if letter == "_" else letter for letter in text)])


def test_equal_letters_are_one_unless_a_blank_is_between():
    letters = letters_of(heard("_aaa_aAbb|"), SPELLING)
    assert letters == [Letter("a", 1, 4), Letter("a", 5, 7), Letter("b", 7, 9), Letter(" ", 9, 10)]
    assert text_of(letters, SPELLING) == "aab"
    assert letters_of(heard("___"), SPELLING) == letters_of(np.zeros(0, int), SPELLING) == []


@pytest.mark.parametrize(("changes", "text"), [
    ({}, "C a .b"), ({"lower_case": True}, "c a .b"), ({"cleans_spaces": True}, "C a.b"),
    ({"delimiter": None}, "|C|a|.b|"), ({"space": "_"}, "_C_a_.b_"), ({"blank": 1}, "Ca.b")])
def test_settings(changes, text):
    spelling = Spelling(**{"tokens": SPELLING.tokens, "blank": 0} | changes)
    assert text_of(letters_of(heard("|C|a|.b|"), spelling), spelling) == text


def test_segments_end_at_pauses_and_when_they_are_long():
    pause = "_" * 40        # 0.8 s
    transcript = transcript_of(letters_of(heard(f"|_a|b{pause}|C{pause[:-1]}a|"), SPELLING), SPELLING, STEP, True)
    assert [segment.text for segment in transcript.segments] == ["a b", " Ca"]
    assert transcript.text == "a b Ca"
    assert [[(word.text, word.start, word.end) for word in segment.words] for segment in transcript.segments] == [
        [("a", 0.04, 0.06), ("b", 0.08, 0.1)], [("Ca", 0.92, 1.74)]]
    long = transcript_of(letters_of(heard("ab|" * 200), SPELLING), SPELLING, STEP, False)
    assert [round(segment.end - segment.start, 2) for segment in long.segments] == [10.0, 1.96]
    assert "".join(segment.text for segment in long.segments) == long.text
    assert all(segment.words == () for segment in long.segments)
    assert transcript_of([], SPELLING, STEP, True).segments == []


@pytest.mark.parametrize("changes", [
    {"tokens": ()}, {"tokens": ["a"]}, {"tokens": ("a", 1)}, {"tokens": ("a", "\ud800")}, {"blank": 7}, {"blank": -1},
    {"blank": None}, {"delimiter": 1}, {"space": None}, {"lower_case": 1}, {"scales": "no"}])
def test_a_spelling_that_cannot_be(changes):
    with pytest.raises(WeightsError, match=f"impossible spelling: {next(iter(changes))} must be"):
        Spelling(**{"tokens": SPELLING.tokens, "blank": 0} | changes)


def test_a_spelling_as_json():
    spelling = Spelling(("a", "ß"), 1, None, "_", lower_case=True, scales=False)
    assert Spelling.from_json(spelling.to_json()) == spelling
    for wrong in (None, [], {}, spelling.to_json() | {"more": 1}, spelling.to_json() | {"tokens": "ab"}):
        with pytest.raises(WeightsError, match="spelling"):
            Spelling.from_json(wrong)
