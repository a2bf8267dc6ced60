"""Write folders of embedders in the forms of published checkpoints: a transformer, its tokenizer and its modules.

The transformers are those of the golden heads, and of two models of their own. Nothing here needs the engine:
tests/golden/make/embedders.py reads the folders with sentence-transformers.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .module_folders import D, write_dense, write_modules, write_transformer
from .tiny_models import write_json


@dataclass(frozen=True)
class Embedder:
    """How one folder differs from the others."""

    model: str
    """The golden model with the transformer."""
    pooling: str | None
    """The mode of Pooling; None for a folder without modules, whose tokens sentence-transformers averages."""
    dense: tuple[tuple[int, str], ...] = ()
    """The numbers after each Dense behind the pooling, and its activation."""
    normalize: bool = True
    is_causal: bool | None = None
    """What config.json says of the attention; None for nothing."""


EMBEDDERS = {
    "bert, mean": Embedder("bert_tag", "mean", normalize=False),
    "bert, mean, unit length": Embedder("bert_tag", "mean"),
    "bert, first": Embedder("bert_tag", "cls", normalize=False),
    "bert, first, unit length": Embedder("bert_tag", "cls"),
    "bert, first, dense": Embedder("bert_tag", "cls", ((24, "Tanh"),)),
    "bert, no modules": Embedder("bert_fill_mask", None),
    "bert of pieces, mean": Embedder("bert_pieces", "mean", normalize=False),
    "bert of pieces, mean, unit length": Embedder("bert_pieces", "mean"),
    "roberta, no modules": Embedder("roberta_fill_mask", None),
    "roberta, mean, unit length": Embedder("roberta_tag", "mean"),
    "xlm-roberta, mean": Embedder("xlm_roberta_pairs", "mean", normalize=False),
    "xlm-roberta, mean, unit length": Embedder("xlm_roberta_pairs", "mean"),
    "xlm-roberta, first, unit length": Embedder("xlm_roberta_pairs", "cls"),
    "mpnet, mean": Embedder("mpnet_tag", "mean", normalize=False),
    "mpnet, mean, unit length": Embedder("mpnet_tag", "mean"),
    "mpnet, first": Embedder("mpnet_tag", "cls", normalize=False),
    "distilbert, first": Embedder("distilbert_tag", "cls", normalize=False),
    "distilbert, mean, dense": Embedder("distilbert_tag", "mean", ((16, "Tanh"),), normalize=False),
    "t5, mean, dense": Embedder("t5_tag", "mean", ((20, "Identity"),)),
    "gte, first": Embedder("gte_tag", "cls", normalize=False),
    "gte, first, unit length": Embedder("gte_tag", "cls"),
    "gte, mean, dense": Embedder("gte_tag", "mean", ((20, "Identity"),), normalize=False),
    "modernbert, first": Embedder("modernbert_tag", "cls", normalize=False),
    "modernbert, mean, unit length": Embedder("modernbert_tag", "mean"),
    "modernbert, first, unit length": Embedder("modernbert_tag", "cls"),
    "nomic_bert, mean": Embedder("nomic_tag", "mean", normalize=False),
    "nomic_bert, mean, unit length": Embedder("nomic_tag", "mean"),
    "nomic_bert, first, unit length": Embedder("nomic_tag", "cls"),
    "jina_embeddings_v3, mean, unit length": Embedder("jina_v3_tag", "mean"),
    "eurobert, last, unit length": Embedder("eurobert_tag", "lasttoken"),
    "mistral, last, unit length": Embedder("mistral_classify", "lasttoken"),
    "mistral, mean, unit length": Embedder("mistral_classify", "mean", is_causal=False),
    "qwen2, last, unit length": Embedder("qwen2_classify", "lasttoken"),
    "qwen2 both ways, last, unit length": Embedder("qwen2_classify", "lasttoken", is_causal=False),
    "qwen2 both ways, mean, unit length": Embedder("qwen2_classify", "mean", is_causal=False),
    "qwen2 both ways, mean, dense": Embedder("qwen2_classify", "mean", ((32, "Identity"),), is_causal=False),
    "qwen3, last, unit length": Embedder("qwen3_classify", "lasttoken"),
    "gemma3_text, mean, two dense": Embedder("gemma3_pieces", "mean", ((40, "Identity"), (24, "Identity"))),
}


def write_embedder(folder: Path, name: str) -> Path:
    """Write one of `EMBEDDERS`."""
    case, rng = EMBEDDERS[name], np.random.default_rng(len(name))
    write_transformer(folder, case.model)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    write_json(folder / "tokenizer_config.json", settings | {"tokenizer_class": "PreTrainedTokenizerFast"})
    if case.is_causal is not None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        write_json(folder / "config.json", config | {"is_causal": case.is_causal})
    if case.pooling is None:
        (folder / "sentence_bert_config.json").unlink()
        return folder
    kinds, width = [("Transformer", ""), ("Pooling", "1_Pooling")], D
    modes: dict[str, Any] = {"embedding_dimension": D, "pooling_mode": case.pooling}
    write_json(folder / "1_Pooling" / "config.json", modes)
    for out, activation in case.dense:
        kinds.append(("Dense", f"{len(kinds)}_Dense"))
        write_dense(folder / kinds[-1][1], rng, out, width, activation)
        width = out
    if case.normalize:
        kinds.append(("Normalize", f"{len(kinds)}_Normalize"))
        write_json(folder / kinds[-1][1] / "config.json", {})
    write_modules(folder, kinds)
    return folder
