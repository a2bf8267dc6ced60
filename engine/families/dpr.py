"""DPR (Karpukhin et al. 2020, arXiv 2004.04906): BERT as an encoder of questions or of passages, by its first token."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..base.errors import UnsupportedError, WeightsError, shown
from ..model.config import ModelConfig
from . import bert
from .fields import integer
from .parts import Family, Part, Values, Weights

_PARTS = ("ctx_encoder.", "question_encoder.")

NAMES = replace(
    bert.NAMES,
    prefix=(*(f"{part}bert_model." for part in _PARTS), "bert_model."),
    # encode_proj, which projection_dim asks for, becomes the linear map after pooling.
    embeddings={**bert.NAMES.embeddings, **{f"{part}encode_proj.{kind}": f"dense.0.{kind}"
                                            for part in (*_PARTS, "") for kind in ("weight", "bias")}},
    left_out=("pooler.", "embeddings.position_ids", "embeddings.token_type_ids"),
    heads=(),
)


def read_encoder(values: Values) -> Part:
    """Return the encoder that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    finish = partial(_check_projection, integer(values, "projection_dim", 0))
    return Part(read_config(values), NAMES, finish=finish, text=lambda text, settings: replace(text, pooling=("cls",)))


def read_config(values: Values) -> ModelConfig:
    """Return the architecture that a config.json describes; raises `WeightsError` or `UnsupportedError`."""
    names = values.get("architectures")
    if isinstance(names, list) and "DPRReader" in names:
        raise UnsupportedError(f"architectures {shown(names)} is not supported: a DPRReader scores the answers in "
                               "several passages; supported are DPRContextEncoder and DPRQuestionEncoder")
    return replace(bert.read_config(values), family="dpr")


def _check_projection(width: int, config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return both unchanged; raises `WeightsError` unless the map after pooling is [width, D], or absent for width 0.

    It is a `Part.finish`. width: projection_dim of config.json.
    """
    map_shape = weights["dense.0.weight"].shape if "dense.0.weight" in weights else ()
    expected = (width, config.hidden_size) if width else ()
    if map_shape != expected:
        raise WeightsError(f"by projection_dim {width}, encode_proj must have the shape {list(expected)}, not "
                           f"{list(map_shape)}; the shape of a map that is not there is []")
    return config, weights


FAMILIES = {"dpr": Family(read_encoder, own_keys=("projection_dim",))}
