"""`TextConfig`: how a model reads text: tokenizer, length limit, prompts, pooling."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from ..base.errors import WeightsError, listed, shown
from .chat_config import ChatConfig
from .config_checks import LARGEST, is_int, is_unicode, optional, wrong
from .json_values import names_from, types_of
from .late_config import LateConfig

LATE_SIMILARITIES = ("maxsim", "meanmaxsim")
"""The similarities of models with a vector for each token (encoding/maxsim.py)."""
VECTOR_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
"""The similarities of models with one vector for each text (encoding/similarity.py)."""
SIMILARITIES = (*VECTOR_SIMILARITIES, *LATE_SIMILARITIES)
"""All similarities, by the names of sentence-transformers."""
POOLINGS = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")
"""The modes of pooling token vectors to one vector, by the names of sentence-transformers (encoding/pooling.py)."""


@dataclass(frozen=True)
class TextConfig:
    """How a model turns a sentence into one vector: tokenizer, length limit, prompts, pooling, normalisation."""

    tokenizer_json: bytes
    """The whole tokenizer.json of Hugging Face `tokenizers`."""
    max_seq_length: int | None = None
    """Largest number of tokens of a sequence, special tokens included; None for no limit but the model's own."""
    pooling: tuple[str, ...] = ("mean",)
    """One or more of `POOLINGS`; the results of several are concatenated."""
    normalize: bool = False
    """Whether the model ends in a module that scales vectors to unit length."""
    include_prompt: bool = True
    """Whether the prompt's tokens take part in pooling."""
    lower_case: bool = False
    """Whether text is lower-cased before it is tokenized (sentence-transformers' do_lower_case)."""
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    feeds_token_types: bool = True
    """Whether the model gets the tokenizer's token types, which tell the two texts of a pair apart; if not, zeros."""
    end_id: int | None = None
    """Id of the token that ends a sequence: all tokens after the first one are removed. None to keep all tokens."""
    fill_id: int | None = None
    """Id with which a sequence is filled up to `max_seq_length` tokens, which the model reads. None to fill nothing."""
    known_ids: int = 0
    """The tokenizer's ids from this number on stand for pieces that the model does not know, and become `unknown_id`;
    0 if it has no such ids."""
    unknown_id: int = 0
    similarity: str = "cosine"
    """How the model's vectors are compared, one of `SIMILARITIES`."""
    truncate_dim: int | None = None
    """How many of the first dimensions of a vector `encode` keeps unless a call says otherwise; None for all."""
    special_tokens: bool = True
    """Whether the tokenizer puts its special tokens, such as [CLS], around a text."""
    left_out_id: int | None = None
    """Id of a token that is left out of every sequence, such as that of unknown words; None for no such token."""
    max_characters: int | None = None
    """A text is cut to this number of characters before it becomes tokens; None for no limit."""
    truncation_side: str | None = None
    """The end of a long text from which tokens are removed, "left" or "right"; None for what `tokenizer_json` says."""
    late: LateConfig | None = None
    """How a model with a vector for each token reads queries and documents; None for a model with one for each text."""
    keeps_space: bool = False
    """Whether a text that new tokens continue keeps the space in front of the first of them, as in llama.cpp."""
    chat: ChatConfig | None = None
    """How the messages of a chat become a prompt; None for a model whose files say nothing about it."""
    bytes_alone: bool = False
    """Whether a token for a byte that is part of no character becomes U+FFFD alone, as in llama.cpp. Otherwise all
    tokens for bytes that stand beside it become U+FFFD, too, as in `tokenizers`."""
    reads_pairs: bool = True
    """Whether the tokenizer reads two texts as one sequence; False if it has no token to put between them."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for impossible settings."""
        problems = [f"{name} must be a {expected.__name__}, not a {type(getattr(self, name)).__name__}"
                    for name, expected in _TYPES.items() if type(getattr(self, name)) is not expected]
        if problems:
            raise WeightsError("impossible text configuration: " + "; ".join(problems))
        problems += wrong(self, ("end_id", "fill_id", "left_out_id"), optional(is_int),
                          f"None or an int from 0 to {LARGEST:,}")
        if self.fill_id is not None and (type(self.max_seq_length) is not int or self.max_seq_length > _LONGEST_FILLED):
            problems.append(f"fill_id needs a max_seq_length of at most {_LONGEST_FILLED:,}, not "
                            f"{shown(self.max_seq_length)}")
        problems += wrong(self, ("max_seq_length", "truncate_dim", "max_characters"),
                          optional(lambda most: type(most) is int and most >= 1), "a positive int or nothing")
        if self.truncation_side not in ("left", "right", None):
            problems.append(f"truncation_side must be left, right or nothing, not {shown(self.truncation_side)}")
        if not isinstance(self.similarity, str) or self.similarity not in SIMILARITIES:
            problems.append(f"similarity must be one of {', '.join(SIMILARITIES)}, not {shown(self.similarity)}")
        elif (self.similarity in LATE_SIMILARITIES) != (self.late is not None):
            problems.append(f"similarity {self.similarity} is for models with a vector for each "
                            f"{'token' if self.late is None else 'text'}")
        problems += wrong(self, ("late",), optional(lambda late: type(late) is LateConfig), "a LateConfig or None")
        problems += wrong(self, ("chat",), optional(lambda chat: type(chat) is ChatConfig), "a ChatConfig or None")
        if not 0 <= self.unknown_id <= self.known_ids <= LARGEST:
            problems.append(f"known_ids must be a number of ids, {LARGEST:,} at most, and unknown_id one of them, not "
                            f"{shown(self.known_ids)} and {shown(self.unknown_id)}")
        if not 1 <= len(self.pooling) <= len(POOLINGS) or not all(mode in POOLINGS for mode in self.pooling):
            problems.append(f"pooling must be one or more of {', '.join(POOLINGS)}, {len(POOLINGS)} at most, "
                            f"not {shown(self.pooling)}")
        if not all(is_unicode(text) for entry in self.prompts.items() for text in entry):
            problems.append(f"prompts must map names to texts, both valid Unicode, not {shown(self.prompts)}")
        if self.default_prompt_name is not None and self.default_prompt_name not in list(self.prompts):
            problems.append(f"default_prompt_name {shown(self.default_prompt_name)} is not one of the prompts, "
                            f"{listed(self.prompts)}")
        if problems:
            raise WeightsError("impossible text configuration: " + "; ".join(problems))

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the tokenizer as a plain dictionary, which `from_json` turns back into an equal config.

        A field that version 1 of the .npz files does not know is left out if it has its default.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tokenizer_json"
                  and (f.name not in TEXT_NEW_IN_VERSION_2 or getattr(self, f.name) != f.default)}
        return values | {name: value.to_json() for name, value in (("late", self.late), ("chat", self.chat)) if value}

    @classmethod
    def from_json(cls, values: Any, tokenizer_json: bytes) -> TextConfig:
        """Return the config of a dictionary of `to_json` and a tokenizer; raises `WeightsError` for unknown names."""
        if not isinstance(values, dict):
            raise WeightsError(f"text configuration must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in fields(cls)} - {"tokenizer_json"}
        if unknown := sorted(set(values) - known):
            raise WeightsError(f"unknown names in the text configuration: {listed(unknown)}; "
                               f"known: {', '.join(sorted(known))}")
        if isinstance(values.get("pooling"), list):
            values = values | {"pooling": tuple(values["pooling"])}
        if values.get("late") is not None:
            values = values | {"late": LateConfig.from_json(values["late"])}
        if values.get("chat") is not None:
            values = values | {"chat": ChatConfig.from_json(values["chat"])}
        return cls(tokenizer_json, **values)


_LONGEST_FILLED = 4096      # the largest max_seq_length of a model that fills sequences up to it
_TYPES = {name: kind for name, kind in types_of(TextConfig).items() if name != "similarity"}

TEXT_NEW_IN_VERSION_2 = names_from(TextConfig, "feeds_token_types")
"""Fields of the text configuration that version 1 of the .npz does not know."""
