"""Turn samples into the input of a speech model, a log-mel spectrogram, of which each part is computed when it is read.

Whisper (Radford et al. 2022, arXiv 2212.04356), section 2.2: 16 kHz, windows of 25 ms every 10 ms, 80 or 128 channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from ..base.arguments import positive_int
from ..base.errors import InputError
from ..base.functions import cos_sin, exp, log, log10, spectrum
from ..base.stop import NEVER, Stop
from .samples import RATE, check_samples

SECONDS = 30
"""The seconds of audio that a model reads at a time; shorter audio is padded with silence."""
FRAMES = 100
"""The number of columns of features in a second."""
MAX_CHANNELS = 1024
"""The most mel channels; models have fewer than the 201 frequencies of which they are made."""
_WINDOW, _STEP = 400, 160
"""The number of samples of a window (25 ms), and from the start of one window to the start of the next (10 ms)."""
_FLOOR = 1e-10
"""The least power of a mel channel, so that silence has a logarithm."""
_RANGE = 8.0
"""The dynamic range in powers of ten below the loudest place; every lower power is raised to its lower end."""
_PART = 500
"""The number of columns that are computed together, so that temporary arrays stay small. Column i is always computed
with the columns from i // _PART * _PART on, so that its bits do not depend on the columns that are asked for."""
_TOGETHER = 50
"""The number of windows whose portable transforms are computed together, so that their arrays stay in the cache."""
_KEPT = 2**26
"""The most bytes of a recording's features that the first pass keeps (33 minutes with 80 channels). Later columns are
computed again, which takes 3 ms for a second of audio."""


def log_mel(samples: Any, channels: int = 80, portable: bool = False) -> np.ndarray:
    """Return the features that Whisper reads: float32 [channels, 3000], one column for each 10 ms of 30 s.

    samples: floats [n] from -1 to 1 at 16 kHz, at most 30 s. The features are those of transformers'
    WhisperFeatureExtractor: log10 of the power in mel channels, at most 8 below the largest, plus 4, over 4.
    portable: give the same bits with every version of NumPy, by Fourier transforms that take ten times as long as its
    own. Raises `InputError`.
    """
    samples = check_samples(samples)
    if len(samples) > SECONDS * RATE:
        raise InputError(f"the recording has {len(samples) / RATE:.1f} s; the model reads {SECONDS} s at a time: split "
                         "it where nobody speaks, or let Transcriber cut it")
    filters = mel_filters(positive_int("channels", channels))
    padded = np.zeros(SECONDS * RATE, samples.dtype)
    padded[: len(samples)] = samples
    padded = np.pad(padded, _WINDOW // 2, mode="reflect")       # window i lies around sample i * _STEP
    parts = [_log_power(padded[first * _STEP : (first + _PART - 1) * _STEP + _WINDOW], filters, portable)
             for first in range(0, SECONDS * FRAMES, _PART)]
    mel = np.concatenate(parts, axis=1)
    return _scaled(mel, mel.max())


class Spectrogram:
    """The features of a recording of any length, of which `columns` returns some.

    The features of a long recording are computed once more when they are read, so that its length costs no memory. They
    are those of `log_mel`, but scaled by the largest power of the whole recording, which a first pass finds, and
    silence follows the recording, as in OpenAI's Whisper.
    """

    def __init__(self, samples: Any, channels: int = 80, stop: Stop | None = NEVER, portable: bool = False):
        """Check samples, and run the first pass over them.

        samples: floats [n] from -1 to 1 at 16 kHz, of any length. stop: when the pass has to stop; None for a caller
        that runs `first_pass` itself. portable: whether to give the same bits with every version of NumPy.
        """
        self._samples, self._portable = check_samples(samples, float("inf")), portable
        self._filters = mel_filters(positive_int("channels", channels))
        self.frames = len(self._samples) // _STEP
        """The number of columns that the recording fills."""
        self._kept: dict[int, np.ndarray] = {}
        """The parts that are kept to the end, by their first columns."""
        self._newest: dict[int, np.ndarray] = {}
        """The parts of the last `columns` call, because the next window begins inside of the last one or after it."""
        self._largest = np.float32(-np.inf)
        if stop is not None:
            for _ in self.first_pass():
                stop.check()

    def first_pass(self) -> Iterator[None]:
        """Find the largest power, and keep the first features; it yields before each step of some milliseconds."""
        for first in range(0, self.frames, _PART):
            yield
            part = self._compute_part(first)
            self._largest = max(self._largest, part.max())
            if (first + _PART) * self.channels * part.itemsize <= _KEPT:
                self._kept[first] = part

    @property
    def channels(self) -> int:
        """Return the number of mel channels."""
        return len(self._filters)

    @property
    def bytes(self) -> int:
        """Return how many bytes of features the first pass keeps."""
        return min(_KEPT, self.frames * self.channels * np.dtype(np.float32).itemsize)

    def columns(self, first: int, count: int) -> np.ndarray:
        """Return columns of the features: float32 [channels, count]; 0 <= first and first + count <= frames."""
        if not count:
            return np.zeros((self.channels, 0), np.float32)
        starts = range(first // _PART * _PART, first + count, _PART)
        known = self._kept | self._newest
        self._newest = {start: known[start] if start in known else self._compute_part(start) for start in starts}
        mel = np.concatenate([*self._newest.values()], axis=1)
        return _scaled(mel[:, first - starts[0] : first - starts[0] + count], self._largest)

    def _compute_part(self, first: int) -> np.ndarray:
        """Return the logarithms of the power in the columns from `first` on: float32 [channels, at most _PART]."""
        last = min(self.frames, first + _PART) - 1
        start, stop = first * _STEP - _WINDOW // 2, last * _STEP + _WINDOW // 2
        piece = self._samples[max(0, start) : stop]
        piece = np.pad(piece, (0, stop - max(0, start) - len(piece)))
        if start < 0:   # the first window lies around sample 0: mirror the samples behind it to fill its first half
            piece = np.pad(piece, (-start, 0), mode="reflect")
        return _log_power(piece, self._filters, self._portable)


def _log_power(samples: np.ndarray, filters: np.ndarray, portable: bool) -> np.ndarray:
    """Return log10 of the power in each mel channel: float32 [channels, n] for the n windows that the samples fill.

    filters: those of `mel_filters`. portable: whether to compute portable Fourier transforms.
    """
    windows = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_STEP]
    hann = 0.5 - 0.5 * cos_sin(2 * np.pi * np.arange(_WINDOW) / _WINDOW)[0]     # the Hann window
    power = (_portable_power if portable else _power)(windows * hann)
    return log10(np.maximum(_mel_power(filters, power), _FLOOR)).astype(np.float32)


def _power(windows: np.ndarray) -> np.ndarray:
    """Return the power of windows [n, 400] at each frequency: float64 [201, n]."""
    waves = np.fft.rfft(windows)
    return (waves.real * waves.real + waves.imag * waves.imag).T


def _portable_power(windows: np.ndarray) -> np.ndarray:
    """Return the result of `_power`, but with the same bits in every version of NumPy."""
    power = np.empty((_WINDOW // 2 + 1, len(windows)))
    for first in range(0, len(windows), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        real, imaginary = spectrum(np.ascontiguousarray(windows[part].T))
        power[:, part] = real * real + imaginary * imaginary
    return power


def _mel_power(filters: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Return the product of filters [channels, 201] and power [201, n] in float64, frequency by frequency.

    A filter has weights for a few frequencies only. NumPy's matrix product is not used, because its BLAS ends its
    threads when any thread forks: then products in other threads never return.
    """
    totals = np.zeros((len(filters), power.shape[1]))
    for total, weights in zip(totals, filters, strict=True):
        for frequency in np.flatnonzero(weights):
            total += weights[frequency] * power[frequency]
    return totals


def _scaled(mel: np.ndarray, largest: np.float32) -> np.ndarray:
    """Return features from logarithms of power (mel): (x + 4) / 4, with x at least `largest` - `_RANGE`."""
    return (np.maximum(mel, largest - np.float32(_RANGE)) + 4) / 4


@cache
def mel_filters(channels: int) -> np.ndarray:
    """Return the weights [channels, 201] of the frequencies 0, 40 ... 8000 Hz in each mel channel.

    Slaney, "Auditory Toolbox" (1998): triangles over the mel scale, which is linear below 1000 Hz and logarithmic
    above, each with an area of 1 over the frequencies in Hz. The result is cached, so nobody may change it.
    """
    if channels > MAX_CHANNELS:
        raise InputError(f"a spectrogram has at most {MAX_CHANNELS:,} channels, not {channels:,}; Whisper's models "
                         "read 80 or 128")
    edges = _hertz(np.linspace(0.0, _mel(RATE / 2), channels + 2))      # channel i: start, peak and end at i to i+2
    frequencies = np.linspace(0.0, RATE / 2, _WINDOW // 2 + 1)
    rise = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(0.0, np.minimum(rise, fall)) * (2.0 / (edges[2:] - edges[:-2]))[:, None]


_LINEAR_MELS, _MELS_PER_LOG = 15.0, 27.0 / float(log(6.4))
"""The number of mels up to 1000 Hz, of 200/3 Hz each, and for each factor of e above."""


def _mel(hertz: float) -> float:
    """Return the place on the mel scale of a frequency of at least 1000 Hz."""
    return float(_LINEAR_MELS + float(log(hertz / 1000.0)) * _MELS_PER_LOG)


def _hertz(mels: np.ndarray) -> np.ndarray:
    """Return the frequencies in Hz of places on the mel scale."""
    return np.where(mels < _LINEAR_MELS, mels * 200.0 / 3.0, 1000.0 * exp((mels - _LINEAR_MELS) / _MELS_PER_LOG))
