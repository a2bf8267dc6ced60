"""The configs of the families beside BERT and ModernBERT: defaults, dialects, and what is refused."""

import json

import numpy as np
import pytest

from engine import EngineError, UnsupportedError, WeightsError
from engine.families import FAMILIES, get_family
from engine.model import load_model

from .fuzz.corpus import CONFIGS, NEW_CONFIGS
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
    ("mpnet_own", ("relative_attention_num_buckets", "hidden_act", "pad_token_id"), {"pad_token_id": None}),
    ("mpnet_own", (), {"type_vocab_size": 2, "pad_token_id": 7}),
    ("t5_own", ("relative_attention_num_buckets", "feed_forward_proj", "layer_norm_epsilon", "model_type"),
     {"model_type": "t5", "relative_attention_max_distance": 128, "dense_act_fn": "relu", "is_gated_act": False}),
    ("t5_own", ("d_model", "num_heads", "num_layers", "d_kv"),
     {"hidden_size": 34, "num_attention_heads": 4, "num_hidden_layers": 3, "head_dim": 11}),
    ("t5_gated", (), {"dense_act_fn": "gelu_new", "is_gated_act": True, "tie_word_embeddings": False}),
    ("mt5_encoder", ("feed_forward_proj", "dense_act_fn", "is_gated_act", "relative_attention_num_buckets"), {}),
    ("umt5_encoder", ("feed_forward_proj", "dense_act_fn", "is_gated_act", "relative_attention_max_distance"), {}),
    ("jina_v2", ("auto_map", "emb_pooler", "attn_implementation", "layer_norm_eps", "type_vocab_size"), {}),
    ("gte_new", ("rope_parameters",), {"rope_theta": 500, "rope_parameters": {"rope_type": "linear", "factor": 3}}),
    ("albert_shared", ("num_hidden_groups", "inner_group_num", "hidden_act", "layer_norm_eps", "type_vocab_size"),
     {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}),
    ("electra_small", ("hidden_act", "layer_norm_eps", "type_vocab_size"), {"summary_type": "first"}),
    ("gemma_new", ("rope_parameters", "layer_types", "hidden_activation", "rms_norm_eps", "attention_bias"), {}),
    ("gemma_new", (), {"rope_theta": 1000000.0, "rope_local_base_freq": 10000, "final_logit_softcapping": 30.0}),
    ("gemma_biased", ("layer_types",), {}),
    ("gemma_linear", ("rope_theta", "rope_local_base_freq", "rope_scaling"), {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}}),
    ("qwen3_yarn", ("rope_scaling", "rope_theta"), {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 80,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0, "attention_factor": None, "truncate": True}}),
    ("qwen3_old", ("rope_scaling",), {"rope_scaling": {"type": "default"}}),
    ("eurobert_old", ("rope_scaling",), {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("eurobert_dynamic", ("rope_parameters",), {"rope_theta": 500.0}),
    ("nomic_new", ("rope_parameters",), {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 70, "factor": 2}}),
    ("nomic_linear", ("rope_parameters",), {"rotary_emb_base": 300, "rope_scaling": {"type": "linear", "factor": 5}}),
    ("gte_yarn", ("rope_parameters",), {"rope_theta": 500, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 80, "beta_fast": 32}}),
    ("modernbert_linear", ("rope_scaling", "global_rope_theta", "local_rope_theta"), {"rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 900.0, "factor": 2.5},
        "sliding_attention": {"rope_type": "linear", "rope_theta": 200.0, "factor": 2.5}}}),
    ("clip_own", ("text_config_dict",), {"text_config_dict": {"hidden_size": 42, "vocab_size": 120}}),
    ("clip_bare", ("hidden_act", "pad_token_id", "projection_dim"), {"attention_dropout": 0.5}),
    ("siglip2_text", ("hidden_act", "layer_norm_eps", "projection_size"), {}),
    ("deberta_v3", (), {"pos_att_type": ["p2c", "c2p"]}),
    ("deberta_v3", (), {"pos_att_type": " C2P | p2c ", "norm_rel_ebd": "none|layer_norm", "conv_kernel_size": 0}),
    ("deberta_v3", ("max_relative_positions",), {"embedding_size": 33, "position_embedding_type": "relative"}),
    ("deberta_v3", (), {"max_position_embeddings": 330, "max_relative_positions": 320}),
    ("deberta_v3", ("type_vocab_size", "layer_norm_eps", "hidden_act"), {"attention_head_size": 11}),
    ("deberta_p2c", ("norm_rel_ebd",), {"position_buckets": -1, "position_biased_input": True}),
    ("deberta_c2p", ("share_att_key",), {}),
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
    ("nomic_new", "longrope", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 70.0, "factor": 2.0}}),
    ("nomic_new", "scaled_by", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "scaled_by": 2.0}}),
    ("modernbert_new", "longrope", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}),
    ("modernbert_linear", "needs a factor", {"rope_scaling": {"rope_type": "linear"}}),
    ("gte_new", "ntk_scaled", {"rope_parameters": {"rope_type": "ntk_scaled", "factor": 2.0}}),
    ("gte_yarn", "beta_fast", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "beta_fast": 32.0}}),
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
    ("eurobert_old", "rope_scaling", {"rope_scaling": {"type": "dynamic", "alpha": 2.0}}),
    ("eurobert_old", "rope_scaling", {"rope_scaling": {"type": "default", "factor": 2.0}}),
    ("eurobert_old", "rope_scaling", {"rope_scaling": {"type": ["linear"], "factor": 2.0}}),
    ("eurobert_old", "rope_scaling", {"rope_scaling": "linear"}),
    ("eurobert_old", "needs a factor", {"rope_scaling": {"type": "linear"}}),
    ("eurobert_old", "needs a factor", {"rope_scaling": {"type": "linear", "factor": 0.5}}),
    ("eurobert_old", "factor", {"rope_scaling": {"type": "linear", "factor": float("inf")}}),
    ("eurobert_llama3", "high_freq_factor", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}}),
    ("eurobert_llama3", "rope_theta", {"rope_theta": 400.0}),
    ("eurobert_llama3", "beta_fast", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "beta_fast": 32.0}}),
    ("qwen3_yarn", "not supported", {"rope_parameters": {"rope_type": "linear", "rope_theta": 700.0, "factor": 4.0}}),
    ("gemma_linear", "longrope", {"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0], "factor": 8.0}}),
    ("eurobert_old", "rope_theta", {"rope_parameters": {"rope_theta": 10000.0}}),
    ("eurobert_old", "num_kv_heads", {"num_key_value_heads": 2}),
    ("eurobert_old", r"query\.weight", {"head_dim": 12}),
    ("eurobert_old", r"key\.weight", {"num_key_value_heads": 1}),
    ("eurobert_old", r"output\.bias", {"attention_bias": True}),
    ("eurobert_old", r"down\.bias", {"mlp_bias": True}),
    ("eurobert_old", "hidden_act", {"hidden_act": "relu2"}),
    ("eurobert_new", "is_decoder", {"is_decoder": True}),
    ("jina_v3", "lora_adaptations", {"lora_adaptations": "retrieval.query"}),
    ("jina_v3", "position_embedding_type", {"position_embedding_type": "absolute"}),
    ("jina_v3", "proportional", {"rope_parameters": {"rope_type": "proportional", "rope_theta": 20000.0}}),
    ("jina_v3", "hidden_act", {"hidden_act": "silu"}),
    ("neobert_own", "rope", {"rope": False}),
    ("neobert_own", "rms_norm", {"rms_norm": False}),
    ("neobert_own", "ngpt", {"ngpt": True}),
    ("neobert_own", "hidden_act", {"hidden_act": "gelu"}),
    ("neobert_own", "intermediate_size must be an integer of 64 bits", {"intermediate_size": 10**400}),
    ("neobert_own", "dim_head", {"dim_head": 16}),
    ("neobert_own", r"gate\.weight", {"intermediate_size": 42 + 8}),
    ("qwen3_old", "use_sliding_window", {"use_sliding_window": True}),
    ("qwen3_old", "layer_types", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    ("qwen3_old", "layer_types", {"layer_types": 3}),
    ("qwen3_old", "layer_types", {"layer_types": "full_attention"}),
    ("qwen3_old", "is_causal", {"is_causal": False}),
    ("qwen3_old", "use_bidirectional_attention", {"use_bidirectional_attention": True}),
    ("qwen3_old", "yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "scaled_by": 2.0}}),
    ("qwen3_old", r"key\.weight", {"num_key_value_heads": None}),
    ("qwen3_old", r"output\.bias", {"attention_bias": True}),
    ("mpnet_own", "relative_attention_num_buckets", {"relative_attention_num_buckets": 64}),
    ("mpnet_own", "position_embedding_type", {"position_embedding_type": "relative_key"}),
    ("mpnet_own", "position_embedding_type", {"position_embedding_type": "alibi"}),
    ("mpnet_own", "attention heads", {"num_attention_heads": 4}),
    ("t5_own", "feed_forward_proj", {"feed_forward_proj": "gated-gelu-new"}),
    ("t5_own", "feed_forward_proj", {"feed_forward_proj": "plain-relu"}),
    ("t5_own", "feed_forward_proj", {"feed_forward_proj": None}),
    ("t5_own", "feed_forward_proj", {"feed_forward_proj": "quick_gelu"}),
    ("t5_own", "dense_act_fn", {"dense_act_fn": "gelu_new"}),
    ("t5_own", "is_gated_act", {"is_gated_act": True}),
    ("t5_own", r"gate\.weight", {"feed_forward_proj": "gated-relu"}),
    ("t5_gated", r"gate\.weight", {"feed_forward_proj": "gelu_new", "dense_act_fn": "gelu_new", "is_gated_act": False}),
    ("t5_own", "num_heads", {"num_attention_heads": 3}),
    ("t5_own", "is_decoder", {"is_decoder": True}),
    ("t5_own", r"query\.weight", {"d_kv": 10}),
    ("t5_own", "bias_buckets", {"relative_attention_num_buckets": 31}),
    ("t5_own", "bias_max_distance", {"relative_attention_max_distance": 8}),
    ("t5_own", r"distance_bias\.weight has shape \[32, 4\], expected", {"relative_attention_num_buckets": 30}),
    ("t5_own", r"missing layers\.1\.attention\.distance_bias\.weight", {"model_type": "umt5"}),
    ("umt5_relu", "relative_attention_bias", {"model_type": "mt5"}),
    ("jina_v2", "feed_forward_type", {"feed_forward_type": "original"}),
    ("jina_v2", "feed_forward_type", {"feed_forward_type": ["geglu"]}),
    ("jina_v2", "qk-post-norm", {"auto_map": {"AutoModel": "jina-bert-v2-qk-post-norm--modeling.JinaBertModel"}}),
    ("jina_v2", "auto_map", {"auto_map": {"AutoModel": "modeling.OtherModel"}}),
    ("jina_v2", "auto_map", {"position_embedding_type": "relative_key"}),
    ("albert_shared", "inner_group_num", {"inner_group_num": 2}),
    ("albert_shared", "num_hidden_groups", {"num_hidden_groups": 0}),
    ("albert_shared", "num_hidden_groups", {"num_hidden_groups": 5}),
    ("albert_shared", r"layers\.1\.attention", {"num_hidden_groups": 2}),
    ("albert_shared", r"projection\.weight has shape \[42, 20\], expected \[42, 21\]", {"embedding_size": 21}),
    ("albert_shared", "position_embedding_type", {"position_embedding_type": "relative_key"}),
    ("albert_shared", "hidden_act", {"hidden_act": "silu"}),
    ("electra_small", r"projection\.weight", {"embedding_size": 42}),
    ("electra_base", r"projection\.weight", {"embedding_size": 20}),
    ("electra_small", "embedding_width", {"embedding_size": -1}),
    ("electra_small", "is_decoder", {"is_decoder": True}),
    ("gemma_new", "use_bidirectional_attention", {"use_bidirectional_attention": False}),
    ("gemma_new", "attn_logit_softcapping", {"attn_logit_softcapping": 50.0}),
    ("gemma_new", "query_pre_attn_scalar", {"query_pre_attn_scalar": 0}),
    ("gemma_new", "sliding_window", {"sliding_window": -1}),
    ("gemma_new", "sliding_window", {"sliding_window": None}),
    ("gemma_new", "layer_types", {"layer_types": ["full_attention"]}),
    ("gemma_new", "layer_types", {"layer_types": ["chunked_attention"] * 7}),
    ("gemma_new", "rope_local_base_freq", {"rope_local_base_freq": 500.0}),
    ("gemma_biased", "sliding_window_pattern", {"sliding_window_pattern": 0}),
    ("gemma_biased", r"query\.bias", {"attention_bias": False}),
    ("gemma_new", "hidden_activation", {"hidden_activation": "relu2"}),
    ("clip_own", "hidden_act", {"text_config": {"hidden_act": "silu"}}),
    ("clip_own", "attention heads", {"text_config": {"num_attention_heads": 7}}),
    ("clip_own", "text_config must be an object", {"text_config": [1]}),
    ("clip_own", "text_config_dict", {"text_config_dict": "x"}),
    ("clip_own", "disagree on 'hidden_size'", {"text_config_dict": {"hidden_size": 41}}),
    ("clip_bare", "is_decoder", {"is_decoder": True}),
    ("clip_bare", r"position has shape \[300, 33\], expected \[301, 33\]", {"max_position_embeddings": 301}),
    ("siglip_text", "hidden_act", {"hidden_act": "tanh"}),
    ("nomic_new", "quantization_config", {"quantization_config": {"bits": 8}}),
    ("deberta_v3", "conv_kernel_size", {"conv_kernel_size": 3}),
    ("deberta_v3", "embedding_size", {"embedding_size": 16}),
    ("deberta_v3", "attention_head_size", {"attention_head_size": 16}),
    ("deberta_v3", "pos_att_type", {"pos_att_type": "p2c|p2p"}),
    ("deberta_v3", "pos_att_type", {"pos_att_type": None}),
    ("deberta_v3", "pos_att_type", {"pos_att_type": 3}),
    ("deberta_v3", "relative_attention", {"relative_attention": False}),
    ("deberta_v3", "norm_rel_ebd", {"norm_rel_ebd": "batch_norm"}),
    ("deberta_v3", "norm_rel_ebd", {"norm_rel_ebd": ["layer_norm"]}),
    ("deberta_v3", "buckets of relative", {"position_buckets": 1}),
    ("deberta_v3", "buckets of relative", {"position_buckets": 33}),
    ("deberta_v3", "buckets of relative", {"max_relative_positions": 17}),
    ("deberta_v3", r"embeddings\.relative", {"position_buckets": 30}),
    ("deberta_v3", r"embeddings\.relative_norm", {"norm_rel_ebd": "none"}),
    ("deberta_v3", r"attention\.relative_key", {"share_att_key": False}),
    ("deberta_v3", r"embeddings\.position", {"position_biased_input": True}),
    ("deberta_c2p", r"attention\.relative_query", {"pos_att_type": "c2p|p2c"}),
    ("deberta_v3", "model_type 'deberta'", {"model_type": "deberta"}),
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


@pytest.mark.parametrize("name", ["t5_own", "t5_near", "umt5_relu"])
def test_the_word_table_of_t5_under_any_of_its_names(name, run_changed, unchanged):
    for other in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        renamed = run_changed(name, rename=lambda tensor, other=other: tensor.replace("shared.weight", other))
        assert_same_bits(renamed, unchanged(name))
        # A second copy is not looked at: transformers takes it for the same tensor.
        beside = run_changed(name, extra={other: np.full((120, 3), np.nan, np.float32)})
        assert_same_bits(beside, unchanged(name))


def test_head_of_a_language_model_is_left_out():
    assert load_model(GOLDEN / "nomic_new").config.num_layers == 3


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
                    get_family(changed).read_config(changed)
                except EngineError:
                    refused += 1
    assert refused > 40
