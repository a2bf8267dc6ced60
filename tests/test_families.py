"""Test each family's config and tensor names, against names written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from engine.config import ModelConfig
from engine.errors import UnsupportedError, WeightsError
from engine.families import FAMILIES, REFUSED, REMOTE_CODE, get_family
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
MPNET_NAMES = {name: new for name, new in BERT_NAMES.items() if ".self." not in name and "token_type" not in name} | {
    "encoder.relative_attention_bias.weight": "distance_bias.weight",
    "encoder.layer.0.attention.attn.q.weight": "layers.0.attention.query.weight",
    "encoder.layer.11.attention.attn.o.bias": "layers.11.attention.output.bias",
    "encoder.layer.0.attention.LayerNorm.bias": "layers.0.attention.norm.bias",
}
UMT5_NAMES = {
    "shared.weight": "embeddings.word",
    "encoder.block.0.layer.0.layer_norm.weight": "layers.0.attention.norm.weight",
    "encoder.block.11.layer.0.SelfAttention.q.weight": "layers.11.attention.query.weight",
    "encoder.block.0.layer.0.SelfAttention.o.weight": "layers.0.attention.output.weight",
    "encoder.block.0.layer.1.layer_norm.weight": "layers.0.ffn.norm.weight",
    "encoder.block.0.layer.1.DenseReluDense.wi.weight": "layers.0.ffn.up.weight",
    "encoder.block.0.layer.1.DenseReluDense.wi_0.weight": "layers.0.ffn.gate.weight",
    "encoder.block.0.layer.1.DenseReluDense.wi_1.weight": "layers.0.ffn.up.weight",
    "encoder.block.0.layer.1.DenseReluDense.wo.weight": "layers.0.ffn.down.weight",
    "encoder.final_layer_norm.weight": "final_norm.weight",
}
T5_BIAS = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
T5_NAMES = UMT5_NAMES | {T5_BIAS: "distance_bias.weight"}
UMT5_NAMES[T5_BIAS] = "layers.0.attention.distance_bias.weight"
DEBERTA_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.position_embeddings.weight": "embeddings.position",
    "embeddings.token_type_embeddings.weight": "embeddings.token_type",
    "embeddings.LayerNorm.bias": "embeddings.norm.bias",
    "encoder.rel_embeddings.weight": "embeddings.relative",
    "encoder.LayerNorm.weight": "embeddings.relative_norm.weight",
    "encoder.layer.11.attention.self.query_proj.bias": "layers.11.attention.query.bias",
    "encoder.layer.0.attention.self.pos_key_proj.weight": "layers.0.attention.relative_key.weight",
    "encoder.layer.0.attention.output.LayerNorm.weight": "layers.0.attention.norm.weight",
    "encoder.layer.0.intermediate.dense.weight": "layers.0.ffn.up.weight",
    "encoder.layer.0.output.dense.weight": "layers.0.ffn.down.weight",
    "encoder.layer.0.output.LayerNorm.bias": "layers.0.ffn.norm.bias",
}
ALBERT_NAMES = {
    "embeddings.word_embeddings.weight": "embeddings.word",
    "embeddings.LayerNorm.bias": "embeddings.norm.bias",
    "encoder.embedding_hidden_mapping_in.weight": "embeddings.projection.weight",
    "encoder.embedding_hidden_mapping_in.bias": "embeddings.projection.bias",
    "encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight": "layers.0.attention.query.weight",
    "encoder.albert_layer_groups.0.albert_layers.0.attention.key.bias": "layers.0.attention.key.bias",
    "encoder.albert_layer_groups.0.albert_layers.0.attention.value.weight": "layers.0.attention.value.weight",
    "encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight": "layers.0.attention.output.weight",
    "encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm.bias": "layers.0.attention.norm.bias",
    "encoder.albert_layer_groups.11.albert_layers.0.ffn.weight": "layers.11.ffn.up.weight",
    "encoder.albert_layer_groups.0.albert_layers.0.ffn_output.bias": "layers.0.ffn.down.bias",
    "encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm.weight": "layers.0.ffn.norm.weight",
}
ELECTRA_NAMES = BERT_NAMES | {
    "embeddings_project.weight": "embeddings.projection.weight",
    "embeddings_project.bias": "embeddings.projection.bias",
}
GEMMA_NAMES = {name: to for name, to in QWEN3_NAMES.items() if "post_attention" not in name} | {
    "layers.0.post_attention_layernorm.weight": "layers.0.attention.post_norm.weight",
    "layers.0.pre_feedforward_layernorm.weight": "layers.0.ffn.norm.weight",
    "layers.23.post_feedforward_layernorm.weight": "layers.23.ffn.post_norm.weight",
}
CLIP_NAMES = {
    "embeddings.token_embedding.weight": "embeddings.word",
    "embeddings.position_embedding.weight": "embeddings.position",
    "final_layer_norm.weight": "final_norm.weight",
    "encoder.layers.11.self_attn.q_proj.weight": "layers.11.attention.query.weight",
    "encoder.layers.0.self_attn.k_proj.bias": "layers.0.attention.key.bias",
    "encoder.layers.0.self_attn.v_proj.weight": "layers.0.attention.value.weight",
    "encoder.layers.0.self_attn.out_proj.weight": "layers.0.attention.output.weight",
    "encoder.layers.0.layer_norm1.weight": "layers.0.attention.norm.weight",
    "encoder.layers.0.layer_norm2.bias": "layers.0.ffn.norm.bias",
    "encoder.layers.0.mlp.fc1.weight": "layers.0.ffn.up.weight",
    "encoder.layers.0.mlp.fc2.bias": "layers.0.ffn.down.bias",
}
SIGLIP_NAMES = CLIP_NAMES | {"head.weight": "dense.0.weight", "head.bias": "dense.0.bias"}
CLIP_NAMES["text_projection.weight"] = "dense.0.weight"
VIT_NAMES = {
    "embeddings.cls_token": "stem.first",
    "embeddings.position_embeddings": "stem.positions",
    "embeddings.patch_embeddings.projection.weight": "stem.weight",
    "embeddings.patch_embeddings.projection.bias": "stem.bias",
    "layernorm.weight": "final_norm.weight",
    "encoder.layer.11.attention.attention.query.weight": "layers.11.attention.query.weight",
    "encoder.layer.0.attention.attention.key.bias": "layers.0.attention.key.bias",
    "encoder.layer.0.attention.attention.value.weight": "layers.0.attention.value.weight",
    "encoder.layer.0.attention.output.dense.weight": "layers.0.attention.output.weight",
    "encoder.layer.0.layernorm_before.bias": "layers.0.attention.norm.bias",
    "encoder.layer.0.intermediate.dense.weight": "layers.0.ffn.up.weight",
    "encoder.layer.0.output.dense.bias": "layers.0.ffn.down.bias",
    "encoder.layer.0.layernorm_after.weight": "layers.0.ffn.norm.weight",
    "layers.0.attention.q_proj.weight": "layers.0.attention.query.weight",
    "layers.0.attention.o_proj.bias": "layers.0.attention.output.bias",
    "layers.0.mlp.fc1.weight": "layers.0.ffn.up.weight",
    "layers.0.mlp.fc2.bias": "layers.0.ffn.down.bias",
}
DINOV2_NAMES = VIT_NAMES | {
    "embeddings.register_tokens": "stem.registers",
    "encoder.layer.0.norm1.weight": "layers.0.attention.norm.weight",
    "encoder.layer.0.layer_scale1.lambda1": "layers.0.attention.output.scale.lambda1",
    "encoder.layer.0.norm2.bias": "layers.0.ffn.norm.bias",
    "encoder.layer.0.mlp.fc1.weight": "layers.0.ffn.up.weight",
    "encoder.layer.0.mlp.weights_in.bias": "layers.0.ffn.gate_up.bias",
    "encoder.layer.0.mlp.weights_out.weight": "layers.0.ffn.down.weight",
    "encoder.layer.0.layer_scale2.lambda1": "layers.0.ffn.down.scale.lambda1",
    "encoder.layer.0.mlp.gate_proj.weight": "layers.0.ffn.gate.weight",
    "encoder.layer.0.mlp.up_proj.bias": "layers.0.ffn.up.bias",
    "encoder.layer.0.mlp.down_proj.weight": "layers.0.ffn.down.weight",
}
WHISPER_NAMES = {
    "conv1.weight": "stem.weight", "conv1.bias": "stem.bias", "conv2.weight": "stem.weight2",
    "conv2.bias": "stem.bias2", "embed_positions.weight": "stem.positions",
    "layer_norm.bias": "final_norm.bias",
    "layers.31.self_attn.q_proj.weight": "layers.31.attention.query.weight",
    "layers.0.self_attn.k_proj.weight": "layers.0.attention.key.weight",
    "layers.0.self_attn.v_proj.bias": "layers.0.attention.value.bias",
    "layers.0.self_attn.out_proj.weight": "layers.0.attention.output.weight",
    "layers.0.self_attn_layer_norm.bias": "layers.0.attention.norm.bias",
    "layers.0.fc1.weight": "layers.0.ffn.up.weight",
    "layers.0.fc2.bias": "layers.0.ffn.down.bias",
    "layers.0.final_layer_norm.weight": "layers.0.ffn.norm.weight",
}
NAMES = {"bert": ("bert.", BERT_NAMES), "roberta": ("roberta.", BERT_NAMES), "xlm-roberta": ("roberta.", BERT_NAMES),
         "camembert": ("roberta.", BERT_NAMES), "distilbert": ("distilbert.", DISTILBERT_NAMES),
         "modernbert": ("model.", MODERNBERT_NAMES), "nomic_bert": ("nomic_bert.", NOMIC_BERT_NAMES),
         "gte": ("gte.", GTE_NAMES), "new": ("new.", GTE_NAMES), "eurobert": ("model.", EUROBERT_NAMES),
         "jina_embeddings_v3": ("roberta.", JINA_V3_NAMES), "neobert": ("model.", NEOBERT_NAMES),
         "qwen3": ("model.", QWEN3_NAMES), "mpnet": ("mpnet.", MPNET_NAMES), "t5": ("transformer.", T5_NAMES),
         "mt5": ("transformer.", T5_NAMES), "umt5": ("transformer.", UMT5_NAMES),
         "deberta-v2": ("deberta.", DEBERTA_NAMES),
         "albert": ("albert.", ALBERT_NAMES), "electra": ("electra.", ELECTRA_NAMES),
         "gemma3_text": ("model.", GEMMA_NAMES), "vit": ("vit.", VIT_NAMES), "dinov2": ("dinov2.", DINOV2_NAMES),
         "dinov2_with_registers": ("dinov2_with_registers.", DINOV2_NAMES), "whisper": ("encoder.", WHISPER_NAMES),
         **dict.fromkeys(("clip", "clip_text_model"), ("text_model.", CLIP_NAMES)),
         **dict.fromkeys(("siglip", "siglip_text_model", "siglip2", "siglip2_text_model"),
                         ("text_model.", SIGLIP_NAMES))}
LEFT_OUT = {
    "bert": ["pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "cls.predictions.bias",
             "cls.predictions.transform.LayerNorm.gamma", "cls.seq_relationship.weight", "qa_outputs.bias",
             "embeddings.position_ids", "bert.embeddings.token_type_ids"],
    "roberta": ["pooler.dense.weight", "lm_head.layer_norm.weight", "lm_head.decoder.weight",
                "classifier.out_proj.bias", "roberta.embeddings.position_ids", "qa_outputs.weight"],
    "distilbert": ["pre_classifier.weight", "classifier.bias", "vocab_transform.weight", "vocab_layer_norm.bias",
                   "vocab_projector.weight", "qa_outputs.weight", "distilbert.embeddings.position_ids"],
    "modernbert": ["head.dense.weight", "head.norm.weight", "decoder.bias", "classifier.weight",
                   "model.layers.0.attn.rotary_emb.inv_freq"],
    "nomic_bert": ["pooler.dense.weight", "classifier.weight", "cls.predictions.decoder.bias",
                   "bert.encoder.layers.0.attn.rotary_emb.inv_freq", "nomic_bert.embeddings.position_ids"],
    "gte": ["pooler.dense.weight", "classifier.bias", "lm_head.decoder.weight", "new.embeddings.position_ids"],
    "eurobert": ["lm_head.weight", "dense.weight", "classifier.weight", "model.rotary_emb.inv_freq"],
    "jina_embeddings_v3": ["pooler.dense.weight", "classifier.dense.weight", "lm_head.bias", "qa_outputs.weight",
                           "roberta.embeddings.position_ids"],
    "neobert": ["decoder.weight", "classifier.weight"],
    "qwen3": ["lm_head.weight", "score.weight"],
    "mpnet": ["pooler.dense.weight", "lm_head.dense.bias", "classifier.out_proj.weight", "qa_outputs.weight",
              "mpnet.embeddings.position_ids"],
    "t5": ["decoder.block.0.layer.0.SelfAttention.q.weight", "lm_head.weight",
           "transformer.decoder.final_layer_norm.weight", "classification_head.dense.weight", "qa_outputs.weight"],
    "umt5": ["decoder.final_layer_norm.weight", "lm_head.weight", "classifier.bias"],
    "albert": ["albert.pooler.weight", "pooler.bias", "predictions.dense.weight", "predictions.LayerNorm.weight",
               "predictions.decoder.bias", "sop_classifier.classifier.weight", "classifier.bias", "qa_outputs.weight",
               "albert.embeddings.position_ids"],
    "electra": ["discriminator_predictions.dense.weight", "generator_predictions.LayerNorm.bias",
                "generator_lm_head.weight", "classifier.out_proj.weight", "qa_outputs.bias",
                "sequence_summary.summary.weight", "electra.embeddings.position_ids"],
    "gemma3_text": ["lm_head.weight", "score.weight"],
    "clip": ["vision_model.embeddings.class_embedding", "visual_projection.weight", "logit_scale", "logit_bias",
             "vision_model.encoder.layers.0.mlp.fc1.weight", "text_model.embeddings.position_ids"],
    "vit": ["pooler.dense.weight", "classifier.bias", "decoder.0.weight", "vit.embeddings.mask_token"],
    "whisper": ["decoder.layers.0.fc1.weight", "decoder.embed_tokens.weight", "proj_out.weight",
                "projector.bias", "classifier.weight", "layer_weights"],
    "deberta-v2": ["pooler.dense.weight", "classifier.bias", "cls.predictions.bias", "qa_outputs.weight",
                   "lm_predictions.lm_head.bias", "mask_predictions.dense.weight", "deberta.embeddings.position_ids"],
}
WRAPPERS = ["", "module.", "model.", "module.model."]
"""What training puts in front of all names, beside the family's own prefix."""


def test_every_family_is_tested():
    assert NAMES.keys() == FAMILIES.keys()


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("family", NAMES)
def test_names_with_and_without_prefixes(family, wrapper):
    prefix, names = NAMES[family]
    assert {name: FAMILIES[family].NAMES.rename(wrapper + name) for name in names} == names
    assert {name: FAMILIES[family].NAMES.rename(wrapper + prefix + name) for name in names} == names


@pytest.mark.parametrize("family", NAMES)
def test_the_older_names_of_norms(family):
    prefix, names = NAMES[family]
    older = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): new
             for name, new in names.items()}
    assert (older == names) == (not any("LayerNorm" in name for name in names))
    assert {name: FAMILIES[family].NAMES.rename(prefix + name) for name in older} == older


@pytest.mark.parametrize("family", CONFIGS)
def test_names_and_shapes_are_complete(family):
    config = FAMILIES[family].read_config(CONFIGS[family])
    renamed = {FAMILIES[family].NAMES.rename(name): array.shape for name, array in hf_tensors(family).items()}
    assert renamed == expected_shapes(config)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("family", LEFT_OUT)
def test_heads_and_buffers_are_left_out(family, wrapper):
    assert [name for name in LEFT_OUT[family] if FAMILIES[family].NAMES.rename(wrapper + name) is not None] == []


def test_the_heads_and_buffers_of_every_family_are_tested():
    tested = {id(FAMILIES[family].NAMES) for family in LEFT_OUT}
    assert {id(family.NAMES) for family in FAMILIES.values()} == tested


@pytest.mark.parametrize(("family", "joined", "part"), [
    ("nomic_bert", "attention.qkv", "attention.key"), ("gte", "ffn.up_gate", "ffn.gate"),
    ("neobert", "ffn.gate_up", "ffn.up"), ("modernbert", "attention.qkv", "attention.value")])
def test_a_joined_tensor_beside_one_of_its_parts_is_refused(family, joined, part):
    config = FAMILIES[family].read_config({"model_type": family} | dict.fromkeys(("n_layer", "num_hidden_layers"), 1))
    weights = {f"layers.0.{name}.weight": np.zeros((8, 2), np.float32) for name in (joined, part)}
    for tensors in (weights, dict(reversed(weights.items()))):
        with pytest.raises(WeightsError, match=rf"hold layers.0.{joined}.weight, which joins .* and also "
                                               rf"layers.0.{part}.weight; remove"):
            FAMILIES[family].NAMES.split(tensors, config)


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
    with pytest.raises(UnsupportedError, match="'gpt2' is not supported; supported are albert, bert, camembert, "):
        get_family({"model_type": "gpt2"})
    for model_type, reason in REFUSED.items():
        with pytest.raises(UnsupportedError, match=f"'{model_type}' is not supported \\({reason}\\); supported are"):
            get_family({"model_type": model_type})
    with pytest.raises(WeightsError, match="model_type must name"):
        get_family({})
