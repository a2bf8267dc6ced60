"""Recognize the container of an audio file by its first bytes, which decide what decodes it; audio_files.py asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HEAD = 16
"""The number of first bytes of a file that show its container."""
_MAX_TAGS = 16
"""Limit on the ID3 tags in front of a recording; files have one or two."""


@dataclass(frozen=True)
class Container:
    """A kind of audio files."""

    name: str
    demuxer: str | None
    """ffmpeg's name of the reader of these files; None for files that the library soundfile reads."""


_STARTS: tuple[tuple[Container, Callable[[bytes], bool]], ...] = (
    (Container("WAV", None), lambda head: head[:4] == b"RIFF" and head[8:12] == b"WAVE"),
    (Container("FLAC", None), lambda head: head[:4] == b"fLaC"),
    (Container("OGG", None), lambda head: head[:4] == b"OggS"),
    (Container("MP3", None), lambda head: _is_mpeg(head)),
    (Container("MP4", "mov"), lambda head: head[4:8] == b"ftyp"),
    (Container("Matroska or WebM", "matroska"), lambda head: head[:4] == b"\x1aE\xdf\xa3"),
    (Container("Windows Media", "asf"), lambda head: head[:8] == bytes.fromhex("3026b2758e66cf11")),
    (Container("AIFF", "aiff"), lambda head: head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC")),
    (Container("AAC", "aac"), lambda head: len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0),
    (Container("AMR", "amr"), lambda head: head[:5] == b"#!AMR"),
    (Container("CAF", "caf"), lambda head: head[:4] == b"caff"),
    (Container("AU", "au"), lambda head: head[:4] == b".snd"),
    (Container("WAV of more than 4 GB", "wav"), lambda head: head[:4] == b"RF64" and head[8:12] == b"WAVE"),
)
"""(container, function that returns whether its files begin with these bytes), for each known container."""


def _is_mpeg(head: bytes) -> bool:
    """Return whether bytes begin a frame of MPEG audio: its sync word, version, layer, bit rate and rate."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return False
    # Values that no frame has: version 1, layer 0, bit rate 15, sample rate 3. Each sync bit was checked above.
    version, layer, bits, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    return version != 1 and layer != 0 and bits != 15 and rate != 3


def container_of(head: bytes) -> Container | None:
    """Return the container of a file with these first bytes; None for every other file."""
    return next((container for container, starts in _STARTS if starts(head)), None)


def skip_tags(read: Callable[[int, int], bytes]) -> int:
    """Return how many bytes of ID3 tags are in front of a recording.

    A tag begins with 10 bytes, whose last four have its size, 7 bits each. read: read(count, offset) returns bytes.
    """
    offset = 0
    for _ in range(_MAX_TAGS):
        head = read(10, offset)
        if len(head) < 10 or head[:3] != b"ID3" or max(head[6:10]) > 127:
            break
        size = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        offset += 10 + size + (10 if head[5] & 0x10 else 0)     # the flag says that a footer follows
    return offset
