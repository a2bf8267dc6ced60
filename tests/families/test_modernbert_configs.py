"""ModernBERT's config.json, in both dialects, and the names of its tensors; test_vectors.py compares vectors."""

import numpy as np
import pytest

from engine import UnsupportedError, WeightsError

from ..tools.golden_models import assert_same_bits

LONG = {"rope_type": "longrope", "rope_theta": 160000.0, "factor": 4.0}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
GLOBAL = DEFAULT | {"rope_theta": 160000.0}


def test_what_an_old_config_leaves_out_is_as_in_transformers(run_changed, unchanged):
    without = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "local_attention", "norm_eps",
               "layer_norm_eps", "norm_bias", "attention_bias", "mlp_bias", "hidden_activation",
               "position_embedding_type")
    assert_same_bits(run_changed("modernbert_old", without), unchanged("modernbert_old"))


def test_what_a_new_config_leaves_out_is_as_in_transformers(run_changed, unchanged):
    without = ("rope_parameters", "local_attention", "norm_eps", "norm_bias", "attention_bias", "mlp_bias",
               "hidden_activation")
    expected = unchanged("modernbert_new")
    assert_same_bits(run_changed("modernbert_new", without), expected)
    assert_same_bits(run_changed("modernbert_new", rope_parameters={"full_attention": None}), expected)
    default = {"sliding_attention": {"rope_type": "default"}}
    assert_same_bits(run_changed("modernbert_new", rope_parameters=default), expected)


def test_one_model_in_both_dialects(run_changed, unchanged):
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    ropes = {"full_attention": DEFAULT | {"rope_theta": 160000.0}, "sliding_attention": DEFAULT}
    without = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
    expected = unchanged("modernbert_old")
    assert_same_bits(run_changed("modernbert_old", without, layer_types=kinds, rope_parameters=ropes), expected)
    assert_same_bits(run_changed("modernbert_old", layer_types=kinds, rope_parameters=ropes), expected)
    assert_same_bits(run_changed("modernbert_old", layer_types=None, rope_parameters=None, rope_scaling=None), expected)
    without = ("layer_types", "rope_parameters")
    assert_same_bits(run_changed("modernbert_biases", without, global_rope_theta=80000, local_rope_theta=500),
                     unchanged("modernbert_biases"))


@pytest.mark.parametrize("changes", [
    {"sparse_prediction": True}, {"reference_compile": True}, {"deterministic_flash_attn": True},
    {"position_embedding_type": "sans_pos"}, {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "attention_dropout": 0.1},
    {"classifier_activation": "silu", "classifier_bias": True, "classifier_pooling": "cls"}, {"decoder_bias": False},
    {"tie_word_embeddings": False}, {"architectures": ["ModernBertModel"]}, {"initializer_cutoff_factor": 3.0},
], ids=lambda changes: ", ".join(changes))  # fmt: skip
def test_keys_that_do_not_change_the_vectors_are_ignored(changes, run_changed, unchanged):
    assert_same_bits(run_changed("modernbert_old", **changes), unchanged("modernbert_old"))


def test_names_without_prefix_and_with_other_heads(run_changed, unchanged):
    other = {"decoder.weight": (120, 36), "classifier.weight": (2, 36), "classifier.bias": (2,)}
    extra = {name: np.ones(shape, np.float32) for name, shape in other.items()}
    expected = unchanged("modernbert_old")
    assert_same_bits(run_changed("modernbert_old", rename=lambda name: name.removeprefix("model.")), expected)
    assert_same_bits(run_changed("modernbert_old", extra=extra), expected)


@pytest.mark.parametrize(("named", "changes"), [
    ("hidden_activation", {"hidden_activation": "laplace"}),
    ("hidden_activation", {"hidden_activation": None}),
    ("longrope", {"rope_parameters": {"full_attention": LONG, "sliding_attention": DEFAULT}}),
    ("longrope", {"rope_parameters": {"full_attention": GLOBAL, "sliding_attention": LONG}}),
    ("longrope", {"rope_scaling": {"type": "longrope", "factor": 4.0}}),
    ("rope_theta", {"rope_parameters": {"full_attention": DEFAULT, "sliding_attention": DEFAULT}}),
    ("rope_parameters", {"rope_parameters": DEFAULT | {"rope_theta": 500.0}}),
    ("rope_theta", {"local_rope_theta": "10000"}),
    ("rope_theta", {"global_rope_theta": 0}),
    ("layer_types", {"layer_types": ["full_attention", "sliding_attention"] * 2}),
    ("layer_types", {"layer_types": ["full_attention", "chunked_attention", "sliding_attention", "full_attention"]}),
    ("layer_types", {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}),
    ("layer_types", {"layer_types": "full_attention"}),
    ("global_attn_every_n_layers", {"global_attn_every_n_layers": 0}),
    ("local_attention", {"local_attention": -1}),
    ("local_attention", {"local_attention": "128"}),
    ("norm_bias", {"norm_bias": "no"}),
    ("attention_bias", {"attention_bias": 0.5}),
    ("norm_eps", {"norm_eps": "1e-5"}),
    ("heads", {"num_attention_heads": 5}),
    ("head", {"num_attention_heads": 4}),  # heads of 9 columns, which cannot be rotated in halves
    ("quantization_config", {"quantization_config": {"bits": 8}}),
], ids=str)  # fmt: skip
def test_a_config_that_the_engine_cannot_follow_is_refused_by_name(named, changes, run_changed):
    with pytest.raises((UnsupportedError, WeightsError), match=named) as refusal:
        run_changed("modernbert_old", **changes)
    assert "model_type" not in str(refusal.value)


def test_biases_that_the_config_states_must_be_there(run_changed):
    for flag in ("norm_bias", "attention_bias", "mlp_bias"):
        with pytest.raises(WeightsError, match=r"\.bias"):  # the dot, for the path in the message has "biases" in it
            run_changed("modernbert_old", **{flag: True})


def test_a_norm_in_layer_0_is_refused(run_changed):
    extra = {"model.layers.0.attn_norm.weight": np.ones(36, np.float32)}
    with pytest.raises(WeightsError, match=r"attn_norm|attention\.norm"):
        run_changed("modernbert_old", extra=extra)
