"""What a model is (`ModelConfig`), how it reads text (`TextConfig`) and how it is to be run (`RunConfig`).

The letters used everywhere: B sequences, T tokens of one sequence, N real tokens of a batch, D model width, H heads,
d head width, F feed-forward width, L layers, V vocabulary, P positions, Y token types.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .errors import WeightsError

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
"""`gelu` is the exact erf form; `gelu_tanh` the tanh approximation, used only when a model's config asks for it."""


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of a post-norm transformer encoder, independent of where its weights came from.

    Raises `WeightsError` when a value is impossible; all the problems found are in the one message.
    """

    family: str
    """Name of the family it was read from, e.g. "bert"; informative only."""
    hidden_size: int
    """D: width of the residual stream."""
    num_layers: int
    """L."""
    num_heads: int
    """H."""
    head_width: int
    """d: width of one head; H*d need not equal D."""
    ffn_size: int
    """F."""
    vocab_size: int = 0
    """V; 0 for a model without a word table, which is then run on `inputs_embeds`."""
    max_positions: int = 0
    """P: rows of the position table; 0 when the model has none."""
    token_types: int = 0
    """Y: rows of the token type table; 0 when the model has none."""
    embedding_norm: bool = True
    """Whether a LayerNorm follows the sum of the embeddings."""
    position_offset: int = 0
    """Position id of a sequence's first token (RoBERTa: pad_token_id + 1)."""
    pad_token_id: int = 0
    norm_eps: float = 1e-12
    activation: str = "gelu"

    def __post_init__(self) -> None:
        problems = [f"{name} must be an int, not {getattr(self, name)!r}" for name in _INTS
                    if type(getattr(self, name)) is not int]
        if not problems:
            problems += [f"{name} must be at least 1, not {getattr(self, name)}" for name in _AT_LEAST_1
                         if getattr(self, name) < 1]
            problems += [f"{name} must not exceed {_LARGEST:,}, got {getattr(self, name)}" for name in _INTS
                         if getattr(self, name) > _LARGEST]
            problems += [f"{name} must not be negative, got {getattr(self, name)}" for name in _INTS
                         if getattr(self, name) < 0]
            if self.num_layers > _MAX_LAYERS:
                problems.append(f"num_layers must not exceed {_MAX_LAYERS:,}, got {self.num_layers}")
            if self.max_positions and self.position_offset >= self.max_positions:
                problems.append(f"position_offset {self.position_offset} leaves no room in {self.max_positions} "
                                "positions")
        if self.activation not in ACTIVATIONS:
            problems.append(f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")
        if not (isinstance(self.norm_eps, float) and 0.0 < self.norm_eps < 1.0):
            problems.append(f"norm_eps must be a float between 0 and 1, not {self.norm_eps!r}")
        problems += [f"{name} must be a {expected.__name__}, not {getattr(self, name)!r}"
                     for name, expected in (("embedding_norm", bool), ("family", str))
                     if type(getattr(self, name)) is not expected]
        if problems:
            raise WeightsError("impossible model configuration: " + "; ".join(problems))

    @property
    def letters(self) -> dict[str, int]:
        """Dimension letters of this model, as used by the shapes in `engine.parameters`."""
        return {"D": self.hidden_size, "L": self.num_layers, "H": self.num_heads, "d": self.head_width,
                "Hd": self.num_heads * self.head_width, "F": self.ffn_size, "V": self.vocab_size,
                "P": self.max_positions, "Y": self.token_types}

    @property
    def max_tokens(self) -> int | None:
        """Longest sequence the position table allows, or None when there is no such limit."""
        return self.max_positions - self.position_offset if self.max_positions else None

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary that `from_json` turns back into an equal config."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> ModelConfig:
        """Rebuild from `to_json`'s dictionary; unknown and missing names raise `WeightsError`."""
        if not isinstance(values, dict):
            raise WeightsError(f"model configuration must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in fields(cls)}
        required = {"family", "hidden_size", "num_layers", "num_heads", "head_width", "ffn_size"}
        if unknown := sorted(set(values) - known):
            raise WeightsError(f"unknown names in the model configuration: {', '.join(unknown)}; "
                               f"known: {', '.join(sorted(known))}")
        if missing := sorted(required - set(values)):
            raise WeightsError(f"the model configuration lacks: {', '.join(missing)}")
        return cls(**values)


_AT_LEAST_1 = ("hidden_size", "num_layers", "num_heads", "head_width", "ffn_size")
_INTS = (*_AT_LEAST_1, "vocab_size", "max_positions", "token_types", "position_offset", "pad_token_id")
_LARGEST = 2**24
_MAX_LAYERS = 10_000


POOLINGS = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")


@dataclass(frozen=True)
class TextConfig:
    """What stands between sentences and a vector for each: tokenizer, length limit, prompts, pooling, normalisation."""

    tokenizer_json: bytes
    """The whole tokenizer.json of Hugging Face `tokenizers`."""
    max_seq_length: int | None = None
    """Longest sequence in tokens, the special ones included; None leaves the model's own limit."""
    pooling: tuple[str, ...] = ("mean",)
    """One of `POOLINGS`, or several, whose results are concatenated."""
    normalize: bool = False
    """Whether the model ends in a module that scales vectors to unit length."""
    include_prompt: bool = True
    """Whether the prompt's tokens take part in pooling."""
    lower_case: bool = False
    """Whether text is lower-cased before it is tokenized (sentence-transformers' do_lower_case)."""
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None

    def __post_init__(self) -> None:
        types = {"tokenizer_json": bytes, "pooling": tuple, "normalize": bool, "include_prompt": bool,
                 "lower_case": bool, "prompts": dict}
        problems = [f"{name} must be a {expected.__name__}, not a {type(getattr(self, name)).__name__}"
                    for name, expected in types.items() if type(getattr(self, name)) is not expected]
        if problems:
            raise WeightsError("impossible text configuration: " + "; ".join(problems))
        if self.max_seq_length is not None and (type(self.max_seq_length) is not int or self.max_seq_length < 1):
            problems.append(f"max_seq_length must be a positive int or nothing, not {self.max_seq_length!r}")
        if not self.pooling or not all(mode in POOLINGS for mode in self.pooling):
            problems.append(f"pooling must be one or more of {', '.join(POOLINGS)}, not {self.pooling!r}")
        if not all(isinstance(text, str) for text in self.prompts.values()):
            problems.append(f"prompts must map names to texts, not {self.prompts!r}")
        if self.default_prompt_name is not None and self.default_prompt_name not in list(self.prompts):
            problems.append(f"default_prompt_name {self.default_prompt_name!r} is not one of the prompts, "
                            f"{list(self.prompts)}")
        if problems:
            raise WeightsError("impossible text configuration: " + "; ".join(problems))

    def to_json(self) -> dict[str, Any]:
        """All but the tokenizer as a plain dictionary, which `from_json` turns back into an equal config."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tokenizer_json"}

    @classmethod
    def from_json(cls, values: Any, tokenizer_json: bytes) -> TextConfig:
        """Rebuild from `to_json`'s dictionary and the tokenizer; unknown names raise `WeightsError`."""
        if not isinstance(values, dict):
            raise WeightsError(f"text configuration must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in fields(cls)} - {"tokenizer_json"}
        if unknown := sorted(set(values) - known):
            raise WeightsError(f"unknown names in the text configuration: {', '.join(unknown)}; "
                               f"known: {', '.join(sorted(known))}")
        if isinstance(values.get("pooling"), list):
            values = values | {"pooling": tuple(values["pooling"])}
        return cls(tokenizer_json, **values)


@dataclass(frozen=True)
class RunConfig:
    """How a backend shall run a model."""

    threads: int = 1
    """Threads of one forward pass, the calling one included."""
    precision: str = "float32"
    """Of linear weights and what is multiplied with them: "float32", "bfloat16" or "int8"; a backend refuses what it
    lacks. All else is float32."""
    max_tokens: int = 8192
    """Most tokens worked on at a time; bounds the workspace, never what a call may pass."""
