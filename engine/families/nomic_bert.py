"""NomicBERT (Nussbaum et al. 2024, arXiv 2402.01613): BERT with rotary positions, a SwiGLU gate and no biases.

A config.json is in the dialect of the model's own code, with GPT-2's keys (n_embd), or in that of transformers 5, or in
both. A checkpoint has the names of one of the two.
"""

from __future__ import annotations

from ..base.errors import UnsupportedError, WeightsError
from ..model.attention import AttentionKind
from ..model.config import ATTENTION_MAPS, ModelConfig
from . import fields, heads
from .fields import GATE_ACTIVATIONS, activation, boolean, integer, number, optional_integer
from .gguf import POST_NORM, Architecture, Shapes, Stated, read_token_types
from .names import EMBEDDINGS, JOINED_HEADS, POST_NORM_LAYER, Names
from .parts import Values, plain

NAMES = Names(
    prefix=("nomic_bert.", "bert."),
    embeddings={"emb_ln.weight": "embeddings.norm.weight", "emb_ln.bias": "embeddings.norm.bias"} | EMBEDDINGS,
    layers=("encoder.layers.", "layers."),
    layer={
        "attn.Wqkv": "attention.qkv",
        "attn.out_proj": "attention.output",
        "norm1": "attention.norm",
        "mlp.fc11": "ffn.up", "mlp.fc12": "ffn.gate",
        "mlp.fc2": "ffn.down",
        "norm2": "ffn.norm",
    } | POST_NORM_LAYER,
    left_out=("pooler.", "classifier.", "cls.", "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=(
        heads.pooled(),
        heads.TAGS,
        heads.words("cls.predictions.transform.dense", "cls.predictions.transform.layer_norm",
                    "cls.predictions.decoder", "cls.predictions.bias"),
    ),
    joined=JOINED_HEADS,
)

NEW_KEYS = {"n_embd": "hidden_size", "n_head": "num_attention_heads", "n_inner": "intermediate_size",
            "n_layer": "num_hidden_layers", "layer_norm_epsilon": "layer_norm_eps"}
"""The key of transformers 5 for each key of the model's own code that means the same."""

SUPPORTED = {"prenorm": False, "parallel_block": False, "causal": False, "use_rms_norm": False,
             "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "scale_attn_weights": True,
             "scale_attn_by_inverse_layer_idx": False}


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes, in either dialect, each of which has its own defaults.

    Raises `WeightsError` or `UnsupportedError`.
    """
    fields.refuse_variants(values, SUPPORTED)
    own_dialect = "n_embd" in values and "hidden_size" not in values     # that of the model's own code
    if number(values, "rotary_emb_fraction", 0.0 if own_dialect else 1.0) != 1.0:
        raise UnsupportedError("rotary_emb_fraction must be 1; a head that is not rotated as a whole is not supported")
    if optional_integer(values, "moe_every_n_layers", 0) > 0:
        raise UnsupportedError(f"moe_every_n_layers {values['moe_every_n_layers']} is not supported; only 0 is")
    qkv, fc1, fc2 = (boolean(values, f"{name}_bias", own_dialect) for name in ("qkv_proj", "mlp_fc1", "mlp_fc2"))
    act, positions = _activation(values, own_dialect), _max_positions(values)
    values = fields.merge_dialects(values, NEW_KEYS)
    shape = fields.sizes(values, ffn=3072, vocab=30528, head_dim=True)
    rope = fields.rotary(values, "rotary_emb_base", 10000.0 if own_dialect else 1000.0, shape["head_width"])
    return ModelConfig(
        family="nomic_bert",
        **shape,
        max_positions=positions,
        position_table=False,
        token_types=integer(values, "type_vocab_size", 2),
        pad_token_id=fields.padding_id(values, 0),
        norm_eps=number(values, "layer_norm_eps", 1e-12),
        biases=(ATTENTION_MAPS if qkv else ()) + (("up", "gate") if fc1 else ()) + (("down",) if fc2 else ()),
        activation=act,
        gated=True,
        attention_kinds=(AttentionKind(**rope),),
    )


def _activation(values: Values, own_dialect: bool) -> str:
    """Return the activation of the gate. The model's own code has a gate only for an activation named ...glu.

    own_dialect: whether config.json has the keys of the model's own code alone.
    """
    new = activation(values, "hidden_act", "silu", GATE_ACTIVATIONS)
    if "activation_function" not in values and not own_dialect:
        return new
    old = activation(values, "activation_function", "gelu_new", {"swiglu": "silu", "geglu": "gelu"})
    if "hidden_act" in values and new != old:
        raise WeightsError(f"activation_function {values['activation_function']!r} and hidden_act "
                           f"{values['hidden_act']!r} disagree; remove the wrong one")
    return old


def _max_positions(values: Values) -> int:
    """Return the longest sequence in tokens; with rotary_scaling_factor, the longest one that is not yet scaled."""
    new = integer(values, "max_position_embeddings", 2048)
    longest, trained = integer(values, "n_positions", new), integer(values, "max_trained_positions", new)
    return longest if values.get("rotary_scaling_factor") is None else min(longest, trained)


def _of_gguf(values: Values, stated: Stated, shapes: Shapes) -> None:
    """Rename the key of theta in `values` to that of the model's own code, and add the number of token types."""
    read_token_types(values, stated, shapes)
    values["rotary_emb_base"] = values.pop("rope_theta", 10000.0)


FAMILIES = {"nomic_bert": plain(read_config, NAMES, remote_code=("NomicBertModel",))}
ARCHITECTURES = {"nomic-bert": Architecture("nomic_bert", eps="layer_norm_eps", change=_of_gguf, names=POST_NORM,
                                            encodes=True)}
