"""Turn audio into the input of a speech model: WAV files to samples, and samples to a log-mel spectrogram.

Whisper (Radford et al. 2022, arXiv 2212.04356), section 2.2: 16 kHz, windows of 25 ms every 10 ms, 80 or 128 channels.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arguments import positive_int
from ..base.errors import InputError
from ..files.reading import within
from .resampling import resample
from .wav import read_samples

RATE = 16000
"""Samples in a second."""
SECONDS = 30
"""The seconds of audio that a model reads at a time; shorter audio is padded with silence."""
FRAMES = 100
"""Columns of features in a second."""
_WINDOW, _STEP = 400, 160
_FLOOR = 1e-10
_RANGE = 8.0
"""The dynamic range in powers of ten below the loudest place; everything quieter is raised to its lower end."""
_PART = 500
"""Windows that are computed together, so that temporary arrays stay small."""


def read_wav(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the samples of a WAV file at 16 kHz: float32 [n] from -1 to 1, the mean of its channels.

    The file has PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits. Samples of another rate, from 1 to 192 kHz,
    are converted with a filter that removes what 16 kHz cannot hold (resampling.py). Raises `WeightsError` for a
    file that cannot be read, and `UnsupportedError` for another coding or rate.
    """
    samples, rate = read_samples(path)
    with within(Path(path)):
        return samples if rate == RATE else resample(samples, rate, RATE)


def log_mel(samples: Any, channels: int = 80) -> np.ndarray:
    """Return the features that Whisper reads: float32 [channels, 3000], one column for each 10 ms of 30 s.

    samples: floats [n] from -1 to 1 at 16 kHz, at most 30 s. The features are those of transformers'
    WhisperFeatureExtractor: ten logarithms of the power in mel channels, at most 8 below the largest, plus 4, over 4.
    Raises `InputError`.
    """
    samples = check_samples(samples)
    if len(samples) > SECONDS * RATE:
        raise InputError(f"the recording has {len(samples) / RATE:.1f} s; the model reads {SECONDS} s at a time: split "
                         "it where nobody speaks, or let Transcriber cut it")
    whole = np.zeros(SECONDS * RATE, samples.dtype)
    whole[: len(samples)] = samples
    return _features(np.pad(whole, _WINDOW // 2, mode="reflect"), channels, SECONDS * FRAMES)


def long_log_mel(samples: Any, channels: int = 80) -> np.ndarray:
    """Return the features of a recording of any length: float32 [channels, n // 160]; else as `log_mel`.

    The largest power is that of the whole recording. Silence follows the recording, as in OpenAI's Whisper.
    """
    samples = np.pad(check_samples(samples), (0, _WINDOW // 2))
    frames = (len(samples) - _WINDOW // 2) // _STEP
    return _features(np.pad(samples, (_WINDOW // 2, 0), mode="reflect"), channels, frames)


def check_samples(samples: Any) -> np.ndarray:
    """Return samples as an array [n]; raises `InputError` unless they are finite floats."""
    samples = np.asarray(samples)
    if samples.ndim != 1 or samples.dtype.kind != "f" or not np.isfinite(samples).all():
        raise InputError(f"samples must be finite floats in one axis, not {samples.dtype} of shape "
                         f"{list(samples.shape)}: the mean of the channels, divided by 32768 if they are 16-bit "
                         "integers")
    return samples


def _features(samples: np.ndarray, channels: int, frames: int) -> np.ndarray:
    """Return the features [channels, frames] of samples with half a window of padding on both sides."""
    filters = mel_filters(positive_int("channels", channels))
    windows = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_STEP]
    bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)
    found = np.empty((channels, frames), np.float32)
    for first in range(0, frames, _PART):
        part = slice(first, min(frames, first + _PART))
        power = (np.abs(np.fft.rfft(windows[part] * bell)) ** 2).T
        found[:, part] = np.log10(np.maximum(filters @ power, _FLOOR))
    if frames:
        np.maximum(found, found.max() - np.float32(_RANGE), out=found)
    return (found + 4) / 4


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
