"""`LetterTranscription`: transcribe with a model of letters (CTC): cut recordings into windows, and spell letters."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ..backends import choose_backend
from ..base.arguments import refuse_unknown
from ..base.errors import InputError, UnsupportedError, WeightsError, located, shown
from ..base.progress import growing_progress
from ..base.stop import NEVER, Stop
from ..encoding.packing import pack
from ..model.generation_config import GenerationConfig
from ..model.head import HeadLinear
from ..model.run_config import RunOptions
from ..model.spelling import Spelling
from ..queues.model_queue import ModelQueue
from ..queues.work import Pieces, Work
from ..weights.model import Model
from ..weights.waveform import Waveform
from .audio_files import recording_samples
from .letters import letters_of, text_of, transcript_of
from .samples import RATE
from .sources import is_source, name_of
from .tokens import TASK_TRANSCRIBE, TASKS

SECONDS = 30
"""The seconds of the longest window."""
OVERLAP = 5
"""The seconds at each end of a window whose letters come from the window before it or after it."""
_VARIANCE_EPS = 1e-7
"""The number that transformers' feature extractor adds to the variance of samples."""
_ARGUMENTS = ("audio", "timestamps", "max_seconds", "show_progress_bar", "timeout")
"""The arguments of `Transcriber.transcribe` that a model of letters has."""
_WHISPERS = "Whisper's models take it"


class LetterModel:
    """An encoder of recordings with a head of letters on a backend, and its queue."""

    def __init__(self, model: Model, options: RunOptions):
        """Check a model, and prepare it. Raises `UnsupportedError` for options that only a decoder has."""
        from ..files.reading import release_pages

        model = model.checked()
        encoder = model.encoder
        assert encoder is not None
        head = next(head for head in encoder.heads if head.config.task == "transcribe")
        first, *others = head.config.steps
        if not isinstance(encoder.stem, Waveform) or head.config.spelling is None or others or not isinstance(
                first, HeadLinear) or first.tied or first.activation != "identity":
            raise WeightsError("a model with a head of letters must have an input layer of the kind waveform, one "
                               "plain map and a spelling; load its folder again")
        if encoder.stem.step > OVERLAP * RATE:
            raise UnsupportedError(f"a token of this model stands for {encoder.stem.step / RATE:g} s, and windows need "
                                   f"tokens of at most {OVERLAP} s")
        if options.cache is not None or options.max_rows != RunOptions.max_rows:
            name = "max_rows" if options.cache is None else "cache"
            raise UnsupportedError(f"{name} is an option of the decoder of a model, and this model has none; leave it "
                                   f"out. {_WHISPERS}")
        self.spelling = head.config.spelling
        self._map, self._bias = head.weights[f"{first.name}.weight"], head.weights.get(f"{first.name}.bias")
        chosen = choose_backend(options.backend, options.bits, model.parts.values())
        run = options.config(encoder.precision_for(options.precision))
        self.stem = encoder.stem.in_precision(run.precision)
        longest = self.stem.tokens(SECONDS * RATE)
        if run.max_tokens < longest:
            raise InputError(f"max_batch_tokens must be at least {longest:,}, the tokens of a window of {SECONDS} s of "
                             f"this model, not {run.max_tokens:,}")
        self.config, self.configs, self.text = encoder.config, [encoder.config], None
        self.generation, self.calibrations = model.generation, encoder.calibrations
        self.backend, self.threads, self.precision, self.bits = chosen.name, run.threads, run.precision, run.bits
        self.max_batch_tokens = run.max_tokens
        self._ops = chosen.ops(run.threads, run.portable)
        self._ops.keep([self._map, *self.stem.arrays.values()])
        self._plan = chosen.prepare(encoder.config, encoder.weights, run)
        release_pages(encoder.weights.values())
        # One window has enough tokens for the kernels, and more at a time take more memory. Windows of several calls
        # share a batch only if that changes no bit.
        self.queue = ModelQueue(longest, mixes=chosen.batch_invariant)

    def tokenizer(self, text: None) -> NoReturn:
        """Raise `UnsupportedError`: such a model has a list of letters."""
        raise UnsupportedError("this model writes letters, and has no tokenizer")

    def work(self, windows: list[np.ndarray]) -> Work:
        """Return the work, for the queue, whose results are the best outputs of each token of windows of samples [n].

        A result is int [T] for each window; -1 stands for scores that are not finite.
        """
        return Work(self._compute, [self.stem.tokens(len(window)) for window in windows], windows)

    def _compute(self, pieces: Pieces, stop: Stop) -> list[np.ndarray]:
        """Return the best output of each token, int [T], for each window. The queue calls it for `work`."""
        windows = [work.data[number] for work, numbers in pieces for number in numbers]
        rows = [self.stem.embed(self._scaled(window), self._ops, stop) for window in windows]
        batch, _ = pack(self.config, inputs_embeds=rows)
        scores = self._ops.linear(self._plan.forward(batch, stop), self._map, self._bias, activation=None,
                                  residual=None)
        best = np.where(np.isfinite(scores).all(axis=1), scores.argmax(axis=1), -1)
        return np.split(best, np.cumsum([len(row) for row in rows])[:-1])

    def _scaled(self, samples: np.ndarray) -> np.ndarray:
        """Return samples [n] as the model reads them: float32, scaled to mean 0 and variance 1 if it was trained so."""
        if not self.spelling.scales:
            return samples.astype(np.float32)
        wide = samples.astype(np.float64)
        wide -= wide.mean()
        return (wide / np.sqrt((wide * wide).mean() + _VARIANCE_EPS)).astype(np.float32)


@dataclass(frozen=True)
class Spelled:
    """The options of a call of `transcribe`."""

    timestamps: bool
    """Whether results are `Transcript` with segments, and not texts."""
    by_word: bool
    """Whether segments have words."""
    stop: Stop = NEVER


@dataclass
class _Heard:
    """A recording of a batch: its windows, and the outputs of their tokens."""

    number: int
    """Its place among the recordings of the call."""
    seconds: float
    windows: list[tuple[np.ndarray, int, int]]
    """(samples, how many of them at the start belong to another window, how many at the end) of each window."""
    best: dict[int, np.ndarray] = field(default_factory=dict)
    """The best outputs of each window that is computed, without those of overlaps, by its number."""


class LetterTranscription:
    """A model of letters that transcribes recordings. It has the methods of `Transcription`."""

    languages: tuple[str, ...] = ()
    why_no_languages = "this model writes the language that it was trained on, so it detects no language"

    def __init__(self, model: LetterModel):
        self.model, self._stem = model, model.stem

    def wanted(self, language: Any, task: Any, timestamps: bool | str, settings: Mapping[str, Any]) -> Spelled:
        """Return the options of a call; raises an error for an argument that only models such as Whisper have."""
        if task not in TASKS:
            raise InputError(f"task must be one of {', '.join(TASKS)}, not {shown(task)}")
        if language is not None or task != TASK_TRANSCRIBE:
            given = f"language={shown(language)}" if language is not None else f"task={shown(task)}"
            raise UnsupportedError(f"{given} has no effect on a model of letters (CTC), which writes the language that "
                                   f"it was trained on; leave it out. {_WHISPERS}")
        others = [name for name in settings if name not in GenerationConfig.__dataclass_fields__]
        refuse_unknown("transcribe", others, _ARGUMENTS)
        if settings:
            raise UnsupportedError(f"{next(iter(settings))} is a setting of models that generate tokens, and this "
                                   f"model takes the best letter of each token (CTC); leave it out. {_WHISPERS}")
        return Spelled(bool(timestamps), timestamps == "word")

    def together(self, config: GenerationConfig) -> int:
        """Return how many recordings the model reads at a time: it computes one, while the next one waits."""
        return 2

    def windows(self, count: int) -> int:
        """Return the number of windows of a recording of this number of samples."""
        return sum(1 for _ in self._windows(np.empty(count, np.bool_)))     # only the length of the array counts

    def task(self, samples: np.ndarray, wanted: Spelled, heard: Callable[[float], object]
             ) -> Generator[Work, list[np.ndarray], Any]:
        """Yield the work of each window of one recording, and get its results; return the text or the `Transcript`.

        heard: is called with the seconds of each window. Raises `InputError` for a recording shorter than a token.
        """
        one = self._open_recording(0, samples)
        for i, window in enumerate(one.windows):
            [row] = yield self.model.work([window[0]])
            one.best[i] = self._without_overlap(row, *window)
            heard((len(window[0]) - window[1] - window[2]) / RATE)
        return self._result(one, wanted)

    def results(self, items: list[Any], wanted: Spelled, max_seconds: float, bar: bool | None) -> Iterator[Any]:
        """Yield the result of each recording as soon as it and all results before it are there."""
        with growing_progress(bar, "Audio", " s") as (advance, expect):
            expect(round(sum(len(item) for item in items if isinstance(item, np.ndarray)) / RATE))
            done = 0.0
            for batch in self._batches(items, max_seconds, wanted.stop):
                expect(round(sum(one.seconds for one in batch if is_source(items[one.number]))))
                for one in self._compute_batch(batch, wanted.stop):
                    before, done = done, done + one.seconds
                    advance(round(done) - round(before))
                    yield self._result(one, wanted)

    def _batches(self, items: list[Any], max_seconds: float, stop: Stop) -> Iterator[list[_Heard]]:
        """Read recordings, and yield them in batches, each of as many as have `max_batch_tokens` tokens.

        If a recording cannot be read, the recordings before it come first, then the error.
        """
        batch: list[_Heard] = []
        tokens, wrong = 0, None
        for number, item in enumerate(items):
            stop.check()
            try:
                samples = recording_samples(item, max_seconds, stop)
                with located(name_of(item) if is_source(item) else f"recording {number}"):
                    batch.append(self._open_recording(number, samples))
            except (InputError, UnsupportedError, WeightsError) as error:
                wrong = error
                break
            tokens += self._stem.tokens(len(samples))
            if tokens >= self.model.max_batch_tokens:
                yield batch
                batch, tokens = [], 0
        if batch:
            yield batch
        if wrong is not None:
            raise wrong

    def _open_recording(self, number: int, samples: np.ndarray) -> _Heard:
        """Return a recording with its windows; raises `InputError` for one that is shorter than a token."""
        if not self._stem.tokens(len(samples)):
            raise InputError(f"it has {len(samples)} samples at 16 kHz, and the model reads at least "
                             f"{self._stem.reach}, {self._stem.reach / RATE:g} s; leave it out")
        return _Heard(number, len(samples) / RATE, [*self._windows(samples)])

    def _windows(self, samples: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
        """Yield the windows of samples, in the form of `_Heard.windows`, as transformers' pipeline cuts them for
        chunk_length_s=30."""
        step = self._stem.step
        longest, overlap = (round(seconds * RATE / step) * step for seconds in (SECONDS, OVERLAP))
        start, count = 0, len(samples)
        while start == 0 or count - start > overlap:
            is_last = start + longest >= count
            yield samples[start : start + longest], overlap if start else 0, 0 if is_last else overlap
            if is_last:
                return
            start += longest - 2 * overlap

    def _compute_batch(self, batch: list[_Heard], stop: Stop) -> Iterator[_Heard]:
        """Compute the windows of some recordings; yield each as soon as it and all recordings before it are done."""
        places = [(one, i) for one in batch for i in range(len(one.windows))]
        work = self.model.work([one.windows[i][0] for one, i in places])
        following = 0       # the recording to yield next
        for numbers, rows in self.model.queue.rows(work, stop):
            for number, row in zip(numbers, rows, strict=True):
                one, i = places[number]
                one.best[i] = self._without_overlap(row, *one.windows[i])
            while following < len(batch) and len(batch[following].best) == len(batch[following].windows):
                yield batch[following]
                following += 1

    def _without_overlap(self, best: np.ndarray, samples: np.ndarray, left: int, right: int) -> np.ndarray:
        """Return the outputs [T] of a window without those of its overlaps, rounded to tokens as in the pipeline.

        left, right: how many samples at the start and at the end belong to other windows.
        """
        tokens = round(len(samples) / self._stem.step)
        before, after = (round(part / len(samples) * tokens) for part in (left, right))
        return best[before : tokens - after]

    def _result(self, one: _Heard, wanted: Spelled) -> Any:
        """Return the text or the `Transcript` of a recording; raises `WeightsError` for scores that are not finite."""
        spelling: Spelling = self.model.spelling
        best = np.concatenate([one.best[i] for i in range(len(one.windows))])
        if (best < 0).any():
            raise WeightsError(f"recording {one.number}: the model gives scores that are no finite numbers; copy its "
                               "folder again from its source, or load it with precision='float32'")
        letters = letters_of(best, spelling)
        if not wanted.timestamps:
            return text_of(letters, spelling)
        return transcript_of(letters, spelling, self._stem.step, wanted.by_word)
