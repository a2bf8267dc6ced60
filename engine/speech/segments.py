"""Cut the tokens of a window into segments with times, and find where the next window begins; also the classes of
transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .spectrogram import FRAMES

TOKEN_FRAMES = 2
"""The number of frames of 10 ms from one timestamp to the next, and from one vector of the encoder to the next."""


@dataclass(frozen=True)
class Word:
    """A word of a recording, with the marks before and after it."""

    start: float
    """In seconds from the start of the recording."""
    end: float
    text: str


@dataclass(frozen=True)
class Segment:
    """A piece of a recording, and its text."""

    start: float
    """In seconds from the start of the recording."""
    end: float
    text: str
    words: tuple[Word, ...] = ()
    """The words of the text, if they were asked for. Their times come from other numbers than those of the segment, and
    may lie a little outside of it."""


@dataclass(frozen=True)
class Transcript:
    """The text of a recording."""

    text: str
    """The texts of the segments, joined."""
    language: str
    """The code of the language that is spoken, such as "de": the given one, or the one that the model heard."""
    segments: list[Segment] = field(default_factory=list)
    """In the order of their times; empty if nobody speaks."""


@dataclass(frozen=True)
class Cut:
    """A segment of a window: its times in frames from the start of the window, and the ids of its text."""

    start: int
    end: int
    ids: list[int]


def seconds(frames: int) -> float:
    """Return the seconds that a number of frames takes."""
    return frames / FRAMES


def cut(ids: Sequence[int], first_time: int, frames: int) -> tuple[list[Cut], int]:
    """Return (segments of a window, number of frames from its start to the start of the next window).

    ids: the tokens of the window, which follow the rules of timestamps. first_time: the id of 0 s. frames: how many
    frames of the window are audio and not padding.

    As in OpenAI's Whisper, two timestamps side by side end one segment and begin the next. The window's end may cut off
    the text after the last pair, so the next window begins at that pair and reads the text again. If the last token is
    a single timestamp, nobody speaks after it, and the next window begins where this one ends. The same holds after a
    window without a pair, which is one segment up to its last timestamp, or to its end.
    """
    times = [token >= first_time for token in ids]
    pairs = [i for i in range(1, len(ids)) if times[i] and times[i - 1]]
    ends_in_time = len(ids) > 1 and times[-1] and not times[-2]
    if not pairs:
        last = max((token for token in ids if token > first_time), default=None)
        end = frames if last is None else TOKEN_FRAMES * (last - first_time)
        return [Cut(0, end, _ids_of_text(ids, first_time))], frames
    cuts, begin = [], 0
    for end in [*pairs, *([len(ids)] if ends_in_time else [])]:
        part = ids[begin:end]
        start, stop = (TOKEN_FRAMES * (token - first_time) for token in (part[0], part[-1]))
        cuts.append(Cut(start, stop, _ids_of_text(part, first_time)))
        begin = end
    return cuts, frames if ends_in_time else max(TOKEN_FRAMES, cuts[-1].end)     # never 0, so that there is progress


def _ids_of_text(ids: Sequence[int], first_time: int) -> list[int]:
    """Return ids without those of timestamps."""
    return [token for token in ids if token < first_time]
