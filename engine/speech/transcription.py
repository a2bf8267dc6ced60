"""`Transcription`: transcribe recordings with a model such as Whisper; each is a task whose works share the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..backends import get_backend
from ..base.errors import InputError, UnsupportedError, WeightsError, located
from ..base.progress import growing_progress
from ..base.stop import NEVER, Stop
from ..encoding.packing import pack
from ..generation.calls import Task, run_tasks
from ..generation.encoder_decoder import KeptSource
from ..generation.prepared import PreparedModel
from ..generation.results import Request
from ..generation.works import DecoderWork
from ..model.bits import PORTABLE
from ..model.generation_config import GenerationConfig
from ..weights.input_layers import Frames
from ..weights.modules import softmax
from .alignment import UNSPACED, split_words
from .audio_files import recording_samples
from .decoding import TokenTimes, first_logits
from .samples import RATE
from .segments import TOKEN_FRAMES, seconds
from .sources import is_source
from .spectrogram import FRAMES, SECONDS, Spectrogram, log_mel
from .tokens import SpecialTokens
from .windows import NO_SPEECH, Note, Recording, is_silent, mean_logprob

CROSS_CACHE_BYTES = 2**31
"""The most bytes of cached keys and values of the encoder's vectors, unless one recording needs more."""
HELD_SAMPLES = 1800 * RATE
"""The most samples of recordings that wait for others to fill a batch: half an hour, 115 MB."""


@dataclass(frozen=True)
class Transcribing:
    """The options of a call of `transcribe`, checked."""

    language: str | None
    """The code of the language; None if the model is to find it."""
    task: str
    timestamps: bool
    """Whether results are `Transcript` with segments, and not texts."""
    by_word: bool
    """Whether segments have words."""
    config: GenerationConfig
    stop: Stop = NEVER


class Transcription:
    """A model of speech that transcribes recordings, many at a time."""

    why_no_languages = "this model knows English alone, so it detects no language"

    def __init__(self, model: PreparedModel, stem: Frames, tokens: SpecialTokens):
        """model: the prepared encoder and decoder. stem: makes the encoder's input of features. tokens: its special
        tokens."""
        self._model, self._stem, self.tokens = model, stem, tokens
        self.languages, self._portable = tuple(tokens.languages), model.bits == PORTABLE

    def wanted(self, language: Any, task: Any, timestamps: bool | str, settings: Mapping[str, Any]) -> Transcribing:
        """Check the arguments of `Transcriber.transcribe`, of which `timestamps` has been checked, and return them.

        Raises `InputError` for wrong ones, and `UnsupportedError` for those that need what the model does not have.
        """
        code = self.tokens.checked_language(language, task)
        config = self._model.settings_of_call(settings)
        if config.logprobs is not None:
            raise InputError("transcribe tells no log probabilities of tokens; leave logprobs out")
        by_word = timestamps == "word"
        if timestamps:
            self.check_windows(config)
        if by_word and not config.alignment_heads:
            raise UnsupportedError("the model's settings name no alignment_heads, which the times of words need; give "
                                   "alignment_heads=[(layer, head), ...], or timestamps=True")
        return Transcribing(code, task, bool(timestamps), by_word, config)

    def results(self, items: list[Any], options: Transcribing, max_seconds: float, bar: bool | None
                ) -> Iterator[Any]:
        """Yield the result of each recording as soon as it and all results before it are there."""
        results: dict[int, Any] = {}        # those that wait for earlier ones, by number
        following = 0       # the number of the result to yield next
        with growing_progress(bar, "Audio", " s") as (advance, expect):
            heard, expected = _in_whole_seconds(advance), _in_whole_seconds(expect)
            expected(sum(len(item) for item in items if isinstance(item, np.ndarray)) / RATE)
            for in_windows, batch in self._batches(items, options, max_seconds, expected):
                if in_windows:
                    results |= self._windows(batch, options, heard)
                else:
                    results |= self._texts_of_short(batch, options)
                    heard(sum(map(len, batch.values())) / RATE)
                while following in results:
                    yield results.pop(following)
                    following += 1

    def language(self, item: Any) -> tuple[str, float]:
        """Return (code of the language of a recording, probability that the model gives it), by its first window.

        item: a recording, as `recording_samples` reads it.
        """
        recording = self.recording(0, recording_samples(item), None)
        languages: list[tuple[str, float]] = []

        def hear() -> Task:
            with located("recording 0"):
                [logits] = yield self._first_logits(self._source(recording.window))
            languages.append(self._language_of(logits))

        run_tasks(self._model.queue, [hear()])
        return languages[0]

    def _source(self, features: Callable[[], np.ndarray]) -> KeptSource:
        """Return a window as the source of requests. features: returns those of the window, [channels, 3000]."""
        return KeptSource(lambda stop: self._vectors(features(), stop))

    def _first_logits(self, window: KeptSource) -> DecoderWork:
        """Return the first request for a window: all logits after the start token."""
        return first_logits(window, self.tokens.start, len(self._stem.positions))

    @property
    def _channels(self) -> int:
        """The number of mel channels of the model's features."""
        return int(self._stem.weight.shape[1])

    def together(self, config: GenerationConfig) -> int:
        """Return the most windows that the model computes at a time, by the budgets of rows and of bytes."""
        c = self._model.config
        # A float32 key and a float32 value for each position of a window, in each layer.
        cache_bytes = 8 * c.num_layers * c.kv_heads * c.head_width * len(self._stem.positions)
        rows = self._model.budget.rows // max(config.num_beams, config.num_return_sequences)
        return max(1, min(rows, CROSS_CACHE_BYTES // cache_bytes))

    def in_windows(self, count: int, options: Transcribing) -> bool:
        """Return whether a recording of this number of samples is read in windows; raises an error if it cannot be."""
        needs_windows = options.timestamps or count > SECONDS * RATE
        if needs_windows:
            self.check_windows(options.config)
        return needs_windows

    def check_windows(self, config: GenerationConfig) -> None:
        """Raise an error if the settings or the model's tokens do not allow to read recordings in windows."""
        if config.num_return_sequences > 1:
            raise InputError("num_return_sequences above 1 needs recordings of up to 30 s, and timestamps=False")
        if not self.tokens.has_times:
            size = self._model.config.vocab_size
            raise UnsupportedError(f"the model has {size} tokens and none for the times from 0 to {SECONDS} s; it can "
                                   f"transcribe recordings of up to {SECONDS} s without timestamps")

    def _batches(self, items: list[Any], options: Transcribing, max_seconds: float,
                 expected: Callable[[float], object]) -> Iterator[tuple[bool, dict[int, np.ndarray]]]:
        """Read recordings; yield batches of them: (whether they are read in windows, {number: samples}).

        A batch is as large as the budgets of rows and bytes allow, which changes no result. expected: is called with
        the seconds of each recording that is read from a file. If a recording cannot be read, the recordings before it
        come first, then the error. A batch is emptied after its turn.
        """
        size = self.together(options.config)
        waiting: dict[bool, dict[int, np.ndarray]] = {False: {}, True: {}}      # the batches, by `in_windows`
        wrong = None
        for number, item in enumerate(items):
            options.stop.check()
            try:
                samples = recording_samples(item, max_seconds, options.stop)
                in_windows = self.in_windows(len(samples), options)
            except (InputError, UnsupportedError, WeightsError) as error:
                wrong = error
                break
            if is_source(item):
                expected(len(samples) / RATE)
            batch = waiting[in_windows]
            batch[number] = samples
            del samples     # so that `batch.clear` frees them
            if len(batch) == size or sum(map(len, batch.values())) >= HELD_SAMPLES:
                yield in_windows, batch
                batch.clear()
        yield from ((in_windows, batch) for in_windows, batch in waiting.items() if batch)
        if wrong is not None:
            raise wrong

    def _texts_of_short(self, recordings: dict[int, np.ndarray], options: Transcribing) -> dict[int, Any]:
        """Return {number: text or texts} of recordings of up to 30 s, {number: samples}, without timestamps."""
        texts: dict[int, Any] = {}
        run_tasks(self._model.queue, [self.short_task(texts, number, samples, options)
                                      for number, samples in recordings.items()], options.stop)
        return texts

    def short_task(self, texts_of: dict[int, Any], number: int, samples: np.ndarray, options: Transcribing) -> Task:
        """Transcribe a recording of up to 30 s without timestamps; put its text, or its texts, into `texts_of`."""
        config, spoken, no_speech = options.config, options.language, 0.0
        with located(f"recording {number}"), self._source(
                partial(log_mel, samples, self._channels, self._portable)) as window:
            if self.tokens.no_speech is not None or (options.language is None and self.languages):
                [logits] = yield self._first_logits(window)
                no_speech = self._no_speech(logits)
                if options.language is None and self.languages:
                    spoken = self._language_of(logits)[0]
            results = yield self._work(window, 0, spoken, options, config, timestamps=False)
            silent = len(samples) < RATE // FRAMES      # shorter than one frame
            if not silent and no_speech > NO_SPEECH:
                silent = is_silent(no_speech, results[0], config.length_penalty)
                if not silent and self.tokens.has_times:
                    # Without timestamps, silence may give a probable text; so the text with timestamps decides, too.
                    timed = self._with_timestamps(config).changed(num_return_sequences=1)
                    [again] = yield self._work(window, 0, spoken, options, timed, timestamps=True)
                    silent = is_silent(no_speech, again, config.length_penalty)
        texts = ["" if silent else self._model.with_text(result).text for result in results]
        texts_of[number] = texts if config.num_return_sequences > 1 else texts[0]

    def _work(self, window: KeptSource, number: int, language: str | None, options: Transcribing,
              config: GenerationConfig, *, timestamps: bool) -> DecoderWork:
        """Return the work that writes the text of a window of 30 s. number: that of the window in its recording, which
        stands for the ids of a source: it makes the random numbers of each window differ."""
        prompt = self.tokens.prompt(language, options.task, times=timestamps)
        return self._model.checked(Request([number], prompt, config), window)

    def _with_timestamps(self, config: GenerationConfig) -> GenerationConfig:
        """Return the settings with which the model writes timestamps."""
        return config.changed(return_timestamps=True, no_timestamps_token_id=self.tokens.no_times)

    def _windows(self, batch: dict[int, np.ndarray], options: Transcribing, heard: Callable[[float], object]
                 ) -> dict[int, Any]:
        """Transcribe recordings {number: samples} side by side, window by window; return {number: result}. heard: is
        called with the seconds of each window that is done."""
        recordings = [self.recording(number, samples, options.language, options.stop)
                      for number, samples in batch.items()]
        run_tasks(self._model.queue, [self.windows_task(recording, options, heard) for recording in recordings],
                  options.stop)
        transcripts = {recording.number: recording.transcript() for recording in recordings}
        return {number: each if options.timestamps else each.text for number, each in transcripts.items()}

    def recording(self, number: int, samples: np.ndarray, language: str | None, stop: Stop | None = NEVER) -> Recording:
        """Return a recording that is read in windows. stop: when its first pass has to stop; None for a caller that
        makes the pass itself."""
        features = Spectrogram(samples, self._channels, stop, self._portable)
        return Recording(number, features, language if self.languages else "en")

    def windows_task(self, recording: Recording, options: Transcribing, heard: Callable[[float], object]) -> Task:
        """Transcribe one recording to its end, and call `heard` with the seconds of each window.

        For each window, the task yields works for the first logits, the text and (for words) the times of the tokens.
        """
        first_time, config, number = self.tokens.no_times + 1, self._with_timestamps(options.config), 0
        decode = self._model.tokenizer(self._model.text).decode
        with located(f"recording {recording.number}"):
            while recording.left > 0:
                with self._source(recording.window) as window:
                    [logits] = yield self._first_logits(window)
                    recording.language = recording.language or self._language_of(logits)[0]
                    [result] = yield self._work(window, number, recording.language, options, config, timestamps=True)
                    no_speech, penalty = self._no_speech(logits), config.length_penalty
                    before, positions = recording.seek, max(1, recording.left // TOKEN_FRAMES)
                    cuts = recording.take(result, is_silent(no_speech, result, penalty), first_time, decode)
                    logprob = mean_logprob(result, penalty) if cuts else 0.0
                    recording.notes += [Note(before, each.ids, logprob, no_speech) for each in cuts]
                    if options.by_word and cuts:
                        tokens = self.tokens.prompt(recording.language, options.task, times=False)
                        times = yield TokenTimes(window, tokens, cuts, config, positions)
                        spaced = recording.language not in UNSPACED
                        recording.add_words(cuts, times, partial(split_words, decode=decode, spaced=spaced), before)
                number += 1
                heard(seconds(min(recording.seek, recording.frames) - before))

    def _language_of(self, logits: np.ndarray) -> tuple[str, float]:
        """Return (language with the largest logit after the start token, its probability among all); logits: [V]."""
        names = self.languages
        scores = softmax(logits.astype(np.float64)[[*self.tokens.languages.values()]])
        return names[int(scores.argmax())], float(scores.max())

    def _no_speech(self, logits: np.ndarray) -> float:
        """Return the probability of the token for "no speech" after the start token; 0 if the model has none."""
        token = self.tokens.no_speech
        return 0.0 if token is None else float(softmax(logits.astype(np.float64))[token])

    def _vectors(self, features: np.ndarray, stop: Stop) -> np.ndarray:
        """Return the encoder's vectors [S, D] of a window with these features [channels, 3000]."""
        stop.check()
        assert self._model.encoder_config is not None
        assert self._model.encoder is not None
        ops = get_backend(self._model.backend).ops(self._model.threads, self._portable)
        rows = self._stem.embed(features, ops)
        batch, _ = pack(self._model.encoder_config, inputs_embeds=rows[None])
        return self._model.encoder.forward(batch, stop)


def _in_whole_seconds(advance: Callable[[int], object]) -> Callable[[float], None]:
    """Return a function that adds up seconds, and calls `advance` with the growth of their rounded sum."""
    total = 0.0

    def add(number: float) -> None:
        """Add this number of seconds."""
        nonlocal total
        before, total = total, total + number
        advance(round(total) - round(before))

    return add
