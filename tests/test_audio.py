"""Sound: the features of transformers, WAV files, and wrong arguments. tests/golden/make_audio.py made the features."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from engine.audio import log_mel, mel_filters, read_wav
from engine.errors import InputError, UnsupportedError, WeightsError

GOLDEN = Path(__file__).parent / "golden" / "audio.npz"


def write_wav(path: Path, data: bytes, channels: int = 1, width: int = 2, rate: int = 16000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


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


def test_a_file_with_one_channel(tmp_path):
    samples = np.array([0, 32767, -32768, 5], np.int16)
    found = read_wav(write_wav(tmp_path / "a.wav", samples.tobytes()))
    np.testing.assert_array_equal(found, (samples / 2**15).astype(np.float32), strict=True)


def test_a_file_with_two_channels(tmp_path):
    samples = np.array([[0, 4], [32767, -32768], [-2, -4]], np.int16)
    found = read_wav(write_wav(tmp_path / "a.wav", samples.tobytes(), channels=2))
    np.testing.assert_array_equal(found, (samples.mean(1) / 2**15).astype(np.float32), strict=True)


@pytest.mark.parametrize(("width", "rate", "words"), [(2, 44100, "16 bits at 44100 Hz"), (1, 16000, "8 bits at 16000"),
                                                      (3, 16000, "24 bits at 16000")])  # fmt: skip
def test_another_rate_or_width(tmp_path, width, rate, words):
    path = write_wav(tmp_path / "a.wav", bytes(12), width=width, rate=rate)
    with pytest.raises(UnsupportedError, match=f"{words}.*expected 16 bits at 16000 Hz.*ffmpeg"):
        read_wav(path)


def test_files_that_are_no_sound(tmp_path):
    path = tmp_path / "a.wav"
    for data in (b"", b"RIFF", b"hello" * 20, write_wav(tmp_path / "b.wav", bytes(12)).read_bytes()[:30],
                 b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff" + bytes(40)):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(WeightsError, match="no WAV file of PCM"):
            read_wav(path)
    with pytest.raises(WeightsError, match="cannot be read: No such file"):
        read_wav(tmp_path / "none.wav")
    with pytest.raises(WeightsError, match="not a regular file"):
        read_wav(tmp_path)


def test_a_file_that_is_cut_short_gives_what_is_there(tmp_path):
    data = write_wav(tmp_path / "a.wav", np.arange(10, dtype=np.int16).tobytes()).read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:-3])
    assert len(read_wav(tmp_path / "a.wav")) == 8


@pytest.mark.parametrize(("samples", "words"), [
    (np.zeros((2, 3)), "one axis"), (np.zeros(5, np.int16), "not int16"), (np.array([np.nan]), "finite floats"),
    ("x", "finite floats"), (np.zeros(480001), "has 30.0 s; the model reads 30 s at a time"),
])  # fmt: skip
def test_bad_samples(samples, words):
    with pytest.raises(InputError, match=words):
        log_mel(samples)
