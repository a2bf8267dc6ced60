"""`LateConfig`: how a model with a vector for each token reads queries and documents (ColBERT's late interaction).

Khattab and Zaharia 2020 (arXiv 2004.12832). The names are those of sentence-transformers' `query_expansion` and of its
module MultiVectorMask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ..base.errors import WeightsError, shown
from .config_checks import are_ids, is_bool, is_int, optional, wrong
from .json_values import JsonConfig

EXPANSIONS = ("fixed", "min")
"""How queries are filled up to a length: "fixed" also cuts longer queries to it, "min" leaves these as they are."""
_LONGEST = 2**16
"""The largest number of tokens that a setting may have."""


@dataclass(frozen=True)
class LateConfig(JsonConfig):
    """The settings by which texts of each task become tokens, and by which tokens have a vector in the result."""

    called = "late"

    query_length: int | None = None
    """The most tokens of a query, with special tokens; None for the model's limit."""
    document_length: int | None = None
    """The most tokens of a document, with special tokens; None for the model's limit."""
    expansion: str | None = None
    """How queries are filled up, one of `EXPANSIONS`; None for queries as they are."""
    expansion_length: int | None = None
    """The number of tokens to which a shorter query is filled up."""
    expansion_id: int | None = None
    """The token that it is filled with, usually [MASK]. Each such token has a vector in the result."""
    attend: bool = False
    """Whether the tokens of a query attend to the tokens that fill it up, which attend to all tokens in any case."""
    skip_ids: tuple[int, ...] = ()
    """The tokens that have no vector in the results of `skip_tasks`, such as punctuation."""
    skip_tasks: tuple[str, ...] = ("document",)
    """The tasks whose results lack the tokens of `skip_ids`; a text without a task counts as a document."""
    keep_ids: tuple[int, ...] = ()
    """If there are any, only these tokens have vectors in the results of tasks other than "query"."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for impossible settings."""
        problems = wrong(self, ("query_length", "document_length", "expansion_length"),
                         optional(partial(is_int, least=1, most=_LONGEST)),
                         f"a number of tokens from 1 to {_LONGEST:,}, or nothing")
        problems += wrong(self, ("skip_ids", "keep_ids"), are_ids, "a tuple of token ids")
        problems += wrong(self, ("skip_tasks",), _are_texts, "a tuple of names of tasks")
        problems += wrong(self, ("attend",), is_bool, "true or false")
        if self.expansion is not None and self.expansion not in EXPANSIONS:
            problems.append(f"expansion must be one of {', '.join(EXPANSIONS)}, or nothing, not "
                            f"{shown(self.expansion)}")
        elif len({value is None for value in (self.expansion, self.expansion_length, self.expansion_id)}) > 1:
            problems.append("expansion, expansion_length and expansion_id must all be there, or none of them")
        problems += wrong(self, ("expansion_id",), optional(is_int), "a token id")
        if not problems and self.expansion and (self.query_length or _LONGEST) < (self.expansion_length or 0):
            problems.append(f"queries have at most query_length = {self.query_length} tokens, which is less than the "
                            f"{self.expansion_length} that they are filled up to")
        if problems:
            raise WeightsError("impossible late interaction: " + "; ".join(problems))

    def limit(self, task: str | None, usual: int | None) -> int | None:
        """Return the most tokens of a text of a task; usual: the model's limit, None for no limit."""
        if task == "query" and self.expansion is not None:
            longest = self.expansion_length if self.expansion == "fixed" else self.query_length
            return longest or usual
        stated = {"query": self.query_length, "document": self.document_length}.get(task or "")
        return usual if stated is None else stated

    def describe(self) -> str:
        """Return the name of the method that gives the vectors, as `HeadConfig.describe` does for a head."""
        return "encode_tokens"


def _are_texts(value: Any) -> bool:
    """Return whether a value is a tuple of strings."""
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)
