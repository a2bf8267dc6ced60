"""Write a cache of the hub with small models under the names that sentence-transformers' own tests load.

Their weights are random, but for all-MiniLM-L6-v2, which is the real one, as is the tokenizer of all.
"""

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from ...tools import minilm

MAIN, OLDER = "f3cb857cba53019a20df283396bcca179cf051a4", "ba33022fdf0b0fc2643263f0726f44d0a07d0e24"
"""Commits that the tests name; every model has the first one, and one model the second, with other weights."""
_TESTING = "sentence-transformers-testing/stsb-bert-tiny-safetensors"
_NAMES = {
    "cross-encoder": ("cross-encoder-testing/reranker-bert-tiny-gooaq-bce", "cross-encoder/ms-marco-MiniLM-L-6-v2",
                      "cross-encoder/ms-marco-MiniLM-L6-v2", "cross-encoder/ms-marco-MiniLM-L2-v2"),
    "classes": ("cross-encoder/nli-MiniLM2-L6-H768",),
    "splade": ("sparse-encoder-testing/splade-bert-tiny-nq",),
    "router": ("sparse-encoder-testing/inference-free-splade-bert-tiny-nq",),
    "static": ("sentence-transformers/static-retrieval-mrl-en-v1",),
    "minilm": ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/paraphrase-distilroberta-base-v1"),
}
"""The names of the models, by the folders that `_write_models` writes."""


def write_cache(cache: Path, work: Path) -> None:
    """Write the cache; work: an empty folder for the models, to which the cache has links."""
    _write_models(work)
    for kind, names in _NAMES.items():
        for name in names:
            _put(cache, name, MAIN, work / kind)
    _put(cache, _TESTING, OLDER, work / "older")
    _put(cache, _TESTING, MAIN, work / "vectors")


def _put(cache: Path, name: str, commit: str, folder: Path) -> None:
    """Put a folder into the cache as the newest commit of a name."""
    home = cache / f"models--{name.replace('/', '--')}"
    for part in ("snapshots", "refs"):
        (home / part).mkdir(parents=True, exist_ok=True)
    (home / "snapshots" / commit).symlink_to(folder.resolve())
    (home / "refs" / "main").write_text(commit, encoding="utf-8")


def _write_models(work: Path) -> None:
    """Write the models, one folder each."""
    tokenizer = AutoTokenizer.from_pretrained(str(minilm.FOLDER))
    torch.manual_seed(0)

    def bert(name: str, cls: Any, **options: Any) -> str:
        config = BertConfig(vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                            intermediate_size=512, initializer_range=0.2, **options)
        for written in (cls(config), tokenizer):
            written.save_pretrained(work / name)
        return str(work / name)

    for name in ("older", "vectors"):
        modules = [Transformer(bert(f"bert {name}", BertModel)), Pooling(128, "mean")]
        SentenceTransformer(modules=modules, device="cpu").save(str(work / name))
    for name, labels in (("cross-encoder", 1), ("classes", 3)):
        plain = bert(f"bert {name}", BertForSequenceClassification, num_labels=labels)
        CrossEncoder(plain, num_labels=labels, device="cpu").save_pretrained(str(work / name))
    words = bert("bert of words", BertForMaskedLM)

    def splade() -> list[Any]:
        return [Transformer(words, transformer_task="fill-mask"), SpladePooling(pooling_strategy="max")]

    SparseEncoder(modules=splade(), device="cpu").save(str(work / "splade"))
    table = SparseStaticEmbedding(tokenizer=tokenizer, weight=torch.rand(len(tokenizer)))
    router = Router.for_query_document(query_modules=[table], document_modules=splade())
    SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot").save(str(work / "router"))
    static = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=64)
    SentenceTransformer(modules=[static], device="cpu").save(str(work / "static"))
    (work / "minilm").symlink_to(minilm.FOLDER.resolve())
