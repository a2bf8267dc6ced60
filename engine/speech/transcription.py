"""What one model does with recordings: read them, hear them in windows, and write their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..backends import get_backend
from ..base.errors import InputError, UnsupportedError, WeightsError
from ..base.progress import growing_progress
from ..base.stop import NEVER, Stop
from ..encoding.packing import pack
from ..generation.prepared import PreparedModel
from ..generation.results import Generated, Request
from ..model.bits import PORTABLE
from ..model.generation_config import GenerationConfig
from ..weights.input_layers import Frames
from ..weights.modules import softmax
from .alignment import UNSPACED, split_words
from .audio_files import recording_samples
from .decoding import AudioStepper
from .samples import RATE
from .segments import TOKEN_FRAMES, seconds
from .sources import is_source
from .spectrogram import FRAMES, SECONDS, Spectrogram, log_mel
from .tokens import SpecialTokens
from .windows import NO_SPEECH, Recording, is_silent

CROSS_CACHE_BYTES = 2**31
"""The most bytes that the cached keys and values of the encoder's vectors take, unless one recording needs more."""
HELD_SAMPLES = 1800 * RATE
"""The samples of recordings that wait until as many are read as the model takes together: half an hour, 115 MB."""


@dataclass(frozen=True)
class Order:
    """What a call of `transcribe` wants of each recording."""

    language: str | None
    task: str
    timestamps: bool
    by_word: bool
    config: GenerationConfig
    stop: Stop


class Transcription:
    """A model of speech that transcribes recordings, many at a time."""

    def __init__(self, model: PreparedModel, stem: Frames, tokens: SpecialTokens):
        """Take a model whose encoder reads the vectors of `stem`, and the tokens that its prompts are made of."""
        self._model, self._decoder, self._stem, self._tokens = model, model.decoder, stem, tokens
        self._languages = list(tokens.languages)

    def results(self, items: list[Any], order: Order, max_seconds: float, bar: bool | None) -> Iterator[Any]:
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

    def language(self, item: Any) -> tuple[str, float]:
        """Return the code of the language of a recording, and the probability that the model gives it.

        item: samples, or what `recording_samples` reads; the model hears its first window.
        """
        window = Recording(0, Spectrogram(recording_samples(item), self._channels), None).window()
        with AudioStepper(self._decoder, [self._vectors(window, NEVER)], _places([0])) as stepper:
            return self._language_of(stepper.first_logits(self._tokens.start)[0])

    @property
    def _channels(self) -> int:
        return int(self._stem.weight.shape[1])

    def check_windows(self, config: GenerationConfig) -> None:
        """Raise an error if recordings cannot be read in windows."""
        if config.num_return_sequences > 1:
            raise InputError("num_return_sequences above 1 needs recordings of up to 30 s, and timestamps=False")
        if not self._tokens.has_times:
            size = self._model.config.vocab_size
            raise UnsupportedError(f"the model has {size} tokens and none for the times from 0 to {SECONDS} s; it can "
                                   f"transcribe recordings of up to {SECONDS} s without timestamps")

    def _batches(self, items: list[Any], order: Order, max_seconds: float,
                 hoped: Callable[[float], object]) -> Iterator[tuple[bool, dict[int, np.ndarray]]]:
        """Read recordings; yield whether a batch of them is read in windows, and their samples by their numbers.

        A batch is as large as the budgets of rows and bytes allow, which changes no result. hoped: is called with the
        seconds of each recording that is read from a file. If one cannot be read, the batches before it come first, and
        then the error.
        """
        c = self._model.config
        cache_bytes = 8 * c.num_layers * c.kv_heads * c.head_width * len(self._stem.positions)
        rows = self._model.budget.rows // max(order.config.num_beams, order.config.num_return_sequences)
        size = max(1, min(rows, CROSS_CACHE_BYTES // cache_bytes))
        waiting: dict[bool, dict[int, np.ndarray]] = {False: {}, True: {}}
        wrong = None
        for number, item in enumerate(items):
            order.stop.check()
            try:
                samples = recording_samples(item, max_seconds, order.stop)
                in_windows = order.timestamps or len(samples) > SECONDS * RATE
                if in_windows:
                    self.check_windows(order.config)
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

    def _short(self, recordings: dict[int, np.ndarray], order: Order) -> dict[int, Any]:
        """Return the texts of recordings of up to 30 s, without timestamps, by their numbers.

        recordings: their samples.
        """
        vectors = [self._vectors(log_mel(samples, self._channels), order.stop) for samples in recordings.values()]
        config = order.config
        with AudioStepper(self._decoder, vectors, _places(recordings), stop=order.stop) as stepper:
            logits = None
            if self._tokens.no_speech is not None or (order.language is None and self._languages):
                logits = stepper.first_logits(self._tokens.start)
            spoken = [order.language if order.language or not self._languages or logits is None
                      else self._language_of(logits[i])[0] for i in range(len(vectors))]
            requests = [Request([i], self._tokens.prompt(each, order.task, False), config)
                        for i, each in enumerate(spoken)]
            found = self._model.generate(requests, order.stop, stepper, stepper.places)
            silent = {i for i, samples in enumerate(recordings.values()) if len(samples) < RATE // FRAMES}
            if logits is not None:
                silent |= self._silent(stepper, [self._no_speech(row) for row in logits], found, spoken, order)
        texts = [["" if i in silent else self._model.with_text(result).text for result in results]
                 for i, results in enumerate(found)]
        several = config.num_return_sequences > 1
        return {number: each if several else each[0] for number, each in zip(recordings, texts, strict=True)}

    def _silent(self, stepper: AudioStepper, no_speech: list[float], found: list[list[Generated]],
                spoken: list[str | None], order: Order) -> set[int]:
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
        again = self._model.generate(requests, order.stop, stepper, [stepper.places[i] for i in asked])
        return silent | {i for i, [result] in zip(asked, again, strict=True)
                         if is_silent(no_speech[i], result, penalty)}

    def _timed(self, config: GenerationConfig) -> GenerationConfig:
        """Return the settings with which the model writes timestamps."""
        return config.changed(return_timestamps=True, no_timestamps_token_id=self._tokens.no_times)

    def _windows(self, batch: dict[int, np.ndarray], order: Order, heard: Callable[[float], object]) -> dict[int, Any]:
        """Transcribe recordings to their ends, in each round the next window of each; return the results by number.

        heard: is called with the number of seconds that were transcribed since the call before.
        """
        language = order.language if self._languages else "en"
        recordings = [Recording(number, Spectrogram(samples, self._channels, order.stop), language)
                      for number, samples in batch.items()]
        while active := [recording for recording in recordings if recording.left > 0]:
            self._next_windows(active, order, heard)
        found = {recording.number: recording.transcript() for recording in recordings}
        return {number: each if order.timestamps else each.text for number, each in found.items()}

    def _next_windows(self, active: list[Recording], order: Order, heard: Callable[[float], object]) -> None:
        """Transcribe the next window of each recording."""
        first_time, config = self._tokens.no_times + 1, self._timed(order.config)
        decode = self._model.tokenizer(self._model.text).decode
        vectors = [self._vectors(recording.window(), order.stop) for recording in active]
        places = _places(recording.number for recording in active)
        with AudioStepper(self._decoder, vectors, places, keep=order.by_word, stop=order.stop) as stepper:
            logits = stepper.first_logits(self._tokens.start)
            for recording, row in zip(active, logits, strict=True):
                recording.language = recording.language or self._language_of(row)[0]
            requests = [Request([i], self._tokens.prompt(recording.language, order.task, True), config)
                        for i, recording in enumerate(active)]
            found = self._model.generate(requests, order.stop, stepper, places)
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
        names = self._languages
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
        ops = get_backend(self._model.backend).ops(self._model.threads, self._model.bits == PORTABLE)
        rows = self._stem.embed(features, ops)
        batch, _ = pack(self._model.encoder_config, inputs_embeds=rows[None])
        return self._model.encoder.forward(batch, stop)


def _places(numbers: Iterable[int]) -> list[str]:
    """Return what a message calls recordings."""
    return [f"recording {number}" for number in numbers]


def _whole(advance: Callable[[int], object]) -> Callable[[float], None]:
    """Return a function that sums the numbers it is given, and calls `advance` with the growth of the rounded sum."""
    total = 0.0

    def add(number: float) -> None:
        nonlocal total
        before, total = total, total + number
        advance(round(total) - round(before))

    return add
