"""T5 (Raffel et al. 2020, arXiv 1910.10683), mT5 (Xue et al. 2021, 2010.11934), umT5 (Chung et al. 2023, 2304.09151).

Layers are pre-norm with RMSNorm, and linear maps have no biases. Scores are not scaled. One table of biases by distance
serves all layers; umT5 has a table in every layer.
"""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.attention import AttentionKind
from ..model.config import ModelConfig
from . import fields
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number, optional_integer, padding_id
from .heads import TAGS
from .names import Names
from .parts import Family, Part, Parts, Values, Weights

NAMES = Names(
    prefix="transformer.",
    embeddings={
        "shared.weight": "embeddings.word",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": "distance_bias.weight",
        "encoder.final_layer_norm.weight": "final_norm.weight",
    },
    layers="encoder.block.",
    layer={
        "layer.0.layer_norm": "attention.norm",
        "layer.0.SelfAttention.q": "attention.query", "layer.0.SelfAttention.k": "attention.key",
        "layer.0.SelfAttention.v": "attention.value", "layer.0.SelfAttention.o": "attention.output",
        "layer.1.layer_norm": "ffn.norm",
        "layer.1.DenseReluDense.wi": "ffn.up", "layer.1.DenseReluDense.wi_0": "ffn.gate",
        "layer.1.DenseReluDense.wi_1": "ffn.up", "layer.1.DenseReluDense.wo": "ffn.down",
    },
    left_out=("decoder.", "lm_head.", "classification_head.", "qa_outputs."),
    copies={"embeddings.word": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")},
    heads=(TAGS,),
)

_CROSS = {f"layer.1.EncDecAttention.{name}": f"cross.{ours}" for name, ours in
          (("q", "query"), ("k", "key"), ("v", "value"), ("o", "output"))}  # fmt: skip
DECODER = Names(
    prefix="transformer.",
    embeddings={
        **{name.replace("encoder.", "decoder."): ours for name, ours in NAMES.embeddings.items()},
        "lm_head.weight": "logits.weight",
    },
    layers="decoder.block.",
    layer={
        **{name.replace("layer.1.", "layer.2."): ours for name, ours in NAMES.layer.items()},
        "layer.1.layer_norm": "cross.norm",
        **_CROSS,
    },
    # Google's checkpoints have a table of biases for cross-attention, which nothing reads.
    left_out=("encoder.", "classification_head.", "classifier.", "qa_outputs.",
              "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."),
    copies={"embeddings.word": ("decoder.embed_tokens.weight", "encoder.embed_tokens.weight")},
)

_BIAS = "layer.0.SelfAttention.relative_attention_bias"     # the name in a layer of the table of biases by distance


def _biases_in_layers(names: Names) -> Names:
    """Return T5's names with a table of biases in every layer, in place of one for all of them."""
    embeddings = {name: ours for name, ours in names.embeddings.items() if ours != "distance_bias.weight"}
    return names.with_layer({_BIAS: "attention.distance_bias"}, embeddings=embeddings)


UMT5, UMT5_DECODER = _biases_in_layers(NAMES), _biases_in_layers(DECODER)

DIALECT = {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
           "head_dim": "d_kv"}  # fmt: skip
"""Names that transformers gives to the keys of T5's config, beside T5's own names."""

MT5 = {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
"""The defaults of mT5 and umT5 that differ from T5's."""


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    fields.refuse_variants(values)
    family = values.get("model_type", "t5")
    values = ({} if family == "t5" else MT5) | fields.merge_dialects(values, DIALECT)
    act, gated = _feed_forward(values)
    return ModelConfig(
        family=str(family),
        hidden_size=integer(values, "d_model", 512),
        num_layers=integer(values, "num_layers", 6),
        num_heads=integer(values, "num_heads", 8),
        head_width=integer(values, "d_kv", 64),
        ffn_size=integer(values, "d_ff", 2048),
        vocab_size=integer(values, "vocab_size", 32128),
        position_table=False,
        embedding_norm=False,
        pad_token_id=padding_id(values, 0),
        norm="rms",
        norm_place="pre",
        norm_eps=number(values, "layer_norm_epsilon", 1e-6),
        biases=(),
        activation=act,
        gated=gated,
        attention_scale=1.0,
        attention_bias="buckets",
        bias_buckets=integer(values, "relative_attention_num_buckets", 32),
        bias_in_layers=family == "umt5",
        bias_max_distance=integer(values, "relative_attention_max_distance", 128),
    )


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    config = read_config(values)
    return Part(config, UMT5 if config.bias_in_layers else NAMES)


def read_generator(values: Values) -> Parts:
    """Return the encoder and the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    encoder = read_encoder(values)
    names = UMT5_DECODER if encoder.config.bias_in_layers else DECODER
    return Parts(Part(_decoder_config(values, encoder.config), names, _untied_where_stored), encoder)


def _decoder_config(values: Values, encoder: ModelConfig) -> ModelConfig:
    """Return the architecture of the decoder beside this encoder.

    T5's logits are scaled by D^-0.5 where they are tied; transformers 5 says so with scale_decoder_outputs, because it
    ties in any case. mT5's are never scaled: its files have logits of their own.
    """
    tied = boolean(values, "tie_word_embeddings", True)
    scaled = encoder.family != "mt5" and boolean(values, "scale_decoder_outputs", tied)
    return replace(
        encoder,
        num_layers=optional_integer(values, "num_decoder_layers", encoder.num_layers),
        attention_kinds=(AttentionKind(causal=True),),
        bias_one_sided=True,
        memory_size=encoder.hidden_size,
        logits="tied",
        logits_scale=encoder.hidden_size**-0.5 if scaled else 1.0,
    )


def _untied_where_stored(config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the configuration with untied logits if the file has their tensor, whatever tie_word_embeddings says."""
    return replace(config, logits="own" if "logits.weight" in weights else "tied"), weights


def _feed_forward(values: Values) -> tuple[str, bool]:
    """Return (the activation, whether there is a gate), from feed_forward_proj and two keys that may state it again."""
    stated = values.get("feed_forward_proj", "relu")
    if not isinstance(stated, str) or stated.count("-") > 1 or ("-" in stated and not stated.startswith("gated-")):
        raise UnsupportedError(f"feed_forward_proj {shown(stated)} is not supported; supported are an activation, and "
                               "an activation after 'gated-'")
    name, gated = stated.removeprefix("gated-"), "-" in stated
    name = "gelu_new" if stated == "gated-gelu" else name       # as transformers reads it, for older files
    act = activation({"feed_forward_proj": name}, "feed_forward_proj", supported=GATE_ACTIVATIONS)
    if (activation(values, "dense_act_fn", name, GATE_ACTIVATIONS) != act
            or boolean(values, "is_gated_act", gated) != gated):  # fmt: skip
        raise WeightsError(f"feed_forward_proj {stated} and dense_act_fn {shown(values.get('dense_act_fn'))} with "
                           f"is_gated_act {shown(values.get('is_gated_act'))} disagree; remove the wrong ones")
    return act, gated


FAMILIES = {
    "mt5": Family(read_encoder, read_generator),
    "t5": Family(read_encoder, read_generator, classes="T5"),
    "umt5": Family(read_encoder, read_generator),
}
REFUSED_CLASSES = dict.fromkeys(("ChronosBoltModelForForecasting", "Chronos2Model"), "forecasts series of numbers")
