"""The models that are mutated: tiny ones of every family and of every kind of file, as bytes in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.cython_cpu import isa
from engine.backends.cython_cpu.packed import pack_model
from engine.config import ModelConfig, TextConfig
from engine.dense import Dense
from engine.families import FAMILIES, Family, get_family
from engine.model import Model, load_model, save_model
from engine.parameters import expected_shapes
from engine.quantize import convert_model
from engine.weights.bfloat16 import to_bfloat16
from tests.fuzz.tokenizer_files import BERT, TOKENIZERS, WORDS
from tests.model_files import NEW, OLD
from tests.tiny_models import safetensors

Files = dict[str, bytes]
"""The contents of a model's files by their paths in its folder. A model that is one file has only the path `NPZ`."""

NPZ = "m.npz"

_SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 6, "max_position_embeddings": 16, "pad_token_id": 0,
}
_T5: dict[str, Any] = {
    "vocab_size": len(WORDS), "d_model": 8, "num_layers": 1, "num_heads": 2, "d_kv": 4, "d_ff": 6, "pad_token_id": 0,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "layer_norm_epsilon": 1e-6,
}
_CLIP = _SIZES | {"pad_token_id": 1, "eos_token_id": 3, "layer_norm_eps": 1e-5}
_IMAGES = {"image_size": 4, "patch_size": 2, "num_channels": 3, "qkv_bias": True}
_PATCHES = {"embeddings.cls_token": (1, 1, 8), "embeddings.position_embeddings": (1, 5, 8),
            "embeddings.patch_embeddings.projection.weight": (8, 3, 2, 2),
            "embeddings.patch_embeddings.projection.bias": (8,)}
STEMS: dict[str, dict[str, tuple[int, ...]]] = {
    "vit": _PATCHES,
    "dinov2": _PATCHES | {f"encoder.layer.0.layer_scale{i}.lambda1": (8,) for i in (1, 2)},
    "dinov2_with_registers": _PATCHES | {"embeddings.register_tokens": (1, 2, 8)},
    "whisper": {"conv1.weight": (8, 3, 3), "conv1.bias": (8,), "conv2.weight": (8, 8, 3), "conv2.bias": (8,),
                "embed_positions.weight": (5, 8)},
}
"""The tensors before the first layer of the families of images and sound, and scales that are merged at load."""

_PLAIN_ROPE = {"rope_type": "default", "rope_theta": 300.0}

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": _SIZES | {"type_vocab_size": 2, "hidden_act": "gelu", "position_embedding_type": "absolute"},
    "clip": {"projection_dim": 5, "text_config": _CLIP | {"hidden_act": "quick_gelu", "eos_token_id": 2},
             "text_config_dict": None, "vision_config": {"hidden_size": 8}},
    "clip_text_model": _CLIP | {"hidden_act": "gelu"},
    "siglip": {"text_config": _CLIP | {"hidden_act": "gelu_pytorch_tanh"}},
    "siglip2": {"text_config": _CLIP},
    "siglip_text_model": _CLIP | {"layer_norm_eps": 1e-6},
    "siglip2_text_model": _CLIP | {"hidden_act": "quick_gelu"},
    "vit": _SIZES | _IMAGES | {"hidden_act": "gelu"},
    "dinov2": _SIZES | _IMAGES | {"mlp_ratio": 2, "use_swiglu_ffn": True, "apply_layernorm": True},
    "dinov2_with_registers": _SIZES | _IMAGES | {"mlp_ratio": 2, "num_register_tokens": 2},
    "whisper": {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 6,
                "num_mel_bins": 3, "max_source_positions": 5, "activation_function": "gelu"},
    "roberta": _SIZES | {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "albert": _SIZES | {"num_hidden_layers": 2, "num_hidden_groups": 1, "inner_group_num": 1, "embedding_size": 4,
                        "type_vocab_size": 2, "hidden_act": "gelu_new"},
    "electra": _SIZES | {"embedding_size": 4, "type_vocab_size": 2},
    "gemma3_text": _SIZES | {"num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 4, "sliding_window": 4,
                             "sliding_window_pattern": 2, "query_pre_attn_scalar": 4, "rope_theta": 900.0,
                             "rope_local_base_freq": 100.0, "use_bidirectional_attention": True, "rms_norm_eps": 1e-6,
                             "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": None},
    "camembert": _SIZES | {"pad_token_id": 1, "type_vocab_size": 1},
    "xlm-roberta": _SIZES | {"pad_token_id": 1, "type_vocab_size": 1},
    "distilbert": {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 6, "vocab_size": len(WORDS),
                   "max_position_embeddings": 16, "activation": "gelu", "sinusoidal_pos_embds": False},
    "deberta-v2": _SIZES | {"relative_attention": True, "pos_att_type": "p2c|c2p", "max_relative_positions": -1,
                            "position_buckets": 4, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
                            "share_att_key": True, "type_vocab_size": 0, "layer_norm_eps": 1e-7},
    "eurobert": _SIZES | {"num_key_value_heads": 1, "head_dim": 4, "attention_bias": True, "mlp_bias": True,
                          "rms_norm_eps": 1e-5, "rope_theta": 500.0,
                          "auto_map": {"AutoModel": "modeling_eurobert.EuroBertModel"}},
    "new": _SIZES | {"type_vocab_size": 1, "pack_qkv": True, "position_embedding_type": "rope", "rope_theta": 20000,
                     "rope_scaling": {"factor": 8.0, "type": "ntk"}, "layer_norm_type": "layer_norm"},
    "gte": _SIZES | {"type_vocab_size": 0, "rope_parameters": _PLAIN_ROPE | {"rope_type": "linear", "factor": 3.0}},
    "jina_embeddings_v3": _SIZES | {"type_vocab_size": 1, "position_embedding_type": "rotary",
                                    "lora_adaptations": None},
    "jina_bert": _SIZES | {"model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu",
                           "type_vocab_size": 2, "auto_map": {"AutoModel": "x/y--modeling_bert.JinaBertModel"}},
    "jina_flash": _SIZES | {"model_type": "xlm-roberta", "position_embedding_type": "rotary", "type_vocab_size": 1,
                            "lora_adaptations": ["a", "b"], "lora_rank": 2, "lora_alpha": 1, "rotary_emb_base": 900.0,
                            "auto_map": {"AutoModel": "x/y--modeling_lora.XLMRobertaLoRA"}},
    "mpnet": _SIZES | {"pad_token_id": 1, "relative_attention_num_buckets": 32, "layer_norm_eps": 1e-5},
    "t5": _T5 | {"feed_forward_proj": "relu"},
    "mt5": _T5 | {"feed_forward_proj": "gated-gelu"},
    "umt5": _T5 | {"feed_forward_proj": "gated-gelu", "is_gated_act": True, "dense_act_fn": "gelu_new"},
    "modernbert": _SIZES | {"num_hidden_layers": 2, "global_attn_every_n_layers": 2, "global_rope_theta": 900.0,
                            "local_rope_theta": 100.0, "local_attention": 4, "norm_bias": True, "mlp_bias": False,
                            "attention_bias": False, "hidden_activation": "gelu", "norm_eps": 1e-5},
    "neobert": {"hidden_size": 8, "intermediate_size": 12, "max_length": 16, "norm_eps": 0.01,
                "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": len(WORDS), "dim_head": 4},
    "nomic_bert": {"n_embd": 8, "n_head": 2, "n_inner": 6, "n_layer": 1, "n_positions": 16, "rotary_emb_base": 1000,
                   "rotary_emb_fraction": 1.0, "rotary_scaling_factor": None, "activation_function": "swiglu",
                   "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "type_vocab_size": 2,
                   "layer_norm_epsilon": 1e-12, "vocab_size": len(WORDS), "prenorm": False, "causal": False},
    "qwen3": _SIZES | {"num_key_value_heads": 1, "head_dim": 4, "rms_norm_eps": 1e-6, "attention_bias": False,
                       "rope_theta": 1000000, "use_sliding_window": False},
}
"""A tiny config.json of every model_type, without the model_type. JinaBERT has BERT's."""

NEW_CONFIGS: dict[str, dict[str, Any]] = {
    "deberta-v2": _SIZES | {"relative_attention": True, "pos_att_type": ["c2p"], "max_relative_positions": 6,
                            "position_biased_input": True, "type_vocab_size": 2},
    "jina_embeddings_v3": _SIZES | {"type_vocab_size": 2, "rope_parameters": _PLAIN_ROPE},
    "modernbert": _SIZES | {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"],
                            "rope_parameters": {"full_attention": _PLAIN_ROPE, "sliding_attention": _PLAIN_ROPE},
                            "local_attention": 6},
    "mt5": _T5 | {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "head_dim": 4},
    "nomic_bert": _SIZES | {"type_vocab_size": 2, "head_dim": 4, "rope_parameters": _PLAIN_ROPE, "hidden_act": "silu"},
    "eurobert": _SIZES | {"head_dim": 4, "rope_parameters": _PLAIN_ROPE | {
        "rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 4}},
    "gemma3_text": _SIZES | {
        "head_dim": 4, "num_key_value_heads": 2, "layer_types": ["sliding_attention"], "sliding_window": 4,
        "use_bidirectional_attention": True, "rope_parameters": {
            "full_attention": _PLAIN_ROPE | {"rope_type": "linear", "factor": 2.0}, "sliding_attention": _PLAIN_ROPE}},
    "qwen3": _SIZES | {
        "head_dim": 4, "attention_bias": True, "num_key_value_heads": 2, "layer_types": ["full_attention"],
        "is_causal": True, "rope_parameters": _PLAIN_ROPE | {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}},
}
"""The config.json that transformers 5 writes, where it differs much. Tensors have the names of transformers 5, too."""

_SENTENCE_BERT = {"max_seq_length": 12, "do_lower_case": False}
_SETTINGS = {"model_max_length": 12, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
_PROMPTS = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query",
            "similarity_fn_name": "cosine", "__version__": {"sentence_transformers": "3.0.0"}}
_DENSE = {"in_features": 8, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
_FLAGS = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": True,
          "pooling_mode_mean_tokens": False, "include_prompt": False}


def array_of(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (0.3 * rng.standard_normal(shape)).astype(np.float32)


def tensors_of(family: Family, config: ModelConfig, new: bool, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random tensors that fit a model, under the names of its family; `new` selects transformers 5's names."""
    rng, names, shapes = np.random.default_rng(seed), family.NAMES, expected_shapes(config)
    tensors: dict[str, np.ndarray] = {}
    for name, canonical in reversed(names.embeddings.items()) if new else names.embeddings.items():
        if canonical in shapes:
            tensors[name] = array_of(rng, shapes.pop(canonical))
    prefix = names.layers if isinstance(names.layers, str) else names.layers[-1 if new else 0]
    for name, canonical in reversed(names.layer.items()) if new else names.layer.items():
        maps = names.joined.get(canonical, (canonical,))
        for i in range(config.num_layers):
            for kind in ("weight", "bias"):
                parts = [f"layers.{i}.{part}.{kind}" for part in maps]
                if all(part in shapes for part in parts):
                    found = [shapes.pop(part) for part in parts]
                    shape = (sum(shape[0] for shape in found), *found[0][1:])
                    tensors[f"{prefix}{i}.{name}.{kind}"] = array_of(rng, shape)
    return tensors


def weights_of(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights that fit a model, under the engine's own names."""
    rng = np.random.default_rng(seed)
    return {name: array_of(rng, shape) for name, shape in expected_shapes(config).items()}


def tensor_file(tensors: dict[str, np.ndarray], dtype: str = "F32") -> bytes:
    """Return a safetensors file with the matrices in this dtype."""
    stored = {"BF16": to_bfloat16, "F16": np.float16, "F64": np.float64, "F32": np.float32}[dtype]
    return safetensors({name: stored(array) if array.ndim == 2 else array for name, array in tensors.items()},
                       **{name: dtype for name, array in tensors.items() if array.ndim == 2})


def json_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def family_folder(model_type: str, values: dict[str, Any], dtype: str = "F32", new: bool = False) -> Files:
    """Return a Hugging Face folder, with a tokenizer."""
    values = {"model_type": model_type} | values
    family = get_family(values)
    tensors = tensors_of(family, family.read_config(values), new)
    rng = np.random.default_rng(1)
    tensors |= {name: array_of(rng, shape) for name, shape in STEMS.get(str(values["model_type"]), {}).items()}
    return {"config.json": json_bytes(values), "model.safetensors": tensor_file(tensors, dtype),
            "tokenizer.json": BERT, "tokenizer_config.json": json_bytes(_SETTINGS)}


def sentence_folder(types: dict[str, str], home: str, tokenizer: bytes, pooling: Any, *kinds: str) -> Files:
    """Return a sentence-transformers folder whose transformer lies in the folder `home`, which ends in a slash."""
    paths = {"Transformer": home.removesuffix("/"), "Pooling": "1_Pooling", "Dense": "2_Dense",
             "Normalize": "3_Normalize"}
    modules = [{"idx": i, "name": str(i), "path": paths[kind], "type": types[kind]} for i, kind in enumerate(kinds)]
    inner = family_folder("bert", CONFIGS["bert"]) | {
        "tokenizer.json": tokenizer, "sentence_bert_config.json": json_bytes(_SENTENCE_BERT)}
    files = {"modules.json": json_bytes(modules), "config_sentence_transformers.json": json_bytes(_PROMPTS),
             "1_Pooling/config.json": json_bytes(pooling)} | {home + name: data for name, data in inner.items()}
    if types is NEW and "Normalize" in kinds:
        files["3_Normalize/config.json"] = json_bytes({"module_input_name": "sentence_embedding"})
    if "Dense" in kinds:
        files["2_Dense/config.json"] = json_bytes(_DENSE)
        files["2_Dense/model.safetensors"] = tensor_file(
            {"linear.weight": array_of(np.random.default_rng(0), (5, 8)), "linear.bias": np.ones(5, np.float32)})
    return files


def _sharded() -> Files:
    files = family_folder("bert", CONFIGS["bert"])
    family = FAMILIES["bert"]
    tensors = tensors_of(family, family.read_config(CONFIGS["bert"]), new=False)
    shards = [f"model-{i + 1:05}-of-00002.safetensors" for i in range(2)]
    home = {name: shards[i % 2] for i, name in enumerate(tensors)}
    files["model.safetensors.index.json"] = json_bytes({"metadata": {"total_size": 9}, "weight_map": home})
    del files["model.safetensors"]
    return files | {shard: tensor_file({name: tensors[name] for name in tensors if home[name] == shard})
                    for shard in shards}


def _npz(folder: Path, values: dict[str, Any], model_type: str, precision: str | None = None) -> Files:
    config = FAMILIES[model_type].read_config({"model_type": model_type} | values)
    text = TextConfig(BERT, max_seq_length=12, pooling=("mean", "cls"), normalize=True, include_prompt=False,
                      lower_case=True, prompts={"query": "query: "}, default_prompt_name="query",
                      feeds_token_types=model_type == "bert")
    dense = (Dense(array_of(np.random.default_rng(0), (5, 16)), None, "tanh"),) if model_type == "modernbert" else ()
    model = Model(config, weights_of(config), text, dense)
    save_model(convert_model(model, precision) if precision else model, folder / NPZ)
    return {NPZ: (folder / NPZ).read_bytes()}


def sources(folder: Path) -> dict[str, Files]:
    """Return the files of all models by their names; `folder` is for temporary files."""
    missing = FAMILIES.keys() - CONFIGS.keys()
    if missing:
        raise AssertionError(f"tests/fuzz/corpus.py lacks a config.json of {', '.join(missing)}")
    dtypes = ("F32", "BF16", "F16", "F64")
    found = {f"{name} folder": family_folder(name, CONFIGS[name], dtypes[i % 4]) for i, name in enumerate(CONFIGS)}
    found |= {f"new {name} folder": family_folder(name, values, dtypes[i % 4], new=True)
              for i, (name, values) in enumerate(NEW_CONFIGS.items())}
    found["sharded folder"] = _sharded()
    found["old sentence folder"] = sentence_folder(OLD, "0_Transformer/", BERT, _FLAGS, "Transformer", "Pooling")
    for name, tokenizer in TOKENIZERS.items():
        found[f"sentence folder, {name}"] = sentence_folder(
            NEW, "", tokenizer, {"pooling_mode": ["mean", "lasttoken"]}, "Transformer", "Pooling", "Normalize")
    found["sentence folder with a Dense"] = sentence_folder(
        NEW, "", BERT, {"pooling_mode": "mean"}, "Transformer", "Pooling", "Dense", "Normalize")
    found["npz of version 1"] = _npz(folder, CONFIGS["roberta"], "roberta")
    found["npz of version 2"] = _npz(folder, CONFIGS["modernbert"], "modernbert")
    found["npz in int8"] = _npz(folder, CONFIGS["bert"], "bert", "int8")
    found["npz in bfloat16"] = _npz(folder, CONFIGS["qwen3"], "qwen3", "bfloat16")
    save_model(pack_model(load_model(folder / NPZ), isa.chosen().product("bfloat16")), folder / NPZ)
    found["npz, packed"] = {NPZ: (folder / NPZ).read_bytes()}
    found["npz by hand"] = {NPZ: _by_hand(folder / NPZ)}
    return found


def _by_hand(path: Path) -> bytes:
    """Return an .npz as a user without the engine writes it: compressed, with the config as a string."""
    values = {"model_type": "bert"} | CONFIGS["bert"]
    config = FAMILIES["bert"].read_config(values)
    document = {"format": "encoder-engine", "version": 1, "model": config.to_json()}
    np.savez_compressed(path, **weights_of(config), config=json.dumps(document))
    return path.read_bytes()
