"""Models for mteb, the benchmark of embeddings.

    import mteb
    from engine.adapters.mteb import EngineModel

    mteb.evaluate(EngineModel("sentence-transformers/all-MiniLM-L6-v2"), mteb.get_tasks(["STSBenchmark"]))

mteb itself needs torch and sentence-transformers; the vectors and the scores of pairs come from the engine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..base.install import needs_package
from .sentence_transformers import CrossEncoder, SentenceTransformer

with needs_package("mteb", __name__):
    import torch
    from mteb.models.abs_encoder import AbsEncoder, get_prompt_name
    from mteb.models.model_meta import ModelMeta


class EngineModel(AbsEncoder):
    """An encoder for mteb, with the prompts and results of mteb's wrapper for sentence-transformers."""

    def __init__(self, model_name: str | os.PathLike[str], revision: str | None = None, *, device: str | None = None,
                 model_prompts: dict[str, str] | None = None, **options: Any):
        """Load a model; options are those of the adapter's `SentenceTransformer`, such as model_kwargs={"threads": 2}.

        model_prompts: prompts by the names of tasks, of kinds of tasks, or "query" and "document". None for those of
            the model that have such names.
        """
        self.model = SentenceTransformer(model_name, revision=revision, device=device, **options)
        # The first result has the names that mteb knows; other names in the model's own prompts are no error.
        if model_prompts is None:
            known, _ = self.validate_task_to_prompt_name(self.model.prompts, raise_for_invalid_keys=False)
        else:
            known = self.validate_task_to_prompt_name(model_prompts)
        self.model_prompts = known or {}
        width, limit = self.model.get_embedding_dimension(), self.model.max_seq_length
        self.mteb_model_meta = _describe(type(self), model_name, revision, embed_dim=width, max_tokens=limit)

    def encode(self, inputs: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, prompt_type: Any = None,
               **options: Any) -> np.ndarray:
        """Return the vectors of the texts of a data loader: float32 [n,D].

        task_metadata, prompt_type: choose the prompt. mteb also states the part and the language of the task.
        """
        name = get_prompt_name(self.model_prompts, task_metadata, prompt_type)
        encode: Any = {"query": self.model.encode_query, "document": self.model.encode_document}.get(
            getattr(prompt_type, "value", ""), self.model.encode)
        return encode(_texts(inputs), prompt=None if name is None else self.model_prompts[name], **options)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of n vectors with m others as a tensor [n,m]: mteb sorts it by methods of torch."""
        return torch.as_tensor(self.model.similarity(embeddings1, embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarity of vector i with the other vector i as a tensor [n]."""
        return torch.as_tensor(self.model.similarity_pairwise(embeddings1, embeddings2))


class EngineCrossEncoder:
    """A cross-encoder for mteb's tasks of ranking and of pairs."""

    def __init__(self, model_name: str | os.PathLike[str], revision: str | None = None, device: str | None = None,
                 **options: Any):
        """Load a model; options are those of the adapter's `CrossEncoder`."""
        self.model = CrossEncoder(model_name, revision=revision, device=device, **options)
        self.mteb_model_meta = _describe(type(self), model_name, revision, model_type=["cross-encoder"],
                                         max_tokens=self.model.max_seq_length)

    def predict(self, inputs1: Any, inputs2: Any, *, task_metadata: Any, hf_split: str, hf_subset: str,
                prompt_type: Any = None, **options: Any) -> np.ndarray:
        """Return the score of each pair of text i of one data loader and text i of the other: float32 [n]."""
        pairs = list(zip(_texts(inputs1), _texts(inputs2), strict=True))
        return self.model.predict(pairs, **options)


def _texts(inputs: Any) -> list[str]:
    """Return all texts of a data loader of mteb, whose batches are dictionaries."""
    return [text for batch in inputs for text in batch["text"]]


def _describe(loader: type, path: str | os.PathLike[str], revision: str | None, **known: Any) -> Any:
    """Return mteb's description of a model, by its name on the hub, or by "local/" and the name of its folder.

    loader: the class that loads it. known: further fields of the description.
    """
    name = str(path) if str(path).count("/") == 1 and not Path(path).exists() else f"local/{Path(path).resolve().name}"
    return ModelMeta.create_empty({"loader": loader, "name": name, "revision": revision, "framework": ["NumPy"],
                                   "modalities": ["text"], **known})
