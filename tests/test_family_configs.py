"""The configs of the families with rotary positions beside ModernBERT: defaults, dialects, and what is refused."""

import json

import numpy as np
import pytest

from engine import UnsupportedError, WeightsError
from engine.families import FAMILIES
from engine.model import load_model

from .golden_models import GOLDEN, assert_same_bits

NOMIC_IN_NEW_KEYS = {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 29, "num_hidden_layers": 2,
                     "layer_norm_eps": 1e-12, "hidden_act": "silu", "max_position_embeddings": 320, "head_dim": None,
                     "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}

GTE_IN_NEW_KEYS = {"model_type": "gte", "rope_parameters": {"rope_type": "linear", "rope_theta": 160000.0,
                                                            "factor": 8.0 ** (2 / 22)}}

SAME = [
    # (golden model, keys removed from its config, keys added); all give the same vectors
    ("nomic_own", (), NOMIC_IN_NEW_KEYS),
    ("nomic_own", ("n_embd", "n_head", "n_inner", "n_layer", "layer_norm_epsilon", "activation_function",
                   "rotary_emb_base", "rotary_emb_fraction", "n_positions", "max_trained_positions", "qkv_proj_bias",
                   "mlp_fc1_bias", "mlp_fc2_bias", "type_vocab_size"), NOMIC_IN_NEW_KEYS),
    ("nomic_own", (), {"rotary_scaling_factor": 2}),
    ("nomic_own", (), {"moe_every_n_layers": 0, "use_flash_attn": False, "fused_bias_fc": False, "resid_pdrop": 0.5}),
    ("nomic_new", ("hidden_act", "type_vocab_size", "head_dim", "pad_token_id"), {}),
    ("nomic_new", ("rope_parameters",), {"rotary_emb_base": 70}),
    ("gte_own", ("rope_theta", "rope_scaling", "position_embedding_type", "layer_norm_type"), GTE_IN_NEW_KEYS),
    ("gte_own", ("hidden_act", "layer_norm_eps", "type_vocab_size", "pad_token_id", "logn_attention_scale"), {}),
    ("gte_own", (), {"rope_scaling": {"rope_type": "ntk", "factor": 8}, "rope_parameters": None}),
    ("gte_own", (), {"unpad_inputs": False, "use_memory_efficient_attention": False, "logn_attention_clip1": True}),
    ("eurobert_old", ("rope_theta", "rope_scaling"), {"rope_parameters": {"rope_theta": 250000.0}}),
    ("eurobert_old", ("hidden_act", "rms_norm_eps", "attention_bias", "mlp_bias", "num_key_value_heads", "head_dim"),
     {}),
    ("eurobert_old", (), {"classifier_pooling": "bos", "use_cache": True, "num_key_value_heads": None}),
    ("eurobert_new", ("rope_parameters", "hidden_act"), {}),
    ("jina_v3", ("rope_parameters", "hidden_act", "type_vocab_size"), {"rope_theta": 20000, "lora_adaptations": None}),
    ("neobert_own", ("dim_head", "pad_token_id"), {"rope": True, "rms_norm": True, "hidden_act": "swiglu"}),
    ("qwen3_old", ("rope_theta", "rope_scaling"), {"rope_parameters": {"rope_theta": 1000000.0}}),
    ("qwen3_old", ("hidden_act", "rms_norm_eps", "attention_bias", "use_sliding_window"),
     {"layer_types": ["full_attention"] * 3, "sliding_window": 4096, "pad_token_id": None}),
    ("gte_new", ("rope_parameters",), {"rope_theta": 500, "rope_parameters": {"rope_type": "linear", "factor": 3}}),
]

REFUSED = [
    # (golden model, the key that the message names, keys added)
    ("nomic_own", "n_embd", {"hidden_size": 40}),
    ("nomic_own", "layer_norm_epsilon", {"layer_norm_eps": 1e-5}),
    ("nomic_own", "rotary_emb_base", {"rope_parameters": {"rope_theta": 10000.0}}),
    ("nomic_own", "rotary_emb_base", {"rotary_emb_base": None}),
    ("nomic_own", "rotary_emb_fraction", {"rotary_emb_fraction": 0.5}),
    ("nomic_own", "rotary_emb_interleaved", {"rotary_emb_interleaved": True}),
    ("nomic_own", "rotary_emb_scale_base", {"rotary_emb_scale_base": 512}),
    ("nomic_own", "prenorm", {"prenorm": True}),
    ("nomic_own", "parallel_block", {"parallel_block": True}),
    ("nomic_own", "causal", {"causal": True}),
    ("nomic_own", "use_rms_norm", {"use_rms_norm": True}),
    ("nomic_own", "scale_attn_weights", {"scale_attn_weights": False}),
    ("nomic_own", "moe_every_n_layers", {"moe_every_n_layers": 2}),
    ("nomic_own", "activation_function", {"activation_function": "gelu"}),
    ("nomic_own", "activation_function", {"activation_function": "glu"}),
    ("nomic_own", "activation_function", {"hidden_act": "gelu"}),
    ("nomic_own", r"query\.bias", {"qkv_proj_bias": True}),
    ("nomic_own", r"gate\.bias", {"mlp_fc1_bias": True}),
    ("nomic_own", r"down\.bias", {"mlp_fc2_bias": True}),
    ("nomic_new", "dynamic", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 70.0, "factor": 2.0}}),
    ("nomic_new", "hidden_act", {"hidden_act": "quick_gelu"}),
    ("gte_own", "logn_attention_scale", {"logn_attention_scale": True}),
    ("gte_own", "position_embedding_type", {"position_embedding_type": "absolute"}),
    ("gte_own", "layer_norm_type", {"layer_norm_type": "rms_norm"}),
    ("gte_own", "hidden_act", {"hidden_act": "quick_gelu"}),
    ("gte_own", "mixed_b", {"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.5}}),
    ("gte_own", "dynamic", {"rope_scaling": {"type": "dynamic", "factor": 8.0}}),
    ("gte_own", "rope_scaling", {"rope_scaling": {"type": "ntk"}}),
    ("gte_own", "factor", {"rope_scaling": {"type": "ntk", "factor": 0.0}}),
    ("gte_own", "rope_theta", {"rope_parameters": {"rope_type": "default", "rope_theta": 160000.0}}),
    ("gte_own", "factor", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 20000}}),
    ("gte_own", "yarn", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 20000}}),
    ("gte_own", "hidden size 0", {"hidden_size": 0}),
    ("gte_own", "token_type", {"type_vocab_size": 0}),
    ("eurobert_old", "rope_scaling", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("eurobert_old", "rope_theta", {"rope_parameters": {"rope_theta": 10000.0}}),
    ("eurobert_old", "num_kv_heads", {"num_key_value_heads": 2}),
    ("eurobert_old", r"query\.weight", {"head_dim": 12}),
    ("eurobert_old", r"key\.weight", {"num_key_value_heads": 1}),
    ("eurobert_old", r"output\.bias", {"attention_bias": True}),
    ("eurobert_old", r"down\.bias", {"mlp_bias": True}),
    ("eurobert_old", "hidden_act", {"hidden_act": "relu2"}),
    ("eurobert_new", "is_decoder", {"is_decoder": True}),
    ("jina_v3", "lora_adaptations", {"lora_adaptations": ["retrieval.query", "text-matching"]}),
    ("jina_v3", "position_embedding_type", {"position_embedding_type": "absolute"}),
    ("jina_v3", "linear", {"rope_parameters": {"rope_type": "linear", "rope_theta": 20000.0, "factor": 2.0}}),
    ("jina_v3", "hidden_act", {"hidden_act": "silu"}),
    ("neobert_own", "rope", {"rope": False}),
    ("neobert_own", "rms_norm", {"rms_norm": False}),
    ("neobert_own", "ngpt", {"ngpt": True}),
    ("neobert_own", "hidden_act", {"hidden_act": "gelu"}),
    ("neobert_own", "ffn_size", {"intermediate_size": 10**400}),
    ("neobert_own", "dim_head", {"dim_head": 16}),
    ("neobert_own", r"gate\.weight", {"intermediate_size": 42 + 8}),
    ("qwen3_old", "use_sliding_window", {"use_sliding_window": True}),
    ("qwen3_old", "layer_types", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    ("qwen3_old", "layer_types", {"layer_types": 3}),
    ("qwen3_old", "layer_types", {"layer_types": "full_attention"}),
    ("qwen3_old", "is_causal", {"is_causal": False}),
    ("qwen3_old", "use_bidirectional_attention", {"use_bidirectional_attention": True}),
    ("qwen3_old", "yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    ("qwen3_old", r"key\.weight", {"num_key_value_heads": None}),
    ("qwen3_old", r"output\.bias", {"attention_bias": True}),
    ("nomic_new", "quantization_config", {"quantization_config": {"bits": 8}}),
]


@pytest.mark.parametrize(("name", "without", "changes"), SAME)
def test_the_same_model_in_other_words(name, without, changes, run_changed, unchanged):
    assert_same_bits(run_changed(name, without, **changes), unchanged(name))


@pytest.mark.parametrize(("name", "named", "changes"), REFUSED)
def test_a_config_that_the_engine_cannot_follow_is_refused_by_name(name, named, changes, run_changed):
    with pytest.raises((UnsupportedError, WeightsError), match=named):
        run_changed(name, **changes)


@pytest.mark.parametrize("key", ["rotary_emb_fraction", "activation_function", "qkv_proj_bias"])
def test_nomics_own_config_has_own_defaults(key, run_changed):
    with pytest.raises((UnsupportedError, WeightsError), match=r"query\.bias" if key == "qkv_proj_bias" else key):
        run_changed("nomic_own", (key,))


@pytest.mark.parametrize(("changes", "longest"), [
    ({}, 320), ({"max_position_embeddings": 300}, 320), ({"rotary_scaling_factor": 2}, 310),
    ({"rotary_scaling_factor": 2, "max_position_embeddings": 300}, 310)])
def test_nomic_ends_where_frequencies_would_be_scaled(changes, longest):
    values = json.loads((GOLDEN / "nomic_own" / "config.json").read_text(encoding="utf-8"))
    assert FAMILIES["nomic_bert"].read_config(values | changes).longest_sequence == longest


def test_rotary_frequencies_in_a_checkpoint_are_left_out(run_changed, unchanged):
    extra = {"encoder.layers.0.attn.rotary_emb.inv_freq": np.ones(6, np.float32)}
    assert_same_bits(run_changed("nomic_own", extra=extra), unchanged("nomic_own"))


def test_gtes_own_prefix(run_changed, unchanged):
    renamed = run_changed("gte_own", rename=lambda name: name.replace("gte.", "new."))
    assert_same_bits(renamed, unchanged("gte_own"))


def test_head_of_a_language_model_is_left_out():
    assert load_model(GOLDEN / "nomic_new").config.num_layers == 3
