"""Decode an audio file with the command ffmpeg, if the library soundfile does not read its container."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from threading import Event, Thread
from typing import IO

import numpy as np

from ..base.errors import EngineError, UnsupportedError
from ..base.stop import NEVER, Stop
from ..files.reading import FormatError
from .containers import Container
from .samples import RATE

_BLOCK = 2**18
"""The number of bytes that are read together from ffmpeg."""
_LOOK = 0.02
"""Seconds between two looks at a `Stop` while ffmpeg works."""
_REASON = 300
"""The most characters of ffmpeg's message that an error repeats."""


def decode_by_ffmpeg(file: IO[bytes], container: Container, stop: Stop = NEVER) -> Iterator[np.ndarray]:
    """Yield blocks of samples, float32 [k] at 16 kHz, which ffmpeg resamples and mixes from all channels.

    ffmpeg reads only this file, with the demuxer of its container, and is killed when the stop comes. With
    rematrix_maxval, it computes the mean of two channels; without it, two equal ones would become louder by 3 dB.
    Raises `UnsupportedError` if there is no ffmpeg, and `FormatError` for a file that it cannot read.
    """
    command = shutil.which("ffmpeg")
    if command is None:
        raise UnsupportedError(f"it is {container.name}, which the command ffmpeg reads, and there is none on this "
                               "machine: install ffmpeg, or give a WAV, FLAC, OGG or MP3 file")
    arguments = [command, "-nostdin", "-v", "error", "-threads", "1", "-protocol_whitelist", "file", "-f",
                 str(container.demuxer), "-i", "file:/dev/stdin", "-map", "0:a:0", "-f", "f32le", "-ac", "1",
                 "-rematrix_maxval", "1", "-ar", str(RATE), "pipe:1"]  # fmt: skip
    with tempfile.TemporaryFile() as errors, \
            subprocess.Popen(arguments, stdin=file, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        ended = Event()
        Thread(target=_kill_at, args=(stop, process, ended), daemon=True).start()
        try:
            while data := process.stdout.read(_BLOCK):
                yield np.frombuffer(data[: len(data) // 4 * 4], "<f4")
            status = _exit_status(process)
            if status is None:
                stop.check()
                raise EngineError("nobody knows whether ffmpeg has read the whole file, because this process ignores "
                                  "SIGCHLD or waits for all of its children; let SIGCHLD have its default, or give a "
                                  "WAV, FLAC, OGG or MP3 file")
            if status != 0:
                stop.check()
                errors.seek(0)
                said = errors.read(4 * _REASON).decode("utf-8", "replace").split("\n")[0][:_REASON]
                raise FormatError(f"ffmpeg cannot read it: {said or 'it does not say why'}")
        finally:
            ended.set()
            process.kill()


def _exit_status(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for a process, and return its exit status; None if the system or other code has taken the status.

    In that case `Popen.wait` returns 0, which is also the status of success, so ask the system first.
    """
    try:
        status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)      # leaves the status for `wait`
    except ChildProcessError:
        return process.wait() or None
    assert status is not None       # only WNOHANG lets it be None
    process.wait()
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _kill_at(stop: Stop, process: subprocess.Popen[bytes], ended: Event) -> None:
    """Kill a process when the stop comes, unless `ended` is set before. A thread of its own runs this, because the
    thread that reads from the process cannot look at the stop."""
    while not ended.wait(_LOOK):
        if stop.has_come:
            process.kill()
            return
