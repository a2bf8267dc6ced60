"""Write folders of sentence-transformers and model2vec: static models, chains of modules, and routes.

They are laid out as sentence-transformers 6.2 and model2vec 0.10 save them, with random weights. Nothing here needs the
engine: tests/golden/make/modules.py reads the folders with these libraries.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from .head_models import write_folder
from .paths import HEADS
from .tiny_models import safetensors, write_json, write_modules_json

BASE = "sentence_transformers."
TYPES = {
    "Transformer": f"{BASE}base.modules.transformer.Transformer", "Dense": f"{BASE}base.modules.dense.Dense",
    "Normalize": f"{BASE}base.modules.normalize.Normalize", "Router": f"{BASE}base.modules.router.Router",
    "Asym": f"{BASE}models.Asym",
    "Pooling": f"{BASE}sentence_transformer.modules.pooling.Pooling",
    "LayerNorm": f"{BASE}sentence_transformer.modules.layer_norm.LayerNorm",
    "Dropout": f"{BASE}sentence_transformer.modules.dropout.Dropout",
    "StaticEmbedding": f"{BASE}sentence_transformer.modules.static_embedding.StaticEmbedding",
    "SpladePooling": f"{BASE}sparse_encoder.modules.splade_pooling.SpladePooling",
    "MultiVectorMask": f"{BASE}multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    "SparseStaticEmbedding": f"{BASE}sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding",
}
V, D = 320, 24
"""The tokens of the tokenizers, and the width of the transformers and tables here."""
ACTIVATIONS = {"Identity": "linear", "Tanh": "activation", "ReLU": "activation", "GELU": "activation",
               "Sigmoid": "activation"}
"""The activations of Dense, and the module of torch.nn that defines each."""
CHAINS = 200
POOLINGS = ("mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")
ROUTERS = ("static query", "asymmetric maps", "mapped tasks", "no default", "sparse query")
STATICS = ("float32", "float16", "prompted", "truncated", "model2vec", "model2vec weights", "model2vec mapping",
           "model2vec int8", "model2vec scaled int8")


def write_modules(folder: Path, kinds: list[tuple[str, str]], **settings: Any) -> None:
    """Write modules.json for modules of these classes and folders; settings: of config_sentence_transformers.json."""
    write_modules_json(folder, *((path, TYPES[kind]) for kind, path in kinds))
    write_json(folder / "config_sentence_transformers.json",
               {"model_type": "SentenceTransformer", "prompts": {}, "similarity_fn_name": "cosine"} | settings)


def write_tensors(folder: Path, **tensors: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(
        safetensors(tensors, **{name: "I8" for name, array in tensors.items() if array.dtype == np.int8}))


def tokenizer_of(folder: Path, kind: str = "wordpiece", **changes: Any) -> int:
    """Copy a tokenizer into a folder, with changed entries; return how many tokens it has."""
    document = json.loads((HEADS / "tokenizers" / f"{kind}.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "tokenizer.json", document | changes)
    vocabulary = document["model"]["vocab"]
    words = vocabulary if isinstance(vocabulary, dict) else [word for word, _ in vocabulary]
    return len({*words, *(token["content"] for token in document["added_tokens"])})


def table(seed: int, rows: int = V, width: int = D) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width), np.float32)


def write_static(folder: Path, name: str) -> Path:
    """Write one of `STATICS`."""
    rng = np.random.default_rng(len(name))
    truncation = {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
    rows = tokenizer_of(folder, "unigram" if name == "model2vec weights" else "wordpiece",
                        **({"truncation": truncation} if name == "truncated" else {}))
    if not name.startswith("model2vec"):
        settings: dict[str, Any] = {}
        if name == "prompted":
            settings = {"prompts": {"query": "Anna: "}, "default_prompt_name": "query", "truncate_dim": 10}
        write_modules(folder, [("StaticEmbedding", ""), *[("Normalize", "1_Normalize")] * (name == "prompted")],
                      **settings)
        write_json(folder / "1_Normalize" / "config.json", {})
        write_tensors(folder, **{"embedding.weight": table(1).astype("float16" if name == "float16" else "float32")})
        return folder
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "none", "hidden_dim": D,
              "seq_length": 1000000, "normalize": name != "model2vec int8"}
    write_json(folder / "config.json", config | ({"max_length": 20} if name == "model2vec" else {}))
    tensors = {"embeddings": table(2, 40 if name == "model2vec mapping" else rows)}
    if "int8" in name:
        tensors["embeddings"] = np.rint(tensors["embeddings"] * 30).clip(-127, 127).astype(np.int8)
    if name in ("model2vec weights", "model2vec mapping", "model2vec scaled int8"):
        tensors["weights"] = rng.random(rows) + 0.1     # float64, as model2vec writes them
    if name == "model2vec mapping":
        tensors["mapping"] = rng.integers(0, 40, rows)
    write_tensors(folder, **tensors)
    return folder


def write_wordllama(folder: Path, package: Path) -> Path:
    """Lay out the table and the tokenizer of the package wordllama 0.4.0.post1 as a StaticEmbedding."""
    folder.mkdir(exist_ok=True)
    shutil.copy(package / "weights" / "l2_supercat_256.safetensors", folder / "model.safetensors")
    shutil.copy(package / "tokenizers" / "l2_supercat_tokenizer_config.json", folder / "tokenizer.json")
    write_modules(folder, [("StaticEmbedding", "")])
    return folder


def write_dense(folder: Path, rng: np.random.Generator, out: int, width: int, activation: str = "Identity",
                **settings: Any) -> None:
    bias, residual = bool(rng.random() < 0.7), settings.get("use_residual", False)
    write_json(folder / "config.json", {
        "in_features": width, "out_features": out, "bias": bias,
        "activation_function": f"torch.nn.modules.{ACTIVATIONS[activation]}.{activation}"} | settings)
    scale = np.float32(1 / np.sqrt(width))
    tensors = {"linear.weight": rng.standard_normal((out, width), np.float32) * scale}
    if bias:
        tensors["linear.bias"] = rng.standard_normal(out, np.float32) * scale
    if residual and out != width:
        tensors["residual.weight"] = rng.standard_normal((out, width), np.float32) * scale
    write_tensors(folder, **tensors)


def write_chain(folder: Path, seed: int) -> Path:
    """Write a transformer or a static model with random modules before and after pooling."""
    rng = np.random.default_rng(seed)
    static = seed % 5 == 4
    kinds: list[tuple[str, str]] = []
    width = D
    if static:
        tokenizer_of(folder)
        write_tensors(folder, **{"embedding.weight": table(seed)})
        kinds.append(("StaticEmbedding", ""))
    else:
        write_transformer(folder, "bert_classify")
        kinds.append(("Transformer", ""))
        for _ in range(rng.integers(0, 3)):
            width = _random_module(folder, kinds, rng, width, ["token_embeddings"])
        modes = [str(mode) for mode in rng.choice(POOLINGS, rng.integers(1, 3), replace=False)]
        # Version 6 of sentence-transformers keeps the order of a list.
        write_json(folder / f"{len(kinds)}_Pooling" / "config.json", {"embedding_dimension": width,
                                                                     "pooling_mode": modes})
        kinds.append(("Pooling", f"{len(kinds)}_Pooling"))
        width *= len(modes)
    names = {"sentence_embedding": width}
    for _ in range(rng.integers(1, 6)):
        _random_module(folder, kinds, rng, width, list(names), names)
        width = names["sentence_embedding"]
    truncate = {"truncate_dim": int(rng.integers(2, width + 1))} if rng.random() < 0.3 else {}
    write_modules(folder, kinds, **truncate)
    return folder


def _random_module(folder: Path, kinds: list[tuple[str, str]], rng: np.random.Generator, width: int,
                   sources: list[str], names: dict[str, int] | None = None) -> int:
    """Write a random module; return the width of its vectors. names: the widths of vectors after pooling, by name."""
    of_tokens = names is None
    kind = str(rng.choice(["Dense", "Dense", "Normalize", "Dropout", "LayerNorm"][: 3 if of_tokens else 5]))
    home = folder / f"{len(kinds)}_{kind}"
    source = str(rng.choice(sources)) if kind in ("Dense", "Normalize") else "sentence_embedding"
    target = source if of_tokens else str(rng.choice([source, "sentence_embedding", "kept"]))
    found = width if of_tokens else (names or {})[source]
    settings = {"module_input_name": source, "module_output_name": target}
    if kind == "Dense":
        out, before = int(rng.choice([found, 8, 16, 33])), found
        residual = {"use_residual": True} if rng.random() < 0.5 else {}
        write_dense(home, rng, out, before, str(rng.choice(list(ACTIVATIONS))), **settings, **residual)
        found = out
    elif kind == "LayerNorm":
        target = source
        write_json(home / "config.json", {"dimension": found})
        write_tensors(home, **{"norm.weight": rng.standard_normal(found, np.float32),
                               "norm.bias": rng.standard_normal(found, np.float32)})
    elif kind == "Dropout":
        target = source
        write_json(home / "config.json", {"dropout": 0.2})
    else:
        write_json(home / "config.json", settings)
    if names is not None:
        names[target] = found
    kinds.append((kind, home.name))
    return found


def write_router(folder: Path, name: str) -> Path:
    """Write one of `ROUTERS`."""
    rng = np.random.default_rng(len(name))
    router, settings = folder / "0_Router", {"prompts": {"query": "Anna: ", "document": "in "}}
    if name == "sparse query":
        _sparse_static(router / "query_0_SparseStaticEmbedding", rng)
        write_transformer(router / "document_0_Transformer", "bert_fill_mask", transformer_task="fill-mask")
        write_json(router / "document_1_SpladePooling" / "config.json",
                   {"pooling_strategy": "max", "activation_function": "log1p_relu", "embedding_dimension": V})
        _router(router, {"query": ["SparseStaticEmbedding"], "document": ["Transformer", "SpladePooling"]})
        write_modules(folder, [("Router", "0_Router")], model_type="SparseEncoder", max_active_dims=40, **settings)
        return folder
    if name == "asymmetric maps":
        write_transformer(folder, "bert_classify")
        router = folder / "2_Asym"
        write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": D, "pooling_mode": "mean"})
        for task in ("query", "document"):
            write_dense(router / f"{task}_0_Dense", rng, 12, D, "Tanh")
        _router(router, {"query": ["Dense"], "document": ["Dense"]}, {"allow_empty_key": True}, "config.json")
        write_modules(folder, [("Transformer", ""), ("Pooling", "1_Pooling"), ("Asym", "2_Asym")], **settings)
        return folder
    short = name == "mapped tasks"
    first, second = ("short", "long") if short else ("query", "document")
    tokenizer_of(router / f"{first}_0_StaticEmbedding")
    write_tensors(router / f"{first}_0_StaticEmbedding", **{"embedding.weight": table(3)})
    write_transformer(router / f"{second}_0_Transformer", "bert_classify")
    write_json(router / f"{second}_1_Pooling" / "config.json", {"embedding_dimension": D, "pooling_mode": "cls"})
    mappings = {"('query', 'text')": "short", "(None, ('image', 'text'))": "short", "(None, None)": "long"}
    parameters: dict[str, Any] = {"default_route": None if name == "no default" else second,
                                  "allow_empty_key": name != "no default", "route_mappings": mappings if short else {}}
    _router(router, {first: ["StaticEmbedding"], second: ["Transformer", "Pooling"]}, parameters)
    write_json(folder / "1_Normalize" / "config.json", {})
    write_modules(folder, [("Router", "0_Router"), ("Normalize", "1_Normalize")], **settings)
    return folder


def _router(folder: Path, routes: dict[str, list[str]], parameters: Any = None, name: str = "router_config.json"
            ) -> None:
    structure = {route: [f"{route}_{i}_{kind}" for i, kind in enumerate(kinds)] for route, kinds in routes.items()}
    types = {one: TYPES[one.split("_", 2)[2]] for own in structure.values() for one in own}
    write_json(folder / name, {"types": types, "structure": structure, "parameters": parameters or {
        "default_route": "document", "allow_empty_key": True, "route_mappings": {}}})


def write_transformer(folder: Path, name: str, **settings: Any) -> None:
    """Write the transformer of a golden model with a head; settings: of sentence_bert_config.json."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_folder(folder, name)
    (folder / "expected.json").unlink()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # sentence-transformers would round the weights of all modules to the dtype of the transformer.
    write_json(folder / "config.json", config | {"dtype": "float32"})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64} | settings)


def _sparse_static(folder: Path, rng: np.random.Generator) -> None:
    tokenizer_of(folder)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 48,
                                                  "pad_token": "[PAD]", "unk_token": "[UNK]"})
    write_json(folder / "config.json", {"frozen": True})
    write_tensors(folder, weight=rng.random(V, np.float32) * (rng.random(V) < 0.9))


def copied(folder: Path, source: Path) -> Path:
    """Copy a folder, for a test that changes it."""
    shutil.copytree(source, folder)
    return folder
