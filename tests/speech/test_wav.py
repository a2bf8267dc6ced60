"""WAV files of every coding that is read, at other rates, and files that are damaged or no sound."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import UnsupportedError, WeightsError
from engine.speech import wav
from engine.speech.resampling import resample
from engine.speech.spectrogram import read_wav
from engine.speech.wav import read_samples

SAMPLES = np.array([0.0, 0.5, -1.0, 0.25, -0.75, 1 - 2.0**-7])
"""Numbers that 8 bits can hold."""


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def form(coding: int, bits: int, channels: int = 1, rate: int = 16000, frame: int | None = None) -> bytes:
    frame = channels * bits // 8 if frame is None else frame
    return struct.pack("<HHIIHH", coding, channels, rate, rate * frame, frame, bits)


def extensible(coding: int, bits: int, valid: int) -> bytes:
    rest = bytes.fromhex("000000001000800000aa00389b71")
    return form(0xFFFE, bits) + struct.pack("<HHIH", 22, valid, 4, coding) + rest


def riff(*chunks: bytes) -> bytes:
    data = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(data)) + data


def encoded(coding: int, bits: int, samples: np.ndarray = SAMPLES) -> bytes:
    if coding == 3:
        return samples.astype(f"<f{bits // 8}").tobytes()
    whole = np.round(samples * 2.0 ** (bits - 1)).astype(np.int64)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    return b"".join(int(number).to_bytes(bits // 8, "little", signed=True) for number in whole)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


CODINGS = [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)]


@pytest.mark.parametrize(("coding", "bits"), CODINGS)
def test_each_coding(tmp_path, coding, bits):
    data = chunk(b"data", encoded(coding, bits))
    for head in (form(coding, bits), form(coding, bits) + b"\0\0", extensible(coding, bits, bits)):
        chunks = chunk(b"LIST", b"odd"), chunk(b"fmt ", head), chunk(b"fact", b"x"), data
        path = written(tmp_path / "a.wav", riff(*chunks))
        found, rate = read_samples(path)
        assert rate == 16000
        np.testing.assert_array_equal(found, SAMPLES.astype(np.float32), strict=True)
        np.testing.assert_array_equal(read_wav(path), found, strict=True)


@pytest.mark.parametrize(("coding", "bits"), CODINGS)
def test_the_mean_of_three_channels(tmp_path, monkeypatch, coding, bits):
    monkeypatch.setattr(wav, "_BLOCK", 3)
    samples = np.random.default_rng(0).integers(-128, 128, (7, 3)) / 128
    data = chunk(b"data", encoded(coding, bits, samples.ravel()))
    path = written(tmp_path / "a.wav", riff(chunk(b"fmt ", form(coding, bits, 3)), data))
    np.testing.assert_allclose(read_samples(path)[0], samples.mean(axis=1), rtol=0, atol=1e-7)


def test_a_file_of_the_wave_module(tmp_path):
    samples = np.array([[0, 4], [32767, -32768], [-2, -4]], np.int16)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, 2, 16000, 0, "NONE", "not compressed"))
        file.writeframes(samples.tobytes())
    found = read_wav(tmp_path / "a.wav")
    np.testing.assert_array_equal(found, (samples.mean(1) / 2**15).astype(np.float32), strict=True)


def test_a_file_of_another_rate(tmp_path):
    samples = np.random.default_rng(0).normal(0, 0.1, 3000).astype(np.float32)
    data = chunk(b"data", samples.tobytes())
    path = written(tmp_path / "a.wav", riff(chunk(b"fmt ", form(3, 32, rate=44100)), data))
    assert read_samples(path)[1] == 44100
    found = read_wav(path)
    np.testing.assert_array_equal(found, resample(samples, 44100, 16000), strict=True)
    assert len(found) == 1089
    path = written(tmp_path / "b.wav", riff(chunk(b"fmt ", form(3, 32, rate=200000)), data))
    with pytest.raises(UnsupportedError, match=r"b\.wav: it has 200,000 samples in a second; rates from 1,000"):
        read_wav(path)


def test_a_file_that_is_cut_short_or_was_written_to_a_pipe(tmp_path):
    whole = riff(chunk(b"fmt ", form(1, 16)), chunk(b"data", np.arange(10, dtype=np.int16).tobytes()))
    assert len(read_wav(written(tmp_path / "a.wav", whole[:-3]))) == 8
    piped = whole.replace(b"data" + struct.pack("<I", 20), b"data" + b"\xff" * 4)
    assert len(read_wav(written(tmp_path / "a.wav", piped))) == 10
    assert len(read_wav(written(tmp_path / "a.wav", riff(chunk(b"fmt ", form(1, 16)), chunk(b"data", b""))))) == 0


@pytest.mark.parametrize(("data", "words"), [
    (b"", "does not begin with RIFF"), (b"RIFF", "does not begin"), (b"hello" * 20, "does not begin"),
    (b"RIFX" + riff()[4:], "does not begin"), (riff(), "has no data"), (riff(chunk(b"fmt ", form(1, 16))), "no data"),
    (riff(chunk(b"data", bytes(4))), "before their format"), (riff(chunk(b"fmt ", bytes(9))), "cut short"),
    (b"RIFF\xff\xff\xff\xffWAVEfmt \xff\xff\xff\xff" + bytes(8), "cut short"),
    (riff(chunk(b"LIST", bytes(9))[:-3] + b"\xff"), "has no data"),
    (riff(chunk(b"fmt ", form(1, 16, rate=0))), "do not fill"),
    (riff(chunk(b"fmt ", form(1, 20, frame=2))), "do not fill"),
    (riff(chunk(b"fmt ", form(1, 8, 20, frame=21))), "do not fill frames of 21"),
    (riff(chunk(b"fmt ", form(3, 32)), chunk(b"data", np.float32([0, np.nan]).tobytes())), "hold NaN"),
    (riff(chunk(b"fmt ", form(3, 32)), chunk(b"data", np.float32([np.inf]).tobytes())), "infinity"),
])  # fmt: skip
def test_files_that_are_no_sound(tmp_path, data, words):
    with pytest.raises(WeightsError, match=rf"a\.wav: .*{words}.*ffmpeg"):
        read_wav(written(tmp_path / "a.wav", data))


@pytest.mark.parametrize(("head", "words"), [
    (form(7, 8), "mu-law in 1 channels of 8 bits"), (form(85, 0, frame=1), "MP3"),
    (form(1, 40), "PCM in 1 channels of 40 bits"),
    (form(3, 16), "floats in 1 channels of 16 bits"), (form(999, 16), "coding 999"), (form(1, 16, 0), "0 channels"),
    (extensible(6, 8, 8), "A-law"),
])  # fmt: skip
def test_codings_that_are_not_read(tmp_path, head, words):
    with pytest.raises(UnsupportedError, match=rf"a\.wav: it has .*{words}.*ffmpeg"):
        read_wav(written(tmp_path / "a.wav", riff(chunk(b"fmt ", head), chunk(b"data", bytes(4)))))


def test_paths_that_cannot_be_read(tmp_path):
    with pytest.raises(WeightsError, match="cannot be read: No such file"):
        read_wav(tmp_path / "none.wav")
    with pytest.raises(WeightsError, match="not a regular file"):
        read_wav(tmp_path)
