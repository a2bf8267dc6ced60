"""The models that are mutated: tiny ones of every family and of every kind of file, as bytes in memory."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engine import Calibration, Transformer, load_model, save
from engine.backends.cpu.packer import pack_transformer
from engine.backends.cython_cpu import isa
from engine.families import FAMILIES, get_family
from engine.families.parts import Part
from engine.model.config import ModelConfig
from engine.model.text_config import TextConfig
from engine.weights.bfloat16 import to_bfloat16
from engine.weights.modules import Dense
from engine.weights.parameters import expected_shapes
from tests.families.cases import CONFIGS, NEW_CONFIGS, STEMS
from tests.fuzz.tokenizer_files import BERT, TOKENIZERS
from tests.tools.head_models import write_folder
from tests.tools.model_files import OLD
from tests.tools.module_folders import TYPES
from tests.tools.tiny_models import module_list, safetensors

from ..tools.encoders import convert_encoder, load_encoder, save_encoder

Files = dict[str, bytes]
"""The contents of a model's files by their paths in its folder. A model that is one file has only the path `NPZ`."""

NPZ = "m.npz"

_SENTENCE_BERT = {"max_seq_length": 12, "do_lower_case": False}
_SETTINGS = {"model_max_length": 12, "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
_PROMPTS = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query",
            "similarity_fn_name": "cosine", "__version__": {"sentence_transformers": "3.0.0"}}
_DENSE = {"in_features": 8, "out_features": 5, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
_FLAGS = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_max_tokens": True,
          "pooling_mode_mean_tokens": False, "include_prompt": False}


HEADS = ("bert_several", "roberta_tag", "distilbert_fill_mask", "modernbert_mean", "electra_answer",
         "deberta_classify", "eurobert_classify", "albert_fill_mask", "qwen3_classify")
"""The golden models with a head that are mutated."""


def array_of(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (0.3 * rng.standard_normal(shape)).astype(np.float32)


def tensors_of(part: Part, new: bool, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random tensors that fit an encoder, under its family's names; `new` selects those of transformers 5."""
    config, names = part.config, part.names
    rng, shapes = np.random.default_rng(seed), expected_shapes(config)
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


def family_folder(model_type: str, values: Mapping[str, Any], dtype: str = "F32", new: bool = False) -> Files:
    """Return a Hugging Face folder, with a tokenizer."""
    values = {"model_type": model_type} | dict(values)
    family = get_family(values)
    tensors = tensors_of(family.read_encoder(values), new)
    rng = np.random.default_rng(1)
    tensors |= {name: array_of(rng, shape) for name, shape in STEMS.get(str(values["model_type"]), {}).items()}
    return {"config.json": json_bytes(values), "model.safetensors": tensor_file(tensors, dtype),
            "tokenizer.json": BERT, "tokenizer_config.json": json_bytes(_SETTINGS)}


def files_of(folder: Path) -> Files:
    """Return the files of a folder, but for what a golden model should give."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name != "expected.json"}


def head_folder(name: str) -> Files:
    """Return the folder of a golden model with a head."""
    with TemporaryDirectory() as place:
        return files_of(write_folder(Path(place, name), name))


def sparse_folder() -> Files:
    """Return the folder of a SparseEncoder of sentence-transformers."""
    modules = module_list(("", TYPES["Transformer"]), ("1_SpladePooling", TYPES["SpladePooling"]))
    return head_folder("bert_fill_mask") | {
        "modules.json": json_bytes(modules),
        "config_sentence_transformers.json": json_bytes(_PROMPTS | {"model_type": "SparseEncoder",
                                                                    "max_active_dims": 5}),
        "sentence_bert_config.json": json_bytes({"transformer_task": "fill-mask"}),
        "1_SpladePooling/config.json": json_bytes({"pooling_strategy": "sum", "activation_function": "log1p_relu"})}


def pair_folder() -> Files:
    """Return the folder of a CrossEncoder of sentence-transformers."""
    settings = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
    return head_folder("bert_pairs") | {
        "modules.json": json_bytes(module_list(("", TYPES["Transformer"]))),
        "sentence_bert_config.json": json_bytes(settings),
        "config_sentence_transformers.json": json_bytes({
            "model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid", "prompts": {}})}


def sentence_folder(types: dict[str, str], home: str, tokenizer: bytes, pooling: Any, *kinds: str) -> Files:
    """Return a sentence-transformers folder whose transformer lies in the folder `home`, which ends in a slash."""
    paths = {"Transformer": home.removesuffix("/"), "Pooling": "1_Pooling", "Dense": "2_Dense",
             "Normalize": "3_Normalize"}
    modules = module_list(*((paths[kind], types[kind]) for kind in kinds))
    inner = family_folder("bert", CONFIGS["bert"]) | {
        "tokenizer.json": tokenizer, "sentence_bert_config.json": json_bytes(_SENTENCE_BERT)}
    files = {"modules.json": json_bytes(modules), "config_sentence_transformers.json": json_bytes(_PROMPTS),
             "1_Pooling/config.json": json_bytes(pooling)} | {home + name: data for name, data in inner.items()}
    if types is TYPES and "Normalize" in kinds:
        files["3_Normalize/config.json"] = json_bytes({"module_input_name": "sentence_embedding"})
    if "Dense" in kinds:
        files["2_Dense/config.json"] = json_bytes(_DENSE)
        files["2_Dense/model.safetensors"] = tensor_file(
            {"linear.weight": array_of(np.random.default_rng(0), (5, 8)), "linear.bias": np.ones(5, np.float32)})
    return files


def _sharded() -> Files:
    files = family_folder("bert", CONFIGS["bert"])
    tensors = tensors_of(FAMILIES["bert"].read_encoder(dict(CONFIGS["bert"])), new=False)
    shards = [f"model-{i + 1:05}-of-00002.safetensors" for i in range(2)]
    home = {name: shards[i % 2] for i, name in enumerate(tensors)}
    files["model.safetensors.index.json"] = json_bytes({"metadata": {"total_size": 9}, "weight_map": home})
    del files["model.safetensors"]
    return files | {shard: tensor_file({name: tensors[name] for name in tensors if home[name] == shard})
                    for shard in shards}


def _npz(folder: Path, values: dict[str, Any], model_type: str, precision: str | None = None) -> Files:
    config = FAMILIES[model_type].read_encoder({"model_type": model_type} | values).config
    text = TextConfig(BERT, max_seq_length=12, pooling=("mean", "cls"), normalize=True, include_prompt=False,
                      lower_case=True, prompts={"query": "query: "}, default_prompt_name="query",
                      feeds_token_types=model_type == "bert")
    dense = (Dense(array_of(np.random.default_rng(0), (5, 16)), None, "tanh"),) if model_type == "modernbert" else ()
    model = Transformer(config, weights_of(config), text, dense)
    save_encoder(convert_encoder(model, precision) if precision else model, folder / NPZ)
    return {NPZ: (folder / NPZ).read_bytes()}


def sources(folder: Path) -> dict[str, Files]:
    """Return the files of all models by their names; `folder` is for temporary files."""
    dtypes = ("F32", "BF16", "F16", "F64")
    found = {f"{name} folder": family_folder(name, CONFIGS[name], dtypes[i % 4]) for i, name in enumerate(CONFIGS)}
    found |= {f"new {name} folder": family_folder(name, values, dtypes[i % 4], new=True)
              for i, (name, values) in enumerate(NEW_CONFIGS.items())}
    found["sharded folder"] = _sharded()
    found["old sentence folder"] = sentence_folder(OLD, "0_Transformer/", BERT, _FLAGS, "Transformer", "Pooling")
    for name, tokenizer in TOKENIZERS.items():
        found[f"sentence folder, {name}"] = sentence_folder(
            TYPES, "", tokenizer, {"pooling_mode": ["mean", "lasttoken"]}, "Transformer", "Pooling", "Normalize")
    found["sentence folder with a Dense"] = sentence_folder(
        TYPES, "", BERT, {"pooling_mode": "mean"}, "Transformer", "Pooling", "Dense", "Normalize")
    found["npz of version 1"] = _npz(folder, CONFIGS["roberta"], "roberta")
    found["npz of version 2"] = _npz(folder, CONFIGS["modernbert"], "modernbert")
    found["npz in int8"] = _npz(folder, CONFIGS["bert"], "bert", "int8")
    found["npz in bfloat16"] = _npz(folder, CONFIGS["qwen3"], "qwen3", "bfloat16")
    save_encoder(pack_transformer(load_encoder(folder / NPZ), isa.chosen().product("bfloat16")), folder / NPZ)
    found["npz, packed"] = {NPZ: (folder / NPZ).read_bytes()}
    found |= {f"head folder, {name}": head_folder(name) for name in HEADS}
    found["head folder of sparse vectors"], found["head folder of pairs"] = sparse_folder(), pair_folder()
    for name, data in found["head folder, modernbert_mean"].items():
        folder.joinpath(name).write_bytes(data)
    save_encoder(load_encoder(folder), folder / NPZ)
    found["npz with a head"] = {NPZ: (folder / NPZ).read_bytes()}
    save(load_model(folder / NPZ).with_calibration(_calibration()), folder / NPZ)
    found["npz with a calibration"] = {NPZ: (folder / NPZ).read_bytes()}
    found["npz by hand"] = {NPZ: _by_hand(folder / NPZ)}
    return found


def _calibration() -> Calibration:
    """Return a calibration of three classes."""
    n = np.linspace(0, 1, 12, dtype=np.float32)
    return Calibration("classify", {"temperature": n[-1:], "bias": n[:3], "lac": n, "aps": n, "confidences": n,
                                    "classes": np.zeros(12, np.uint16)})


def _by_hand(path: Path) -> bytes:
    """Return an .npz as a user without the engine writes it: compressed, with the config as a string."""
    values = {"model_type": "bert"} | CONFIGS["bert"]
    config = FAMILIES["bert"].read_encoder(values).config
    document = {"format": "encoder-engine", "version": 1, "model": config.to_json()}
    np.savez_compressed(path, **weights_of(config), config=json.dumps(document))
    return path.read_bytes()
