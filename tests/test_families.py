"""Test each family's config and tensor names, against names written by hand."""

from __future__ import annotations

import pytest

from engine.config import ModelConfig
from engine.errors import UnsupportedError, WeightsError
from engine.families import FAMILIES, REMOTE_CODE, get_family
from engine.parameters import expected_shapes

from .tiny_models import CONFIGS, hf_tensors

BERT_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.position_embeddings.weight": "embeddings.position",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type",
    "embeddings.LayerNorm.weight": "embeddings.norm.weight",
    "embeddings.LayerNorm.bias": "embeddings.norm.bias",
    "encoder.layer.11.attention.self.query.weight": "layers.11.attention.query.weight",
    "encoder.layer.0.attention.self.key.bias": "layers.0.attention.key.bias",
    "encoder.layer.0.attention.self.value.weight": "layers.0.attention.value.weight",
    "encoder.layer.0.attention.output.dense.weight": "layers.0.attention.output.weight",
    "encoder.layer.0.attention.output.LayerNorm.bias": "layers.0.attention.norm.bias",
    "encoder.layer.0.intermediate.dense.weight": "layers.0.ffn.up.weight",
    "encoder.layer.0.output.dense.bias": "layers.0.ffn.down.bias",
    "encoder.layer.0.output.LayerNorm.weight": "layers.0.ffn.norm.weight",
}
DISTILBERT_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.position_embeddings.weight": "embeddings.position",
    "embeddings.LayerNorm.weight": "embeddings.norm.weight",
    "transformer.layer.5.attention.q_lin.weight": "layers.5.attention.query.weight",
    "transformer.layer.0.attention.k_lin.bias": "layers.0.attention.key.bias",
    "transformer.layer.0.attention.v_lin.weight": "layers.0.attention.value.weight",
    "transformer.layer.0.attention.out_lin.weight": "layers.0.attention.output.weight",
    "transformer.layer.0.sa_layer_norm.weight": "layers.0.attention.norm.weight",
    "transformer.layer.0.ffn.lin1.weight": "layers.0.ffn.up.weight",
    "transformer.layer.0.ffn.lin2.bias": "layers.0.ffn.down.bias",
    "transformer.layer.0.output_layer_norm.bias": "layers.0.ffn.norm.bias",
}
MODERNBERT_NAMES = {
    "embeddings.tok_embeddings.weight": "embeddings.word",
    "embeddings.norm.weight": "embeddings.norm.weight",
    "final_norm.bias": "final_norm.bias",
    "layers.21.attn_norm.weight": "layers.21.attention.norm.weight",
    "layers.0.attn.Wqkv.weight": "layers.0.attention.qkv.weight",
    "layers.0.attn.Wo.bias": "layers.0.attention.output.bias",
    "layers.0.mlp_norm.weight": "layers.0.ffn.norm.weight",
    "layers.0.mlp.Wi.weight": "layers.0.ffn.gate_up.weight",
    "layers.0.mlp.Wo.weight": "layers.0.ffn.down.weight",
}
NOMIC_BERT_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type",
    "emb_ln.bias": "embeddings.norm.bias",
    "embeddings.LayerNorm.weight": "embeddings.norm.weight",
    "encoder.layers.11.attn.Wqkv.weight": "layers.11.attention.qkv.weight",
    "encoder.layers.0.attn.out_proj.weight": "layers.0.attention.output.weight",
    "encoder.layers.0.norm1.bias": "layers.0.attention.norm.bias",
    "encoder.layers.0.mlp.fc11.weight": "layers.0.ffn.up.weight",
    "encoder.layers.0.mlp.fc12.weight": "layers.0.ffn.gate.weight",
    "encoder.layers.0.mlp.fc2.weight": "layers.0.ffn.down.weight",
    "encoder.layers.0.norm2.weight": "layers.0.ffn.norm.weight",
    "layers.0.self_attn.q_proj.weight": "layers.0.attention.query.weight",
    "layers.0.post_attention_layernorm.bias": "layers.0.attention.norm.bias",
    "layers.0.mlp.gate_proj.weight": "layers.0.ffn.gate.weight",
    "layers.0.post_mlp_layernorm.weight": "layers.0.ffn.norm.weight",
}
GTE_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type",
    "embeddings.LayerNorm.weight": "embeddings.norm.weight",
    "encoder.layer.11.attention.qkv_proj.bias": "layers.11.attention.qkv.bias",
    "encoder.layer.0.attention.o_proj.weight": "layers.0.attention.output.weight",
    "encoder.layer.0.attn_ln.bias": "layers.0.attention.norm.bias",
    "encoder.layer.0.mlp.up_gate_proj.weight": "layers.0.ffn.up_gate.weight",
    "encoder.layer.0.mlp.down_proj.bias": "layers.0.ffn.down.bias",
    "encoder.layer.0.mlp_ln.weight": "layers.0.ffn.norm.weight",
    "layers.0.self_attn.v_proj.bias": "layers.0.attention.value.bias",
    "layers.0.post_attention_layernorm.bias": "layers.0.attention.norm.bias",
    "layers.0.mlp.up_proj.weight": "layers.0.ffn.up.weight",
    "layers.0.post_mlp_layernorm.weight": "layers.0.ffn.norm.weight",
}
EUROBERT_NAMES = {
    "embed_tokens.weight": "embeddings.word",
    "norm.weight": "final_norm.weight",
    "layers.11.input_layernorm.weight": "layers.11.attention.norm.weight",
    "layers.0.self_attn.q_proj.weight": "layers.0.attention.query.weight",
    "layers.0.self_attn.k_proj.bias": "layers.0.attention.key.bias",
    "layers.0.self_attn.v_proj.weight": "layers.0.attention.value.weight",
    "layers.0.self_attn.o_proj.weight": "layers.0.attention.output.weight",
    "layers.0.post_attention_layernorm.weight": "layers.0.ffn.norm.weight",
    "layers.0.mlp.gate_proj.weight": "layers.0.ffn.gate.weight",
    "layers.0.mlp.up_proj.bias": "layers.0.ffn.up.bias",
    "layers.0.mlp.down_proj.weight": "layers.0.ffn.down.weight",
}
JINA_V3_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type",
    "emb_ln.weight": "embeddings.norm.weight",
    "encoder.layers.23.mixer.Wqkv.bias": "layers.23.attention.qkv.bias",
    "encoder.layers.0.mixer.out_proj.weight": "layers.0.attention.output.weight",
    "encoder.layers.0.norm1.bias": "layers.0.attention.norm.bias",
    "encoder.layers.0.mlp.fc1.weight": "layers.0.ffn.up.weight",
    "encoder.layers.0.mlp.fc2.bias": "layers.0.ffn.down.bias",
    "encoder.layers.0.norm2.weight": "layers.0.ffn.norm.weight",
    "layers.0.self_attn.k_proj.weight": "layers.0.attention.key.weight",
    "layers.0.post_mlp_layernorm.bias": "layers.0.ffn.norm.bias",
}
NEOBERT_NAMES = {
    "encoder.weight": "embeddings.word",
    "layer_norm.weight": "final_norm.weight",
    "transformer_encoder.27.attention_norm.weight": "layers.27.attention.norm.weight",
    "transformer_encoder.0.qkv.weight": "layers.0.attention.qkv.weight",
    "transformer_encoder.0.wo.weight": "layers.0.attention.output.weight",
    "transformer_encoder.0.ffn_norm.weight": "layers.0.ffn.norm.weight",
    "transformer_encoder.0.ffn.w12.weight": "layers.0.ffn.gate_up.weight",
    "transformer_encoder.0.ffn.w3.weight": "layers.0.ffn.down.weight",
}
QWEN3_NAMES = EUROBERT_NAMES | {
    "layers.0.self_attn.q_norm.weight": "layers.0.attention.query_norm.weight",
    "layers.35.self_attn.k_norm.weight": "layers.35.attention.key_norm.weight",
}
NAMES = {"bert": ("bert.", BERT_NAMES), "roberta": ("roberta.", BERT_NAMES), "xlm-roberta": ("roberta.", BERT_NAMES),
         "camembert": ("roberta.", BERT_NAMES), "distilbert": ("distilbert.", DISTILBERT_NAMES),
         "modernbert": ("model.", MODERNBERT_NAMES), "nomic_bert": ("nomic_bert.", NOMIC_BERT_NAMES),
         "gte": ("gte.", GTE_NAMES), "new": ("new.", GTE_NAMES), "eurobert": ("model.", EUROBERT_NAMES),
         "jina_embeddings_v3": ("roberta.", JINA_V3_NAMES), "neobert": ("model.", NEOBERT_NAMES),
         "qwen3": ("model.", QWEN3_NAMES)}
LEFT_OUT = {
    "bert": ["pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "cls.predictions.bias",
             "cls.predictions.transform.LayerNorm.gamma", "cls.seq_relationship.weight", "qa_outputs.bias",
             "embeddings.position_ids", "bert.embeddings.token_type_ids"],
    "roberta": ["pooler.dense.weight", "lm_head.layer_norm.weight", "lm_head.decoder.weight",
                "classifier.out_proj.bias", "roberta.embeddings.position_ids", "qa_outputs.weight"],
    "distilbert": ["pre_classifier.weight", "classifier.bias", "vocab_transform.weight", "vocab_layer_norm.bias",
                   "vocab_projector.weight", "qa_outputs.weight", "distilbert.embeddings.position_ids"],
}


def test_every_family_is_tested():
    assert NAMES.keys() == FAMILIES.keys()


@pytest.mark.parametrize("family", NAMES)
def test_names_with_and_without_prefix(family):
    prefix, names = NAMES[family]
    assert {name: FAMILIES[family].NAMES.rename(name) for name in names} == names
    assert {name: FAMILIES[family].NAMES.rename(prefix + name) for name in names} == names


@pytest.mark.parametrize("family", CONFIGS)
def test_names_and_shapes_are_complete(family):
    config = FAMILIES[family].read_config(CONFIGS[family])
    renamed = {FAMILIES[family].NAMES.rename(name): array.shape for name, array in hf_tensors(family).items()}
    assert renamed == expected_shapes(config)


@pytest.mark.parametrize("family", LEFT_OUT)
def test_heads_and_buffers_are_left_out(family):
    assert [name for name in LEFT_OUT[family] if FAMILIES[family].NAMES.rename(name) is not None] == []


def test_the_older_names_of_norms():
    assert FAMILIES["bert"].NAMES.rename("bert.embeddings.LayerNorm.gamma") == "embeddings.norm.weight"
    assert FAMILIES["bert"].NAMES.rename("encoder.layer.3.output.LayerNorm.beta") == "layers.3.ffn.norm.bias"


@pytest.mark.parametrize("name", ["encoder.layer.0.crossattention.self.query.weight", "embeddings.word_embeddings.bias",
                                  "encoder.layer.x.output.dense.weight", "encoder.layer.0.output.dense.scale", "foo"])
def test_unknown_names_stay_as_they_are(name):
    assert FAMILIES["bert"].NAMES.rename(name) == name


def test_bert_config():
    values = CONFIGS["bert"] | {"layer_norm_eps": 1e-6, "hidden_act": "gelu_new", "pad_token_id": 3}
    assert FAMILIES["bert"].read_config(values) == ModelConfig(
        family="bert", hidden_size=12, num_layers=2, num_heads=3, head_width=4, ffn_size=20, vocab_size=30,
        max_positions=16, token_types=2, pad_token_id=3, norm_eps=1e-6, activation="gelu_tanh")


def test_roberta_counts_positions_from_after_the_padding_id():
    config = FAMILIES["roberta"].read_config(CONFIGS["roberta"])
    assert (config.pad_token_id, config.position_offset, config.longest_sequence) == (1, 2, 14)
    assert FAMILIES["roberta"].read_config(CONFIGS["roberta"] | {"pad_token_id": 5}).position_offset == 6


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
@pytest.mark.parametrize("value", [None, -1])
def test_a_model_may_have_no_padding_token(family, value):
    assert FAMILIES[family].read_config({"model_type": family, "pad_token_id": value}).pad_token_id == 0


def test_roberta_without_a_padding_token():
    config = FAMILIES["roberta"].read_config(CONFIGS["roberta"] | {"pad_token_id": -1})
    assert (config.pad_token_id, config.position_offset, config.longest_sequence) == (0, 0, 16)
    with pytest.raises(WeightsError, match="pad_token_id must be an integer, not None"):
        FAMILIES["roberta"].read_config(CONFIGS["roberta"] | {"pad_token_id": None})


@pytest.mark.parametrize("family", FAMILIES)
def test_remote_code_is_refused_by_name(family):
    code = "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"
    values = {"model_type": family, "auto_map": {"AutoConfig": "configuration_bert.JinaBertConfig", "AutoModel": code}}
    with pytest.raises(UnsupportedError, match=f"auto_map names remote code, '{code}'.*plain '{family}' model"):
        get_family(values)
    assert get_family(values | {"auto_map": {"AutoModelForSequenceClassification": code}}) is FAMILIES[family]
    assert get_family(values | {"auto_map": None}) is FAMILIES[family]


@pytest.mark.parametrize(("model_type", "code"), [
    ("new", "Alibaba-NLP/new-impl--modeling.NewModel"),
    ("nomic_bert", "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"),
    ("eurobert", "modeling_eurobert.EuroBertModel"),
])  # fmt: skip
def test_families_that_were_published_as_remote_code(model_type, code):
    assert get_family({"model_type": model_type, "auto_map": {"AutoModel": code}}) is FAMILIES[model_type]


def test_remote_code_that_a_family_implements(monkeypatch):
    monkeypatch.setitem(REMOTE_CODE, "bert", ("OwnModel",))
    assert get_family({"model_type": "bert", "auto_map": {"AutoModel": "somebody/impl--modeling.OwnModel"}})
    with pytest.raises(UnsupportedError, match="NotOwnModel"):
        get_family({"model_type": "bert", "auto_map": {"AutoModel": "modeling.NotOwnModel"}})


def test_distilbert_has_no_token_types_and_a_fixed_epsilon():
    config = FAMILIES["distilbert"].read_config(CONFIGS["distilbert"] | {"layer_norm_eps": 1e-3})
    assert (config.token_types, config.norm_eps, config.ffn_size) == (0, 1e-12, 20)


@pytest.mark.parametrize(("family", "vocab", "layers", "pad"), [
    ("bert", 30522, 12, 0), ("roberta", 50265, 12, 1), ("xlm-roberta", 30522, 12, 1), ("camembert", 30522, 12, 1),
    ("distilbert", 30522, 6, 0)])
def test_what_a_config_leaves_out_is_as_in_transformers(family, vocab, layers, pad):
    config = FAMILIES[family].read_config({"model_type": family})
    assert (config.vocab_size, config.num_layers, config.pad_token_id) == (vocab, layers, pad)
    assert (config.hidden_size, config.num_heads, config.ffn_size, config.max_positions) == (768, 12, 3072, 512)
    assert (config.norm_eps, config.activation) == (1e-12, "gelu")


@pytest.mark.parametrize(("name", "activation"), [
    ("gelu", "gelu"), ("gelu_python", "gelu"), ("gelu_new", "gelu_tanh"), ("gelu_fast", "gelu_tanh"),
    ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu")])
def test_activations(name, activation):
    assert FAMILIES["bert"].read_config(CONFIGS["bert"] | {"hidden_act": name}).activation == activation
    assert FAMILIES["distilbert"].read_config(CONFIGS["distilbert"] | {"activation": name}).activation == activation


@pytest.mark.parametrize(("key", "value"), [
    ("position_embedding_type", "relative_key"), ("is_decoder", True), ("add_cross_attention", True),
    ("hidden_act", "silu"), ("hidden_act", ["gelu"]), ("pruned_heads", {"0": [1]}),
    ("quantization_config", {"bits": 8})])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_variants_are_refused_by_name(family, key, value):
    with pytest.raises(UnsupportedError, match=key):
        FAMILIES[family].read_config(CONFIGS[family] | {key: value})


@pytest.mark.parametrize(("key", "value"), [
    ("hidden_size", "12"), ("hidden_size", 12.0), ("num_attention_heads", 0), ("num_attention_heads", 5),
    ("num_hidden_layers", 10**9), ("vocab_size", None), ("layer_norm_eps", "1e-12"), ("layer_norm_eps", 0),
    ("max_position_embeddings", -1)])
def test_impossible_values_are_refused(key, value):
    with pytest.raises(WeightsError):
        FAMILIES["bert"].read_config(CONFIGS["bert"] | {key: value})


def test_an_unknown_family_is_told_the_known_ones():
    with pytest.raises(UnsupportedError, match="'gpt2' is not supported; supported are bert, camembert, distilbert"):
        get_family({"model_type": "gpt2"})
    with pytest.raises(WeightsError, match="model_type must name"):
        get_family({})
