"""WAV files of one recording at several sample rates, mono and stereo: real speech, and a sound made of formulas."""

import numpy as np

from .sound_files import wav
from .whisper import SPEECH

RATES = (8000, 44100, 48000)
"""Hz."""
RECORDINGS = {"two_cities": 13}
"""Real recordings, and how many seconds of each are used. This one has 48 kHz."""
SEEDS = (3, 10)
"""The tones."""
GAINS = (0.9, 0.25)
"""Left and right of a stereo file of a real recording."""


def file_of(samples: np.ndarray, rate: int) -> bytes:
    """Return a WAV file in 16 bits of samples [n, channels]."""
    return wav((samples * 2**15).round().clip(-(2**15), 2**15 - 1).astype("<i2").tobytes(), 1, 16, samples.shape[1],
               rate)


def speech(name: str, rate: int, channels: int) -> bytes:
    """Return a WAV file of a real recording at this rate; needs soundfile and soxr."""
    import soundfile
    import soxr

    samples, own = soundfile.read(SPEECH / f"{name}.wav", dtype="float64")
    samples = soxr.resample(samples[: round(RECORDINGS[name] * own)], own, rate)
    return file_of(samples[:, None] * (GAINS if channels == 2 else (0.9,)), rate)


def tones(seed: int, rate: int, channels: int, seconds: int = 28) -> bytes:
    """Return a WAV file of tones below 3.6 kHz that swell; left and right have other tones."""
    rng = np.random.default_rng(seed)
    times = np.arange(2 * rate) / rate
    sides = []
    for _ in range(channels):
        parts = [(rng.integers(100, 7200) / 2, rng.integers(1, 9) / 2, 10 ** rng.uniform(-3, -1)) for _ in range(6)]
        sides.append(sum(loud * np.sin(2 * np.pi * tone * times) * (1 + np.sin(2 * np.pi * swell * times))
                         for tone, swell, loud in parts))
    return file_of(np.tile(np.stack(sides, axis=1), (seconds // 2, 1)), rate)
