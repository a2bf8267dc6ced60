"""OPT (Zhang et al. 2022, arXiv 2205.01068): pre-norm layers with ReLU, and learned positions from row 2 on."""

from __future__ import annotations

from ..base.errors import UnsupportedError, shown
from ..model.config import LINEAR_MAPS
from . import bart
from .fields import activation, boolean, integer, refuse_variants, sizes
from .names import Names
from .parts import Family, Part, Parts, Values, decoder_config

_OFFSET = 2
"""The row of the first position, in a table with as many rows more than max_position_embeddings."""

NAMES = Names(
    prefix=("model.decoder.", "decoder."),
    embeddings={
        "embed_tokens.weight": "embeddings.word", "embed_positions.weight": "embeddings.position",
        "final_layer_norm.weight": "final_norm.weight", "final_layer_norm.bias": "final_norm.bias",
    },
    layers="layers.",
    layer=bart.LAYER,
    left_out=("score.", "qa_outputs."),
    copies={"embeddings.word": ("lm_head.weight",)},
)
_SUPPORTED = {"do_layer_norm_before": True, "_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True,
              "tie_word_embeddings": True}
"""The only values of these keys that are supported."""


def read_generator(values: Values) -> Parts:
    """Return the decoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    refuse_variants(values, _SUPPORTED)
    shape = sizes(values, vocab=50272)
    width = shape["hidden_size"]
    if values.get("word_embed_proj_dim") not in (None, width):
        raise UnsupportedError(f"word_embed_proj_dim = {shown(values['word_embed_proj_dim'])} is not supported; only "
                               f"hidden_size, {width}, is: the engine has no map behind the last layer")
    config = decoder_config(
        family="opt",
        **shape,
        ffn_size=integer(values, "ffn_dim", 3072),
        max_positions=integer(values, "max_position_embeddings", 2048) + _OFFSET,
        position_table=True,
        position_offset=_OFFSET,
        norm_eps=1e-5,
        biases=LINEAR_MAPS if boolean(values, "enable_bias", True) else (),
        activation=activation(values, "activation_function", "relu"),
    )
    return Parts(Part(config, NAMES))


FAMILIES = {"opt": Family(read_generator=read_generator)}
