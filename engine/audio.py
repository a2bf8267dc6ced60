"""Turn sound into what a model of speech reads: recordings to samples, and samples to a log-mel spectrogram.

Whisper (Radford et al. 2022, arXiv 2212.04356), section 2.2: 16 kHz, windows of 25 ms every 10 ms, 80 or 128 channels.
"""

from __future__ import annotations

import os
import wave
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .checks import positive_int
from .errors import InputError, UnsupportedError
from .weights.files import FormatError, naming, open_regular

RATE = 16000
"""Samples in a second."""
SECONDS = 30
"""The sound that a model reads at a time; shorter sound is followed by silence."""
_WINDOW, _STEP = 400, 160
_FLOOR = 1e-10
_RANGE = 8.0
"""Powers of ten below the loudest place that are kept; everything quieter counts as this quiet."""
_ADVICE = "convert it with: ffmpeg -i FILE -ar 16000 -ac 1 -c:a pcm_s16le OUTPUT.wav"


def read_wav(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the samples of a WAV file of 16-bit PCM at 16 kHz: float32 [n] from -1 to 1, the mean of its channels.

    Raises `WeightsError` for a file that cannot be read, and `UnsupportedError` for another rate or another coding.
    """
    path = Path(path)
    with naming(path, _ADVICE):
        try:
            with open_regular(path) as file, wave.open(file) as sound:
                channels, width, rate = sound.getnchannels(), sound.getsampwidth(), sound.getframerate()
                data = sound.readframes(sound.getnframes()) if (width, rate) == (2, RATE) else b""
        except (wave.Error, EOFError) as error:
            raise FormatError(f"it is no WAV file of PCM: {error or 'it is cut short'}") from None
    if (width, rate) != (2, RATE):
        raise UnsupportedError(f"{path}: it has {8 * width} bits at {rate} Hz; expected 16 bits at {RATE} Hz; "
                               f"{_ADVICE}")
    samples = np.frombuffer(data[:len(data) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
    return (samples.mean(axis=1, dtype=np.float64) / 2**15).astype(np.float32)


def log_mel(samples: Any, channels: int = 80) -> np.ndarray:
    """Return the features that Whisper reads: float32 [channels, 3000], one column for each 10 ms of 30 s.

    samples: floats [n] from -1 to 1 at 16 kHz, at most 30 s. The features are those of transformers'
    WhisperFeatureExtractor: ten logarithms of the power in mel channels, at most 8 below the largest, plus 4, over 4.
    Raises `InputError`.
    """
    channels = positive_int("channels", channels)
    samples = np.asarray(samples)
    if samples.ndim != 1 or samples.dtype.kind != "f" or not np.isfinite(samples).all():
        raise InputError(f"samples must be finite floats in one axis, not {samples.dtype} of shape "
                         f"{list(samples.shape)}: the mean of the channels, divided by 32768 if they are 16-bit "
                         "integers")
    if len(samples) > SECONDS * RATE:
        raise InputError(f"the sound has {len(samples) / RATE:.1f} s; the model reads {SECONDS} s at a time: split it "
                         "where nobody speaks")
    whole = np.zeros(SECONDS * RATE)
    whole[:len(samples)] = samples
    padded = np.pad(whole, _WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[:-1:_STEP]
    bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    power = np.empty((_WINDOW // 2 + 1, len(windows)))
    for first in range(0, len(windows), 500):  # so that temporary arrays stay small
        part = slice(first, first + 500)
        power[:, part] = (np.abs(np.fft.rfft(windows[part] * bell)) ** 2).T
    found = np.log10(np.maximum(mel_filters(channels) @ power, _FLOOR))
    return ((np.maximum(found, found.max() - _RANGE) + 4) / 4).astype(np.float32)


@cache
def mel_filters(channels: int) -> np.ndarray:
    """Return the weights [channels, 201] of the frequencies 0, 40 ... 8000 Hz in each mel channel.

    Slaney, "Auditory Toolbox" (1998): triangles over a scale that is linear below 1000 Hz and logarithmic above, each
    with an area of 1 over the frequencies in Hz.
    """
    edges = _hertz(np.linspace(0.0, _mel(RATE / 2), channels + 2))
    frequencies = np.linspace(0.0, RATE / 2, _WINDOW // 2 + 1)
    rise = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(0.0, np.minimum(rise, fall)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]


_LINEAR_MELS, _MELS_PER_LOG = 15.0, 27.0 / np.log(6.4)
"""Mels of 1000 Hz, of 200/3 Hz each, and mels for each factor of e above."""


def _mel(hertz: float) -> float:
    return float(_LINEAR_MELS + np.log(hertz / 1000.0) * _MELS_PER_LOG)


def _hertz(mels: np.ndarray) -> np.ndarray:
    return np.where(mels < _LINEAR_MELS, mels * 200.0 / 3.0, 1000.0 * np.exp((mels - _LINEAR_MELS) / _MELS_PER_LOG))
