"""`SpecialTokens`: the special tokens of a speech model, checked once, and not in the middle of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError, UnsupportedError, WeightsError, listed, shown
from ..text.special_tokens import END, NO_TIMES, START
from .languages import language_code
from .spectrogram import SECONDS

TASK_TRANSCRIBE = "transcribe"
TASK_TRANSLATE = "translate"
TASKS = (TASK_TRANSCRIBE, TASK_TRANSLATE)
"""Whisper's tasks: to transcribe speech in its own language, or to translate it into English."""
_NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
"""The names of the token for "no speech" in different models."""
_MULTILINGUAL = 51865
"""Whisper's models with at least this number of tokens know languages and tasks."""
_TIMES = SECONDS * 50 + 1
"""The number of timestamps from 0 to 30 s, in steps of 0.02 s."""


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens of a model; each is below the number of its tokens."""

    start: int
    """The first token of the decoder."""
    no_times: int
    """The token that asks for no timestamps; the tokens after it are the times."""
    no_speech: int | None
    """The token for "no speech"; None in a model without one."""
    languages: Mapping[str, int]
    """The tokens of languages by the codes of these; empty in a model of English alone."""
    tasks: Mapping[str, int]
    """The tokens of tasks by the names of these; empty in a model of English alone."""
    has_times: bool
    """Whether the model has tokens for the times from 0 to 30 s."""

    @classmethod
    def of(cls, ids: Mapping[str, int], vocab_size: int, multilingual: bool | None = None) -> SpecialTokens:
        """Find the special tokens among the added tokens of a tokenizer.json. ids: {text of an added token: id}.

        multilingual: whether the model knows languages and tasks; None to decide by its number of tokens, vocab_size.
        Raises `UnsupportedError` for a tokenizer that lacks a token which the model needs, and `WeightsError` for one
        that is damaged.
        """
        if wrong := [name for name in ids if not isinstance(name, str)]:
            raise WeightsError(f"the model's tokenizer.json has the added token {shown(wrong[0])}, which is no text; "
                               "copy the model's folder again from its source")
        has_tasks = vocab_size >= _MULTILINGUAL if multilingual is None else multilingual
        languages = [name for name in ids if has_tasks and _is_language(name)]
        tasks = [f"<|{task}|>" for task in TASKS] if has_tasks else []
        ids_of = {}
        for name in (START, END, NO_TIMES, *tasks, *languages, *(name for name in _NO_SPEECH if name in ids)):
            if name not in ids:
                raise UnsupportedError(f"the tokenizer of the model lacks {name}, which a model of speech needs")
            if not 0 <= ids[name] < vocab_size:
                raise WeightsError(f"the model's tokenizer.json gives {name} the id {shown(ids[name])}, and the model "
                                   f"has {vocab_size:,} tokens; copy the model's folder again from its source")
            ids_of[name] = ids[name]
        if has_tasks and not languages:
            raise UnsupportedError("the tokenizer of the model lacks the tokens of languages, such as <|en|>")
        no_speech = next((ids_of[name] for name in _NO_SPEECH if name in ids_of), None)
        return cls(ids_of[START], ids_of[NO_TIMES], no_speech,      # [2:-2] makes the code "en" of the text "<|en|>"
                   languages={name[2:-2]: ids_of[name] for name in languages},
                   tasks={name[2:-2]: ids_of[name] for name in tasks}, has_times=ids_of[NO_TIMES] + _TIMES < vocab_size)

    def checked_language(self, language: Any, task: Any) -> str | None:
        """Check the language and the task of a call; return the language's code, or None for None.

        language: a name or a code; None if the model is to find the language. Raises `InputError` for a language or a
        task that the model does not know.
        """
        if task not in TASKS:
            raise InputError(f"task must be one of {', '.join(TASKS)}, not {shown(task)}")
        code = language_code(language) if isinstance(language, str) else language
        if not self.languages and (code not in (None, "en") or task != TASK_TRANSCRIBE):
            raise InputError(f"this model knows English alone, so language {shown(language)} and task {task} are not "
                             "possible")
        if self.languages and code is not None and code not in self.languages:
            raise InputError(f"this model knows the languages {listed(self.languages)}, not {shown(language)}; None "
                             "lets it find the language")
        return code

    def prompt(self, language: str | None, task: str, times: bool) -> list[int]:
        """Return the tokens before the text: the start, the language and the task, and `no_times` unless `times`."""
        wanted = [self.languages[language], self.tasks[task]] if language and self.languages else []
        return [self.start, *wanted, *([] if times else [self.no_times])]


def _is_language(name: str) -> bool:
    """Return whether a token is that of a language, such as <|de|> or <|yue|>."""
    code = name[2:-2]
    return name.startswith("<|") and name.endswith("|>") and code.isalpha() and 2 <= len(code) <= 3
