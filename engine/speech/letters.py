"""Turn the letters that a model gives for each token of a recording into a text, words and segments with times.

CTC, connectionist temporal classification (Graves et al. 2006), gives each token of 20 ms a letter or a blank. Equal
letters side by side are one letter, and blanks are left out, as the tokenizer of wav2vec 2.0 in transformers does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..model.spelling import Spelling
from .samples import RATE
from .segments import Segment, Transcript, Word

PAUSE, ENOUGH = 0.8, 10.0
"""Seconds: a segment ends before a pause of the first number, and at the end of the word with which it reaches the
second one."""
_CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))
"""What `clean_up_tokenization_spaces` of transformers replaces, in this order."""


@dataclass(frozen=True)
class Letter:
    """A letter of a recording, or the space between two words, and which tokens of the model gave it."""

    text: str
    start: int
    """The first of these tokens."""
    end: int
    """The first token after them."""


def letters_of(best: np.ndarray, spelling: Spelling) -> list[Letter]:
    """Return the letters of a recording. best: the output with the largest score for each token, integers [T]."""
    if not len(best):
        return []
    first_with = {token: number for number, token in reversed([*enumerate(spelling.tokens)])}
    same = np.array([first_with[token] for token in spelling.tokens])[best]     # by text: two outputs may have one
    starts = np.flatnonzero(np.append(True, same[1:] != same[:-1])).tolist()
    letters = []
    for start, end in pairwise([*starts, len(best)]):
        if (token := spelling.tokens[best[start]]) != spelling.tokens[spelling.blank]:
            letters.append(Letter(spelling.space if token == spelling.delimiter else token, start, end))
    return letters


def text_of(letters: list[Letter], spelling: Spelling) -> str:
    """Return the text of some letters."""
    return _clean_text("".join(letter.text for letter in letters).strip(), spelling)


def transcript_of(letters: list[Letter], spelling: Spelling, step: int, by_word: bool) -> Transcript:
    """Return the text of a recording in segments. step: the samples of a token. by_word: whether to list words."""
    ranges = _words(letters, spelling)
    words = [Word(letters[first].start * step / RATE, letters[last - 1].end * step / RATE,
                  _in_case("".join(letter.text for letter in letters[first:last]), spelling)) for first, last in ranges]
    segments: list[Segment] = []
    begin = start = 0       # of the segment: its first word, and its first letter
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


def _words(letters: list[Letter], spelling: Spelling) -> list[tuple[int, int]]:
    """Return the first letter of each word, and the letter after its last one."""
    spaces = [i for i, letter in enumerate(letters) if letter.text == spelling.space]
    return [(before + 1, after) for before, after in pairwise([-1, *spaces, len(letters)]) if after > before + 1]


def _in_case(text: str, spelling: Spelling) -> str:
    return text.lower() if spelling.lower_case else text


def _clean_text(text: str, spelling: Spelling) -> str:
    """Return a text in its case, without the spaces that are left out."""
    text = _in_case(text, spelling)
    for before, after in _CLEANED if spelling.cleans_spaces else ():
        text = text.replace(before, after)
    return text
