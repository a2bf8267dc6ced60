"""Sound: the features of transformers, the rates of scipy, and wrong arguments.

tests/golden/make/audio.py made the golden file.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.base.errors import InputError, UnsupportedError
from engine.speech.resampling import resample
from engine.speech.spectrogram import log_mel, long_log_mel, mel_filters

from ..tools.paths import SPEECH

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


def test_the_features_of_a_longer_sound():
    with np.load(GOLDEN) as golden:
        samples, expected = golden["long"] / 2**15, golden["long_features"]
    found = long_log_mel(samples)
    assert found.shape == (80, 516100 // 160)
    np.testing.assert_allclose(found[:, ::37], expected, rtol=0, atol=1e-6)
    assert long_log_mel(np.zeros(159, np.float32)).shape == (80, 0)
    np.testing.assert_allclose(long_log_mel(samples[:160000])[:, :-2], log_mel(samples[:160000])[:, :998], atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 11025, 15999, 16001, 22050, 24000, 44100, 48000, 96000])
def test_the_samples_of_scipy_at_another_rate(rate):
    with np.load(GOLDEN) as golden:
        samples, expected = golden["fast"], golden[f"resampled_{rate}"]
    found = resample(samples, rate, 16000)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_blocks_continue_each_other(rate):
    """A sound that begins a whole number of outputs later has the same samples, in whatever block they are."""
    long = np.random.default_rng(0).normal(0, 0.1, 120000).astype(np.float32)
    whole, common = resample(long, rate, 16000), math.gcd(rate, 16000)
    found = resample(long[16 * rate // common :], rate, 16000)
    np.testing.assert_allclose(found[400:], whole[16 * 16000 // common :][400:], rtol=0, atol=1e-6)
    assert len(found) > 2**14


def tone(hertz: float, rate: int) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(rate) / rate).astype(np.float32)


@pytest.mark.parametrize("rate", [22050, 44100, 48000])
def test_what_16_khz_can_hold_stays_and_the_rest_goes(rate):
    for hertz in (50, 1000, 7000):
        np.testing.assert_allclose(resample(tone(hertz, rate), rate, 16000)[200:-200], tone(hertz, 16000)[200:-200],
                                   rtol=0, atol=1e-4)
    for hertz in (8001, 9500, 10900):
        assert np.abs(resample(tone(hertz, rate), rate, 16000)[200:-200]).max() < 1e-4
    np.testing.assert_allclose(resample(np.ones(rate, np.float32), rate, 16000)[200:-200], 1, atol=1e-4)


@pytest.mark.parametrize("rate", [0, 999, 192001])
def test_rates_that_are_not_converted(rate):
    with pytest.raises(UnsupportedError, match="rates from 1,000 to 192,000 Hz"):
        resample(np.zeros(5, np.float32), rate, 16000)


def test_short_sounds_at_another_rate():
    assert len(resample(np.zeros(0, np.float32), 44100, 16000)) == 0
    assert len(resample(np.ones(1, np.float32), 44100, 16000)) == 1


@pytest.mark.parametrize(("samples", "words"), [
    (np.zeros((2, 3)), "one axis"), (np.zeros(5, np.int16), "not int16"), (np.array([np.nan]), "finite floats"),
    ("x", "finite floats"), (np.zeros(480001), "has 30.0 s; the model reads 30 s at a time"),
])  # fmt: skip
def test_bad_samples(samples, words):
    with pytest.raises(InputError, match=words):
        log_mel(samples)
    if "at a time" not in words:
        with pytest.raises(InputError, match=words):
            long_log_mel(samples)
