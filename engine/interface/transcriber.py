"""`Transcriber`: a speech model that transcribes recordings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import get_backend
from ..backends.reference.formulas import softmax
from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, UnsupportedError, listed, shown
from ..base.progress import progress
from ..base.stop import Stop
from ..encoding.packing import pack
from ..generation.results import Request
from ..model.generation_config import GenerationConfig
from ..speech import AudioStepper, Recording, is_silent
from ..speech.alignment import UNSPACED, split_words
from ..speech.segments import TOKEN_FRAMES, seconds
from ..speech.spectrogram import RATE, SECONDS, check_samples, log_mel, long_log_mel, read_wav
from ..text.special_tokens import END, NO_TIMES, START, special_ids
from ..weights.input_layers import Frames
from .loaded import Loaded
from .prepared import PreparedModel

if TYPE_CHECKING:
    from ..weights.model import Model

_NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
"""The names that the token for "no speech" has had."""
_TIMES = SECONDS * 50 + 1
"""Timestamps from 0 to 30 s, in steps of 0.02 s."""
CROSS_CACHE_BYTES = 2**31
"""The most bytes that the cached keys and values of the encoder's vectors take, unless one recording needs more."""
_MULTILINGUAL = 51865
"""Whisper's models with at least this number of tokens know languages and tasks."""
TASKS = ("transcribe", "translate")
"""What Whisper does with speech: transcribe it in its own language, or translate it into English."""


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
                 precision: str | None = None, max_rows: int = 64):
        """As `load`, for a model with an encoder of audio that is in memory already."""
        self._adopt(PreparedModel(model, "Transcriber", backend=backend, threads=threads, precision=precision,
                                  max_batch_tokens=max_batch_tokens, max_rows=max_rows))
        self.generation, self._decoder = self._model.generation, self._model.decoder
        if not isinstance(self._model.stem, Frames):
            raise UnsupportedError(f"a model of the family {self.config.family} does not read audio; Whisper's do")
        self._stem = self._model.stem
        self._ids_of_tokens = special_ids(self.text)
        for token in (START, END, NO_TIMES):
            if token not in self._ids_of_tokens:
                raise UnsupportedError(f"the tokenizer of the model lacks {token}, which a model of speech needs")

    @classmethod
    @renamed_arguments
    def load(cls, path: str | os.PathLike[str], *, backend: str = "auto", threads: int | None = None,
             max_batch_tokens: int = 8192, precision: str | None = None, max_rows: int = 64,
             memory: str = "map") -> Transcriber:
        """Load a model of speech; the options are those of `Generator.load`."""
        from ..loading.load import open_source  # here, because `import engine` shall stay light

        options: dict[str, Any] = {"backend": backend, "threads": threads, "max_batch_tokens": max_batch_tokens,
                                   "precision": precision, "max_rows": max_rows}
        return cls._load(open_source(path, memory), "transcribe", options, memory)

    @property
    def languages(self) -> list[str]:
        """The languages that the model knows by their codes, such as "de"; empty for a model of English alone."""
        if self.config.vocab_size < _MULTILINGUAL:
            return []
        names = [token[2:-2] for token in self._ids_of_tokens if token.startswith("<|") and token.endswith("|>")]
        return [name for name in names if name.isalpha() and 2 <= len(name) <= 3]

    @renamed_arguments
    def transcribe(self, audio: Any, *, language: str | None = None, task: str = "transcribe",
                   timestamps: bool | str = False, show_progress_bar: bool | None = None, timeout: float | None = None,
                   **settings: Any) -> list[Any]:
        """Return the text of each recording, in order; with timestamps, a `Transcript` with segments for each.

        audio: a list of recordings, each the path of a WAV file (see `engine.read_wav`) or float samples at 16 kHz.
        language: the code of the language that is spoken, such as "de". With None, a model of several languages finds
            it from the first 30 s of each recording; `Transcript.language` says which.
        task: "transcribe", or "translate" into English.
        timestamps: True for the times of segments; "word" for the times of each word as well.
        show_progress_bar: None shows one when the logger "engine" is at level INFO or DEBUG.
        timeout: seconds after which the call raises `TimedOut`. settings: as for `generate`; with num_return_sequences
            above 1, which needs recordings of up to 30 s and no timestamps, each result is a list of texts.

        A recording of more than 30 s is read in windows, one after the other, as OpenAI's Whisper does without a
        condition on previous text and without a fallback to higher temperatures. Each window begins where the last
        complete segment of the window before it ends, so timestamps are computed even if you do not ask for them.
        Raises `InputError`, and for files the errors of `engine.read_wav`.
        """
        self._check_audio(audio)
        self._check_task(language, task)
        by_word, stop = isinstance(timestamps, str) and timestamps == "word", Stop.after(timeout)
        if not by_word and timestamps not in (True, False):
            raise InputError(f'timestamps must be True, False or "word", not {shown(timestamps)}')
        config = self.generation.changed(**settings)
        results: dict[int, Any] = {}
        short: dict[int, np.ndarray] = {}
        long = []
        total = 0.0
        for i, item in enumerate(audio):
            samples = _samples(item)
            total += len(samples) / RATE
            if timestamps or len(samples) > SECONDS * RATE:
                features = long_log_mel(samples, self._channels)
                long.append(Recording(i, features, language if self.languages else "en"))
            else:
                short[i] = samples
        if long and config.num_return_sequences > 1:
            raise InputError("num_return_sequences above 1 needs recordings of up to 30 s, and timestamps=False")
        if long:
            self._check_times()
        if by_word and not config.alignment_heads:
            raise UnsupportedError("the model's settings name no alignment_heads, which the times of words need; give "
                                   "alignment_heads=[(layer, head), ...], or timestamps=True")
        bar = None if show_progress_bar is None else flag("show_progress_bar", show_progress_bar)
        with progress(round(total), bar, "Audio", " s") as advance:
            heard = _whole(advance)
            for each in self._batches(list(short), config):
                results |= self._short({i: short[i] for i in each}, language, task, config, stop)
                heard(sum(len(short[i]) for i in each) / RATE)
            timed = config.changed(return_timestamps=True, no_timestamps_token_id=self._ids_of_tokens[NO_TIMES])
            for part in self._batches(long, config):
                self._windows(part, task, timed, stop, heard, by_word)
        for recording in long:
            found = recording.transcript()
            results[recording.number] = found if timestamps else found.text
        return [results[i] for i in range(len(results))]

    @renamed_arguments
    def detect_language(self, audio: Any) -> list[tuple[str, float]]:
        """Return for each recording the code of its language, and the probability that the model gives it.

        audio: as for `transcribe`; the model hears the first window of each recording. Raises `UnsupportedError` for a
        model of English alone.
        """
        self._check_audio(audio)
        if not self.languages:
            raise UnsupportedError("this model knows English alone, so it detects no language")
        found = []
        for item in audio:
            samples = _samples(item)
            window = Recording(0, long_log_mel(samples, self._channels), None).window()
            with AudioStepper(self._decoder, [self._vectors(window, Stop())]) as stepper:
                found.append(self._language_of(stepper.first_logits(self._ids_of_tokens[START])[0]))
        return found

    @property
    def _channels(self) -> int:
        return int(self._stem.weight.shape[1])

    def _check_audio(self, audio: Any) -> None:
        if isinstance(audio, (str, os.PathLike)) or not isinstance(audio, (Sequence, np.ndarray)):
            raise InputError(f"audio must be a list of paths or of arrays of samples, not {shown(audio)}")

    def _check_task(self, language: str | None, task: str) -> None:
        if task not in TASKS:
            raise InputError(f"task must be one of {', '.join(TASKS)}, not {shown(task)}")
        if languages := self.languages:
            if language is not None and language not in languages:
                raise InputError(f"this model knows the languages {listed(languages)}, not {shown(language)}; None "
                                 "lets it find the language")
        elif language not in (None, "en") or task != "transcribe":
            raise InputError(f"this model knows English alone, so language {shown(language)} and task {task} are not "
                             "possible")

    def _check_times(self) -> None:
        last = self._ids_of_tokens[NO_TIMES] + _TIMES
        if last >= self.config.vocab_size:
            raise UnsupportedError(f"the model has {self.config.vocab_size} tokens and none for the times from 0 to "
                                   f"{SECONDS} s after {NO_TIMES}; it can transcribe recordings of up to {SECONDS} s "
                                   "without timestamps")

    def _batches(self, items: list[Any], config: GenerationConfig) -> Iterator[list[Any]]:
        """Yield batches of as many items as the budgets of rows and of bytes allow; the sizes change no result."""
        c = self.config
        cache_bytes = 8 * c.num_layers * c.kv_heads * c.head_width * len(self._stem.positions)
        rows = self._model.budget.rows // max(config.num_beams, config.num_return_sequences)
        rest, size = iter(items), max(1, min(rows, CROSS_CACHE_BYTES // cache_bytes))
        while batch := list(islice(rest, size)):
            yield batch

    def _short(self, recordings: dict[int, np.ndarray], language: str | None, task: str, config: GenerationConfig,
               stop: Stop) -> dict[int, Any]:
        """Return the texts of recordings of up to 30 s, without timestamps, by their numbers.

        recordings: their samples.
        """
        vectors = [self._vectors(log_mel(samples, self._channels), stop) for samples in recordings.values()]
        with AudioStepper(self._decoder, vectors, stop=stop) as stepper:
            spoken = [language] * len(vectors)
            if language is None and self.languages:
                spoken = [self._language_of(row)[0] for row in stepper.first_logits(self._ids_of_tokens[START])]
            requests = [Request([i], self._prompt(each, task, [NO_TIMES]), config) for i, each in enumerate(spoken)]
            found = self._model.generate(requests, stop, stepper)
        texts = [[self._model.with_text(result).text for result in results] for results in found]
        several = config.num_return_sequences > 1
        return {number: each if several else each[0] for number, each in zip(recordings, texts, strict=True)}

    def _windows(self, recordings: list[Recording], task: str, config: GenerationConfig, stop: Stop,
                 heard: Callable[[float], object], by_word: bool) -> None:
        """Transcribe recordings to their ends: in each round, the next window of each.

        heard: is called with the number of seconds that were transcribed since the call before.
        """
        first_time = self._ids_of_tokens[NO_TIMES] + 1
        decode = self._model.tokenizer(self.text).decode
        while active := [recording for recording in recordings if recording.left > 0]:
            vectors = [self._vectors(recording.window(), stop) for recording in active]
            with AudioStepper(self._decoder, vectors, keep=by_word, stop=stop) as stepper:
                logits = stepper.first_logits(self._ids_of_tokens[START])
                for recording, row in zip(active, logits, strict=True):
                    recording.language = recording.language or self._language_of(row)[0]
                requests = [Request([i], self._prompt(recording.language, task, []), config)
                            for i, recording in enumerate(active)]
                found = self._model.generate(requests, stop, stepper)
                for i, (recording, [result], row) in enumerate(zip(active, found, logits, strict=True)):
                    silent = is_silent(self._no_speech(row), result, config.length_penalty)
                    before, positions = recording.seek, max(1, recording.left // TOKEN_FRAMES)
                    cuts = recording.take(result, silent, first_time, decode)
                    if by_word and cuts:
                        tokens = self._prompt(recording.language, task, [NO_TIMES])
                        times = stepper.times(i, tokens, cuts, config, positions)
                        spaced = recording.language not in UNSPACED
                        recording.add_words(cuts, times, partial(split_words, decode=decode, spaced=spaced), before)
                    heard(seconds(min(recording.seek, recording.frames) - before))

    def _prompt(self, language: str | None, task: str, names: list[str]) -> list[int]:
        """Return the tokens before the text: the start, the language and the task, and then these names."""
        spoken = [f"<|{language}|>", f"<|{task}|>"] if self.languages else []
        return [self._ids_of_tokens[name] for name in [START, *spoken, *names]]

    def _language_of(self, logits: np.ndarray) -> tuple[str, float]:
        """Return the language with the largest logit after the start token, and its probability among all languages."""
        names = self.languages
        scores = softmax(logits.astype(np.float64)[[self._ids_of_tokens[f"<|{name}|>"] for name in names]])
        return names[int(scores.argmax())], float(scores.max())

    def _no_speech(self, logits: np.ndarray) -> float:
        """Return the probability of the token for "no speech" after the start token; 0 if the model has none."""
        ids = [self._ids_of_tokens[name] for name in _NO_SPEECH if name in self._ids_of_tokens]
        return float(softmax(logits.astype(np.float64))[ids[0]]) if ids else 0.0

    def _vectors(self, features: np.ndarray, stop: Stop) -> np.ndarray:
        """Return the vectors [S, D] that the encoder gives for features [channels, 3000]."""
        stop.check()
        assert self._model.encoder_config is not None
        assert self._model.encoder is not None
        rows = self._stem.embed(features, get_backend(self.backend).ops(self.threads))
        batch, _ = pack(self._model.encoder_config, inputs_embeds=rows[None])
        return self._model.encoder.forward(batch, stop.deadline)


def _samples(recording: Any) -> np.ndarray:
    """Return the samples of a recording, which is a path or an array."""
    return check_samples(read_wav(recording) if isinstance(recording, (str, os.PathLike)) else recording)


def _whole(advance: Callable[[int], object]) -> Callable[[float], None]:
    """Return a function that sums the numbers it is given, and calls `advance` with the growth of the rounded sum."""
    total = 0.0

    def add(number: float) -> None:
        nonlocal total
        before, total = total, total + number
        advance(round(total) - round(before))

    return add

