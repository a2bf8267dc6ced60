"""`Spelling`: how a head of letters reads a recording, and how its outputs make a text; engine/speech uses it."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import WeightsError, shown
from .config_checks import is_bool, is_unicode, optional, wrong
from .json_values import JsonConfig


@dataclass(frozen=True)
class Spelling(JsonConfig):
    """The texts of the outputs of a model of connectionist temporal classification (CTC), and how to join them."""

    called = "a spelling"

    tokens: tuple[str, ...]
    """The text of each output of the head, by its number: usually a letter."""
    blank: int
    """The number of the output that stands for no letter; it also separates two equal letters."""
    delimiter: str | None = "|"
    """The token between two words; None for a model without one."""
    space: str = " "
    """The text that replaces the delimiter."""
    lower_case: bool = False
    """Whether texts are in lower case."""
    cleans_spaces: bool = False
    """Whether spaces before some marks are left out, as `clean_up_tokenization_spaces` of transformers does it."""
    scales: bool = True
    """Whether the samples of a window are scaled to mean 0 and variance 1."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for an impossible spelling."""
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
