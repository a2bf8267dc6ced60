"""`Recording`: a recording that transcription.py reads window by window: the place of the next one, the text so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from ..generation.results import Generated
from .alignment import TokensOfWord
from .segments import TOKEN_FRAMES, Cut, Segment, Transcript, Word, cut, seconds
from .spectrogram import FRAMES, SECONDS, Spectrogram

WINDOW = SECONDS * FRAMES
"""The number of frames that a model reads at a time."""
NO_SPEECH = 0.6
"""A window may be silent if the model gives its token for "no speech" more than this probability."""
DOUBT = -1.0
"""The window is silent if the mean log probability of the tokens of its text is below this number, too."""


@dataclass(frozen=True)
class Note:
    """The numbers that a model gives for a segment beside its text, for verbose results."""

    seek: int
    """The first frame of its window."""
    ids: list[int]
    """The tokens of its text."""
    logprob: float
    """The mean log probability of the tokens of its window."""
    no_speech: float
    """The probability that nobody speaks in its window."""


@dataclass
class Recording:
    """The features of a recording, its segments so far, and the place of the next window."""

    number: int
    """The place among the recordings of a call."""
    features: Spectrogram
    language: str | None
    """The code of its language; None until the model has found it in the first window."""
    seek: int = 0
    """The first frame of the next window."""
    segments: list[Segment] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """One for each segment."""

    @property
    def frames(self) -> int:
        """Return the number of frames of the recording."""
        return self.features.frames

    @property
    def left(self) -> int:
        """Return the number of frames of the next window that are audio and not padding; 0 at the end."""
        return min(WINDOW, self.frames - self.seek)

    def window(self) -> np.ndarray:
        """Return the features of the next window [channels, 3000], with zeros after the end of the recording."""
        window = np.zeros((self.features.channels, WINDOW), np.float32)
        window[:, : self.left] = self.features.columns(self.seek, self.left)
        return window

    def take(self, result: Generated, silent: bool, first_time: int, decode: Callable[[list[int]], str]) -> list[Cut]:
        """Add the segments of the next window, move on to the window after it, and return the segments.

        result: the tokens that the model wrote for the window. silent: whether it hears no speech. first_time: the id
        of 0 s. decode: turns ids into a text. Segments without text or length are left out, as in Whisper.
        """
        if silent:
            self.seek += self.left
            return []
        cuts, advance = cut(result.ids, first_time, self.left)
        kept = [each for each in cuts if each.end > each.start and decode(each.ids).strip()]
        self.segments += [Segment(seconds(self.seek + each.start), seconds(self.seek + each.end), decode(each.ids))
                          for each in kept]
        self.seek += advance
        return kept

    def add_words(self, cuts: list[Cut], times: np.ndarray, words: Callable[[list[int]], list[TokensOfWord]],
                  seek: int) -> None:
        """Give the newest segments their words.

        cuts: these segments, of the window that begins at the frame `seek`. times: the positions at which their tokens
        begin, and at which the last one ends. words: returns the words of ids.
        """
        at = 0      # the number of tokens of the segments before
        for i, each in enumerate(cuts, len(self.segments) - len(cuts)):
            words_of = []
            for word in words(each.ids):
                start, end = (seconds(seek + TOKEN_FRAMES * int(times[at + token])) for token in (word.first, word.end))
                words_of.append(Word(start, end, word.text))
            at += len(each.ids)
            self.segments[i] = replace(self.segments[i], words=tuple(words_of))

    def transcript(self) -> Transcript:
        """Return the transcript of the windows so far."""
        return Transcript("".join(segment.text for segment in self.segments), self.language or "", self.segments)


def mean_logprob(result: Generated, length_penalty: float) -> float:
    """Return the mean log probability of the tokens of a result. length_penalty: the one of its score."""
    total, tokens = _total_logprob(result, length_penalty)
    return total / max(1, tokens)


def is_silent(no_speech: float, result: Generated, length_penalty: float) -> bool:
    """Return whether nobody speaks in a window.

    no_speech: the probability of the token "no speech". result: the text that the model writes. length_penalty: the one
    of its score.
    """
    total, tokens = _total_logprob(result, length_penalty)
    return no_speech > NO_SPEECH and total < DOUBT * tokens


def _total_logprob(result: Generated, length_penalty: float) -> tuple[float, int]:
    """Return (log probability of a result, number of its tokens with the end token)."""
    tokens = len(result.ids) + result.ended
    return result.score * tokens**length_penalty, tokens        # `Generated.score` is divided by this power
