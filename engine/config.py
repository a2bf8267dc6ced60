"""The description of a model (`ModelConfig`), of how it reads text (`TextConfig`) and of how it is run (`RunConfig`).

The letters used everywhere: B sequences, T tokens of one sequence, N real tokens of a batch, D model width, H heads,
G key heads, d head width, F feed-forward width, L layers, V vocabulary, P positions, Y token types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .errors import WeightsError, listed, shown

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
"""`gelu` is the exact erf form; `gelu_tanh` is the tanh approximation, used only when a model's config asks for it."""

LINEAR_MAPS = ("query", "key", "value", "output", "up", "gate", "down")
"""The linear maps of a layer; a model without a gate has no map of that name."""


@dataclass(frozen=True)
class AttentionKind:
    """What differs between the attention of one layer and another's in the same model."""

    window: int | None = None
    """How many keys a token sees on each side, beside its own; None for the whole sequence."""
    rotary_theta: float | None = None
    """Base of the rotary embedding of queries and keys; None for no rotation."""
    rotary_scale: float = 1.0
    """The rotary embedding divides positions by this number."""
    rotary_interleaved: bool = False
    """Whether the rotary embedding turns columns 2i and 2i+1 of a head together; else columns i and i + d/2."""
    causal: bool = False
    """Whether a token sees no key on its right."""


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of a transformer encoder, independent of the files that its weights came from.

    The defaults describe BERT: post-norm, with biases, without gate, window and rotation. Raises `WeightsError` when a
    value is impossible, with all the problems in one message.
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
    """P: rows of the position table, or the longest sequence of a model without one; 0 for neither table nor limit."""
    token_types: int = 0
    """Y: rows of the token type table; 0 when the model has none."""
    embedding_norm: bool = True
    """Whether a LayerNorm follows the sum of the embeddings."""
    position_offset: int = 0
    """Position id of a sequence's first token (RoBERTa: pad_token_id + 1)."""
    pad_token_id: int = 0
    norm_eps: float = 1e-12
    activation: str = "gelu"
    num_kv_heads: int = 0
    """G: heads of keys and values, a divisor of H; 0 for H."""
    position_table: bool = True
    """Whether positions have a table that is added to the embeddings."""
    norm: str = "layer"
    """"layer" for LayerNorm, "rms" for RMSNorm."""
    norm_place: str = "post"
    """"post": a norm after each residual sum. "pre": a norm before attention and feed-forward, and one after all."""
    norm_bias: bool = True
    """Whether LayerNorms have a bias."""
    first_attention_norm: bool = True
    """Whether the attention of a pre-norm model's layer 0 has a norm before it."""
    biases: tuple[str, ...] = LINEAR_MAPS
    """The linear maps that have a bias."""
    gated: bool = False
    """Whether the feed-forward network is down(activation(gate x) * (up x))."""
    attention_kinds: tuple[AttentionKind, ...] = (AttentionKind(),)
    layer_kinds: tuple[int, ...] = ()
    """For each layer, the index of its kind in `attention_kinds`; empty when all layers are of the first kind."""
    head_norm: bool = False
    """Whether an RMSNorm of each head of queries and keys comes before their rotation."""

    def __post_init__(self) -> None:
        problems = [f"{name} must be an int, not {shown(getattr(self, name))}" for name in _INTS
                    if type(getattr(self, name)) is not int]
        if not problems:
            problems += [f"{name} must be at least 1, not {shown(getattr(self, name))}" for name in _AT_LEAST_1
                         if getattr(self, name) < 1]
            problems += [f"{name} must not exceed {_LARGEST:,}, got {shown(getattr(self, name))}" for name in _INTS
                         if getattr(self, name) > _LARGEST]
            problems += [f"{name} must not be negative, got {shown(getattr(self, name))}" for name in _INTS
                         if getattr(self, name) < 0]
            if self.num_layers > _MAX_LAYERS:
                problems.append(f"num_layers must not exceed {_MAX_LAYERS:,}, got {shown(self.num_layers)}")
            if self.max_positions and self.position_offset >= self.max_positions:
                problems.append(f"position_offset {self.position_offset} leaves no room in {self.max_positions} "
                                "positions")
        if self.activation not in ACTIVATIONS:
            problems.append(f"activation must be one of {', '.join(ACTIVATIONS)}, not {shown(self.activation)}")
        if not (isinstance(self.norm_eps, float) and 0.0 < self.norm_eps < 1.0):
            problems.append(f"norm_eps must be a float between 0 and 1, not {shown(self.norm_eps)}")
        problems += [f"{name} must be a {expected.__name__}, not {shown(getattr(self, name))}"
                     for name, expected in _TYPES.items() if type(getattr(self, name)) is not expected]
        if not problems and not (self.family.isprintable() and len(self.family) <= _MAX_FAMILY):
            problems.append(f"family must be at most {_MAX_FAMILY} printable characters, not {shown(self.family)}")
        problems = problems or list(self._impossible_options())
        if problems:
            raise WeightsError("impossible model configuration: " + "; ".join(problems))

    def _impossible_options(self) -> Iterator[str]:
        """Describe each option beyond BERT's that is impossible, once all have the right types."""
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            yield f"num_kv_heads {self.num_kv_heads} must divide num_heads {self.num_heads}"
        for name, choices in (("norm", ("layer", "rms")), ("norm_place", ("post", "pre"))):
            if getattr(self, name) not in choices:
                yield f"{name} must be one of {', '.join(choices)}, not {shown(getattr(self, name))}"
        if len(self.biases) > len(LINEAR_MAPS) or not all(name in LINEAR_MAPS for name in self.biases):
            yield f"biases must be some of {', '.join(LINEAR_MAPS)}, not {shown(self.biases)}"
        if not self.attention_kinds or not all(isinstance(kind, AttentionKind) for kind in self.attention_kinds):
            yield f"attention_kinds must be one or more AttentionKind, not {shown(self.attention_kinds)}"
            return
        if len(self.attention_kinds) > _MAX_LAYERS:
            yield f"attention_kinds must be at most {_MAX_LAYERS:,} kinds, not {len(self.attention_kinds):,}"
            return
        for kind in self.attention_kinds:
            if kind.window is not None and (type(kind.window) is not int or not 0 <= kind.window <= _LARGEST):
                yield f"window must be None or an int from 0 to {_LARGEST:,}, not {shown(kind.window)}"
            theta = kind.rotary_theta
            if theta is not None and (not isinstance(theta, float) or not 0.0 < theta < 1e15):
                yield f"rotary_theta must be None or a float above 0, not {theta!r}"
            if not isinstance(kind.rotary_scale, float) or not 1e-6 < kind.rotary_scale < 1e6:
                yield f"rotary_scale must be a float between 1e-6 and 1e6, not {kind.rotary_scale!r}"
            for name in _KIND_BOOLS:
                if type(getattr(kind, name)) is not bool:
                    yield f"{name} must be a bool, not {getattr(kind, name)!r}"
            if theta is not None and (self.head_width % 2 or not 0 < self.max_positions <= _MOST_ROTARY_POSITIONS):
                yield ("a rotary embedding needs heads of an even width and max_positions from 1 to "
                       f"{_MOST_ROTARY_POSITIONS:,}, not {self.head_width} and {self.max_positions}")
        kinds = range(len(self.attention_kinds))
        if self.layer_kinds and (len(self.layer_kinds) != self.num_layers
                                 or not all(type(kind) is int and kind in kinds for kind in self.layer_kinds)):
            yield (f"layer_kinds must be empty or hold {self.num_layers} ints below {len(kinds)}, not "
                   f"{shown(self.layer_kinds)}")

    @property
    def kv_heads(self) -> int:
        """G: the number of key heads, which is also that of value heads."""
        return self.num_kv_heads or self.num_heads

    def attention_kind(self, layer: int) -> AttentionKind:
        """Return the kind of attention of a layer."""
        return self.attention_kinds[self.layer_kinds[layer] if self.layer_kinds else 0]

    @property
    def longest_sequence(self) -> int | None:
        """Longest sequence that the model's positions allow, or None when there is no such limit."""
        return self.max_positions - self.position_offset if self.max_positions else None

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that `from_json` turns back into an equal config.

        An option beyond BERT's is left out where it has its default, so that older engines can read the rest.
        """
        values = asdict(self) | {"attention_kinds": tuple(map(_without_defaults, self.attention_kinds))}
        return {f.name: values[f.name] for f in fields(self)
                if f.name not in NEW_IN_VERSION_2 or getattr(self, f.name) != f.default}

    @classmethod
    def from_json(cls, values: Any) -> ModelConfig:
        """Rebuild from `to_json`'s dictionary; unknown and missing names raise `WeightsError`."""
        if not isinstance(values, dict):
            raise WeightsError(f"model configuration must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in fields(cls)}
        required = {"family", "hidden_size", "num_layers", "num_heads", "head_width", "ffn_size"}
        if unknown := sorted(set(values) - known):
            raise WeightsError(f"unknown names in the model configuration: {listed(unknown)}; "
                               f"known: {', '.join(sorted(known))}")
        if missing := sorted(required - set(values)):
            raise WeightsError(f"the model configuration lacks: {', '.join(missing)}")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        if "attention_kinds" in values:
            values["attention_kinds"] = _read_kinds(values["attention_kinds"])
        return cls(**values)


def _without_defaults(kind: AttentionKind) -> dict[str, Any]:
    """Return the options of a kind of attention that do not have their defaults."""
    return {f.name: getattr(kind, f.name) for f in fields(kind) if getattr(kind, f.name) != f.default}


def _read_kinds(entries: Any) -> tuple[AttentionKind, ...]:
    names = {f.name for f in fields(AttentionKind)}
    if not isinstance(entries, tuple) or not all(isinstance(e, dict) and e.keys() <= names for e in entries):
        raise WeightsError(f"attention_kinds must be a list of objects with {', '.join(sorted(names))}, "
                           f"not {str(entries)[:80]}")
    return tuple(AttentionKind(**entry) for entry in entries)


NEW_IN_VERSION_2 = ("num_kv_heads", "position_table", "norm", "norm_place", "norm_bias", "first_attention_norm",
                    "biases", "gated", "attention_kinds", "layer_kinds", "head_norm")
"""Options that version 1 of the .npz does not know: a file that uses one of them is of version 2."""

_AT_LEAST_1 = ("hidden_size", "num_layers", "num_heads", "head_width", "ffn_size")
_INTS = (*_AT_LEAST_1, "vocab_size", "max_positions", "token_types", "position_offset", "pad_token_id", "num_kv_heads")
_TYPES = {"embedding_norm": bool, "family": str, "position_table": bool, "norm": str, "norm_place": str,
          "norm_bias": bool, "first_attention_norm": bool, "biases": tuple, "gated": bool, "attention_kinds": tuple,
          "layer_kinds": tuple, "head_norm": bool}
_KIND_BOOLS = ("rotary_interleaved", "causal")
_LARGEST = 2**24
_MOST_ROTARY_POSITIONS = 2**17
_MAX_LAYERS = 10_000
_MAX_FAMILY = 100


def _is_unicode(text: Any) -> bool:
    """Return whether a value is a string without half of a surrogate pair, which cannot be printed or tokenized."""
    return isinstance(text, str) and not any("\ud800" <= character <= "\udfff" for character in text)


POOLINGS = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")


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

    def __post_init__(self) -> None:
        types = {"tokenizer_json": bytes, "pooling": tuple, "normalize": bool, "include_prompt": bool,
                 "lower_case": bool, "prompts": dict, "feeds_token_types": bool}
        problems = [f"{name} must be a {expected.__name__}, not a {type(getattr(self, name)).__name__}"
                    for name, expected in types.items() if type(getattr(self, name)) is not expected]
        if problems:
            raise WeightsError("impossible text configuration: " + "; ".join(problems))
        if self.max_seq_length is not None and (type(self.max_seq_length) is not int or self.max_seq_length < 1):
            problems.append(f"max_seq_length must be a positive int or nothing, not {shown(self.max_seq_length)}")
        if not 1 <= len(self.pooling) <= len(POOLINGS) or not all(mode in POOLINGS for mode in self.pooling):
            problems.append(f"pooling must be one or more of {', '.join(POOLINGS)}, {len(POOLINGS)} at most, "
                            f"not {shown(self.pooling)}")
        if not all(_is_unicode(text) for entry in self.prompts.items() for text in entry):
            problems.append(f"prompts must map names to texts, both valid Unicode, not {shown(self.prompts)}")
        if self.default_prompt_name is not None and self.default_prompt_name not in list(self.prompts):
            problems.append(f"default_prompt_name {shown(self.default_prompt_name)} is not one of the prompts, "
                            f"{listed(self.prompts)}")
        if problems:
            raise WeightsError("impossible text configuration: " + "; ".join(problems))

    def to_json(self) -> dict[str, Any]:
        """Return all but the tokenizer as a plain dictionary, which `from_json` turns back into an equal config.

        A field that version 1 of the .npz does not know is left out where it has its default.
        """
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tokenizer_json"
                and (f.name not in TEXT_NEW_IN_VERSION_2 or getattr(self, f.name) != f.default)}

    @classmethod
    def from_json(cls, values: Any, tokenizer_json: bytes) -> TextConfig:
        """Rebuild a config from `to_json`'s dictionary and the tokenizer; raises `WeightsError` for unknown names."""
        if not isinstance(values, dict):
            raise WeightsError(f"text configuration must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in fields(cls)} - {"tokenizer_json"}
        if unknown := sorted(set(values) - known):
            raise WeightsError(f"unknown names in the text configuration: {listed(unknown)}; "
                               f"known: {', '.join(sorted(known))}")
        if isinstance(values.get("pooling"), list):
            values = values | {"pooling": tuple(values["pooling"])}
        return cls(tokenizer_json, **values)


TEXT_NEW_IN_VERSION_2 = ("feeds_token_types",)
"""Fields of the text configuration that version 1 of the .npz does not know."""


@dataclass(frozen=True)
class RunConfig:
    """The settings with which a backend runs a model."""

    threads: int = 1
    """Number of threads of one forward pass, including the calling thread."""
    precision: str = "float32"
    """Precision of linear weights and of the operands that they multiply: "float32", "bfloat16" or "int8". Everything
    else is float32. A backend refuses a precision that it lacks."""
    max_tokens: int = 8192
    """Largest number of tokens that are computed together. It bounds the workspace but not the size of a batch, because
    a larger batch runs as several groups of sequences."""
