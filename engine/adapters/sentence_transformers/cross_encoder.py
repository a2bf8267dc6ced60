"""`CrossEncoder`: a score for a pair of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.arguments import warn_caller
from ...base.errors import InputError, UnsupportedError, listed, shown
from ...heads.pairs import is_pair
from ...model.head import PAIR_FUNCTIONS
from .model import Model, accept_earlier, check_call, refuse_options
from .tensors import imported_torch, read_form

_CLASSES = {name: cls for cls, name in PAIR_FUNCTIONS.items()}
"""The class of torch.nn of each function of scores."""


class CrossEncoder(Model):
    """sentence-transformers' class of this name, for encoders with a classifier.

    A language model such as Qwen3-Reranker is refused: `engine.Reranker` runs it.
    """

    @accept_earlier(model_name="model_name_or_path", automodel_args="model_kwargs", tokenizer_args="processor_kwargs",
                    config_args="config_kwargs", cache_dir="cache_folder", default_activation_function="activation_fn")
    def __init__(self, model_name_or_path: Any = None, *, num_labels: int | None = None, max_length: int | None = None,
                 activation_fn: Any = None, keep_in_fp32_modules: list[str] | None = None, **options: Any):
        """Load a model; the arguments are those of sentence-transformers, as `Model` reads them.

        num_labels: must be the number of labels of the model. activation_fn: the function from logits to scores, by
        its name or as an object of torch.nn; None for the model's.
        """
        if keep_in_fp32_modules:
            raise UnsupportedError("keep_in_fp32_modules: heads are always computed in float32; leave it out")
        if max_length is not None:
            options["processor_kwargs"] = {**(options.get("processor_kwargs") or {}), "model_max_length": max_length}
        super().__init__(model_name_or_path, **options)
        self._activation_fn = activation_fn
        if num_labels is not None and num_labels != self.num_labels:
            raise InputError(f"num_labels={shown(num_labels)}: the model has {self.num_labels} labels, and the engine "
                             "makes no new classifier")

    def _check_kind(self) -> None:
        self.engine.runner_of("classify")

    @property
    def num_labels(self) -> int:
        """How many scores a pair has."""
        return int(self.engine.heads["classify"].outputs)

    @property
    def activation_fn(self) -> Any:
        """The function from logits to scores: the one that the caller gave or set, or else the model's.

        The model's is an object of torch.nn if torch has been imported, else its name. Setting None restores it.
        """
        return self.get_default_activation_fn() if self._activation_fn is None else self._activation_fn

    @activation_fn.setter
    def activation_fn(self, value: Any) -> None:
        self._activation_fn = value

    @property
    def default_activation_function(self) -> Any:
        """`activation_fn`, by its earlier name."""
        warn_caller("The `default_activation_function` property was renamed and is now deprecated. Please use "
                    "`activation_fn` instead.", DeprecationWarning)
        return self.activation_fn

    def get_default_activation_fn(self) -> Any:
        """Return the model's own function of scores: an object of torch.nn if torch is imported, otherwise a name."""
        name, torch = self.engine.heads["classify"].pair_function, imported_torch()
        return name if torch is None else getattr(torch.nn, _CLASSES[name])()

    def _settings(self) -> dict[str, Any]:
        """Return the settings to save, with `activation_fn` as the path of a class of torch if the caller gave one."""
        function = self._activation_fn
        if function is None:
            return super()._settings()
        name = _CLASSES.get(function, "") if isinstance(function, str) else type(function).__name__
        if name not in PAIR_FUNCTIONS:
            raise InputError(f"activation_fn must be one of {listed(map(repr, _CLASSES))}, or an object of a class of "
                             f"torch.nn with that name, not {shown(function)}")
        return super()._settings() | {
            "activation_fn": f"torch.nn.modules.{'linear' if name == 'Identity' else 'activation'}.{name}"}

    @property
    def max_length(self) -> int | None:
        """`max_seq_length`, by its earlier name."""
        return self.max_seq_length

    @max_length.setter
    def max_length(self, value: int | None) -> None:
        self.max_seq_length = value

    @accept_earlier(sentences="inputs", activation_fct="activation_fn")
    def predict(self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None,
                batch_size: int | None = None, show_progress_bar: bool | None = None, activation_fn: Any = None,
                apply_softmax: bool | None = False, convert_to_numpy: bool = True, convert_to_tensor: bool = False,
                device: Any = None, pool: Any = None, chunk_size: int | None = None, **options: Any) -> Any:
        """Return the scores of pairs: float32 [n], or [n, labels]; without the first axis for one pair.

        The arguments are those of `Engine.predict`, and of sentence-transformers. batch_size: the most pairs that are
        computed at a time. activation_fn: a name such as "identity", or an object of torch.nn; another function is
        refused. convert_to_tensor=True returns a tensor, and convert_to_numpy=False a list of tensors.
        """
        check_call(device, pool, chunk_size)
        options.pop("num_workers", None)        # has no effect in sentence-transformers, either
        refuse_options("predict", options)
        torch, as_tensor = read_form(convert_to_numpy, convert_to_tensor)
        if isinstance(inputs, np.ndarray):
            inputs = inputs.tolist()
        scores = self.engine.predict(
            inputs, prompt=self._prompt(prompt, prompt_name), batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            activation_fn=self._activation_fn if activation_fn is None else activation_fn,
            apply_softmax=bool(apply_softmax) and self.num_labels > 1, truncation=True)
        if torch is None:
            return scores
        tensor = torch.from_numpy(np.asarray(scores))
        return tensor if as_tensor or is_pair(inputs) else list(tensor)

    @accept_earlier(activation_fct="activation_fn")
    def rank(self, query: str, documents: Any, top_k: int | None = None, return_documents: bool = False,
             prompt_name: str | None = None, prompt: str | None = None, batch_size: int | None = None,
             show_progress_bar: bool | None = None, activation_fn: Any = None, device: Any = None, pool: Any = None,
             chunk_size: int | None = None) -> list[dict[str, Any]]:
        """Return the documents by their scores for a query, the best first: "corpus_id", "score" and perhaps "text".

        The arguments are those of `Engine.rank`, and of sentence-transformers.
        """
        check_call(device, pool, chunk_size)
        if self.num_labels != 1:
            raise InputError("CrossEncoder.rank() only works for models with num_labels=1. Consider using CrossEncoder"
                             f".predict() with input pairs instead. This model has {self.num_labels} labels")
        return self.engine.rank(
            query, documents, top_k=top_k, return_documents=return_documents, prompt=self._prompt(prompt, prompt_name),
            batch_size=batch_size, show_progress_bar=show_progress_bar,
            activation_fn=self._activation_fn if activation_fn is None else activation_fn, truncation=True)
