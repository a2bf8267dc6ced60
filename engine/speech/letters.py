"""Turn the output of a CTC model for each token of a recording into a text, words and segments with times.

CTC, connectionist temporal classification (Graves et al. 2006), gives each token of 20 ms a letter or a blank. Equal
letters side by side become one letter, and then blanks are removed, as in the tokenizer of wav2vec 2.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..model.spelling import Spelling
from .samples import RATE
from .segments import Segment, Transcript, Word

PAUSE, ENOUGH = 0.8, 10.0
"""Numbers of seconds: a segment ends before a pause of at least PAUSE, and at the word with which it has ENOUGH."""
_CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))
"""The replacements of `clean_up_tokenization_spaces` of transformers, in its order."""


@dataclass(frozen=True)
class Letter:
    """A letter of a recording, or the space between two words, and the tokens of the model that it comes from."""

    text: str
    start: int
    """The number of the first of these tokens."""
    end: int
    """The number of the first token after them."""


def letters_of(best: np.ndarray, spelling: Spelling) -> list[Letter]:
    """Return the letters of a recording. best: the output with the largest score for each token, integers [T]."""
    if not len(best):
        return []
    # Compare outputs by their texts, because two outputs may have the same text: map each to the first with its text.
    first_with = {token: number for number, token in reversed([*enumerate(spelling.tokens)])}
    same = np.array([first_with[token] for token in spelling.tokens])[best]
    starts = np.flatnonzero(np.append(True, same[1:] != same[:-1])).tolist()
    letters = []
    for start, end in pairwise([*starts, len(best)]):
        if (token := spelling.tokens[best[start]]) != spelling.tokens[spelling.blank]:
            letters.append(Letter(spelling.space if token == spelling.delimiter else token, start, end))
    return letters


def text_of(letters: list[Letter], spelling: Spelling) -> str:
    """Return the text of some letters, in its case and with its spaces cleaned."""
    return _clean_text("".join(letter.text for letter in letters).strip(), spelling)


def transcript_of(letters: list[Letter], spelling: Spelling, step: int, by_word: bool) -> Transcript:
    """Return the text of a recording in segments. step: the number of samples of a token. by_word: whether segments
    have words."""
    ranges = _word_ranges(letters, spelling)
    words = [Word(letters[first].start * step / RATE, letters[last - 1].end * step / RATE,
                  _in_case("".join(letter.text for letter in letters[first:last]), spelling)) for first, last in ranges]
    segments: list[Segment] = []
    begin = start = 0       # the numbers of the segment's first word, and of its first letter
    for end, word in enumerate(words, 1):
        if end < len(words) and words[end].start - word.end < PAUSE and word.end - words[begin].start < ENOUGH:
            continue
        stop = ranges[end - 1][1]
        text = "".join(letter.text for letter in letters[start:stop])      # with the space before the segment
        text = text.lstrip() if not segments else text
        text = text.rstrip() if end == len(words) else text
        segments.append(Segment(words[begin].start, word.end, _clean_text(text, spelling),
                                tuple(words[begin:end]) if by_word else ()))
        begin, start = end, stop
    return Transcript(text_of(letters, spelling), "", segments)


def _word_ranges(letters: list[Letter], spelling: Spelling) -> list[tuple[int, int]]:
    """Return (number of the first letter, number after the last letter) of each word."""
    spaces = [i for i, letter in enumerate(letters) if letter.text == spelling.space]
    return [(before + 1, after) for before, after in pairwise([-1, *spaces, len(letters)]) if after > before + 1]


def _in_case(text: str, spelling: Spelling) -> str:
    """Return a text in lower case if the spelling has it so, or else as it is."""
    return text.lower() if spelling.lower_case else text


def _clean_text(text: str, spelling: Spelling) -> str:
    """Return a text in its case, without the spaces that `cleans_spaces` removes."""
    text = _in_case(text, spelling)
    for before, after in _CLEANED if spelling.cleans_spaces else ():
        text = text.replace(before, after)
    return text
