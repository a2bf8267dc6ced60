"""Sound files made here: WAV files chunk by chunk, and other containers as soundfile writes them."""

import io
import struct

import numpy as np


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a RIFF file."""
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def form(coding: int, bits: int, channels: int = 1, rate: int = 16000, frame: int | None = None) -> bytes:
    """Return the contents of the format chunk of a WAV file."""
    frame = channels * bits // 8 if frame is None else frame
    return struct.pack("<HHIIHH", coding, channels, rate, rate * frame & 0xFFFFFFFF, frame & 0xFFFF, bits)


def riff(*chunks: bytes) -> bytes:
    """Return a WAV file of these chunks."""
    data = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(data)) + data


def wav(data: bytes, coding: int = 1, bits: int = 16, channels: int = 1, rate: int = 16000) -> bytes:
    """Return a WAV file with this data."""
    return riff(chunk(b"fmt ", form(coding, bits, channels, rate)), chunk(b"data", data))


def encoded(samples: np.ndarray, container: str, coding: str, rate: int = 16000) -> bytes:
    """Return a sound file of float samples [n] or [n, channels]."""
    import soundfile

    samples = samples.reshape(len(samples), -1)
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, samples.shape[1], coding, format=container) as sound:
        for first in range(0, len(samples), 2048):
            sound.write(samples[first : first + 2048])
    return file.getvalue()
