"""The interface of an opened model path, `Source`, which each format of files implements."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.errors import InputError, UnsupportedError, shown
from ..families.parts import Parts
from ..weights.model import Model

CLASS_OF_KIND = {"encode": "Engine", "generate": "Generator", "rank": "Reranker", "transcribe": "Transcriber"}
"""The class that serves each kind of use."""
ALONE = ('engine.load(path, kind="generate"), or engine convert --kind generate on the command line, takes the '
         "language model alone")
"""The end of a message about files of another use."""
_HOLDS = {
    "encode": "an encoder, which generates no tokens",
    "generate": "a model that generates tokens",
    "rank": "a reranker",
    "transcribe": "a model of speech",
}
"""What the files for each kind of use hold, for messages."""


@dataclass(frozen=True)
class Fetched:
    """A model of the Hugging Face hub, in the hub's cache."""

    path: Path
    name: str
    """org/name, or org/name/FILE."""
    commit: str
    """The commit of the repository: a revision that never changes."""


class Source(ABC):
    """An opened path of a model, of which only the description has been read; `read` reads the weights."""

    path: Path
    """The path as the caller gave it, with `~` replaced; for a name on the hub, the path in the cache."""
    origin: Fetched | None = None
    """The name on the hub that the caller gave, and the commit; None for a path."""
    precision: str | None = None
    """The precision in which the model will run, by its name; None for that of its weights."""
    long_context: bool = False
    """Whether a model with two tables of rotary positions shall use the one for sequences beyond its training."""
    kind_given: bool = False
    """Whether the caller said the kind of use, as with the argument `kind` of `engine.load`."""
    longest: int | None = None
    """After `read`: the most tokens of a sequence with `long_context`; None for a model without two tables."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Return the kind of use that the files ask for, a key of `CLASS_OF_KIND`.

        Raises `InputError` if they fit two kinds and do not say which of them is meant.
        """

    @abstractmethod
    def read(self, kind: str, task: str | None) -> Model:
        """Return the model for a kind of use, with unchecked weights; task: of the adapter to merge, or None.

        Raises `WeightsError`, `UnsupportedError` and `InputError`.
        """

    @property
    def address(self) -> tuple[str, str | None]:
        """Return the path and the revision that load the same files again, in another process too."""
        if self.origin is None:
            return os.path.abspath(self.path), None
        return self.origin.name, self.origin.commit

    def answers(self) -> tuple[int, ...] | None:
        """Return the ids of the tokens that a reranker scores, if the files name them; see `Reranker.load`."""
        return None

    def with_context(self, parts: Parts) -> Parts:
        """Return parts with the decoder that `long_context` asks for, and set `longest`.

        Raises `UnsupportedError` if there is no such decoder.
        """
        self.longest = None if parts.long_decoder is None else parts.long_decoder.config.longest_sequence
        if not self.long_context:
            return parts
        if parts.long_decoder is None:
            raise self.refuse_long_context()
        return replace(parts, decoder=parts.long_decoder)

    def refuse_long_context(self) -> UnsupportedError:
        """Return the error for a model that has one table of positions, or none."""
        return UnsupportedError(f"{self.path}: long_context=True is for language models whose rotary embedding has one "
                                "table up to the length of the training and another one beyond it (LongRoPE, as in "
                                "Phi-3.5); this model has not, so leave it out")

    def refuse_kind(self, kind: str, holds: str) -> UnsupportedError:
        """Return the error for a kind of use that files with a model of the kind `holds` do not serve."""
        command = f" (on the command line, engine {holds})" if holds != "rank" else ""
        return UnsupportedError(f"{self.path}: this is {_HOLDS[holds]}, so it cannot {kind}; load it with "
                                f"{CLASS_OF_KIND[holds]}{command}, or with engine.load, which finds the class by "
                                "itself")

    def refuse_generator(self) -> None:  # noqa: B027, because most formats say their kind of use, which `read` compares
        """Raise `UnsupportedError` for files of another use whose language model would generate without being asked."""

    def refuse_use(self, reason: str, kind: str, command: str) -> UnsupportedError:
        """Return the error of `refuse_generator`. reason: names the other use. kind, command: of that use."""
        return UnsupportedError(f"{self.path}: {reason}; load it with {CLASS_OF_KIND[kind]} (on the command line, "
                                f"engine {command}), or with engine.load, which finds the class by itself. {ALONE}")

    def refuse_task(self, task: str | None, reason: str) -> None:
        """Raise `InputError` unless the task is None. reason: why the files have no tasks."""
        if task is not None:
            raise InputError(f"{self.path}: task={shown(task)} chooses an adapter of a folder, and {reason}")
