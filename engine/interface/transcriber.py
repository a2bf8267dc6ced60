"""`Transcriber`: a speech model that transcribes recordings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import get_backend
from ..backends.reference.formulas import softmax
from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, UnsupportedError, WeightsError, shown
from ..base.progress import growing_progress
from ..base.stop import Stop
from ..encoding.packing import pack
from ..generation.prepared import PreparedModel
from ..generation.results import Generated, Request
from ..model.generation_config import GenerationConfig
from ..speech import AudioStepper, Recording, is_silent
from ..speech.alignment import UNSPACED, split_words
from ..speech.audio_files import recording_samples
from ..speech.samples import MAX_SECONDS, RATE, check_limit, check_samples
from ..speech.segments import TOKEN_FRAMES, seconds
from ..speech.sources import check_path, is_source
from ..speech.spectrogram import FRAMES, SECONDS, Spectrogram, log_mel
from ..speech.tokens import SpecialTokens
from ..speech.windows import NO_SPEECH
from ..text.special_tokens import special_ids
from ..weights.input_layers import Frames
from .loaded import Loaded
from .settings import settings_of_call

if TYPE_CHECKING:
    from ..weights.model import Model

CROSS_CACHE_BYTES = 2**31
"""The most bytes that the cached keys and values of the encoder's vectors take, unless one recording needs more."""
HELD_SAMPLES = 1800 * RATE
"""The samples of recordings that wait until as many are read as the model takes together: half an hour, 115 MB."""


@dataclass(frozen=True)
class _Order:
    """What a call of `transcribe` wants of each recording."""

    language: str | None
    task: str
    timestamps: bool
    by_word: bool
    config: GenerationConfig
    stop: Stop


class Transcriber(Loaded):
    """Whisper on one backend: text from recordings of any length.

        transcriber = Transcriber.load("whisper-tiny.en")
        transcriber.transcribe(["recording.wav"])               # [" What the recording says."]
        [found] = transcriber.transcribe(["recording.wav"], timestamps=True)
        found.segments                                          # [Segment(start=0.0, end=2.4, text=" What ...")]

    Results do not depend on the batch or on the number of threads, as those of `Generator`.
    """

    @renamed_arguments
    def __init__(self, model: Model, *, backend: str = "auto", threads: int | None = None, max_batch_tokens: int = 8192,
                 precision: str | None = None, max_rows: int = 64, cache: str | None = None):
        """As `load`, for a model with an encoder of audio that is in memory already."""
        self._adopt(PreparedModel(model, "Transcriber", backend=backend, threads=threads, precision=precision,
                                  max_batch_tokens=max_batch_tokens, max_rows=max_rows, cache=cache))
        self.generation, self._decoder = self._model.generation, self._model.decoder
        if not isinstance(self._model.stem, Frames):
            raise UnsupportedError(f"a model of the family {self.config.family} does not read audio; Whisper's do")
        self._stem = self._model.stem
        self._tokens = SpecialTokens.of(special_ids(self.text), self.config.vocab_size)

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, backend: str = "auto", threads: int | None = None,
             max_batch_tokens: int = 8192, precision: str | None = None, max_rows: int = 64, cache: str | None = None,
             memory: str = "map", revision: str | None = None) -> Transcriber:
        """Load a model of speech; the options are those of `Generator.load`, without cache_tokens."""
        from ..loading.load import open_source  # here, because `import engine` shall stay light

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens,
                                   "precision": precision, "max_rows": max_rows, "cache": cache}
        return cls._load(open_source(path, memory, revision), "transcribe", options, memory)

    @property
    def languages(self) -> list[str]:
        """The languages that the model knows by their codes, such as "de"; empty for a model of English alone."""
        return list(self._tokens.languages)

    @renamed_arguments
    def transcribe(self, audio: Any, *, language: str | None = None, task: str = "transcribe",
                   timestamps: bool | str = False, max_seconds: float = MAX_SECONDS,
                   show_progress_bar: bool | None = None, timeout: float | None = None, **settings: Any) -> list[Any]:
        """Return the text of each recording, in order; with timestamps, a `Transcript` with segments for each.

        audio: a list of recordings, each the path of an audio file, its bytes or an open file, as `engine.read_audio`
            reads them, or float samples at 16 kHz. Files are read when their turn comes.
        language: the language that is spoken, by its code or its English name, such as "de" or "German". With None, a
            model of several languages finds it from the first 30 s of each recording; `Transcript.language` says which.
        task: "transcribe", or "translate" into English.
        timestamps: True for the times of segments; "word" for the times of each word as well.
        max_seconds: the longest recording; 4 hours by default.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG and standard error is a
            terminal.
        timeout: seconds after which the call raises `TimedOut`. settings: as for `generate`; with num_return_sequences
            above 1, which needs recordings of up to 30 s and no timestamps, each result is a list of texts.

        A recording of more than 30 s is read in windows, one after the other, as OpenAI's Whisper does without a
        condition on previous text and without a fallback to higher temperatures. Each window begins where the last
        complete segment of the window before it ends, so timestamps are computed even if you do not ask for them.
        A recording in which nobody speaks has the empty text. Raises `InputError`, and for files the errors of
        `engine.read_audio`.
        """
        return list(self.transcriptions(audio, language=language, task=task, timestamps=timestamps,
                                        max_seconds=max_seconds, show_progress_bar=show_progress_bar, timeout=timeout,
                                        **settings))

    @renamed_arguments
    def transcriptions(self, audio: Any, *, language: str | None = None, task: str = "transcribe",
                       timestamps: bool | str = False, max_seconds: float = MAX_SECONDS,
                       show_progress_bar: bool | None = None, timeout: float | None = None,
                       **settings: Any) -> Iterator[Any]:
        """Return an iterator over the results that `transcribe` returns, in order: each as soon as it is there.

        The arguments are those of `transcribe`, and all but the files are checked before the first one is computed.
        """
        order = self._order(language, task, timestamps, Stop.after(timeout), settings)
        items = _checked(audio, check_limit(max_seconds))
        bar = None if show_progress_bar is None else flag("show_progress_bar", show_progress_bar)
        return self._in_order(items, order, max_seconds, bar)

    def _in_order(self, items: list[Any], order: _Order, max_seconds: float, bar: bool | None) -> Iterator[Any]:
        """Yield the result of each recording as soon as those before it are there, too."""
        results: dict[int, Any] = {}
        following = 0
        with growing_progress(bar, "Audio", " s") as (advance, expect):
            heard, hoped = _whole(advance), _whole(expect)
            hoped(sum(len(item) for item in items if isinstance(item, np.ndarray)) / RATE)
            for in_windows, batch in self._batches(items, order, max_seconds, hoped):
                if in_windows:
                    results |= self._windows(batch, order, heard)
                else:
                    results |= self._short(batch, order)
                    heard(sum(map(len, batch.values())) / RATE)
                while following in results:
                    yield results.pop(following)
                    following += 1

    @renamed_arguments
    def detect_language(self, audio: Any) -> list[tuple[str, float]]:
        """Return for each recording the code of its language, and the probability that the model gives it.

        audio: as for `transcribe`; the model hears the first window of each recording. Raises `UnsupportedError` for a
        model of English alone.
        """
        if not self.languages:
            raise UnsupportedError("this model knows English alone, so it detects no language")
        found = []
        for item in _checked(audio, MAX_SECONDS):
            window = Recording(0, Spectrogram(recording_samples(item), self._channels), None).window()
            with AudioStepper(self._decoder, [self._vectors(window, Stop())]) as stepper:
                found.append(self._language_of(stepper.first_logits(self._tokens.start)[0]))
        return found

    @property
    def _channels(self) -> int:
        return int(self._stem.weight.shape[1])

    def _order(self, language: str | None, task: str, timestamps: bool | str, stop: Stop,
               settings: dict[str, Any]) -> _Order:
        """Check the arguments of `transcribe`."""
        code = self._tokens.spoken(language, task)
        by_word = isinstance(timestamps, str) and timestamps == "word"
        if not by_word and timestamps not in (True, False):
            raise InputError(f'timestamps must be True, False or "word", not {shown(timestamps)}')
        config = settings_of_call(self.generation, settings)
        if timestamps:
            self._check_windows(config)
        if by_word and not config.alignment_heads:
            raise UnsupportedError("the model's settings name no alignment_heads, which the times of words need; give "
                                   "alignment_heads=[(layer, head), ...], or timestamps=True")
        return _Order(code, task, bool(timestamps), by_word, config, stop)

    def _check_windows(self, config: GenerationConfig) -> None:
        """Raise an error if recordings cannot be read in windows."""
        if config.num_return_sequences > 1:
            raise InputError("num_return_sequences above 1 needs recordings of up to 30 s, and timestamps=False")
        if not self._tokens.has_times:
            raise UnsupportedError(f"the model has {self.config.vocab_size} tokens and none for the times from 0 to "
                                   f"{SECONDS} s; it can transcribe recordings of up to {SECONDS} s without timestamps")

    def _batches(self, items: list[Any], order: _Order, max_seconds: float,
                 hoped: Callable[[float], object]) -> Iterator[tuple[bool, dict[int, np.ndarray]]]:
        """Read recordings; yield whether a batch of them is read in windows, and their samples by their numbers.

        A batch is as large as the budgets of rows and bytes allow, which changes no result. hoped: is called with the
        seconds of each recording that is read from a file. If one cannot be read, the batches before it come first, and
        then the error.
        """
        c = self.config
        cache_bytes = 8 * c.num_layers * c.kv_heads * c.head_width * len(self._stem.positions)
        rows = self._model.budget.rows // max(order.config.num_beams, order.config.num_return_sequences)
        size = max(1, min(rows, CROSS_CACHE_BYTES // cache_bytes))
        waiting: dict[bool, dict[int, np.ndarray]] = {False: {}, True: {}}
        wrong = None
        for number, item in enumerate(items):
            order.stop.check()
            try:
                samples = recording_samples(item, max_seconds, order.stop.deadline)
                in_windows = order.timestamps or len(samples) > SECONDS * RATE
                if in_windows:
                    self._check_windows(order.config)
            except (InputError, UnsupportedError, WeightsError) as error:
                wrong = error
                break
            if is_source(item):
                hoped(len(samples) / RATE)
            batch = waiting[in_windows]
            batch[number] = samples
            del samples
            if len(batch) == size or sum(map(len, batch.values())) >= HELD_SAMPLES:
                yield in_windows, batch
                batch.clear()
        yield from ((in_windows, batch) for in_windows, batch in waiting.items() if batch)
        if wrong is not None:
            raise wrong

    def _short(self, recordings: dict[int, np.ndarray], order: _Order) -> dict[int, Any]:
        """Return the texts of recordings of up to 30 s, without timestamps, by their numbers.

        recordings: their samples.
        """
        vectors = [self._vectors(log_mel(samples, self._channels), order.stop) for samples in recordings.values()]
        config = order.config
        with AudioStepper(self._decoder, vectors, stop=order.stop) as stepper:
            logits = None
            if self._tokens.no_speech is not None or (order.language is None and self.languages):
                logits = stepper.first_logits(self._tokens.start)
            spoken = [order.language if order.language or not self.languages or logits is None
                      else self._language_of(logits[i])[0] for i in range(len(vectors))]
            requests = [Request([i], self._tokens.prompt(each, order.task, False), config)
                        for i, each in enumerate(spoken)]
            found = self._model.generate(requests, order.stop, stepper)
            silent = {i for i, samples in enumerate(recordings.values()) if len(samples) < RATE // FRAMES}
            if logits is not None:
                silent |= self._silent(stepper, [self._no_speech(row) for row in logits], found, spoken, order)
        texts = [["" if i in silent else self._model.with_text(result).text for result in results]
                 for i, results in enumerate(found)]
        several = config.num_return_sequences > 1
        return {number: each if several else each[0] for number, each in zip(recordings, texts, strict=True)}

    def _silent(self, stepper: AudioStepper, no_speech: list[float], found: list[list[Generated]],
                spoken: list[str | None], order: _Order) -> set[int]:
        """Return the places of the recordings in which nobody speaks, with timestamps or without.

        no_speech: the probability of the token for it; found: what the model writes of each; spoken: its language. The
        text without timestamps of a silent recording may be probable, so the text with timestamps counts as well.
        """
        penalty = order.config.length_penalty
        doubted = [i for i, probability in enumerate(no_speech) if probability > NO_SPEECH]
        silent = {i for i in doubted if is_silent(no_speech[i], found[i][0], penalty)}
        asked = [i for i in doubted if i not in silent] if self._tokens.has_times else []
        timed = self._timed(order.config).changed(num_return_sequences=1)
        requests = [Request([i], self._tokens.prompt(spoken[i], order.task, True), timed) for i in asked]
        again = self._model.generate(requests, order.stop, stepper)
        return silent | {i for i, [result] in zip(asked, again, strict=True)
                         if is_silent(no_speech[i], result, penalty)}

    def _timed(self, config: GenerationConfig) -> GenerationConfig:
        """Return the settings with which the model writes timestamps."""
        return config.changed(return_timestamps=True, no_timestamps_token_id=self._tokens.no_times)

    def _windows(self, batch: dict[int, np.ndarray], order: _Order, heard: Callable[[float], object]) -> dict[int, Any]:
        """Transcribe recordings to their ends, in each round the next window of each; return the results by number.

        heard: is called with the number of seconds that were transcribed since the call before.
        """
        language = order.language if self.languages else "en"
        recordings = [Recording(number, Spectrogram(samples, self._channels, order.stop.deadline), language)
                      for number, samples in batch.items()]
        while active := [recording for recording in recordings if recording.left > 0]:
            self._next_windows(active, order, heard)
        found = {recording.number: recording.transcript() for recording in recordings}
        return {number: each if order.timestamps else each.text for number, each in found.items()}

    def _next_windows(self, active: list[Recording], order: _Order, heard: Callable[[float], object]) -> None:
        """Transcribe the next window of each recording."""
        first_time, config = self._tokens.no_times + 1, self._timed(order.config)
        decode = self._model.tokenizer(self.text).decode
        vectors = [self._vectors(recording.window(), order.stop) for recording in active]
        with AudioStepper(self._decoder, vectors, keep=order.by_word, stop=order.stop) as stepper:
            logits = stepper.first_logits(self._tokens.start)
            for recording, row in zip(active, logits, strict=True):
                recording.language = recording.language or self._language_of(row)[0]
            requests = [Request([i], self._tokens.prompt(recording.language, order.task, True), config)
                        for i, recording in enumerate(active)]
            found = self._model.generate(requests, order.stop, stepper)
            for i, (recording, [result], row) in enumerate(zip(active, found, logits, strict=True)):
                silent = is_silent(self._no_speech(row), result, config.length_penalty)
                before, positions = recording.seek, max(1, recording.left // TOKEN_FRAMES)
                cuts = recording.take(result, silent, first_time, decode)
                if order.by_word and cuts:
                    tokens = self._tokens.prompt(recording.language, order.task, False)
                    times = stepper.times(i, tokens, cuts, config, positions)
                    spaced = recording.language not in UNSPACED
                    recording.add_words(cuts, times, partial(split_words, decode=decode, spaced=spaced), before)
                heard(seconds(min(recording.seek, recording.frames) - before))

    def _language_of(self, logits: np.ndarray) -> tuple[str, float]:
        """Return the language with the largest logit after the start token, and its probability among all languages."""
        names = self.languages
        scores = softmax(logits.astype(np.float64)[[*self._tokens.languages.values()]])
        return names[int(scores.argmax())], float(scores.max())

    def _no_speech(self, logits: np.ndarray) -> float:
        """Return the probability of the token for "no speech" after the start token; 0 if the model has none."""
        token = self._tokens.no_speech
        return 0.0 if token is None else float(softmax(logits.astype(np.float64))[token])

    def _vectors(self, features: np.ndarray, stop: Stop) -> np.ndarray:
        """Return the vectors [S, D] that the encoder gives for features [channels, 3000]."""
        stop.check()
        assert self._model.encoder_config is not None
        assert self._model.encoder is not None
        rows = self._stem.embed(features, get_backend(self.backend).ops(self.threads))
        batch, _ = pack(self._model.encoder_config, inputs_embeds=rows[None])
        return self._model.encoder.forward(batch, stop.deadline)


def _checked(audio: Any, max_seconds: float) -> list[Any]:
    """Return the recordings of a call: sources, whose paths lead to files, and checked arrays of samples."""
    if is_source(audio) or not isinstance(audio, (Sequence, np.ndarray)) or getattr(audio, "ndim", 2) == 1:
        raise InputError("audio must be a list of paths, bytes of files, open files or arrays of samples, not "
                         f"{shown(audio)}; put a single recording into a list")
    for item in audio:
        check_path(item)
    return [item if is_source(item) else check_samples(item, max_seconds) for item in audio]


def _whole(advance: Callable[[int], object]) -> Callable[[float], None]:
    """Return a function that sums the numbers it is given, and calls `advance` with the growth of the rounded sum."""
    total = 0.0

    def add(number: float) -> None:
        nonlocal total
        before, total = total, total + number
        advance(round(total) - round(before))

    return add

