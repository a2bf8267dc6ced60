"""`Spelling`: how a head of letters reads a recording, and how the letters of its tokens make a text."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import WeightsError, shown
from .config_checks import is_bool, is_unicode, optional, wrong
from .json_values import JsonConfig


@dataclass(frozen=True)
class Spelling(JsonConfig):
    """What the tokens of a model of connectionist temporal classification (CTC) stand for."""

    called = "a spelling"

    tokens: tuple[str, ...]
    """The text of each output of the head, by its number: a letter as a rule."""
    blank: int
    """The output that stands for no letter; it also separates two equal letters."""
    delimiter: str | None = "|"
    """The token between two words; None for a model without one."""
    space: str = " "
    """What a text has in place of the delimiter."""
    lower_case: bool = False
    """Whether texts are in lower case."""
    cleans_spaces: bool = False
    """Whether spaces before some marks are left out, as `clean_up_tokenization_spaces` of transformers does it."""
    scales: bool = True
    """Whether the samples of a window are scaled to mean 0 and variance 1."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for a spelling that cannot be."""
        problems = []
        if not isinstance(self.tokens, tuple) or not self.tokens or not all(map(is_unicode, self.tokens)):
            problems.append(f"tokens must be a tuple of texts, not {shown(self.tokens)}")
        elif type(self.blank) is not int or not 0 <= self.blank < len(self.tokens):
            problems.append(f"blank must be from 0 to {len(self.tokens) - 1}, not {shown(self.blank)}")
        problems += wrong(self, ("delimiter",), optional(is_unicode), "a text")
        problems += wrong(self, ("space",), is_unicode, "a text")
        problems += wrong(self, ("lower_case", "cleans_spaces", "scales"), is_bool, "true or false")
        if problems:
            raise WeightsError("impossible spelling: " + "; ".join(problems))
