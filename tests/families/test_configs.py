"""The configs of the families: defaults, dialects, and what is refused; the rows are in families/cases.py."""

import json

import numpy as np
import pytest

from engine import EngineError, UnsupportedError, WeightsError
from engine.families import FAMILIES, get_family

from ..tools.encoders import load_encoder
from ..tools.golden_models import GOLDEN, assert_same_bits
from .cases import CASES, CONFIGS, NEW_CONFIGS

SAME = [row for case in CASES for row in case.same]
REFUSED = {name: changes for case in CASES for name, changes in case.refused.items()}


@pytest.mark.parametrize(("name", "without", "changes"), SAME)
def test_the_same_model_in_other_words(name, without, changes, run_changed, unchanged):
    assert_same_bits(run_changed(name, without, **changes), unchanged(name))


@pytest.mark.parametrize("name", REFUSED)
def test_a_config_that_the_engine_cannot_follow_is_refused_by_name(name, run_changed, refusals):
    refusals(lambda changes: run_changed(name, **changes), REFUSED[name])


@pytest.mark.parametrize("key", ["rotary_emb_fraction", "activation_function", "qkv_proj_bias"])
def test_nomics_own_config_has_own_defaults(key, run_changed):
    with pytest.raises((UnsupportedError, WeightsError), match=r"query\.bias" if key == "qkv_proj_bias" else key):
        run_changed("nomic_own", (key,))


@pytest.mark.parametrize(("changes", "longest"), [
    ({}, 320), ({"max_position_embeddings": 300}, 320), ({"rotary_scaling_factor": 2}, 310),
    ({"rotary_scaling_factor": 2, "max_position_embeddings": 300}, 310)])
def test_nomic_ends_where_frequencies_would_be_scaled(changes, longest):
    values = json.loads((GOLDEN / "nomic_own" / "config.json").read_text(encoding="utf-8"))
    assert FAMILIES["nomic_bert"].read_encoder(values | changes).config.longest_sequence == longest


def test_rotary_frequencies_in_a_checkpoint_are_left_out(run_changed, unchanged):
    extra = {"encoder.layers.0.attn.rotary_emb.inv_freq": np.ones(6, np.float32)}
    assert_same_bits(run_changed("nomic_own", extra=extra), unchanged("nomic_own"))


def test_tensors_of_other_heads_are_left_out(run_changed, unchanged):
    other = {"decoder.weight": (120, 36), "classifier.weight": (2, 36), "classifier.bias": (2,)}
    extra = {name: np.ones(shape, np.float32) for name, shape in other.items()}
    assert_same_bits(run_changed("modernbert_old", extra=extra), unchanged("modernbert_old"))


def test_a_norm_in_the_first_layer_of_modernbert_is_refused(run_changed):
    extra = {"model.layers.0.attn_norm.weight": np.ones(36, np.float32)}
    with pytest.raises(WeightsError, match=r"attn_norm|attention\.norm"):
        run_changed("modernbert_old", extra=extra)


def test_gtes_own_prefix(run_changed, unchanged):
    renamed = run_changed("gte_own", rename=lambda name: name.replace("gte.", "new."))
    assert_same_bits(renamed, unchanged("gte_own"))


@pytest.mark.parametrize("name", ["t5_own", "t5_near", "umt5_relu"])
def test_the_word_table_of_t5_under_any_of_its_names(name, run_changed, unchanged):
    for other in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        renamed = run_changed(name, rename=lambda tensor, other=other: tensor.replace("shared.weight", other))
        assert_same_bits(renamed, unchanged(name))
        # A second copy is not looked at: transformers takes it for the same tensor.
        beside = run_changed(name, extra={other: np.full((120, 3), np.nan, np.float32)})
        assert_same_bits(beside, unchanged(name))


def test_head_of_a_language_model_is_left_out():
    assert load_encoder(GOLDEN / "nomic_new").config.num_layers == 3


@pytest.mark.parametrize("name", sorted(CONFIGS.keys() | NEW_CONFIGS.keys()))
def test_no_number_gives_another_error_than_our_own(name):
    refused = 0
    for values in filter(None, (CONFIGS.get(name), NEW_CONFIGS.get(name))):
        values = {"model_type": name} | values
        own = values.get("text_config", values)
        for key in own:
            for number in (10**400, -10**400, 2**63, 10**18, 1e308, 1e-320, float("inf"), float("nan"), -1, 0):
                changed = own | {key: number}
                changed = changed if own is values else values | {"text_config": changed}
                try:
                    get_family(changed).read_encoder(changed)
                except EngineError:
                    refused += 1
    assert refused > 40
