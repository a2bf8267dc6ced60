"""Models that a server serves in tests, mixed requests for them, and what the library gives for each request alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine import Engine, Reranker
from engine.text.tokenizer import Tokenizer

from . import head_texts as texts
from .encoders import engine_of
from .head_models import folder_of
from .m3_folders import folder_of_m3
from .paths import DECODERS
from .tiny_models import random_model
from .tiny_text import tiny_text

SHORT = [text for text in texts.TEXTS if len(text) < 300]
WORDS = ["the cat sat", "dog", "", "a mat on the cat and the dog ran far away", "the the the", "cat : query"]
PAIRS = [pair for pair in texts.PAIRS if len(pair[0]) < 200]


@dataclass(frozen=True)
class Asked:
    """A request, and the method of the library that gives the same value."""

    model: str
    task: str
    inputs: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    def alone(self, model: Any) -> Any:
        """Return what the library gives for this request alone."""
        return ALONE[self.task](model, self.inputs, **{"truncation": True} | dict(self.options))


def _embed(model: Any, inputs: Any, role: str | None = None, **options: Any) -> Any:
    if inputs and isinstance(inputs[0], list):
        inputs = [model.tokenizer.decode(ids) for ids in inputs]
    method = model.encode if role is None else getattr(model, f"encode_{role}")
    return method(inputs, **options)


ALONE: dict[str, Callable[..., Any]] = {
    "embed": _embed,
    "tokens": lambda model, inputs, **options: _embed(model, inputs, output_value="token_embeddings", **options),
    "sparse": lambda model, inputs, **options: model.encode_sparse(inputs, **options),
    "late": lambda model, inputs, role="document", **options: model.encode_tokens(inputs, task=role, **options),
    "classify": lambda model, inputs, **options: model.classify(inputs, **options),
    "score": lambda model, inputs, **options: model.predict(inputs, **options),
    "rank": lambda model, inputs, **options: model.rank(*inputs, **options),
    "tag": lambda model, inputs, **options: model.tag(inputs, **options),
}

TEXT = {"pooling": ("mean", "cls", "weightedmean"), "normalize": True, "include_prompt": False, "max_seq_length": 14,
        "prompts": {"query": "query : ", "long": "the cat sat on a mat : "}}


def load(name: str, **options: Any) -> Any:
    """Return a model by its name in `MODELS`."""
    if name == "prompts":
        return engine_of(random_model(tiny_text(**TEXT)), **options)
    if name == "m3":
        return Engine.load(folder_of_m3(), **options)
    if name == "cross":
        return Reranker.load(folder_of("xlm_roberta_pairs"), **options)
    if name == "language":
        return Reranker.load(DECODERS / "reranker", **options)
    return Engine.load(folder_of(name), **options)


def _requests(rng: np.random.Generator, model: str, task: str, inputs: list[Any], *options: Mapping[str, Any]
              ) -> list[Asked]:
    """Return two requests of random inputs for each of some options."""
    return [Asked(model, task, [inputs[i] for i in rng.integers(0, len(inputs), rng.choice([1, 2, 5, 20]))], own)
            for own in options for _ in range(2)]


def requests_of(name: str) -> list[Asked]:
    """Return different requests for a model; half of those that may have prompts have some."""
    rng = np.random.default_rng(0)
    if name == "prompts":
        tokenizer = Tokenizer(tiny_text(**TEXT), 32, 1)
        ids = [tokenizer.encode(text) for text in WORDS if 0 < len(text) < 20]
        prompted: list[dict[str, Any]] = [{"prompt_name": "query"}, {"role": "query"}, {"prompt": "a mat "},
                                          {"prompt_name": "long", "normalize_embeddings": True}]
        plain: list[dict[str, Any]] = [{}, {"truncate_dim": 5}, {"normalize_embeddings": True}, {"prompt": ""}]
        return [*_requests(rng, name, "embed", WORDS, *prompted, *plain), *_requests(rng, name, "embed", ids, {}),
                *_requests(rng, name, "embed", [("the cat", "a mat")], {}),
                *_requests(rng, name, "tokens", WORDS, {}, {"prompt_name": "query"}), Asked(name, "embed", [], {})]
    if name == "m3":
        return [*_requests(rng, name, "embed", SHORT, {}, {"prompt": "a river: "}),
                *_requests(rng, name, "sparse", SHORT, {}, {"prompt": "a river: "}, {"max_active_dims": 2}),
                *_requests(rng, name, "late", SHORT, {}, {"role": "query"}, {"normalize_embeddings": True})]
    if name == "bert_fill_mask":
        return _requests(rng, name, "sparse", SHORT, {}, {"prompt": "it was "}, {"max_active_dims": 3})
    if name == "bert_tag":
        return _requests(rng, name, "tag", SHORT, {}, {"aggregation_strategy": "simple", "stride": 4},
                         {"aggregation_strategy": "average", "ignore_labels": []})
    if name == "bert_classify":
        return [*_requests(rng, name, "classify", SHORT, {}, {"top_k": None}, {"function_to_apply": "none"}),
                *_requests(rng, name, "score", PAIRS, {}, {"logits": True}, {"apply_softmax": True})]
    ranks = [Asked(name, "rank", ("Who lives in Berlin?", [pair[1] for pair in PAIRS][:n]), own)
             for n, own in ((1, {}), (7, {"return_documents": True}), (9, {"top_k": 2}), (0, {}))]
    if name == "bert_pairs":
        prompted = [{"prompt": "it was "}, {"activation_fn": "identity"}, {"logits": True}, {}]
        return [*_requests(rng, name, "classify", SHORT, {}), *_requests(rng, name, "score", PAIRS, *prompted), *ranks]
    instructed = [{"instruction": "Find cats."}] if name == "language" else []
    return [*_requests(rng, name, "score", PAIRS, {}, {"logits": True}, *instructed), *ranks]


MODELS = ("prompts", "m3", "bert_fill_mask", "bert_tag", "bert_classify", "bert_pairs", "cross", "language")
