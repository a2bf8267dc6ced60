"""Make tiny random models, in memory and as the folders that other libraries export, without those libraries."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from engine import Transformer
from engine.model.config import ModelConfig
from engine.model.text_config import TextConfig
from engine.weights.parameters import expected_shapes

D, F, L, V, P = 12, 20, 2, 30, 16

CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": 3,
             "intermediate_size": F, "vocab_size": V, "max_position_embeddings": P, "type_vocab_size": 2},
    "roberta": {"model_type": "roberta", "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": 3,
                "intermediate_size": F, "vocab_size": V, "max_position_embeddings": P, "type_vocab_size": 1,
                "layer_norm_eps": 1e-5},
    "distilbert": {"model_type": "distilbert", "dim": D, "n_layers": L, "n_heads": 3, "hidden_dim": F, "vocab_size": V,
                   "max_position_embeddings": P},
}
"""Contents of config.json, by family."""

_BERT_LAYER = {
    "attention.self.query": (D, D), "attention.self.key": (D, D), "attention.self.value": (D, D),
    "attention.output.dense": (D, D), "attention.output.LayerNorm": (D,),
    "intermediate.dense": (F, D), "output.dense": (D, F), "output.LayerNorm": (D,),
}
_DISTILBERT_LAYER = {
    "attention.q_lin": (D, D), "attention.k_lin": (D, D), "attention.v_lin": (D, D), "attention.out_lin": (D, D),
    "sa_layer_norm": (D,), "ffn.lin1": (F, D), "ffn.lin2": (D, F), "output_layer_norm": (D,),
}


def random_array(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def random_model(text: TextConfig | None = None, seed: int = 0, **changes: Any) -> Transformer:
    sizes = {"hidden_size": D, "num_layers": L, "num_heads": 3, "head_width": 4, "ffn_size": F, "vocab_size": V,
             "max_positions": P, "token_types": 2} | changes
    config = ModelConfig(family="bert", **sizes)
    rng = np.random.default_rng(seed)
    weights = {name: random_array(rng, *shape) for name, shape in expected_shapes(config).items()}
    return Transformer(config, weights, text)


def hf_tensors(family: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the encoder's tensors under the names that transformers gives them."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (V, D), "embeddings.position_embeddings.weight": (P, D),
        "embeddings.LayerNorm.weight": (D,), "embeddings.LayerNorm.bias": (D,)}
    if family != "distilbert":
        shapes["embeddings.token_type_embeddings.weight"] = (CONFIGS[family]["type_vocab_size"], D)
    for i in range(L):
        if family == "distilbert":
            layer = {f"transformer.layer.{i}.{name}": shape for name, shape in _DISTILBERT_LAYER.items()}
        else:
            layer = {f"encoder.layer.{i}.{name}": shape for name, shape in _BERT_LAYER.items()}
        for name, shape in layer.items():
            shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {name: random_array(rng, *shape) for name, shape in shapes.items()}


def hf_folder(folder: Path, family: str = "bert", tensors: dict[str, np.ndarray] | None = None, **config: Any) -> Path:
    """Write a Hugging Face folder; `config` adds to, and overrides, the tiny config of the family."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", CONFIGS[family] | config)
    (folder / "model.safetensors").write_bytes(safetensors(hf_tensors(family) if tensors is None else tensors))
    return folder


def safetensors(tensors: dict[str, np.ndarray], **dtypes: str) -> bytes:
    """Return the bytes of a safetensors file; `dtypes` names the dtypes that NumPy's own dtype does not show."""
    names = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "uint8": "U8"}
    header: dict[str, Any] = {}
    end = 0
    for name, array in tensors.items():
        header[name] = {"dtype": dtypes.get(name, names.get(array.dtype.name)), "shape": list(array.shape),
                        "data_offsets": [end, end := end + array.nbytes]}
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in tensors.values())])


def module_list(*modules: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the contents of sentence-transformers' modules.json, from the folder and the class of each module."""
    return [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]


def write_modules_json(folder: Path, *modules: tuple[str, str]) -> None:
    """Write the modules.json of these modules."""
    write_json(folder / "modules.json", module_list(*modules))


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
