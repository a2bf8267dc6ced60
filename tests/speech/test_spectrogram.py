"""Sound: the features of transformers, windows of long recordings, and wrong arguments.

tests/golden/make/audio.py made the golden file.
"""

import time
import tracemalloc

import numpy as np
import pytest

from engine.base.errors import InputError, TimedOut
from engine.base.stop import Stop
from engine.speech import spectrogram
from engine.speech.spectrogram import Spectrogram, log_mel, mel_filters

from ..tools.paths import SPEECH
from ..tools.speech import features_at_once, recording

GOLDEN = SPEECH / "audio.npz"


@pytest.mark.parametrize("channels", [80, 128])
@pytest.mark.parametrize("sound", range(6))
def test_the_features_of_transformers(sound, channels):
    with np.load(GOLDEN) as golden:
        samples, expected = golden[f"sound_{sound}"], golden[f"features_{sound}_{channels}"]
    found = log_mel(samples / 2**15, channels)
    assert found.shape == (channels, 3000)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, ::37], expected, rtol=0, atol=1e-6)


def test_the_filters_cover_all_frequencies_with_an_equal_area():
    filters = mel_filters(80)
    assert filters.shape == (80, 201)
    assert (filters[:, 1:-1].sum(0) > 0).all()
    # The triangles of many frequencies have an area of 1 in Hz.
    np.testing.assert_allclose(filters[60:].sum(1) * 40, 1.0, atol=0.02)


def long_features(samples: np.ndarray) -> np.ndarray:
    sound = Spectrogram(samples)
    return sound.columns(0, sound.frames)


def test_the_features_of_a_longer_sound():
    with np.load(GOLDEN) as golden:
        samples, expected = golden["long"] / 2**15, golden["long_features"]
    found = long_features(samples)
    assert found.shape == (80, 516100 // 160)
    np.testing.assert_allclose(found[:, ::37], expected, rtol=0, atol=1e-6)
    assert long_features(np.zeros(159, np.float32)).shape == (80, 0)
    np.testing.assert_allclose(long_features(samples[:160000])[:, :-2], log_mel(samples[:160000])[:, :998], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_windows_have_the_bits_of_all_features_at_once(dtype, monkeypatch):
    monkeypatch.setattr(spectrogram, "_KEPT", 3 * 80 * 500 * 4)     # three parts of the ten of the longest recording
    for count in (0, 159, 160, 161, 399, 80000, 480077, 800199):
        samples = recording(count / 16000).astype(dtype)
        sound, expected = Spectrogram(samples), features_at_once(samples)
        assert sound.frames == expected.shape[1]
        np.testing.assert_array_equal(sound.columns(0, sound.frames), expected, strict=True)
        for first in range(0, sound.frames, 1234):
            size = min(3000, sound.frames - first)
            np.testing.assert_array_equal(sound.columns(first, size), expected[:, first : first + size], strict=True)


def test_portable_features_need_no_transform_of_numpy(monkeypatch):
    """Its bits differ between NumPy 1 and 2; rounded to float32, they are seldom seen."""
    samples = recording(2)
    plain, plain_parts = log_mel(samples), Spectrogram(samples).columns(0, 200)
    monkeypatch.setattr(np.fft, "rfft", None)
    np.testing.assert_allclose(log_mel(samples, portable=True), plain, rtol=0, atol=3e-7)
    np.testing.assert_allclose(Spectrogram(samples, portable=True).columns(0, 200), plain_parts, rtol=0, atol=3e-7)


def test_a_long_recording_takes_little_memory(monkeypatch):
    """Three minutes: 11.5 MB of samples, all of whose features with 128 channels take 9.2 MB."""
    monkeypatch.setattr(spectrogram, "_KEPT", 2**20)
    samples = np.tile(recording(1), 180)
    tracemalloc.start()
    try:
        Spectrogram(samples, 128).columns(14000, 3000)
        assert tracemalloc.get_traced_memory()[1] < 8.5e6
    finally:
        tracemalloc.stop()
    with pytest.raises(TimedOut):
        Spectrogram(samples, 128, stop=Stop(time.monotonic() - 1))


@pytest.mark.parametrize(("samples", "words"), [
    (np.zeros((2, 3)), "one axis"), (np.zeros(5, np.int16), "not int16"), (np.array([np.nan]), "not NaN"),
    (np.array([0, -1e300]), "beyond 2.31"), ((np.zeros(5), 44100), "without its rate"),
    ({"array": np.zeros(5), "sampling_rate": 44100}, "without its rate"),
    ([[1.0], [1.0, 2.0]], "one axis, not"),
    (np.array([0, -12345.0]), r"the largest of these is 12,345, as of integers of 16 bits; divide .*samples / 32768$"),
    (np.array([0, 8e6]), "24 bits; divide them: samples / 8388608"), (np.array([127.0]), "8 bits"),
    ("x", "finite floats"), (np.zeros(480001), "has 30.0 s; the model reads 30 s at a time"),
])  # fmt: skip
def test_bad_samples(samples, words):
    with pytest.raises(InputError, match=words):
        log_mel(samples)
    if "at a time" not in words:
        with pytest.raises(InputError, match=words):
            Spectrogram(samples)
