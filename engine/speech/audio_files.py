"""Read recordings: audio files of many containers to samples at 16 kHz, block by block.

The library soundfile (libsndfile) reads WAV, FLAC, OGG and MP3, and soxr changes the rate.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, located, shown
from ..base.install import require_speech
from ..base.stop import NEVER, Stop
from ..files.reading import FormatError, naming, refuse_pointer, within
from .containers import HEAD, Container, container_of, skip_tags
from .ffmpeg import decode_by_ffmpeg
from .resampling import Resampler
from .samples import LOUDEST, MAX_SECONDS, RATE, GrowingSamples, check_length, check_limit, check_samples
from .sources import is_source, name_of, opened, opened_behind

ADVICE = "convert it with: ffmpeg -i FILE -ar 16000 -ac 1 -c:a pcm_s16le OUTPUT.wav"
MAX_CHANNELS = 64
"""Limit on the channels of a file: the largest microphone arrays that are sold have 64."""
_BLOCK = 2**17
"""The number of samples of all channels that are decoded together: 1 MB in float64."""
_START = 64
"""The number of first bytes of a file that tell a pointer of Git LFS from a recording."""


def read_audio(source: Any, *, max_seconds: float = MAX_SECONDS) -> np.ndarray:
    """Return the samples of an audio file at 16 kHz: float32 [n] from -1 to 1, the mean of its channels.

    source: the path of a file, its bytes, or an open binary file, which is read from where it stands. The extra
        [speech] reads WAV, FLAC, OGG (Vorbis and Opus) and MP3, at any rate from 1 to 192 kHz; the command ffmpeg,
        where there is one, reads MP4 (m4a), Matroska and WebM, AAC, AIFF and others.
    max_seconds: the longest recording that is read; 4 hours by default.

    Raises `WeightsError` for a file that cannot be read, `UnsupportedError` for a container, rate or number of channels
    that is not read, and `InputError` for a recording that is too long and for what is no source.
    """
    if not is_source(source):
        raise InputError(f"a recording is read from a path, from bytes or from an open file, not from {shown(source)}")
    return read_source(source, check_limit(max_seconds))


def read_wav(path: str | os.PathLike[str]) -> np.ndarray:
    """Return what `read_audio` returns, under its old name, with a `FutureWarning`."""
    warnings.warn("read_wav is now called read_audio, and the next version drops the old name", FutureWarning,
                  stacklevel=2)
    return read_audio(path)


def recording_samples(recording: Any, max_seconds: float = MAX_SECONDS, stop: Stop = NEVER) -> np.ndarray:
    """Return the samples [n] of a recording, checked: a path, bytes of a file, an open file, or an array at 16 kHz."""
    if is_source(recording):
        samples = read_source(recording, max_seconds, stop)
        with located(name_of(recording)):
            return check_samples(samples, max_seconds)
    return check_samples(recording, max_seconds)


def read_source(source: Any, max_seconds: float, stop: Stop = NEVER) -> np.ndarray:
    """Return the samples of a source of at most `max_seconds`: float32 [n] at 16 kHz. stop: when to stop reading."""
    samples = GrowingSamples()
    with opened(source, stop) as file:
        for block in decoded(file, name_of(source), max_seconds, stop):
            samples.add(block)
    stop.check()
    return samples.taken()


def decoded(file: IO[bytes], name: str, max_seconds: float, stop: Stop = NEVER) -> Iterator[np.ndarray]:
    """Yield the samples of an open file of the system, at most `max_seconds`, in blocks: float32 [k] at 16 kHz.

    name: its name in messages. stop: when to stop reading. Raises the errors of `read_audio`.
    """
    path, count = Path(name), 0
    with naming(path, ADVICE), within(path):
        refuse_pointer(os.pread(file.fileno(), _START, 0))
        for block in _decode_blocks(file, stop):
            stop.check()
            count += len(block)
            check_length(count, max_seconds)
            yield block


def _decode_blocks(file: IO[bytes], stop: Stop) -> Iterator[np.ndarray]:
    """Choose the decoder by the first bytes of a file, and yield its blocks: float32 [k] at 16 kHz."""
    tags = skip_tags(lambda count, offset: os.pread(file.fileno(), count, offset))
    container = container_of(os.pread(file.fileno(), HEAD, tags))
    if container is None:
        raise FormatError("its first bytes are those of no audio file that is known")
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    if container.demuxer is not None:
        yield from decode_by_ffmpeg(file, container, stop)
        return
    # Hide the tags from libsndfile: behind them it would accept any format, and not only the container found here.
    with opened_behind(file, tags) as behind:
        yield from _decode_by_library(behind, container)


def _decode_by_library(file: IO[bytes], container: Container) -> Iterator[np.ndarray]:
    """Decode a file with libsndfile; yield the mean of its channels in blocks: float32 [k] at 16 kHz."""
    soundfile = require_speech("soundfile", "reading an audio file")
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    try:
        # Pass the descriptor, so that C code reads the file: an interrupt in a Python function that C calls is lost.
        with soundfile.SoundFile(file.fileno(), closefd=False) as audio:
            if not 1 <= audio.channels <= MAX_CHANNELS:
                raise UnsupportedError(f"it has {audio.channels:,} channels; at most {MAX_CHANNELS} are read")
            # Otherwise soundfile seeks after each block, and the decoder of MP3 then loses its state.
            audio.seekable = lambda: False
            resampler = Resampler(audio.samplerate, RATE)
            frames = _BLOCK // audio.channels
            while len(block := audio.read(frames, dtype="float64", always_2d=True)):
                yield resampler.add(_mean(block))
            yield resampler.end()
    except soundfile.LibsndfileError as error:
        raise FormatError(f"it cannot be read as {container.name}: {error.error_string.rstrip('.')}") from None


def _mean(block: np.ndarray) -> np.ndarray:
    """Return the mean of the channels of a block [frames, channels] as float32; raises `FormatError` for NaN."""
    if not np.abs([block.min(), block.max()]).max() <= LOUDEST:
        raise FormatError("its samples hold NaN, infinity or numbers beyond 2^31")
    return block.mean(axis=1, dtype=np.float64).astype(np.float32)
