"""`Transcriber.transcribe`: the texts of recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import InputError, located, shown
from ..base.options import option
from ..base.stop import NEVER, Stop
from ..speech.samples import MAX_SECONDS, check_limit, check_samples
from ..speech.sources import check_path, is_source
from ..speech.tokens import TASK_TRANSCRIBE
from .decoding import DecoderMethod, GeneratingOptions


def _timestamps(name: str, value: Any) -> bool | str:
    """Return True, False or "word"; raises `InputError`."""
    if isinstance(value, str) and value == "word":
        return value
    if value not in (True, False):
        raise InputError(f'{name} must be True, False or "word", not {shown(value)}')
    return bool(value)


@dataclass(frozen=True, kw_only=True)
class TranscribeOptions(GeneratingOptions):
    """The options of `Transcriber.transcribe` that say what is computed; the model checks language and task."""

    language: str | None = None
    task: str = TASK_TRANSCRIBE
    timestamps: bool | str = option(False, _timestamps)
    max_seconds: float = option(MAX_SECONDS, lambda name, value: check_limit(value))


@dataclass(frozen=True)
class Recordings:
    """A call of `transcribe`, in the place of `PreparedWorks`.

    A recording is no work of its own: it is read when its turn comes, and what Whisper is asked next depends on what it
    has answered about the window before.
    """

    transcription: Any
    """A `Transcription` or a `LetterTranscription`."""
    items: list[Any]
    """The recordings: sources, whose paths lead to files, and checked samples."""
    wanted: Any
    """What `transcription.wanted` has returned."""
    max_seconds: float
    single: bool

    def results(self, stop: Stop = NEVER, show_progress_bar: bool | None = False) -> Iterator[Any]:
        """Yield the result of each recording, in order, each as soon as it is there.

        show_progress_bar: None shows one on a terminal if the logger "engine" is at level INFO or DEBUG.
        """
        wanted = replace(self.wanted, stop=stop)
        return self.transcription.results(self.items, wanted, self.max_seconds, show_progress_bar)


def is_recording(audio: Any) -> bool:
    """Return whether an argument is one recording, and not a list of them."""
    return is_source(audio) or (isinstance(audio, np.ndarray) and audio.ndim == 1 and audio.dtype.kind != "O")


def check_recordings(audio: Any, max_seconds: float = MAX_SECONDS) -> list[Any]:
    """Return the recordings of a call: sources, whose paths lead to files, and checked arrays of samples."""
    if is_recording(audio):
        audio = [audio]
    if not isinstance(audio, (Sequence, np.ndarray)) or getattr(audio, "shape", None) == ():
        raise InputError("audio must be a path, the bytes of a file, an open file or an array of samples, or a list of "
                         f"them, not {shown(audio)}")
    for item in audio:
        check_path(item)
    return [item if is_source(item) else _check_recording(number, item, max_seconds)
            for number, item in enumerate(audio)]


def _check_recording(number: int, samples: Any, max_seconds: float) -> np.ndarray:
    """Return the samples of a recording, checked; messages have its number."""
    with located(f"recording {number}"):
        return check_samples(samples, max_seconds)


def _prepare(model: Any, audio: Any, options: TranscribeOptions, stop: Stop = NEVER,
             places: Sequence[str] | None = None) -> Recordings:
    """Return the call. model: a `Transcriber`. Messages about recordings have their numbers, whatever `places` says."""
    transcription = model.transcription
    wanted = transcription.wanted(options.language, options.task, options.timestamps, options.settings)
    items = check_recordings(audio, options.max_seconds)
    return Recordings(transcription, items, wanted, options.max_seconds, is_recording(audio))


TRANSCRIBE = DecoderMethod("transcribe", TranscribeOptions, lambda model: model.transcription, _prepare)
