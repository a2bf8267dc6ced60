"""Resampling: exact tones, what is filtered out, blocks, and wrong arguments."""

import numpy as np
import pytest

from engine import resample
from engine.speech.resampling import Resampler

pytest.importorskip("soxr")

RATES = [8000, 11025, 15999, 16001, 22050, 24000, 44100, 48000, 96000, 191999]


def tones(hertz: np.ndarray, rate: int, seconds: float = 1.0) -> np.ndarray:
    """Return the sum of tones with other phases, in float64: what samples of any rate would be without an error."""
    times = 2 * np.pi * np.arange(round(rate * seconds)) / rate
    return sum(np.sin(each * times + i) for i, each in enumerate(hertz)) / len(hertz)


@pytest.mark.parametrize("rate", RATES)
def test_tones_that_both_rates_hold_keep_their_samples(rate):
    hertz = np.linspace(0.005, 0.88, 25) * min(rate, 16000) / 2
    found = resample(tones(hertz, rate), rate, 16000)
    expected = tones(hertz, 16000)
    assert found.dtype == np.float32
    assert found.shape == (16000,)
    error = np.sqrt(np.mean((found - expected)[500:-500] ** 2) / np.mean(expected[500:-500] ** 2))
    assert 20 * np.log10(error) < -100


def test_what_16_khz_cannot_hold_is_removed():
    for rate in (22050, 44100, 48000):
        for hertz in (8001, 9500, 10900):
            assert np.abs(resample(tones(np.array([hertz]), rate), rate, 16000)[200:-200]).max() < 1e-7
        np.testing.assert_allclose(resample(np.ones(rate), rate, 16000)[200:-200], 1, atol=1e-6)


def test_the_bits_do_not_depend_on_the_blocks():
    samples = np.random.default_rng(0).normal(0, 0.1, 200000).astype(np.float32)
    for rate in (8000, 22050, 44100, 48000, 191999):
        once = Resampler(rate, 16000)
        expected = np.concatenate([once.add(samples), once.end()])
        np.testing.assert_array_equal(resample(samples, rate, 16000), expected, strict=True)
        for size in (999, 70000):
            blocks = Resampler(rate, 16000)
            parts = [blocks.add(samples[first : first + size]) for first in range(0, len(samples), size)]
            np.testing.assert_array_equal(np.concatenate([*parts, blocks.end()]), expected, strict=True)


def test_short_sounds_and_equal_rates():
    assert len(resample(np.zeros(0, np.float32), 44100, 16000)) == 0
    assert len(resample(np.ones(4, np.float32), 44100, 16000)) == 1
    np.testing.assert_array_equal(resample(np.ones(3), 16000, 16000), np.ones(3, np.float32), strict=True)


def test_bad_arguments(refusals):
    refusals(lambda samples, rate: resample(samples, rate, 16000), [
        (np.zeros(5), 999), (np.zeros(5), 192001), (np.zeros(5), 0), (np.zeros(5), 44100.0),
        (np.zeros(5, np.int16), 44100), ([np.inf], 44100),
    ])
