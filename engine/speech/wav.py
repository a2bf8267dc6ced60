"""Read the samples of a WAV file: PCM of 8 to 32 bits, and floats of 32 and 64 bits.

"Multimedia Programming Interface and Data Specifications 1.0" (IBM and Microsoft, 1991) describes the chunks of RIFF,
and "Multiple Channel Audio Data and WAVE Files" (Microsoft, 2001) describes WAVE_FORMAT_EXTENSIBLE.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import numpy as np

from ..base.errors import UnsupportedError
from ..files.reading import FormatError, naming, open_regular

ADVICE = "convert it with: ffmpeg -i FILE -ar 16000 -ac 1 -c:a pcm_s16le OUTPUT.wav"
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_KNOWN = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "ADPCM", 49: "GSM", 80: "MPEG", 85: "MP3"}
"""The names of encodings that we do not read, by their number in WAVE_FORMAT."""
_BLOCK = 2**18
"""Frames that are read together."""


@dataclass(frozen=True)
class _Format:
    coding: int
    channels: int
    rate: int
    bits: int
    """Bits of a sample, with its padding."""

    @property
    def frame(self) -> int:
        """Return the bytes of the samples of all channels at one time."""
        return self.channels * self.bits // 8


def read_samples(path: str | os.PathLike[str]) -> tuple[np.ndarray, int]:
    """Return the samples of a WAV file and its rate in Hz: float32 [n] from -1 to 1, the mean of its channels.

    A file that is cut short gives the samples that are there. Raises `WeightsError` for a file that cannot be read, and
    `UnsupportedError` for another coding.
    """
    path = Path(path)
    with naming(path, ADVICE), open_regular(path) as file:
        form, size = _find_data(file, path)
        frames = min(size, os.fstat(file.fileno()).st_size - file.tell()) // form.frame
        samples = np.empty(frames, np.float32)
        decode = _DECODERS[form.coding, form.bits]
        for first in range(0, frames, _BLOCK):
            part = samples[first : first + _BLOCK]
            data = np.frombuffer(file.read(len(part) * form.frame), np.uint8)
            if len(data) != len(part) * form.frame:
                raise FormatError("it became shorter while it was read")
            part[:] = decode(data).reshape(-1, form.channels).mean(axis=1, dtype=np.float64)
        if form.coding == _FLOAT and not np.isfinite(samples).all():
            raise FormatError("its samples hold NaN, infinity, or numbers above 3e38")
    return samples, form.rate


def _find_data(file: BufferedReader, path: Path) -> tuple[_Format, int]:
    """Return the audio format and the size of the data in bytes; the file then stands at the first sample."""
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        raise FormatError("it is no WAV file: it does not begin with RIFF and WAVE")
    form = None
    for name, size in _chunks(file):
        if name == b"fmt ":
            form = _read_format(file.read(min(size, 40)), path)
        elif name == b"data":
            if form is None:
                raise FormatError("it is no WAV file: its data come before their format")
            return form, size
    raise FormatError("it is no WAV file: it has no data")


def _chunks(file: BufferedReader) -> Iterator[tuple[bytes, int]]:
    """Yield the name of each chunk and its size in bytes; the file then stands at the contents of the chunk."""
    while len(head := file.read(8)) == 8:
        name, size = struct.unpack("<4sI", head)
        begin = file.tell()
        yield name, size
        file.seek(begin + size + size % 2)


def _read_format(data: bytes, path: Path) -> _Format:
    if len(data) < 16:
        raise FormatError("it is no WAV file: its format is cut short")
    coding, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", data)
    if coding == _EXTENSIBLE and len(data) >= 26:
        [coding] = struct.unpack_from("<H", data, 24)
    form = _Format(coding, channels, rate, frame * 8 // channels if channels else 0)
    if (coding, form.bits) not in _DECODERS:
        what = _KNOWN.get(coding, {_PCM: "PCM", _FLOAT: "floats"}.get(coding, f"coding {coding}"))
        raise UnsupportedError(f"{path}: it has {what} in {channels} channels of {bits} bits; PCM of 8, 16, 24 and 32 "
                               f"bits and floats of 32 and 64 bits are read; {ADVICE}")
    if form.frame != frame or bits > form.bits or not rate:
        raise FormatError(f"it is no WAV file: {channels} channels of {bits} bits do not fill frames of {frame} bytes, "
                          f"at {rate} Hz")
    return form


def _decode_24(data: np.ndarray) -> np.ndarray:
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = data.reshape(-1, 3)
    return wide.view("<i4") / 2.0**31


_DECODERS: dict[tuple[int, int], Callable[[np.ndarray], np.ndarray]] = {
    (_PCM, 8): lambda data: (data - 128.0) / 2**7,
    (_PCM, 16): lambda data: data.view("<i2") / 2.0**15,
    (_PCM, 24): _decode_24,
    (_PCM, 32): lambda data: data.view("<i4") / 2.0**31,
    (_FLOAT, 32): lambda data: data.view("<f4"),
    (_FLOAT, 64): lambda data: data.view("<f8"),
}
"""By the number of a coding and the bits of a sample, the function from bytes to numbers."""
