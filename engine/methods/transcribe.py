"""`Transcriber.transcribe`: the transcripts of recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.arguments import has_no_axes
from ..base.errors import InputError, located, shown
from ..base.options import option
from ..base.stop import NEVER, Stop
from ..speech.samples import MAX_SECONDS, check_limit, check_samples
from ..speech.sources import check_path, is_source
from ..speech.tokens import TASK_TRANSCRIBE
from .decoding import DecoderMethod, GeneratingOptions


def _timestamps(name: str, value: Any) -> bool | str:
    """Return the option `timestamps`: True, False or "word"; raises `InputError`."""
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
    """A checked call of `transcribe`, as a `Prepared`.

    It cannot be `PreparedWorks`: a recording is read when its turn comes, and each work for Whisper depends on the
    result of the window before.
    """

    transcription: Any
    """A `Transcription` or a `LetterTranscription`."""
    items: list[Any]
    """The recordings: paths of existing files and other sources, and checked arrays of samples."""
    wanted: Any
    """The options of the call, as `transcription.wanted` returned them."""
    max_seconds: float
    """The longest recording in seconds; a longer one is refused."""
    single: bool

    def results(self, stop: Stop = NEVER, show_progress_bar: bool | None = False) -> Iterator[Any]:
        """Yield the result of each recording, in order, each as soon as it is computed.

        show_progress_bar: None shows one on a terminal if the logger "engine" is at level INFO or DEBUG.
        """
        wanted = replace(self.wanted, stop=stop)
        return self.transcription.results(self.items, wanted, self.max_seconds, show_progress_bar)


def is_recording(audio: Any) -> bool:
    """Return whether an argument is one recording (a path, bytes, a file, or samples [n]), and not a list of them."""
    return is_source(audio) or (isinstance(audio, np.ndarray) and audio.ndim == 1 and audio.dtype.kind != "O")


def check_recordings(audio: Any, max_seconds: float = MAX_SECONDS) -> list[Any]:
    """Return the checked recordings of a call: paths of existing files, other sources, and arrays of samples."""
    if is_recording(audio):
        audio = [audio]
    if not isinstance(audio, (Sequence, np.ndarray)) or has_no_axes(audio):
        raise InputError("audio must be a path, the bytes of a file, an open file or an array of samples, or a list of "
                         f"them, not {shown(audio)}")
    for item in audio:
        check_path(item)
    return [item if is_source(item) else _check_recording(number, item, max_seconds)
            for number, item in enumerate(audio)]


def _check_recording(number: int, samples: Any, max_seconds: float) -> np.ndarray:
    """Return the checked samples of a recording, float32 [n]; raises `InputError` with its number."""
    with located(f"recording {number}"):
        return check_samples(samples, max_seconds)


def _prepare(model: Any, audio: Any, options: TranscribeOptions, stop: Stop = NEVER,
             places: Sequence[str] | None = None) -> Recordings:
    """Return the call. model: a `Transcriber`. places: not used, as messages name recordings by their numbers."""
    transcription = model.transcription
    wanted = transcription.wanted(options.language, options.task, options.timestamps, options.settings)
    items = check_recordings(audio, options.max_seconds)
    return Recordings(transcription, items, wanted, options.max_seconds, single=is_recording(audio))


TRANSCRIBE = DecoderMethod("transcribe", TranscribeOptions, lambda model: model.transcription, _prepare)
