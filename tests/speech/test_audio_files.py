"""Sound files of each container, where they are read from, their limits, and files that are damaged or no sound."""

import io
import os
import signal
import stat
import struct
import sys
import threading
import time
import tracemalloc
import wave
from pathlib import Path

import numpy as np
import pytest

from engine import InputError, TimedOut, UnsupportedError, WeightsError, read_audio, read_wav, resample
from engine.base.errors import Cancelled, EngineError
from engine.base.stop import Stop
from engine.speech import audio_files
from engine.speech.audio_files import MAX_CHANNELS, recording_samples

from ..tools.sound_files import chunk, encoded, form, riff, wav

pytest.importorskip("soundfile")

SAMPLES = np.array([0.0, 0.5, -1.0, 0.25, -0.75, 1 - 2.0**-7])
"""Numbers that 8 bits can hold."""
CODINGS = [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)]


def coded(coding: int, bits: int, samples: np.ndarray = SAMPLES) -> bytes:
    if coding == 3:
        return samples.astype(f"<f{bits // 8}").tobytes()
    whole = np.round(samples * 2.0 ** (bits - 1)).astype(np.int64)
    if bits == 8:
        return (whole + 128).astype(np.uint8).tobytes()
    return b"".join(int(number).to_bytes(bits // 8, "little", signed=True) for number in whole)


def extensible(coding: int, bits: int) -> bytes:
    rest = bytes.fromhex("000000001000800000aa00389b71")
    return form(0xFFFE, bits) + struct.pack("<HHIH", 22, bits, 4, coding) + rest


def noise(seconds: float, rate: int = 16000, channels: int = 1) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, (round(seconds * rate), channels))


@pytest.mark.parametrize(("coding", "bits"), CODINGS)
def test_each_coding_of_wav(coding, bits, monkeypatch):
    data = chunk(b"data", coded(coding, bits))
    for head in (form(coding, bits), form(coding, bits) + b"\0\0", extensible(coding, bits)):
        found = read_audio(riff(chunk(b"LIST", b"odd"), chunk(b"fmt ", head), data))
        np.testing.assert_array_equal(found, SAMPLES.astype(np.float32), strict=True)
    monkeypatch.setattr(audio_files, "_BLOCK", 7)
    three = np.random.default_rng(0).integers(-128, 128, (7, 3)) / 128
    found = read_audio(wav(coded(coding, bits, three.ravel()), coding, bits, 3))
    np.testing.assert_array_equal(found, three.mean(axis=1).astype(np.float32), strict=True)


def test_a_file_of_the_wave_module(tmp_path):
    samples = np.array([[0, 4], [32767, -32768], [-2, -4]], np.int16)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, 2, 16000, 0, "NONE", "not compressed"))
        file.writeframes(samples.tobytes())
    found = read_audio(tmp_path / "a.wav")
    np.testing.assert_array_equal(found, (samples.mean(1) / 2**15).astype(np.float32), strict=True)


def test_a_recording_in_each_container(monkeypatch):
    sound = (np.sin(np.arange(16000) ** 2 / 160000)[:, None] * [9000, 6000]).astype(np.int16)
    plain = read_audio(encoded(sound, "WAV", "PCM_16"))
    np.testing.assert_array_equal(read_audio(encoded(sound, "FLAC", "PCM_16")), plain, strict=True)
    tag = b"ID3\x03\0\0\0\0\x01\x02" + bytes(130)
    mp3 = encoded(sound.mean(axis=1).astype(np.int16), "MP3", "MPEG_LAYER_III")
    for data, worst in ((encoded(sound, "OGG", "VORBIS"), 0.02), (encoded(sound, "OGG", "OPUS"), 0.02), (mp3, 0.02)):
        found = read_audio(data)
        # An encoder may put silence in front of the sound.
        middle = plain[4000:12000]
        lag = int(np.correlate(found, middle).argmax())
        assert 4000 <= lag < 6000
        assert np.sqrt(np.mean((found[lag : lag + 8000] - middle) ** 2)) < worst
        monkeypatch.setattr(audio_files, "_BLOCK", 2000)
        np.testing.assert_array_equal(read_audio(data), found, strict=True)
        monkeypatch.undo()
    np.testing.assert_array_equal(read_audio(tag + mp3), read_audio(mp3), strict=True)
    np.testing.assert_array_equal(read_audio(tag + tag + encoded(sound, "FLAC", "PCM_16")), plain, strict=True)


def test_a_file_of_another_rate():
    samples = np.random.default_rng(0).normal(0, 0.1, 300000).astype(np.float32)
    for rate in (8000, 44100):
        found = read_audio(wav(samples.tobytes(), 3, 32, rate=rate))
        np.testing.assert_array_equal(found, resample(samples, rate, 16000), strict=True)
    for rate, shown in ((200000, "200,000"), (999, "999")):
        with pytest.raises(UnsupportedError, match=f"it has {shown} samples in a second; rates from 1,000"):
            read_audio(wav(samples.tobytes(), 3, 32, rate=rate))


def test_paths_bytes_and_open_files(tmp_path):
    data, path = wav(coded(1, 16)), tmp_path / "a.wav"
    path.write_bytes(data)
    behind = io.BytesIO(b"123" + data)
    behind.seek(3)
    spread = memoryview(np.repeat(np.frombuffer(data, np.uint8), 2))[::2]
    with path.open("rb") as file, path.open("rb", buffering=0) as raw:
        for source in (path, str(path), data, bytearray(data), memoryview(data), spread, io.BytesIO(data),
                       behind, file, raw):
            np.testing.assert_array_equal(read_audio(source), SAMPLES.astype(np.float32), strict=True)
    with pytest.raises(InputError, match="the recording is read as str and not as bytes; open it"):
        read_audio(io.StringIO("RIFF"))
    with path.open(encoding="utf-8") as text:
        for wrong in (file, text):
            with pytest.raises(WeightsError, match=r"a\.wav: cannot be read: .*; open it with mode 'rb'"):
                read_audio(wrong)
    for source in (None, 3, np.zeros(5), [path]):
        with pytest.raises(InputError, match="from a path, from bytes or from an open file"):
            read_audio(source)


def test_the_old_name_is_accepted_with_a_warning(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(coded(1, 16)))
    with pytest.warns(FutureWarning, match="read_wav is now called read_audio"):
        np.testing.assert_array_equal(read_wav(tmp_path / "a.wav"), read_audio(tmp_path / "a.wav"))


def test_a_file_that_is_cut_short_or_was_written_to_a_pipe():
    whole = wav(np.arange(10, dtype=np.int16).tobytes())
    assert len(read_audio(whole[:-3])) == 8
    assert len(read_audio(whole.replace(b"data" + struct.pack("<I", 20), b"data" + b"\xff" * 4))) == 10
    assert len(read_audio(wav(b""))) == 0


@pytest.mark.parametrize(("data", "words"), [
    (b"", "first bytes"), (b"RIFF", "first bytes"), (b"hello" * 20, "first bytes"), (b"ID3", "first bytes"),
    (b"ID3\x03\0\0\0\0\0\x02..caff" + bytes(90), "CAF, which the command ffmpeg reads"),
    (b"FORM\0\0\0\x20AIFF" + bytes(90), "AIFF, which the command ffmpeg reads"),
    (b"\0\0\0\x20ftypM4A " + bytes(90), "MP4, which the command ffmpeg reads"),
    (riff(), "cannot be read as WAV"), (riff(chunk(b"data", bytes(4))), "cannot be read as WAV"),
    (riff(chunk(b"fmt ", form(999, 16)), chunk(b"data", bytes(4))), "cannot be read as WAV"),
    (b"fLaC" + bytes(90), "cannot be read as FLAC"), (b"OggS" + bytes(90), "cannot be read as OGG"),
    (wav(np.float32([0, np.nan]).tobytes(), 3, 32), "hold NaN"),
    (wav(np.float32([np.inf]).tobytes(), 3, 32), "infinity"),
    (wav(np.float64([1e300, 0]).tobytes(), 3, 64, 2), "beyond 2"),
    (wav(bytes(600), bits=8, channels=MAX_CHANNELS + 1), f"has {MAX_CHANNELS + 1} channels; at most {MAX_CHANNELS}"),
])  # fmt: skip
def test_files_that_are_not_read(tmp_path, monkeypatch, data, words):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises((WeightsError, UnsupportedError), match=rf"a\.wav: .*{words}"):
        read_audio(tmp_path / "a.wav")
    with pytest.raises((WeightsError, UnsupportedError), match=rf"the recording: .*{words}"):
        read_audio(data)


def test_paths_without_a_file_give_no_advice_to_convert(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, words in ((tmp_path / "none.wav", "cannot be read: No such file"), (tmp_path, "not a regular file"),
                        (tmp_path / "fifo", "not a regular file"), ("a\0b", "null byte"), ("\ud800", "surrogates")):
        with pytest.raises(WeightsError, match=words) as caught:
            read_audio(path)
        assert "ffmpeg" not in str(caught.value)


def test_the_length_is_limited(tmp_path):
    second = wav(bytes(32000))
    assert len(read_audio(second, max_seconds=1)) == 16000
    for container, coding in (("WAV", "PCM_16"), ("FLAC", "PCM_16")):
        with pytest.raises(InputError, match="more than 1 s; cut it"):
            read_audio(encoded(np.zeros(16001), container, coding), max_seconds=1)
    for wrong in (0, -1, "1", True, float("nan")):
        with pytest.raises(InputError, match="max_seconds must be a number above 0"):
            read_audio(second, max_seconds=wrong)
    with pytest.raises(InputError, match="more than 14,400 s"):
        recording_samples(np.broadcast_to(np.float32(0), 2**40))


def test_an_open_file_without_an_end(monkeypatch):
    class Endless:
        def read(self, size):
            return bytes(size)

    monkeypatch.setattr("engine.speech.sources.MAX_STREAM", 2**21)
    with pytest.raises(InputError, match="more than 2,097,152 bytes"):
        read_audio(Endless())
    with pytest.raises(TimedOut):
        recording_samples(Endless(), stop=Stop(time.monotonic() - 1))


def test_damaged_heads_cost_little(tmp_path):
    """Rates and channels that a damaged file claims, and chunks without an end."""
    zeros = tmp_path / "zeros.wav"
    zeros.write_bytes(b"RIFF" + struct.pack("<I", 2**28) + b"WAVE")
    os.truncate(zeros, 2**28)
    begin = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError):
            read_audio(zeros)
        with pytest.raises(WeightsError):
            read_audio(wav(bytes(65535), bits=8, channels=65535))
        for rate in (191999, 1009):
            assert len(read_audio(wav(bytes(4000), rate=rate))) == pytest.approx(2000 * 16000 / rate, abs=1)
        read_audio(wav(bytes(MAX_CHANNELS * 2**16), bits=8, channels=MAX_CHANNELS))
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert time.process_time() - begin < 3


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "soxr", None)
    assert len(read_audio(wav(bytes(20)))) == 10
    with pytest.raises(UnsupportedError, match=r"needs the package soxr; run pip install '\.\[speech\]'"):
        read_audio(wav(bytes(20), rate=8000))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(UnsupportedError, match=r"needs the package soundfile; run pip install '\.\[speech"):
        read_audio(wav(bytes(20)))
    np.testing.assert_array_equal(recording_samples(np.zeros(9)), np.zeros(9), strict=True)


def ffmpeg(folder: Path, script: str, monkeypatch) -> None:
    """Put a command ffmpeg on the PATH that runs this Python script."""
    (folder / "ffmpeg").write_text(f"#!{sys.executable}\n{script}")
    (folder / "ffmpeg").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(folder))


def test_a_container_that_ffmpeg_reads(tmp_path, monkeypatch):
    """A stand-in for ffmpeg checks how it is called, and finds the samples in the file that it is given."""
    ffmpeg(tmp_path, """import sys
arguments = sys.argv[1:]
assert arguments[arguments.index("-f") + 1] == "mov", arguments
assert " ".join(arguments).endswith("-ac 1 -rematrix_maxval 1 -ar 16000 pipe:1"), arguments
assert arguments[arguments.index("-protocol_whitelist") + 1] == "file", arguments
data = open(arguments[arguments.index("-i") + 1].removeprefix("file:"), "rb").read()
sys.stdout.buffer.write(data[16:])
sys.exit(data[15])
""", monkeypatch)
    samples = np.random.default_rng(0).normal(0, 0.1, 200000).astype("<f4")
    data = b"\0\0\0\x20ftypM4A    \0" + samples.tobytes()
    (tmp_path / "a.m4a").write_bytes(data)
    for source in (tmp_path / "a.m4a", data, io.BytesIO(data)):
        np.testing.assert_array_equal(read_audio(source), samples, strict=True)
    with pytest.raises(InputError, match="more than 1 s"):
        read_audio(data, max_seconds=1)
    with pytest.raises(WeightsError, match="ffmpeg cannot read it: it does not say why"):
        read_audio(data[:15] + b"\x01" + data[16:])


def test_an_ffmpeg_that_fails_or_hangs(tmp_path, monkeypatch):
    data = b"\x1aE\xdf\xa3" + bytes(90)
    ffmpeg(tmp_path, "import sys; sys.exit('no sound in it')", monkeypatch)
    with pytest.raises(WeightsError, match="the recording: ffmpeg cannot read it: no sound in it"):
        read_audio(data)
    ffmpeg(tmp_path, "import time; time.sleep(60)", monkeypatch)
    begin = time.monotonic()
    with pytest.raises(TimedOut):
        recording_samples(data, stop=Stop(begin + 0.2))
    stop = Stop()
    timer = threading.Timer(0.2, setattr, (stop, "cancelled", True))
    timer.start()
    with pytest.raises(Cancelled):
        recording_samples(data, stop=stop)
    assert time.monotonic() - begin < 10


def test_an_ffmpeg_of_which_nobody_knows_how_it_ended(tmp_path, monkeypatch):
    """The system reaps children of a process that ignores SIGCHLD: half of a recording would be taken for the whole."""
    ffmpeg(tmp_path, "import sys; sys.stdout.buffer.write(bytes(400)); sys.exit('the rest is damaged')", monkeypatch)
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(EngineError, match="nobody knows whether ffmpeg has read the whole file"):
            read_audio(b"\x1aE\xdf\xa3" + bytes(90))
    finally:
        signal.signal(signal.SIGCHLD, handler)


def test_a_file_of_samples_that_were_not_divided(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(np.float32([0, -20000, 99]).tobytes(), 3, 32))
    with pytest.raises(InputError, match=r"a\.wav: samples must be from -1 to 1, .* 20,000, .* samples / 32768"):
        recording_samples(tmp_path / "a.wav")
    divided = read_audio(tmp_path / "a.wav") / 32768
    np.testing.assert_array_equal(recording_samples(divided), np.float32([0, -20000, 99]) / 32768)
    loud = np.float32([0, -100, 99])       # a file that is too loud, and no integers
    np.testing.assert_array_equal(recording_samples(loud), loud)
