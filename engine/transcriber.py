"""`Transcriber`: a model of speech, which writes what a recording says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .audio import log_mel, read_wav
from .backends import DecoderPlan, get_backend
from .converted import END, START, special_ids
from .errors import InputError, UnsupportedError, listed, shown
from .generation.batching import generate as run_requests
from .generation.results import Request
from .generation.steps import Row, Scores, Top
from .generator import Generator
from .packing import pack
from .stems import Frames

if TYPE_CHECKING:
    from .sequences import SequenceModel

_NO_TIMES = "<|notimestamps|>"
_MULTILINGUAL = 51865
"""Whisper's models with at least this number of tokens know languages and tasks."""
TASKS = ("transcribe", "translate")
"""What Whisper does with speech: write it in its language, or in English."""


class Transcriber(Generator):
    """Whisper on one backend: text from recordings of up to 30 s.

        transcriber = Transcriber.load("whisper-tiny.en")
        transcriber.transcribe(["recording.wav"])               # [" What the recording says."]

    Results do not depend on the batch or on the number of threads, as those of `Generator`.
    """

    def __init__(self, model: SequenceModel, **options: Any):
        """As `Generator`, for a model with an encoder of sound."""
        super().__init__(model, **options)
        if model.encoder is None or not isinstance(model.encoder.stem, Frames):
            raise UnsupportedError(f"a model of the family {self.config.family} does not read sound; Whisper's do")
        self._stem = model.encoder.stem
        self._ids_of_tokens = special_ids(self.text)
        for token in (START, END, _NO_TIMES):
            if token not in self._ids_of_tokens:
                raise UnsupportedError(f"the tokenizer of the model lacks {token}, which a model of speech needs")

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> Transcriber:
        """Load a model of speech; the options are those of `Generator.load`."""
        loaded = super().load(path, **options)
        assert isinstance(loaded, cls)
        return loaded

    @property
    def languages(self) -> list[str]:
        """The languages that the model knows by their codes, such as "de"; empty for a model of English alone."""
        if self.config.vocab_size < _MULTILINGUAL:
            return []
        names = [token[2:-2] for token in self._ids_of_tokens if token.startswith("<|") and token.endswith("|>")]
        return [name for name in names if name.isalpha() and 2 <= len(name) <= 3]

    def transcribe(self, sounds: Any, *, language: str | None = None, task: str = "transcribe",
                   timeout: float | None = None, **settings: Any) -> list[Any]:
        """Return the text of each sound, in order; with num_return_sequences above 1, a list of texts each.

        sounds: a list of paths of WAV files (16 kHz, 16 bits), or of float samples at 16 kHz, of up to 30 s each.
        language: the code of the language that is spoken, such as "de"; needed by a model of several languages.
        task: "transcribe", or "translate" into English. settings: as for `generate`.
        Raises `InputError`, and for files what `engine.audio.read_wav` raises.
        """
        if isinstance(sounds, (str, os.PathLike)) or not isinstance(sounds, (Sequence, np.ndarray)):
            raise InputError(f"sounds must be a list of paths or of arrays of samples, not {shown(sounds)}")
        prompt = self._prompt(language, task)
        vectors = [self._vectors(sound) for sound in sounds]
        config = self.generation.changed(**settings)
        assert self._encoder is not None
        stepper = _SoundStepper(self._decoder, vectors)
        requests = [Request([i], prompt, config) for i in range(len(vectors))]
        results = [[self._with_text(result).text for result in found]
                   for found in run_requests(stepper, requests, budget=self.budget, timeout=timeout)]
        return results if config.num_return_sequences > 1 else [found[0] for found in results]

    def _prompt(self, language: str | None, task: str) -> list[int]:
        if task not in TASKS:
            raise InputError(f"task must be one of {', '.join(TASKS)}, not {shown(task)}")
        names = [START, _NO_TIMES]
        if languages := self.languages:
            if language not in languages:
                raise InputError(f"this model needs one of the languages {listed(languages)}, not {shown(language)}")
            names[1:1] = [f"<|{language}|>", f"<|{task}|>"]
        elif language not in (None, "en") or task != "transcribe":
            raise InputError(f"this model knows English alone, so language {shown(language)} and task {task} are not "
                             "possible")
        return [self._ids_of_tokens[name] for name in names]

    def _vectors(self, sound: Any) -> np.ndarray:
        """Return the vectors [S, D] that the encoder gives for a sound."""
        assert self.encoder_config is not None
        assert self._encoder is not None
        samples = read_wav(sound) if isinstance(sound, (str, os.PathLike)) else sound
        features = log_mel(samples, self._stem.weight.shape[1])
        rows = self._stem.embed(features, get_backend(self.backend).ops(self.threads))
        batch, _ = pack(self.encoder_config, inputs_embeds=rows[None])
        return self._encoder.forward(batch)


class _SoundStepper:
    """A `engine.generation.steps.Stepper` whose sources are the numbers of sounds that are encoded already."""

    def __init__(self, decoder: DecoderPlan, vectors: Sequence[np.ndarray]):
        self._decoder, self._vectors = decoder, vectors
        self.vocab_size, self.longest = decoder.vocab_size, decoder.longest

    def open(self, source: NDArray[np.int64] | None) -> int:
        """Begin a request for the sound of the number in `source`."""
        assert source is not None
        request, vectors = self._decoder.open(), self._vectors[int(source[0])]
        self._decoder.remember([request], vectors, np.array([0, len(vectors)], np.int32))
        return request

    def step(self, rows: Sequence[Row]) -> Scores:
        return self._decoder.step(rows)

    def step_top(self, rows: Sequence[Row], k: int) -> Top:
        return self._decoder.step_top(rows, k)

    def release(self, hypotheses: Any) -> None:
        self._decoder.release(hypotheses)

    def close(self, request: int) -> None:
        self._decoder.close(request)
