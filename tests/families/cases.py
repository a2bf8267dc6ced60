"""The families: one row each, which feeds every test that goes through the families.

To add a family, add its golden models (tests/golden), which its row finds by their config.json, and one row here. The
tests of vectors, names, configs, files, fuzzing and CUDA then run for it, and `python -m tests.families.table` writes
its line of docs/families.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from engine.families import BY_POSITIONS, FAMILIES
from engine.families.parts import Family
from tests.fuzz.tokenizer_files import WORDS
from tests.tools.encoders import module_of
from tests.tools.paths import DECODERS, ENCODERS


@dataclass(frozen=True)
class Case:
    """A family."""

    module: str
    """Its module in engine/families."""

    published: str
    """Published models, for docs/families.md."""

    types: Sequence[str] = ()
    """Its values of model_type, as an encoder."""

    alike: Mapping[str, str] = field(default_factory=dict)
    """A model_type without a golden encoder, and the one that has the same config.json."""

    shared: Mapping[str, str] = field(default_factory=dict)
    """A name and a golden encoder of a family that shares its model_type with another family."""

    left_out: Sequence[str] = ()
    """Names of tensors that the encoder does not need: heads and buffers."""

    same: Sequence[tuple[str, Sequence[str], Mapping[str, Any]]] = ()
    """(golden model, keys removed from its config, keys added): configs that give the same vectors."""

    refused: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Keys added to the config of a golden encoder, which the engine then cannot follow."""

    generates: Mapping[str, tuple[int, int, int, int, int, int, int, str]] = field(default_factory=dict)
    """Its values of model_type, as a generating model, and the decoder that transformers makes of an empty config:
    hidden size, layers, heads, key heads, feed-forward width, vocabulary, positions, and where the logits come from."""

    not_generating: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """The same for golden models that generate; the messages of both are recorded."""

    @cached_property
    def golden(self) -> list[str]:
        """Its models in tests/golden/encoders."""
        if not self.types and not self.shared:
            return []
        of_others = {each for case in CASES if case is not self and case.module == self.module for each in case.types}
        return [name for name, values in _configs(ENCODERS) if values["model_type"] not in of_others
                and (family := _family_of(values)) and module_of(family) == self.module]

    @cached_property
    def generating(self) -> list[str]:
        """Its models in tests/golden/decoders."""
        return [name for name, values in _configs(DECODERS) if values["model_type"] in self.generates]


@cache
def _configs(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and the contents of config.json of the golden models in a folder, beside those of rerankers."""
    return [(path.parent.name, json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(folder.glob("*/config.json")) if not path.with_name("expected.json").exists()]


def _family_of(values: Mapping[str, Any]) -> Family | None:
    """Return the family of a config.json, whatever else the engine says of it."""
    model_type = values["model_type"]
    return BY_POSITIONS.get((model_type, values.get("position_embedding_type", "")), FAMILIES.get(model_type))


NOMIC_IN_NEW_KEYS = {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 29, "num_hidden_layers": 2,
                     "layer_norm_eps": 1e-12, "hidden_act": "silu", "max_position_embeddings": 320, "head_dim": None,
                     "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}
GTE_IN_NEW_KEYS = {"model_type": "gte", "rope_parameters": {"rope_type": "linear", "rope_theta": 160000.0,
                                                            "factor": 8.0 ** (2 / 22)}}

_LOCAL_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_GLOBAL_ROPE = {"rope_type": "default", "rope_theta": 160000.0}
_LONG_ROPE = {"rope_type": "longrope", "rope_theta": 160000.0, "factor": 4.0}
_LOCAL_ROPES = {"full_attention": _LOCAL_ROPE, "sliding_attention": _LOCAL_ROPE}
MODERNBERT_IN_NEW_KEYS = {
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {"full_attention": _GLOBAL_ROPE, "sliding_attention": _LOCAL_ROPE}}

ALBERT = Case(
    "albert", "ALBERT, rxnmapper",
    types=("albert",),
    left_out=["albert.pooler.weight", "pooler.bias", "predictions.dense.weight", "predictions.LayerNorm.weight",
              "predictions.decoder.bias", "sop_classifier.classifier.weight", "classifier.bias", "qa_outputs.weight",
              "albert.embeddings.position_ids"],
    same=[
        ("albert_shared", ("num_hidden_groups", "inner_group_num", "hidden_act", "layer_norm_eps", "type_vocab_size"),
         {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}),
    ],
    refused={
        "albert_shared": [{"inner_group_num": 2}, {"num_hidden_groups": 0}, {"num_hidden_groups": 5},
            {"num_hidden_groups": 2}, {"embedding_size": 21}, {"position_embedding_type": "relative_key"},
            {"hidden_act": "silu"}],
    })

BART = Case(
    "bart", "BART, mBART, Marian, M2M100, NLLB, Pegasus, Blenderbot",
    generates={"bart": (1024, 12, 16, 16, 4096, 50265, 1026, "tied"),
               "blenderbot": (2560, 24, 32, 32, 10240, 8008, 128, "tied"),
               "m2m_100": (1024, 12, 16, 16, 4096, 128112, 1026, "tied"),
               "marian": (1024, 12, 16, 16, 4096, 58101, 1024, "tied"),
               "mbart": (1024, 12, 16, 16, 4096, 50265, 1026, "tied"),
               "pegasus": (1024, 12, 16, 16, 4096, 50265, 1024, "tied")},
    not_generating={
        "pegasus": [{"static_position_embeddings": False}, {"add_bias_logits": True}],
        "blenderbot": [{"add_final_layer_norm": False}, {"max_position_embeddings": 65}],
        "bart": [{"normalize_before": True}, {"share_encoder_decoder_embeddings": False},
            {"decoder_attention_heads": 5}],
        "marian": [{"is_decoder": True}, {"d_model": "12"}],
        "m2m_100": [{"activation_function": "tanh"}],
    })

BERT = Case(
    "bert", "BERT, MiniLM, BGE, E5, the first GTE, SPLADE, LaBSE",
    types=("bert",),
    left_out=["pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "cls.predictions.bias",
              "cls.predictions.transform.LayerNorm.gamma", "cls.seq_relationship.weight", "qa_outputs.bias",
              "embeddings.position_ids", "bert.embeddings.token_type_ids"])

BIG_BIRD = Case(
    "big_bird", "BigBird, up to 704 tokens of a text",
    types=("big_bird",),
    left_out=["pooler.weight", "cls.predictions.bias", "cls.seq_relationship.weight", "classifier.out_proj.bias",
              "qa_classifier.qa_outputs.weight", "bert.embeddings.position_ids"],
    same=[
        ("big_bird_sparse", ("block_size", "num_random_blocks", "attention_type", "hidden_act", "use_bias",
                             "rescale_embeddings"), {}),
        ("big_bird_sparse", (), {"attention_type": "original_full"}),
        ("big_bird_full", (), {"attention_type": "block_sparse", "block_size": 64}),
    ],
    refused={
        "big_bird_sparse": [{"block_size": 27}, {"attention_type": "sliding"}, {"block_size": 0}, {"use_bias": False},
            {"is_decoder": True}],
        "big_bird_full": [{"attention_type": "block_sparse", "num_random_blocks": 0}],
    })

CLIP = Case(
    "clip", "CLIP, OpenCLIP",
    types=("clip", "clip_text_model"),
    left_out=["vision_model.embeddings.class_embedding", "visual_projection.weight", "logit_scale", "logit_bias",
              "vision_model.encoder.layers.0.mlp.fc1.weight", "text_model.embeddings.position_ids"],
    same=[
        ("clip_own", ("text_config_dict",), {"text_config_dict": {"hidden_size": 42, "vocab_size": 120}}),
        ("clip_bare", ("hidden_act", "pad_token_id", "projection_dim"), {"attention_dropout": 0.5}),
    ],
    refused={
        "clip_own": [{"text_config": {"hidden_act": "silu"}}, {"text_config": {"num_attention_heads": 7}},
            {"text_config": [1]}, {"text_config_dict": "x"}, {"text_config_dict": {"hidden_size": 41}}],
        "clip_bare": [{"is_decoder": True}, {"max_position_embeddings": 301}],
    })

CLIP_IMAGES = Case(
    "clip", "CLIP's images",
    types=("clip_vision_model",),
    left_out=["text_model.embeddings.position_embedding.weight", "text_projection.weight",
              "vision_model.embeddings.position_ids"])

SIGLIP_IMAGES = Case(
    "siglip", "SigLIP's images",
    types=("siglip_vision_model",),
    left_out=["text_model.embeddings.position_embedding.weight", "text_model.head.weight",
              "vision_model.embeddings.position_ids"])

DEBERTA = Case(
    "deberta", "DeBERTa v1, v2 and v3, mDeBERTa, mxbai-rerank, GLiNER's encoders",
    types=("deberta", "deberta-v2"),
    left_out=["pooler.dense.weight", "classifier.bias", "cls.predictions.bias", "qa_outputs.weight",
              "lm_predictions.lm_head.bias", "mask_predictions.dense.weight", "deberta.embeddings.position_ids"],
    same=[
        ("deberta1", (), {"pos_att_type": ["p2c", "c2p"], "talking_head": False}),
        ("deberta1", ("max_relative_positions", "hidden_act", "layer_norm_eps", "type_vocab_size"),
         {"position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True, "conv_kernel_size": 3}),
        ("deberta_v3", (), {"pos_att_type": ["p2c", "c2p"]}),
        ("deberta_v3", (), {"pos_att_type": " C2P | p2c ", "norm_rel_ebd": "none|layer_norm", "conv_kernel_size": 0}),
        ("deberta_v3", ("max_relative_positions",), {"embedding_size": 33, "position_embedding_type": "relative"}),
        ("deberta_v3", (), {"max_position_embeddings": 330, "max_relative_positions": 320}),
        ("deberta_v3", ("type_vocab_size", "layer_norm_eps", "hidden_act"), {"attention_head_size": 11}),
        ("deberta_p2c", ("norm_rel_ebd",), {"position_buckets": -1, "position_biased_input": True}),
        ("deberta_c2p", ("share_att_key",), {}),
    ],
    refused={
        "deberta1": [{"talking_head": True}, {"embedding_size": 16}, {"pos_att_type": "c2p|p2p"},
            {"relative_attention": False}, {"position_biased_input": True}, {"max_relative_positions": 100},
            {"num_attention_heads": 4}],
        "deberta1_c2p": [{"pos_att_type": "c2p|p2c"}],
        "deberta_v3": [{"conv_kernel_size": 3}, {"embedding_size": 16}, {"attention_head_size": 16},
            {"pos_att_type": "p2c|p2p"}, {"pos_att_type": None}, {"pos_att_type": 3}, {"relative_attention": False},
            {"norm_rel_ebd": "batch_norm"}, {"norm_rel_ebd": ["layer_norm"]}, {"position_buckets": 1},
            {"position_buckets": 33}, {"max_relative_positions": 17}, {"position_buckets": 30},
            {"norm_rel_ebd": "none"}, {"share_att_key": False}, {"position_biased_input": True},
            {"model_type": "deberta"}],
        "deberta_c2p": [{"pos_att_type": "c2p|p2c"}],
    })

DISTILBERT = Case(
    "distilbert", "DistilBERT",
    types=("distilbert",),
    left_out=["pre_classifier.weight", "classifier.bias", "vocab_transform.weight", "vocab_layer_norm.bias",
              "vocab_projector.weight", "qa_outputs.weight", "distilbert.embeddings.position_ids"])

DPR = Case(
    "dpr", "DPR's encoders of questions and of passages",
    types=("dpr",),
    left_out=["ctx_encoder.bert_model.pooler.dense.weight", "question_encoder.bert_model.embeddings.position_ids"],
    same=[
        ("dpr_question", ("projection_dim", "type_vocab_size", "hidden_act"), {}),
    ],
    refused={
        "dpr_question": [{"architectures": ["DPRReader"]}, {"projection_dim": -1}, {"projection_dim": 5},
            {"position_embedding_type": "relative_key"}],
        "dpr_context": [{"projection_dim": 0}],
    })

ELECTRA = Case(
    "electra", "ELECTRA",
    types=("electra",),
    left_out=["discriminator_predictions.dense.weight", "generator_predictions.LayerNorm.bias",
              "generator_lm_head.weight", "classifier.out_proj.weight", "qa_outputs.bias",
              "sequence_summary.summary.weight", "electra.embeddings.position_ids"],
    same=[
        ("electra_small", ("hidden_act", "layer_norm_eps", "type_vocab_size"), {"summary_type": "first"}),
    ],
    refused={
        "electra_small": [{"embedding_size": 42}, {"embedding_size": -1}, {"is_decoder": True}],
        "electra_base": [{"embedding_size": 20}],
    })

EMBEDDING_GEMMA = Case(
    "gemma", "EmbeddingGemma, harrier-oss-v1-270m",
    types=("gemma3_text",),
    left_out=["lm_head.weight", "score.weight"],
    same=[
        ("gemma_new", ("rope_parameters", "layer_types", "hidden_activation", "rms_norm_eps", "attention_bias"), {}),
        ("gemma_new", (), {"rope_theta": 1000000.0, "rope_local_base_freq": 10000, "final_logit_softcapping": 30.0}),
        ("gemma_biased", ("layer_types",), {}),
        ("gemma_linear", ("rope_theta", "rope_local_base_freq", "rope_scaling"), {"rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}}),
    ],
    refused={
        "gemma_linear": [{"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0], "factor": 8.0}}],
        "gemma_new": [{"attn_logit_softcapping": 50.0}, {"query_pre_attn_scalar": 0}, {"sliding_window": -1},
            {"sliding_window": None}, {"layer_types": ["full_attention"]}, {"layer_types": ["chunked_attention"] * 7},
            {"rope_local_base_freq": 500.0}, {"hidden_activation": "relu2"}],
        "gemma_biased": [{"sliding_window_pattern": 0}, {"attention_bias": False}],
    })

ESM = Case(
    "esm", "ESM-2, ESM-1b",
    types=("esm",),
    left_out=["pooler.dense.weight", "lm_head.bias", "lm_head.decoder.weight", "contact_head.regression.weight",
              "classifier.out_proj.bias", "esm.embeddings.position_ids",
              "encoder.layer.0.attention.self.rotary_embeddings.inv_freq"],
    same=[
        ("esm2", ("emb_layer_norm_before",), {"rope_theta": 10000.0, "hidden_act": "relu", "esmfold_config": None}),
        ("esm2_undropped", ("mask_token_id",), {"emb_layer_norm_before": None, "token_dropout": None}),
    ],
    refused={
        "esm2": [{"position_embedding_type": "relative_key"}, {"is_folding_model": True},
            {"emb_layer_norm_before": True}, {"position_embedding_type": "absolute"}, {"mask_token_id": None},
            {"mask_token_id": 120}, {"token_dropout": "yes"}, {"rope_scaling": {"type": "linear", "factor": 2.0}}],
        "esm1b": [{"pad_token_id": None}],
    })

EUROBERT = Case(
    "eurobert", "EuroBERT",
    types=("eurobert",),
    left_out=["lm_head.weight", "dense.weight", "classifier.weight", "model.rotary_emb.inv_freq"],
    same=[
        ("eurobert_old", ("rope_theta", "rope_scaling"), {"rope_parameters": {"rope_theta": 250000.0}}),
        ("eurobert_old",
         ("hidden_act", "rms_norm_eps", "attention_bias", "mlp_bias", "num_key_value_heads", "head_dim"), {}),
        ("eurobert_old", (), {"classifier_pooling": "bos", "use_cache": True, "num_key_value_heads": None}),
        ("eurobert_new", ("rope_parameters", "hidden_act"), {}),
        ("eurobert_old", ("rope_scaling",), {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("eurobert_dynamic", ("rope_parameters",), {"rope_theta": 500.0}),
    ],
    refused={
        "eurobert_old": [{"rope_scaling": {"type": "dynamic", "alpha": 2.0}},
            {"rope_scaling": {"type": "default", "factor": 2.0}}, {"rope_scaling": {"type": ["linear"], "factor": 2.0}},
            {"rope_scaling": "linear"}, {"rope_scaling": {"type": "linear"}},
            {"rope_scaling": {"type": "linear", "factor": 0.5}},
            {"rope_scaling": {"type": "linear", "factor": float("inf")}}, {"rope_parameters": {"rope_theta": 10000.0}},
            {"num_key_value_heads": 2}, {"head_dim": 12}, {"num_key_value_heads": 1}, {"attention_bias": True},
            {"mlp_bias": True}, {"hidden_act": "relu2"}],
        "eurobert_llama3": [
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 4.0,
                "high_freq_factor": 4.0}},
            {"rope_theta": 400.0},
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "beta_fast": 32.0}}],
        "eurobert_new": [{"is_decoder": True}],
    })

GPT2 = Case(
    "gpt2", "GPT-2",
    generates={"gpt2": (768, 12, 12, 12, 3072, 50257, 1024, "tied")},
    not_generating={
        "gpt2": [{"scale_attn_by_inverse_layer_idx": True}, {"tie_word_embeddings": False}],
    })

GTE = Case(
    "gte", "GTE v1.5, gte-multilingual, arctic-embed-m-v2.0",
    types=("gte", "new"),
    left_out=["pooler.dense.weight", "classifier.bias", "lm_head.decoder.weight", "new.embeddings.position_ids"],
    same=[
        ("gte_own", ("rope_theta", "rope_scaling", "position_embedding_type", "layer_norm_type"), GTE_IN_NEW_KEYS),
        ("gte_own", ("hidden_act", "layer_norm_eps", "type_vocab_size", "pad_token_id", "logn_attention_scale"), {}),
        ("gte_own", (), {"rope_scaling": {"rope_type": "ntk", "factor": 8}, "rope_parameters": None}),
        ("gte_own", (), {"unpad_inputs": False, "use_memory_efficient_attention": False, "logn_attention_clip1": True}),
        ("gte_new", ("rope_parameters",), {"rope_theta": 500, "rope_parameters": {"rope_type": "linear", "factor": 3}}),
        ("gte_yarn", ("rope_parameters",), {"rope_theta": 500, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 80, "beta_fast": 32}}),
    ],
    refused={
        "gte_new": [{"rope_parameters": {"rope_type": "ntk_scaled", "factor": 2.0}}],
        "gte_yarn": [{"rope_parameters": {"rope_type": "linear", "factor": 2.0, "beta_fast": 32.0}}],
        "gte_own": [{"logn_attention_scale": True}, {"position_embedding_type": "absolute"},
            {"layer_norm_type": "rms_norm"}, {"hidden_act": "quick_gelu"},
            {"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.5}},
            {"rope_scaling": {"type": "dynamic", "factor": 8.0}}, {"rope_scaling": {"type": "ntk"}},
            {"rope_scaling": {"type": "ntk", "factor": 0.0}},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 160000.0}},
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 20000}},
            {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 20000}}, {"hidden_size": 0},
            {"type_vocab_size": 0}],
    })

JINA_BERT = Case(
    "jina_bert", "jina-embeddings-v2",
    shared={"jina_bert": "jina_v2"},
    same=[
        ("jina_v2", ("auto_map", "emb_pooler", "attn_implementation", "layer_norm_eps", "type_vocab_size"), {}),
    ],
    refused={
        "jina_v2": [{"feed_forward_type": "original"}, {"feed_forward_type": ["geglu"]},
            {"auto_map": {"AutoModel": "jina-bert-v2-qk-post-norm--modeling.JinaBertModel"}},
            {"auto_map": {"AutoModel": "modeling.OtherModel"}}, {"position_embedding_type": "relative_key"}],
    })

JINA_EMBEDDINGS_V3 = Case(
    "jina_embeddings_v3", "jina-embeddings-v3",
    types=("jina_embeddings_v3",),
    shared={"jina_flash": "jina_v3_tasks"},
    left_out=["pooler.dense.weight", "classifier.dense.weight", "lm_head.bias", "qa_outputs.weight",
              "roberta.embeddings.position_ids"],
    same=[
        ("jina_v3", ("rope_parameters", "hidden_act", "type_vocab_size"),
         {"rope_theta": 20000, "lora_adaptations": None}),
    ],
    refused={
        "jina_v3": [{"lora_adaptations": "retrieval.query"}, {"position_embedding_type": "absolute"},
            {"rope_parameters": {"rope_type": "proportional", "rope_theta": 20000.0}}, {"hidden_act": "silu"}],
    })

GEMMA = Case(
    "gemma", "Gemma, Gemma 2, Gemma 3 (text, also from a folder with images)",
    generates={"gemma": (3072, 28, 16, 16, 24576, 256000, 8192, "tied"),
               "gemma2": (2304, 26, 8, 4, 9216, 256000, 8192, "tied"),
               "gemma3": (2304, 26, 8, 4, 9216, 262208, 131072, "tied"),
               "gemma3_text": (2304, 26, 8, 4, 9216, 262208, 131072, "tied")},
    not_generating={
        "gemma2": [{"query_pre_attn_scalar": 0}, {"attn_logit_softcapping": -1}, {"final_logit_softcapping": 1e9},
            {"use_bidirectional_attention": True}],
        "gemma": [{"tie_word_embeddings": False}, {"use_bidirectional_attention": True}, {"hidden_activation": "mish"}],
        "gemma3": [{"quantization": {"group_size": 64, "bits": 4}}],
        "gemma3_text": [{"final_logit_softcapping": 30.0}, {"attn_logit_softcapping": 50.0},
            {"use_bidirectional_attention": True}, {"tie_word_embeddings": False}, {"layer_types": ["full_attention"]},
            {"model_type": "gemma3", "text_config": 3}, {"model_type": "gemma3", "text_config": {"model_type": "x"}}],
    })

BLOOM = Case(
    "bloom", "BLOOM, BLOOMZ",
    generates={"bloom": (64, 2, 8, 8, 256, 250880, 0, "tied")},
    not_generating={
        "bloom": [{"apply_residual_connection_post_layernorm": True}, {"num_attention_heads": 2}, {"n_head": 5},
            {"hidden_size": 15}],
    })

CODEGEN = Case(
    "codegen", "CodeGen, GPT-J",
    generates={"codegen": (4096, 28, 16, 16, 16384, 50400, 2048, "own"),
               "gptj": (4096, 28, 16, 16, 16384, 50400, 2048, "own")},
    not_generating={
        "codegen": [{"n_head": 2}, {"rotary_dim": 3}],
        "gptj": [{"rotary_dim": 10}, {"rotary_dim": "4"}, {"tie_word_embeddings": True}],
    })

COHERE2 = Case(
    "cohere2", "Command R7B",
    generates={"cohere2": (8192, 40, 64, 64, 22528, 256000, 8192, "tied")},
    not_generating={
        "cohere2": [{"use_qk_norm": True}, {"layer_types": ["full_attention"] * 3}, {"sliding_window": 0},
            {"logit_scale": 0}],
    })

FALCON = Case(
    "falcon", "Falcon 7B",
    generates={"falcon": (4544, 32, 71, 1, 18176, 65024, 2048, "tied")},
    not_generating={
        "falcon": [{"alibi": True}, {"new_decoder_architecture": True}, {"multi_query": False},
            {"parallel_attn": False}, {"num_ln_in_parallel_attn": 2}],
    })

GLM = Case(
    "llama", "GLM-4 9B (the folders whose names end in -hf)",
    generates={"glm": (4096, 40, 32, 2, 13696, 151552, 131072, "own")},
    not_generating={
        "glm": [{"rope_parameters": {"rope_theta": 700.0, "partial_rotary_factor": 0.7}},
            {"partial_rotary_factor": 0.25}, {"rope_parameters": None, "partial_rotary_factor": -1},
            {"intermediate_size": 15}],
    })

GPT_BIGCODE = Case(
    "gpt2", "StarCoder, StarCoderBase, tiny_starcoder",
    generates={"gpt_bigcode": (768, 12, 12, 1, 3072, 50257, 1024, "tied")},
    not_generating={
        "gpt_bigcode": [{"multi_query": False}, {"tie_word_embeddings": False}],
    })

GPT_NEO = Case(
    "gpt_neo", "GPT-Neo, TinyStories",
    generates={"gpt_neo": (2048, 24, 16, 16, 8192, 50257, 2048, "tied")},
    not_generating={
        "gpt_neo": [{"attention_types": [[["global"], 2]]}, {"attention_types": [[["global", "wide"], 1]]},
            {"attention_types": [["global", 3]]}, {"window_size": 0}],
    })

GPT_NEOX = Case(
    "gpt_neox", "Pythia, GPT-NeoX, Dolly",
    generates={"gpt_neox": (6144, 44, 64, 64, 24576, 50432, 2048, "own")},
    not_generating={
        "gpt_neox": [{"rotary_pct": 1.0}, {"attention_bias": False}],
        "gpt_neox_serial": [{"use_parallel_residual": 3}],
    })

GRANITE = Case(
    "granite", "Granite 3, the dense models of Granite 4",
    generates={"granite": (4096, 32, 32, 32, 11008, 32000, 2048, "own"),
               "granitemoehybrid": (4096, 32, 32, 32, 1024, 32000, 2048, "own")},
    not_generating={
        "granite": [{"logits_scaling": 0}, {"residual_multiplier": 0}],
        "granitemoehybrid": [{"num_local_experts": 4}, {"num_local_experts": None},
            {"layer_types": ["mamba", "attention"]},
            {"layer_types": ["mamba", "attention"], "position_embedding_type": "nope", "num_local_experts": 64},
            {"position_embedding_type": "alibi"}, {"shared_intermediate_size": 15}],
    })

MPT = Case(
    "mpt", "MPT",
    generates={"mpt": (2048, 24, 16, 16, 8192, 50368, 2048, "tied")},
    not_generating={
        "mpt": [{"attn_config": {"alibi": False}}, {"attn_config": {"clip_qkv": 6}}, {"no_bias": False},
            {"attn_config": [1]}],
    })

OLMO = Case(
    "olmo", "OLMo",
    generates={"olmo": (4096, 32, 32, 32, 11008, 50304, 2048, "own")},
    not_generating={
        "olmo": [{"clip_qkv": 8.0}],
    })

OLMO2 = Case(
    "llama", "OLMo 2, OLMo 3, EXAONE 4",
    generates={"olmo2": (4096, 32, 32, 32, 11008, 50304, 2048, "own"),
               "olmo3": (4096, 32, 32, 32, 11008, 50304, 2048, "own"),
               "exaone4": (4096, 32, 32, 32, 16384, 102400, 2048, "own")},
    not_generating={
        "olmo3": [{"rope_parameters": {"rope_theta": 1e4}}, {"layer_types": ["full_attention"]}],
        "exaone4": [{"sliding_window": -4}],
        "olmo2": [{"layer_types": ["sliding_attention"] * 2}],
    })

OPT = Case(
    "opt", "OPT",
    generates={"opt": (768, 12, 12, 12, 3072, 50272, 2050, "tied")},
    not_generating={
        "opt": [{"word_embed_proj_dim": 6}, {"do_layer_norm_before": False}, {"activation_function": "gelu_10"}],
    })

PHI = Case(
    "phi", "Phi-1, Phi-1.5, Phi-2",
    generates={"phi": (2048, 24, 32, 32, 8192, 51200, 2048, "own")},
    not_generating={
        "phi": [{"qk_layernorm": True}, {"rope_parameters": None, "partial_rotary_factor": 0.4}],
    })

PHI3 = Case(
    "phi3", "Phi-3, Phi-3.5, Phi-4-mini, Phi-4",
    generates={"phi3": (3072, 32, 32, 32, 8192, 32064, 4096, "own")},
    not_generating={
        "phi3_long": [{"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] * 3}},
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0] * 3, "long_factor": [0.0] * 3}},
            {"rope_parameters": {"rope_type": "longrope", "mscale": 2.0}}, {"original_max_position_embeddings": 65}],
        "phi3": [{"num_key_value_heads": 2}, {"intermediate_size": 13}],
        "phi3_partial": [
            {"partial_rotary_factor": 0.7, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}],
    })

STABLELM = Case(
    "stablelm", "StableLM, StableLM 2",
    generates={"stablelm": (2560, 32, 32, 32, 6912, 50304, 4096, "own")},
    not_generating={
        "stablelm": [{"qk_layernorm": True}, {"use_parallel_residual": True}],
        "stablelm_parallel": [{"use_parallel_residual": False}],
    })

STARCODER2 = Case(
    "llama", "StarCoder2",
    generates={"starcoder2": (3072, 30, 24, 2, 12288, 49152, 4096, "tied")},
    not_generating={
        "starcoder2": [{"use_bias": "yes"}, {"use_bias": False}],
    })

SMOLLM3 = Case(
    "smollm3", "SmolLM3",
    generates={"smollm3": (2048, 36, 16, 4, 11008, 128256, 32768, "tied")},
    not_generating={
        "smollm3": [{"no_rope_layers": [1, 0]}, {"no_rope_layers": [1, 0, 2]},
            {"no_rope_layers": None, "no_rope_layer_interval": 0}, {"use_sliding_window": True},
            {"layer_types": ["sliding_attention"] * 3}],
    })

LLAMA = Case(
    "llama", "Llama, Mistral, Qwen2, Qwen3, SmolLM2, Ministral, Seed-OSS, InternLM3, ERNIE 4.5, Helium",
    generates={"llama": (4096, 32, 32, 32, 11008, 32000, 2048, "own"),
               "mistral": (4096, 32, 32, 8, 14336, 32000, 131072, "own"),
               "qwen2": (4096, 32, 32, 32, 22016, 151936, 32768, "own"),
               "qwen3": (4096, 32, 32, 32, 22016, 151936, 32768, "own"),
               "ernie4_5": (1024, 18, 16, 2, 3072, 103424, 131072, "tied"),
               "helium": (2560, 24, 20, 20, 7040, 48000, 4096, "own"),
               "internlm3": (4096, 48, 32, 2, 10240, 128512, 32768, "own"),
               "ministral": (4096, 32, 32, 8, 14336, 32000, 131072, "own"),
               "seed_oss": (4096, 64, 80, 8, 27648, 155136, 524288, "own")},
    not_generating={
        "internlm3": [{"qkv_bias": True, "attention_bias": None}],
        "ministral": [{"layer_types": ["chunked"] * 3}],
        "qwen2_windows": [{"sliding_window": 0}],
        "llama": [{"auto_map": {"AutoModel": "x.Y"}}, {"use_sliding_window": True},
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [1.0] * 3}},
            {"tie_word_embeddings": False}],
        "qwen2": [{"use_sliding_window": "yes"}],
        "qwen3": [{"layer_types": ["sliding_attention", "full_attention"]}],
        "mistral": [{"quantization_config": {"bits": 4}}],
    })

MODERNBERT = Case(
    "modernbert", "ModernBERT, gte-modernbert, modernbert-embed",
    types=("modernbert",),
    left_out=["head.dense.weight", "head.norm.weight", "decoder.bias", "classifier.weight",
              "model.layers.0.attn.rotary_emb.inv_freq"],
    same=[
        ("modernbert_linear", ("rope_scaling", "global_rope_theta", "local_rope_theta"), {"rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 900.0, "factor": 2.5},
            "sliding_attention": {"rope_type": "linear", "rope_theta": 200.0, "factor": 2.5}}}),
        ("modernbert_old", ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "local_attention",
                            "norm_eps", "layer_norm_eps", "norm_bias", "attention_bias", "mlp_bias",
                            "hidden_activation", "position_embedding_type"), {}),
        ("modernbert_new", ("rope_parameters", "local_attention", "norm_eps", "norm_bias", "attention_bias", "mlp_bias",
                            "hidden_activation"), {}),
        ("modernbert_new", (), {"rope_parameters": {"full_attention": None}}),
        ("modernbert_new", (), {"rope_parameters": {"sliding_attention": {"rope_type": "default"}}}),
        ("modernbert_old", ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"),
         MODERNBERT_IN_NEW_KEYS),
        ("modernbert_old", (), MODERNBERT_IN_NEW_KEYS),
        ("modernbert_old", (), {"layer_types": None, "rope_parameters": None, "rope_scaling": None}),
        ("modernbert_biases", ("layer_types", "rope_parameters"),
         {"global_rope_theta": 80000, "local_rope_theta": 500}),
        # keys that do not change the vectors
        ("modernbert_old", (), {
            "sparse_prediction": True, "reference_compile": True, "deterministic_flash_attn": True,
            "position_embedding_type": "sans_pos", "embedding_dropout": 0.1, "mlp_dropout": 0.1,
            "attention_dropout": 0.1, "classifier_activation": "silu", "classifier_bias": True,
            "classifier_pooling": "cls", "decoder_bias": False, "tie_word_embeddings": False,
            "architectures": ["ModernBertModel"], "initializer_cutoff_factor": 3.0}),
    ],
    refused={
        "modernbert_new": [{"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}],
        "modernbert_linear": [{"rope_scaling": {"rope_type": "linear"}}],
        "modernbert_old": [{"hidden_activation": "laplace"}, {"hidden_activation": None},
            {"rope_parameters": _LOCAL_ROPES | {"full_attention": _LONG_ROPE}},
            {"rope_parameters": _LOCAL_ROPES | {"full_attention": _GLOBAL_ROPE, "sliding_attention": _LONG_ROPE}},
            {"rope_scaling": {"type": "longrope", "factor": 4.0}}, {"rope_parameters": _LOCAL_ROPES},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, {"local_rope_theta": "10000"},
            {"global_rope_theta": 0}, {"layer_types": ["full_attention", "sliding_attention"] * 2},
            {"layer_types": ["full_attention", "chunked_attention", "sliding_attention", "full_attention"]},
            {"layer_types": ["full_attention"] * 3}, {"layer_types": "full_attention"},
            {"global_attn_every_n_layers": 0}, {"local_attention": -1}, {"local_attention": "128"}, {"norm_bias": "no"},
            {"attention_bias": 0.5}, {"norm_eps": "1e-5"}, {"num_attention_heads": 5}, {"num_attention_heads": 4},
            {"quantization_config": {"bits": 8}}, {"norm_bias": True}, {"attention_bias": True}, {"mlp_bias": True}],
    })

MPNET = Case(
    "mpnet", "MPNet, all-mpnet-base-v2, multi-qa-mpnet",
    types=("mpnet",),
    left_out=["pooler.dense.weight", "lm_head.dense.bias", "classifier.out_proj.weight", "qa_outputs.weight",
              "mpnet.embeddings.position_ids"],
    same=[
        ("mpnet_own", ("relative_attention_num_buckets", "hidden_act", "pad_token_id"), {"pad_token_id": None}),
        ("mpnet_own", (), {"type_vocab_size": 2, "pad_token_id": 7}),
    ],
    refused={
        "mpnet_own": [{"relative_attention_num_buckets": 64}, {"position_embedding_type": "relative_key"},
            {"position_embedding_type": "alibi"}, {"num_attention_heads": 4}],
    })

NEOBERT = Case(
    "neobert", "NeoBERT",
    types=("neobert",),
    left_out=["decoder.weight", "classifier.weight"],
    same=[
        ("neobert_own", ("dim_head", "pad_token_id"), {"rope": True, "rms_norm": True, "hidden_act": "swiglu"}),
    ],
    refused={
        "neobert_own": [{"rope": False}, {"rms_norm": False}, {"ngpt": True}, {"hidden_act": "gelu"},
            {"intermediate_size": 10**400}, {"dim_head": 16}, {"intermediate_size": 42 + 8}],
    })

NOMIC_BERT = Case(
    "nomic_bert", "nomic-embed v1 and v1.5, arctic-embed-m-long",
    types=("nomic_bert",),
    left_out=["pooler.dense.weight", "classifier.weight", "cls.predictions.decoder.bias",
              "bert.encoder.layers.0.attn.rotary_emb.inv_freq", "nomic_bert.embeddings.position_ids"],
    same=[
        ("nomic_own", (), NOMIC_IN_NEW_KEYS),
        ("nomic_own", ("n_embd", "n_head", "n_inner", "n_layer", "layer_norm_epsilon", "activation_function",
                       "rotary_emb_base", "rotary_emb_fraction", "n_positions", "max_trained_positions",
                       "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "type_vocab_size"), NOMIC_IN_NEW_KEYS),
        ("nomic_own", (), {"rotary_scaling_factor": 2}),
        ("nomic_own", (),
         {"moe_every_n_layers": 0, "use_flash_attn": False, "fused_bias_fc": False, "resid_pdrop": 0.5}),
        ("nomic_new", ("hidden_act", "type_vocab_size", "head_dim", "pad_token_id"), {}),
        ("nomic_new", ("rope_parameters",), {"rotary_emb_base": 70}),
        ("nomic_new", ("rope_parameters",),
         {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 70, "factor": 2}}),
        ("nomic_linear", ("rope_parameters",),
         {"rotary_emb_base": 300, "rope_scaling": {"type": "linear", "factor": 5}}),
    ],
    refused={
        "nomic_own": [{"hidden_size": 40}, {"layer_norm_eps": 1e-5}, {"rope_parameters": {"rope_theta": 10000.0}},
            {"rotary_emb_base": None}, {"rotary_emb_fraction": 0.5}, {"rotary_emb_interleaved": True},
            {"rotary_emb_scale_base": 512}, {"prenorm": True}, {"parallel_block": True}, {"causal": True},
            {"use_rms_norm": True}, {"scale_attn_weights": False}, {"moe_every_n_layers": 2},
            {"activation_function": "gelu"}, {"activation_function": "glu"}, {"hidden_act": "gelu"},
            {"qkv_proj_bias": True}, {"mlp_fc1_bias": True}, {"mlp_fc2_bias": True}],
        "nomic_new": [{"rope_parameters": {"rope_type": "longrope", "rope_theta": 70.0, "factor": 2.0}},
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "scaled_by": 2.0}},
            {"hidden_act": "quick_gelu"}, {"quantization_config": {"bits": 8}}],
    })

DECODER_ENCODERS = Case(
    "llama", "Qwen3-Embedding, gte-Qwen2, stella_en_1.5B, e5-mistral, SFR-Embedding-Mistral",
    types=("llama", "mistral", "qwen2", "qwen3"),
    left_out=["lm_head.weight", "score.weight"],
    same=[
        ("qwen3_old", ("rope_theta", "rope_scaling"), {"rope_parameters": {"rope_theta": 1000000.0}}),
        ("qwen3_old", ("hidden_act", "rms_norm_eps", "attention_bias", "use_sliding_window"),
         {"layer_types": ["full_attention"] * 3, "sliding_window": 4096, "pad_token_id": None}),
        ("qwen3_yarn", ("rope_scaling", "rope_theta"), {"rope_parameters": {
            "rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 80,
            "beta_fast": 32, "beta_slow": 1, "mscale": 0, "attention_factor": None, "truncate": True}}),
        ("qwen3_old", ("rope_scaling",), {"rope_scaling": {"type": "default"}}),
    ],
    refused={
        "qwen3_yarn": [{"rope_parameters": {"rope_type": "linear", "rope_theta": 700.0, "factor": 4.0}}],
        "qwen3_old": [{"use_sliding_window": True, "is_causal": False},
            {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, {"layer_types": 3},
            {"layer_types": "full_attention"}, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "scaled_by": 2.0}},
            {"num_key_value_heads": None}, {"attention_bias": True}],
        "qwen2_encoder": [{"auto_map": {"AutoModel": "modeling_qwen.Qwen2Model"}}],
        "qwen2_both_ways": [{"is_causal": None}, {"auto_map": {"AutoModel": "modeling_qwen.Qwen3Model"}}],
    })

ROBERTA = Case(
    "roberta", "RoBERTa, XLM-RoBERTa, CamemBERT, multilingual-e5, BGE-M3, jina-reranker-v2",
    types=("camembert", "roberta", "xlm-roberta"),
    left_out=["pooler.dense.weight", "lm_head.layer_norm.weight", "lm_head.decoder.weight",
              "classifier.out_proj.bias", "roberta.embeddings.position_ids", "qa_outputs.weight"])

SIGLIP = Case(
    "siglip", "SigLIP, SigLIP 2",
    types=("siglip", "siglip2", "siglip2_text_model", "siglip_text_model"),
    alike={"siglip2": "siglip"},
    same=[
        ("siglip2_text", ("hidden_act", "layer_norm_eps", "projection_size"), {}),
    ],
    refused={
        "siglip_text": [{"hidden_act": "tanh"}],
    })

T5 = Case(
    "t5", "T5, mT5, umT5, sentence-t5, GTR",
    types=("mt5", "t5", "umt5"),
    left_out=["decoder.block.0.layer.0.SelfAttention.q.weight", "lm_head.weight",
              "transformer.decoder.final_layer_norm.weight", "classification_head.dense.weight", "qa_outputs.weight"],
    same=[
        ("t5_own", ("relative_attention_num_buckets", "feed_forward_proj", "layer_norm_epsilon", "model_type"),
         {"model_type": "t5", "relative_attention_max_distance": 128, "dense_act_fn": "relu", "is_gated_act": False}),
        ("t5_own", ("d_model", "num_heads", "num_layers", "d_kv"),
         {"hidden_size": 34, "num_attention_heads": 4, "num_hidden_layers": 3, "head_dim": 11}),
        ("t5_gated", (), {"dense_act_fn": "gelu_new", "is_gated_act": True, "tie_word_embeddings": False}),
        ("mt5_encoder", ("feed_forward_proj", "dense_act_fn", "is_gated_act", "relative_attention_num_buckets"), {}),
        ("umt5_encoder", ("feed_forward_proj", "dense_act_fn", "is_gated_act", "relative_attention_max_distance"), {}),
    ],
    refused={
        "t5_own": [{"feed_forward_proj": "gated-gelu-new"}, {"feed_forward_proj": "plain-relu"},
            {"feed_forward_proj": None}, {"feed_forward_proj": "quick_gelu"}, {"dense_act_fn": "gelu_new"},
            {"is_gated_act": True}, {"feed_forward_proj": "gated-relu"}, {"num_attention_heads": 3},
            {"is_decoder": True}, {"d_kv": 10}, {"relative_attention_num_buckets": 31},
            {"relative_attention_max_distance": 8}, {"relative_attention_num_buckets": 30}, {"model_type": "umt5"}],
        "t5_gated": [{"feed_forward_proj": "gelu_new", "dense_act_fn": "gelu_new", "is_gated_act": False}],
        "umt5_relu": [{"model_type": "mt5"}],
    },
    generates={"t5": (512, 6, 8, 8, 2048, 32128, 0, "tied"),
               "mt5": (512, 8, 6, 6, 1024, 250112, 0, "tied"),
               "umt5": (512, 8, 6, 6, 1024, 250112, 0, "tied")},
    not_generating={
        "t5": [{"num_decoder_layers": 3}],
        "mt5": [{"d_model": 13}],
    })

VIT = Case(
    "vit", "ViT, DeiT, DINOv2, DINOv2 with registers",
    types=("deit", "dinov2", "dinov2_with_registers", "vit"),
    left_out=["pooler.dense.weight", "decoder.0.weight", "vit.embeddings.mask_token"])

WHISPER = Case(
    "whisper", "Whisper's encoder",
    types=("whisper",),
    left_out=["decoder.layers.0.fc1.weight", "decoder.embed_tokens.weight", "proj_out.weight",
              "projector.bias", "classifier.weight", "layer_weights"],
    generates={"whisper": (384, 4, 6, 6, 1536, 51865, 448, "tied")},
    not_generating={
        "whisper": [{"tie_word_embeddings": False}, {"max_target_positions": 65}],
    })

WAV2VEC2 = Case(
    "wav2vec2", "wav2vec 2.0, HuBERT, with letters by CTC",
    types=("hubert", "wav2vec2"),
    left_out=["wav2vec2.masked_spec_embed", "quantizer.codevectors", "project_q.weight", "project_hid.bias",
              "projector.weight", "classifier.bias", "layer_weights"])

CASES = tuple(case for case in list(globals().values()) if isinstance(case, Case))
"""All rows."""

_SIZES: dict[int, str] = {
    8: "hidden_size d_model n_embd dim", 6: "intermediate_size d_ff encoder_ffn_dim n_inner hidden_dim",
    2: "num_attention_heads num_heads encoder_attention_heads n_head n_heads patch_size",
    4: "head_dim d_kv embedding_size query_pre_attn_scalar image_size", len(WORDS): "vocab_size",
    1: "num_key_value_heads", 0: "projection_dim", 3: "num_channels num_mel_bins", 5: "max_source_positions"}
"""The numbers of tiny models, by the keys of a config.json."""
_TINY = {key: size for size, keys in _SIZES.items() for key in keys.split()}


def _tiny(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of a golden model with tiny sizes, and ids of tokens that there are."""
    small = {key: _tiny(value) if key in ("text_config", "vision_config") else
             3 if key.endswith("_token_id") and isinstance(value, int) and value >= len(WORDS) else value
             for key, value in values.items()}
    return small | {key: size for key, size in _TINY.items() if values.get(key) is not None}


def _of_types(in_new_words: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each model_type with the config.json of its first golden encoder, in old words or in transformers 5's."""
    for case in CASES:
        own = [values for name, values in _configs(ENCODERS) if name in case.golden]
        for name in case.types:
            found = [values for values in own if values["model_type"] == case.alike.get(name, name)]
            old, new = ([values for values in found if ("rope_parameters" in values) is is_new]
                        for is_new in (False, True))
            if chosen := (new if old else []) if in_new_words else old or new:
                yield name, _tiny(chosen[0]) | {"model_type": name}


TYPES = tuple(name for case in CASES for name in case.types)
"""The values of model_type of all encoders."""

CONFIGS: dict[str, Mapping[str, Any]] = {**dict(_of_types(in_new_words=False)), **{
    name: _tiny(dict(_configs(ENCODERS))[golden]) for case in CASES for name, golden in case.shared.items()}}
"""A tiny config.json by its model_type, or by a name of its own for a family that shares its model_type."""

NEW_CONFIGS = dict(_of_types(in_new_words=True))
"""The config.json that transformers 5 writes, where it differs much. Tensors have transformers 5's names, too."""

_PATCHES = {"embeddings.cls_token": (1, 1, 8), "embeddings.position_embeddings": (1, 5, 8),
            "embeddings.patch_embeddings.projection.weight": (8, 3, 2, 2),
            "embeddings.patch_embeddings.projection.bias": (8,)}
_SCALES = {f"encoder.layer.{layer}.layer_scale{i}.lambda1": (8,)
           for layer in range(CONFIGS["dinov2"]["num_hidden_layers"]) for i in (1, 2)}


def _convolutions(values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors before the first layer of a model of recordings with the norm "group"."""
    dims, groups, kernel = (values[key] for key in ("conv_dim", "num_conv_pos_embedding_groups",
                                                    "num_conv_pos_embeddings"))
    width, of_convolution, of_map = 8, "feature_extractor.conv_layers", "feature_projection"
    positions = "encoder.pos_conv_embed.conv"
    shapes: dict[str, tuple[int, ...]] = {
        f"{of_convolution}.{i}.conv.weight": (size, dims[i - 1] if i else 1, values["conv_kernel"][i])
        for i, size in enumerate(dims)}
    shapes |= {f"{of_convolution}.0.layer_norm.{kind}": (dims[0],) for kind in ("weight", "bias")}
    if values.get("feat_proj_layer_norm", True):
        shapes |= {f"{of_map}.layer_norm.{kind}": (dims[-1],) for kind in ("weight", "bias")}
    return shapes | {
        f"{of_map}.projection.weight": (width, dims[-1]), f"{of_map}.projection.bias": (width,),
        f"{positions}.weight_g": (1, 1, kernel), f"{positions}.weight_v": (width, width // groups, kernel),
        f"{positions}.bias": (width,)}


STEMS: dict[str, Mapping[str, tuple[int, ...]]] = {
    "siglip_vision_model": {
        "embeddings.position_embedding.weight": (4, 8), "embeddings.patch_embedding.weight": (8, 3, 2, 2),
        "embeddings.patch_embedding.bias": (8,), "head.probe": (1, 1, 8), "head.attention.in_proj_weight": (24, 8),
        "head.attention.in_proj_bias": (24,), "head.attention.out_proj.weight": (8, 8),
        "head.attention.out_proj.bias": (8,), "head.layernorm.weight": (8,), "head.layernorm.bias": (8,),
        "head.mlp.fc1.weight": (6, 8), "head.mlp.fc1.bias": (6,), "head.mlp.fc2.weight": (8, 6),
        "head.mlp.fc2.bias": (8,)},
    "clip_vision_model": {
        "embeddings.class_embedding": (8,), "embeddings.position_embedding.weight": (5, 8),
        "embeddings.patch_embedding.weight": (8, 3, 2, 2)},
    "dinov2": _PATCHES | _SCALES, "vit": _PATCHES,
    "deit": _PATCHES | {"embeddings.distillation_token": (1, 1, 8), "embeddings.position_embeddings": (1, 6, 8)},
    "dinov2_with_registers": _PATCHES | {
        "embeddings.register_tokens": (1, CONFIGS["dinov2_with_registers"]["num_register_tokens"], 8)},
    "whisper": {"conv1.weight": (8, 3, 3), "conv1.bias": (8,), "conv2.weight": (8, 8, 3), "conv2.bias": (8,),
                "embed_positions.weight": (5, 8)},
    **{name: _convolutions(CONFIGS[name]) for name in WAV2VEC2.types}}
"""Shapes of the tensors before the first layer, for images and sound, and of scales that are merged at load."""
