"""`ModelConfig`: the architecture of a model. families/ make it from files; programs/ and the plans read it.

The letters used everywhere: B sequences, T tokens of one sequence, N real tokens of a batch, D model width, H heads,
G key heads, d head width, F feed-forward width, L layers, V vocabulary, P positions, Y token types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ..base.advice.attributes import CONFIG
from ..base.errors import WeightsError, listed, shown
from .attention import AttentionKind, RelativePositions, read_kinds, read_relative, without_defaults
from .config_checks import LARGEST, impossible_decoder, impossible_kind, impossible_relative, impossible_tokens, wrong
from .json_values import names_from, types_of, with_tuples

ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
"""`gelu` is the exact erf form; `gelu_tanh` is the tanh approximation, used only when a model's config asks for it."""

NORM_PLACES = ("post", "pre", "sandwich", "reordered", "parallel")
"""Where the norms of a layer stand; see `ModelConfig.norm_place`."""

ATTENTION_BIASES = (None, "alibi", "buckets")
"""The biases of attention's scores by the distance from the query to the key."""

QKV_MAPS = ("query", "key", "value")
ATTENTION_MAPS = (*QKV_MAPS, "output")
FEED_FORWARD_MAPS = ("up", "gate", "down")
LINEAR_MAPS = (*ATTENTION_MAPS, *FEED_FORWARD_MAPS)
"""The linear maps of a layer; a model without a gate has no map of that name."""


@dataclass(frozen=True)
class ModelConfig:
    """The architecture of a transformer encoder or decoder, independent of the files that its weights came from.

    The defaults describe BERT: post-norm, with biases, without gate, window and rotation. Raises `WeightsError` when a
    value is impossible, with all the problems in one message.
    """

    family: str
    """Name of the family it was read from, e.g. "bert"; informative only."""
    hidden_size: int
    """D: width of the residual stream."""
    num_layers: int
    """L; 0 for a static model, whose token vectors are rows of the word table (`static_config`)."""
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
    """"post": a norm after each residual sum. "pre": a norm before attention and feed-forward, and one after all.
    "sandwich": as "pre", and also a norm after attention and feed-forward, before the residual sum. "reordered": a norm
    after attention and feed-forward alone, before the residual sum, and one after all. "parallel": as "pre", but
    attention and feed-forward both read the input of the layer, through norms of their own."""
    norm_bias: bool = True
    """Whether LayerNorms have a bias."""
    final_norm: bool | None = None
    """Whether a norm follows the last layer; None for a norm unless `norm_place` is "post"."""
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
    joint_norm: bool = False
    """Whether an RMSNorm of all heads of a token together, of queries and of keys, comes in place of `head_norm`."""
    attention_scale: float | None = None
    """The factor of q k^T; None for 1/sqrt(d)."""
    attention_softcap: float = 0.0
    """c > 0 maps each score s into (-c, c), c tanh(s/c), before biases; 0 for no cap. Gemma Team (arXiv 2408.00118)."""
    attention_bias: str | None = None
    """What is added to the scores by the distance from the query to the key: "alibi" for ALiBi in both directions,
    "buckets" for rows of a table [bias_buckets, H] by T5's buckets of the distance; None for nothing."""
    bias_buckets: int = 0
    """Rows of the table of "buckets", half of them for keys after the query unless `bias_one_sided` is True."""
    bias_max_distance: int = 0
    """The last bucket of each direction holds all distances from about this one on."""
    bias_in_layers: bool = False
    """Whether each layer has its own table of "buckets"; else one table serves all layers."""
    relative: RelativePositions | None = None
    """The table of relative positions that changes the scores of all layers; None for none."""
    embedding_width: int = 0
    """E: width of the tables if a linear map takes the embeddings to D, after their norm; 0 for tables of width D."""
    embedding_scale: float = 1.0
    """The rows of the word table are multiplied by this number."""
    dropped_id: int | None = None
    """ESM's token dropout: the word embedding of this token is zero, and the word embeddings of the other tokens of a
    sequence are divided by the share of its tokens that are not this one; None for no such token."""
    dense_tokens: int = 0
    """The most tokens of a sequence whose sparse attention is attention to all tokens, as in BigBird; longer ones are
    refused. 0 for a model without sparse attention."""
    weight_sets: tuple[int, ...] = ()
    """For each layer, the number of the set of weights that it has, from 0 on without a gap; empty: one set a layer."""
    bias_one_sided: bool = False
    """Whether all "buckets" are for keys at or before the query, as in the decoder of T5."""
    logits: str | None = None
    """The product that gives a decoder's scores of the next token: "tied" with the word table, "own" with a matrix of
    its own; None for a model that gives token vectors."""
    logits_size: int = 0
    """The number of logits of a decoder that gives the vectors that heads read, in place of words; 0 for V."""
    logits_bias: bool = False
    """Whether the logits have a bias."""
    logits_scale: float = 1.0
    """The vectors are multiplied by this number before the product with the vocabulary."""
    logits_softcap: float = 0.0
    """c > 0 maps each logit x into (-c, c), c tanh(x/c); 0 for no cap."""
    memory_size: int = 0
    """The width of the encoder's vectors, which each layer of a decoder reads by cross-attention; 0 for none."""

    @property
    def decodes(self) -> bool:
        """Return whether the model is a decoder, which gives scores of the next token."""
        return self.logits is not None

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for an impossible architecture."""
        problems = wrong(self, _INTS, lambda number: type(number) is int, "an int")
        if not problems:
            static = self.num_layers == 0 and self.num_heads == 0
            problems += wrong(self, _AT_LEAST_1_STATIC if static else _AT_LEAST_1, lambda size: size >= 1, "at least 1")
            problems += [f"{name} must not exceed {LARGEST:,}, got {shown(getattr(self, name))}" for name in _INTS
                         if getattr(self, name) > LARGEST]
            problems += [f"{name} must not be negative, got {shown(getattr(self, name))}" for name in _INTS
                         if getattr(self, name) < 0]
            if self.num_layers > MOST_LAYERS:
                problems.append(f"num_layers must not exceed {MOST_LAYERS:,}, got {shown(self.num_layers)}")
            if self.max_positions and self.position_offset >= self.max_positions:
                problems.append(f"position_offset {self.position_offset} leaves no room in {self.max_positions} "
                                "positions")
        problems += wrong(self, ("activation",), ACTIVATIONS.__contains__, f"one of {', '.join(ACTIVATIONS)}")
        problems += wrong(self, ("norm_eps",), lambda eps: isinstance(eps, float) and 0.0 < eps < 1.0,
                          "a float between 0 and 1")
        problems += [f"{name} must be a {expected.__name__}, not {shown(getattr(self, name))}"
                     for name, expected in _TYPES.items() if type(getattr(self, name)) is not expected]
        if not problems and not (self.family.isprintable() and len(self.family) <= _MAX_FAMILY):
            problems.append(f"family must be at most {_MAX_FAMILY} printable characters, not {shown(self.family)}")
        problems = problems or list(self._impossible_options())
        if problems:
            raise WeightsError("impossible model configuration: " + "; ".join(problems))

    def _impossible_options(self) -> Iterator[str]:
        """Yield a message for each option beyond BERT's that is impossible, once all have the right types."""
        if self.num_layers == 0:
            # A static model reads no other options, so they must have their defaults.
            if others := [f.name for f in fields(self) if f.name not in _OF_STATIC
                          and getattr(self, f.name) != _WITHOUT_LAYERS.get(f.name, f.default)]:
                yield f"a model without layers has a word table alone, and no {listed(others)}"
            return
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            yield f"num_kv_heads {self.num_kv_heads} must divide num_heads {self.num_heads}"
        for name, choices in (("norm", ("layer", "rms")), ("norm_place", NORM_PLACES)):
            if getattr(self, name) not in choices:
                yield f"{name} must be one of {', '.join(choices)}, not {shown(getattr(self, name))}"
        yield from self._impossible_scores()
        final_norm: Any = self.final_norm
        if final_norm not in (None, True, False) or type(final_norm) is int:        # 1 equals True, but is no bool
            yield f"final_norm must be None or a bool, not {shown(final_norm)}"
        if not 1e-6 < self.embedding_scale < 1e6:
            yield f"embedding_scale must be a float between 1e-6 and 1e6, not {shown(self.embedding_scale)}"
        yield from impossible_decoder(self)
        yield from impossible_tokens(self)
        if len(self.biases) > len(LINEAR_MAPS) or not all(name in LINEAR_MAPS for name in self.biases):
            yield f"biases must be some of {', '.join(LINEAR_MAPS)}, not {shown(self.biases)}"
        if not self.attention_kinds or not all(isinstance(kind, AttentionKind) for kind in self.attention_kinds):
            yield f"attention_kinds must be one or more AttentionKind, not {shown(self.attention_kinds)}"
            return
        if len(self.attention_kinds) > MOST_LAYERS:
            yield f"attention_kinds must be at most {MOST_LAYERS:,} kinds, not {len(self.attention_kinds):,}"
            return
        for kind in self.attention_kinds:
            yield from impossible_kind(kind, self.head_width, self.max_positions)
        yield from impossible_relative(self.relative)
        kinds = range(len(self.attention_kinds))
        if self.layer_kinds and (len(self.layer_kinds) != self.num_layers
                                 or not all(type(kind) is int and kind in kinds for kind in self.layer_kinds)):
            yield (f"layer_kinds must be empty or hold {self.num_layers} ints below {len(kinds)}, not "
                   f"{shown(self.layer_kinds)}")
        sets = self.weight_sets
        if sets and (len(sets) != self.num_layers
                     or not all(type(number) is int and 0 <= number < self.num_layers for number in sets)
                     or len(set(sets)) <= max(sets)):
            yield (f"weight_sets must be empty or hold {self.num_layers} ints, from 0 on without a gap, not "
                   f"{shown(sets)}")

    def _impossible_scores(self) -> Iterator[str]:
        """Yield a message for each impossible option among those that change the scores of attention."""
        scale, buckets = self.attention_scale, self.bias_buckets
        if scale is not None and (not isinstance(scale, float) or not 1e-6 < scale < 1e6):
            yield f"attention_scale must be None or a float between 1e-6 and 1e6, not {shown(scale)}"
        for name in ("attention_softcap", "logits_softcap"):
            if getattr(self, name) != 0.0 and not 1e-3 <= getattr(self, name) <= 1e6:
                yield f"{name} must be 0.0 or a float from 0.001 to 1e6, not {shown(getattr(self, name))}"
        if self.attention_softcap and self.relative is not None:
            yield "attention_softcap cannot go with the option relative"
        if self.head_norm and self.joint_norm:
            yield "head_norm and joint_norm cannot go together"
        if self.attention_bias not in ATTENTION_BIASES:
            choices = ", ".join(map(str, ATTENTION_BIASES))
            yield f"attention_bias must be one of {choices}, not {shown(self.attention_bias)}"
        if self.attention_bias is not None and self.num_heads > _MOST_BIASED_HEADS:
            yield f"attention_bias needs at most {_MOST_BIASED_HEADS} heads, not {shown(self.num_heads)}"
        if self.attention_bias == "buckets":
            exact = buckets // (2 if self.bias_one_sided else 4)    # in each direction, those of one distance
            if buckets < 4 or buckets % 2:
                yield f"bias_buckets must be even and at least 4, not {shown(buckets)}"
            elif self.bias_max_distance <= exact:
                yield (f"bias_max_distance must be above {exact}, a {'half' if self.bias_one_sided else 'quarter'} of "
                       f"the {buckets} buckets, not {shown(self.bias_max_distance)}")
        elif buckets or self.bias_max_distance or self.bias_in_layers or self.bias_one_sided:
            yield ("bias_buckets, bias_max_distance, bias_in_layers and bias_one_sided need attention_bias "
                   "'buckets'")

    @property
    def logits_width(self) -> int:
        """The number of logits of a token."""
        return self.logits_size or self.vocab_size

    @property
    def kv_heads(self) -> int:
        """G: the number of key heads, which is also that of value heads."""
        return self.num_kv_heads or self.num_heads

    @property
    def table_width(self) -> int:
        """The width of the embedding tables: E or, without a map of the embeddings, D."""
        return self.embedding_width or self.hidden_size

    @property
    def ends_in_norm(self) -> bool:
        """Return whether a norm follows the last layer."""
        return self.norm_place != "post" if self.final_norm is None else self.final_norm

    def weight_set(self, layer: int) -> int:
        """Return the number of the set of weights of a layer (from 0), which other layers may share."""
        return self.weight_sets[layer] if self.weight_sets else layer

    def attention_kind(self, layer: int) -> AttentionKind:
        """Return the kind of attention of a layer."""
        return self.attention_kinds[self.layer_kinds[layer] if self.layer_kinds else 0]

    @property
    def longest_sequence(self) -> int | None:
        """Longest sequence that the model's positions allow, or None when there is no such limit."""
        return self.max_positions - self.position_offset if self.max_positions else None

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that `from_json` turns back into an equal config.

        An option beyond BERT's is left out if it has its default, so that older engines can read the others.
        """
        values = asdict(self) | {"attention_kinds": tuple(map(without_defaults, self.attention_kinds))}
        return {f.name: values[f.name] for f in fields(self)
                if f.name not in NEW_IN_VERSION_2 or getattr(self, f.name) != f.default}

    @classmethod
    def from_json(cls, values: Any) -> ModelConfig:
        """Return the config of a dictionary of `to_json`; unknown and missing names raise `WeightsError`."""
        if not isinstance(values, dict):
            raise WeightsError(f"model configuration must be a JSON object, not {type(values).__name__}")
        known = {f.name for f in fields(cls)}
        required = {"family", "hidden_size", "num_layers", "num_heads", "head_width", "ffn_size"}
        if unknown := sorted(set(values) - known):
            raise WeightsError(f"unknown names in the model configuration: {listed(unknown)}; "
                               f"known: {', '.join(sorted(known))}")
        if missing := sorted(required - set(values)):
            raise WeightsError(f"the model configuration lacks: {', '.join(missing)}")
        values = with_tuples(values)
        if "attention_kinds" in values:
            values["attention_kinds"] = read_kinds(values["attention_kinds"])
        if values.get("relative") is not None:
            values["relative"] = read_relative(values["relative"])
        return cls(**values)

    if not TYPE_CHECKING:  # for mypy, an attribute that is not here is an error

        def __getattr__(self, name: str) -> Any:
            """Raise `AttributeError`, with advice for an attribute that the configurations of transformers have."""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}"
                                 f"{f'; {CONFIG[name]}' if name in CONFIG else ''}")


NEW_IN_VERSION_2 = names_from(ModelConfig, "num_kv_heads")
"""Options that version 1 of the .npz files does not know: a file that uses one of them is of version 2."""


def static_config(family: str, hidden_size: int, vocab_size: int) -> ModelConfig:
    """Return the configuration of a model without layers: the vector of a token is its row of a table [V, D]."""
    return ModelConfig(family, hidden_size, vocab_size=vocab_size, **_WITHOUT_LAYERS)


_WITHOUT_LAYERS: dict[str, Any] = {"num_layers": 0, "num_heads": 0, "head_width": 0, "ffn_size": 0,
                                   "embedding_norm": False, "position_table": False, "biases": ()}
"""The options of a static model that do not have their defaults."""
_OF_STATIC = ("family", "hidden_size", "vocab_size")
"""The options in which static models differ."""
_AT_LEAST_1_STATIC = ("hidden_size", "vocab_size")
_AT_LEAST_1 = ("hidden_size", "num_layers", "num_heads", "head_width", "ffn_size")
_CHECKED = types_of(ModelConfig)
_INTS = [name for name, kind in _CHECKED.items() if kind is int]
_TYPES = {name: kind for name, kind in _CHECKED.items() if kind is not int and name not in ("activation", "norm_eps")}
MOST_LAYERS = 2_000
_MOST_BIASED_HEADS = 1024
_MAX_FAMILY = 100
