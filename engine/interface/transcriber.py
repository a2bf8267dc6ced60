"""`Transcriber`: the class for users of speech models, which turn recordings into text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..base.arguments import flag, renamed_arguments
from ..base.errors import UnsupportedError
from ..base.stop import Stop
from ..generation.prepared import PreparedModel
from ..methods.decoding import DecoderMethod
from ..methods.table import TRANSCRIBING
from ..methods.transcribe import TRANSCRIBE, TranscribeOptions, check_recordings, is_recording
from ..model.bits import FASTEST
from ..model.run_config import RunOptions
from ..queues.work_queue import WorkQueue
from ..speech import LetterModel, LetterTranscription, Transcription
from ..speech.samples import MAX_SECONDS
from ..speech.tokens import SpecialTokens
from ..text.special_tokens import special_ids
from ..weights.input_layers import Frames
from .loaded import Loaded

if TYPE_CHECKING:
    from ..weights.model import Model


class Transcriber(Loaded):
    """Whisper, or wav2vec 2.0 and HuBERT with a head of letters (CTC), on one backend: text from recordings.

        transcriber = Transcriber.load("whisper-tiny.en")
        transcriber.transcribe(["recording.wav"])               # [" What the recording says."]
        [found] = transcriber.transcribe(["recording.wav"], timestamps=True)
        found.segments                                          # [Segment(start=0.0, end=2.4, text=" What ...")]

    Results do not depend on the batch or on the number of threads, as those of `Generator`.
    """

    @renamed_arguments
    def __init__(self, model: Model, *, backend: str = "auto", threads: int | None = None, max_batch_tokens: int = 8192,
                 precision: str | None = None, max_rows: int = 64, cache: str | None = None, bits: str = FASTEST):
        """As `load`, for a model with an encoder of audio that is in memory already."""
        options = RunOptions(backend=backend, threads=threads, max_batch_tokens=max_batch_tokens, precision=precision,
                             max_rows=max_rows, cache=cache, bits=bits)
        if getattr(model, "decoder", None) is None and getattr(model, "kind", None) == "transcribe":
            letters = LetterModel(model, options)
            self._adopt(letters)
            self.generation = letters.generation
            self._transcription: Transcription | LetterTranscription = LetterTranscription(letters)
            return
        self._adopt(PreparedModel(model, "Transcriber", options))
        self.generation = self._model.generation
        if not isinstance(self._model.stem, Frames):
            raise UnsupportedError(f"a model of the family {self.config.family} does not read audio; those of "
                                   "Whisper do, and those of wav2vec 2.0 and HuBERT whose class ends in ForCTC")
        tokens = SpecialTokens.of(special_ids(self.text), self.config.vocab_size, self.generation.is_multilingual)
        self._transcription = Transcription(self._model, self._model.stem, tokens)

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, backend: str = "auto", threads: int | None = None,
             max_batch_tokens: int = 8192, precision: str | None = None, max_rows: int = 64, cache: str | None = None,
             bits: str = FASTEST, memory: str = "map", revision: str | None = None) -> Transcriber:
        """Load a model of speech; the options are those of `Generator.load`, without cache_tokens.

        A model of letters (CTC) has no decoder, so it takes neither max_rows nor cache.
        """
        from ..loading.load import open_source  # here, because `import engine` shall stay light

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens,
                                   "precision": precision, "max_rows": max_rows, "cache": cache, "bits": bits}
        return cls._load(open_source(path, memory, revision), "transcribe", options, memory)

    @property
    def languages(self) -> list[str]:
        """The languages that the model knows by their codes, such as "de"; empty for a model of one language."""
        return list(self._transcription.languages)

    @property
    def transcription(self) -> Any:
        """Turns recordings into texts: a `Transcription`, or the `LetterTranscription` of a model of letters."""
        return self._transcription

    @property
    def prepared(self) -> PreparedModel:
        """The plans, the tokenizers and the queue of a model that generates, as Whisper.

        Raises `UnsupportedError` for a model of letters (CTC).
        """
        if isinstance(self._transcription, LetterTranscription):
            raise UnsupportedError(f"{self.config.family} models write letters and generate no tokens; "
                                   "Transcriber.transcribe runs them")
        return self._model

    @property
    def queue(self) -> WorkQueue:
        """The queue that computes the calls of all threads; a server gives it a thread of its own."""
        queue: WorkQueue = self._model.queue
        return queue

    @property
    def methods(self) -> dict[str, DecoderMethod[Any, Any]]:
        """The methods of this model by their names."""
        return dict(TRANSCRIBING)

    @renamed_arguments
    def transcribe(self, audio: Any, *, language: str | None = None, task: str = "transcribe",
                   timestamps: bool | str = False, max_seconds: float = MAX_SECONDS,
                   show_progress_bar: bool | None = None, timeout: float | None = None, **settings: Any) -> Any:
        """Return the text of each recording, in order; with timestamps, a `Transcript` with segments for each.

        audio: a list of recordings, each the path of an audio file, its bytes or an open file, as `engine.read_audio`
            reads them, or float samples at 16 kHz. Files are read when their turn comes. A single recording, which is
            not in a list, gives its result alone.
        language: the language that is spoken, by its code or its English name, such as "de" or "German". With None, a
            model of several languages finds it from the first 30 s of each recording; `Transcript.language` says which.
        task: "transcribe", or "translate" into English.
        timestamps: True for the times of segments; "word" for the times of each word as well.
        max_seconds: the seconds that a recording may have; 4 hours by default.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG and standard error is a
            terminal.
        timeout: seconds after which the call raises `TimedOut`.
        settings: as for `Generator.generate`; with num_return_sequences above 1, which needs recordings of up to 30 s
            and no timestamps, each result is a list of texts.

        A model of letters (CTC) takes no language, no other task and no settings. It reads a recording of more than
        30 s in windows of 30 s, which overlap by 10 s, and refuses one that is shorter than a token, about 0.025 s.

        Whisper reads a recording of more than 30 s in windows, one after the other, as OpenAI's Whisper does without a
        condition on previous text and without a fallback to higher temperatures. Each window begins where the last
        complete segment of the window before it ends, so timestamps are computed even if you do not ask for them.
        A recording in which nobody speaks has the empty text. Raises `InputError`, and for files the errors of
        `engine.read_audio`.
        """
        results = [*self.transcriptions(audio, language=language, task=task, timestamps=timestamps,
                                        max_seconds=max_seconds, show_progress_bar=show_progress_bar, timeout=timeout,
                                        **settings)]
        return results[0] if is_recording(audio) else results

    @renamed_arguments
    def transcriptions(self, audio: Any, *, language: str | None = None, task: str = "transcribe",
                       timestamps: bool | str = False, max_seconds: float = MAX_SECONDS,
                       show_progress_bar: bool | None = None, timeout: float | None = None,
                       **settings: Any) -> Iterator[Any]:
        """Return an iterator over the results that `transcribe` returns, in order: each as soon as it is there.

        The arguments are those of `transcribe`, and all but the files are checked before the first one is computed.
        """
        stop = Stop.after(timeout)
        bar = None if show_progress_bar is None else flag("show_progress_bar", show_progress_bar)
        options = TranscribeOptions(language=language, task=task, timestamps=timestamps, max_seconds=max_seconds,
                                    settings=settings)
        return TRANSCRIBE.prepare(self, audio, options).results(stop, bar)

    @renamed_arguments
    def detect_language(self, audio: Any) -> Any:
        """Return for each recording the code of its language, and the probability that the model gives it.

        audio: as for `transcribe`; the model hears the first window of each recording. A list gives a list of pairs,
        and a single recording one pair. Raises `UnsupportedError` for a model of English alone, and for a model of
        letters (CTC).
        """
        if isinstance(self._transcription, LetterTranscription) or not self.languages:
            raise UnsupportedError(self._transcription.why_no_languages)
        languages = [self._transcription.language(item) for item in check_recordings(audio)]
        return languages[0] if is_recording(audio) else languages
