"""Check pairs of texts, and turn their logits into scores, like the CrossEncoder of sentence-transformers.

A score is a function of the logit, which may round two logits to one number. So documents are ordered by their logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, shown
from ..model.head import PAIR_FUNCTIONS
from ..text.sentences import check_collection, check_sentence, check_text, check_texts
from .runner import FUNCTIONS, HeadRunner


def check_pairs(pairs: Any) -> list[tuple[str, str]]:
    """Return pairs of texts as a list of tuples; raises `InputError` for anything else."""
    given = check_collection([pairs] if isinstance(pairs, str) else pairs, "pairs")
    return [check_pair(i, pair) for i, pair in enumerate(given)]


def check_pair(i: int, pair: Any) -> tuple[str, str]:
    """Return a pair of texts as a tuple; raises `InputError`. i: its number."""
    checked = check_sentence(i, pair, "pairs")
    if isinstance(checked, str):
        raise InputError(f"pairs must be pairs of a query and a document, not {shown(checked)}")
    return checked


def check_query(query: Any, documents: Any) -> tuple[str, list[str]]:
    """Return a query and the documents to rank for it as `str`; raises `InputError` for anything else."""
    query = check_text("query", query)
    if isinstance(documents, str):
        raise InputError(f"documents must be a list of texts, not {shown(documents)}")
    return query, check_texts(documents, "documents")


def is_pair(value: Any) -> bool:
    """Return whether an argument is one pair of texts rather than a list of pairs."""
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(text, str) for text in value)


def pair_scores(runner: HeadRunner, logits: np.ndarray, function: Any = None, *, as_logits: bool = False,
                apply_softmax: bool = False) -> np.ndarray:
    """Return the scores of pairs by their logits [n, labels]: float32 [n] for one label, else [n, labels].

    It is the last step of `predict`; those before it are `Tokenizer.pairs` and `HeadRunner.logits`. function: the name
    of a function, or an object whose class has the name of one of torch.nn; None for the model's. as_logits: whether to
    return logits. apply_softmax: whether scores of several labels become probabilities afterwards. Without `function`,
    the scores of a calibrated model are calibrated probabilities: of one label, and of several with apply_softmax.
    """
    if as_logits:
        return logits[:, 0] if logits.shape[1] == 1 else logits
    if function is None and runner.calibration is not None and (logits.shape[1] == 1 or apply_softmax):
        calibrated = runner.probabilities(logits).astype(np.float32)
        return calibrated[:, 1] if logits.shape[1] == 1 else calibrated     # of one label: (no, yes)
    name = runner.config.pair_function if function is None else _name_of(function)
    flat = np.ascontiguousarray(logits)
    scores = FUNCTIONS[name](flat) if name in FUNCTIONS else runner.ops.activate(name, flat)
    if logits.shape[1] == 1:
        return scores[:, 0]
    return FUNCTIONS["softmax"](scores) if apply_softmax else scores


def count_near_best(logits: np.ndarray, limit: np.float32) -> int:
    """Return how many documents, from the best one on, have a logit at most `limit` below the largest; logits: [n]."""
    return int((gaps_below(logits) <= limit).sum())


def gaps_below(logits: np.ndarray) -> np.ndarray:
    """Return how far each logit [n] is below the largest one: float32 [n], the type of the gaps of a calibration."""
    wide = logits.astype(np.float64)
    return (wide.max(initial=-np.inf) - wide).astype(np.float32)


def check_ranks(runner: HeadRunner) -> None:
    """Raise `UnsupportedError` unless the model has one label, by which documents can be ordered."""
    if runner.config.outputs != 1:
        raise UnsupportedError(f"rank needs a model with one label, and this one has {runner.config.outputs}; predict "
                               "returns the scores of all")


def _name_of(function: Any) -> str:
    """Return the name of a function, which is a name or an object of a class of torch.nn; raises `InputError`."""
    known = list(PAIR_FUNCTIONS.values())
    name = function if isinstance(function, str) else PAIR_FUNCTIONS.get(type(function).__name__)
    if name not in known:
        raise InputError(f"activation_fn must be one of {', '.join(map(repr, known))}, or an object of a class of "
                         f"torch.nn with that name, not {shown(function)}")
    return str(name)
