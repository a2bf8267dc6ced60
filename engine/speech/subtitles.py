"""Write transcripts as text, JSON, SubRip (.srt) and WebVTT (.vtt); words: whether words, not segments, have times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from .segments import Segment, Transcript, Word


def text_lines(name: str | None, transcript: Transcript, words: bool) -> Iterator[str]:
    """Yield a line with its times for each segment or word, after a line with the name of the recording if given."""
    if name is not None:
        yield f"{name}:"
    for each in pieces(transcript, words):
        yield f"[{clock(each.start)} - {clock(each.end)}] {each.text.strip()}"


def json_line(name: str, transcript: Transcript, words: bool) -> str:
    """Return a transcript as one line of JSON: file, language, text, and segments with their times in seconds."""
    segments = [asdict(segment) for segment in transcript.segments]
    for segment in segments:
        if not words:
            del segment["words"]
    return json.dumps({"file": name, "language": transcript.language, "text": transcript.text.strip(),
                       "segments": segments}, ensure_ascii=False)


def srt_lines(transcript: Transcript, words: bool) -> Iterator[str]:
    """Yield the lines of SubRip: a number, the times with a comma, the text and an empty line for each piece."""
    for number, each in enumerate(pieces(transcript, words), 1):
        yield from (str(number), f"{stamp(each.start, ',')} --> {stamp(each.end, ',')}", each.text.strip(), "")


def vtt_lines(transcript: Transcript, words: bool) -> Iterator[str]:
    """Yield the lines of WebVTT: a head, then the times with a point, the text and an empty line for each piece."""
    yield from ("WEBVTT", "")
    for each in pieces(transcript, words):
        # The text of a cue is a kind of HTML, and "-->" would end it.
        text = each.text.strip().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield from (f"{stamp(each.start, '.')} --> {stamp(each.end, '.')}", text, "")


def pieces(transcript: Transcript, by_word: bool) -> Sequence[Segment | Word]:
    """Return the segments of a transcript, or all of its words."""
    return [word for segment in transcript.segments for word in segment.words] if by_word else transcript.segments


def clock(seconds: float) -> str:
    """Return a time in seconds as minutes, seconds and hundredths, such as 1:02.50."""
    minutes, hundredths = divmod(round(100 * seconds), 6000)
    return f"{minutes}:{hundredths / 100:05.2f}"


def stamp(seconds: float, point: str) -> str:
    """Return a time in seconds as hours, minutes, seconds and thousandths, such as 00:01:02.500; point: "." or ","."""
    total, thousandths = divmod(round(1000 * seconds), 1000)        # whole seconds, and thousandths of one
    return f"{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}{point}{thousandths:03}"
