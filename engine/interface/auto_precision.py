"""Choose the fastest precision whose vectors of sample sentences are near float32's: `precision="auto"` of `Engine`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from ..base.arguments import is_number
from ..base.errors import InputError, UnsupportedError, shown
from ..model.config import ModelConfig
from ..model.text_config import TextConfig
from ..weights.model import Transformer
from ..weights.modules import normalize

FASTER = ("int8", "bfloat16")
"""The precisions that are faster than float32 on every CPU, the fastest first."""
LEAST_COSINE = 0.999
"""The bound on the cosine to float32 unless the caller states another."""

SENTENCES = (
    "Yes.",
    "How do I reset my password?",
    "The invoice of 12 March was paid twice; please return 48.50 EUR to the account below.",
    "A man is playing a guitar on the stage.",
    "def mean(values): return sum(values) / len(values)",
    "Der Zug nach Hamburg fährt heute von Gleis 7 ab.",
    "El perro corre por la playa mientras los niños construyen un castillo de arena.",
    "Le chat dort sur le canapé, et la pluie tombe depuis ce matin.",
    "机器学习模型可以把句子变成向量。",
    "このホテルの朝食はとても美味しかったです。",
    "Patients who received the drug had lower blood pressure after six weeks than patients who received a placebo.",
    "SELECT name, price FROM products WHERE price < 100 ORDER BY price DESC",
    "error: connection to server at 10.0.0.12, port 5432 failed: timeout expired",
    "The committee shall meet at least twice a year, and whenever its chair or a third of its members ask for it. "
    "It decides by a simple majority of the members who are present; in the case of a tie, the chair decides.",
    "great product, fast shipping, would buy again!!",
    "Water boils at a lower temperature on a mountain, because the pressure of the air is lower there. " * 6,
)
"""The sample: sentences of several kinds, languages and lengths."""

_LENGTHS = (1, 2, 5, 16, 40, 100)
"""The lengths, in tokens, of sequences of random ids that replace the sentences for a model without a tokenizer."""


class TriedEncoder(Protocol):
    """The attributes and methods of `Engine` that `fastest_engine` uses."""

    config: ModelConfig
    text: TextConfig | None
    max_batch_tokens: int

    def encode(self, sentences: Any, *, show_progress_bar: bool | None) -> Any:
        """Return the vectors of sentences."""

    def forward(self, input_ids: Any = None, *, inputs_embeds: Any = None) -> Any:
        """Return the vectors of all tokens."""


AnyEncoder = TypeVar("AnyEncoder", bound=TriedEncoder)


def fastest_engine(encoder: Transformer, make: Callable[[str], AnyEncoder], least_cosine: float | None) -> AnyEncoder:
    """Return an engine of the fastest precision whose vectors of the sample are near those of float32.

    Each vector's cosine to float32's vector must be at least `least_cosine`, which is 0.999 if None. The vectors are
    those of `encode`, or of all tokens for a model without a tokenizer. make: returns an engine of the precision that
    it gets. A model in int8, packed for one precision, or without layers keeps its precision. Raises `InputError`.
    """
    bound = LEAST_COSINE if least_cosine is None else least_cosine
    if not is_number(bound) or not -1 <= bound <= 1:
        raise InputError(f"least_cosine must be a number from -1 to 1, or None for {LEAST_COSINE}, not {shown(bound)}")
    if encoder.precision != "float32" or encoder.layout is not None or not encoder.config.num_layers:
        return make(encoder.precision)
    exact = make("float32")
    expected = _sample_vectors(exact)
    for precision in FASTER:
        try:
            engine = make(precision)
        except UnsupportedError:  # the backend lacks this precision
            continue
        if _least_cosine(_sample_vectors(engine), expected) >= bound:
            return engine
    return exact


def _sample_vectors(engine: TriedEncoder) -> np.ndarray:
    """Return the vectors of the sample, float32 [n, D]: of its sentences, or of the tokens of random sequences."""
    if engine.text is not None:
        return engine.encode(list(SENTENCES), show_progress_bar=False)
    config = engine.config
    rng = np.random.default_rng(0)      # the same ids in every call
    longest = min(config.longest_sequence or math.inf, engine.max_batch_tokens)
    lengths = [length for length in _LENGTHS if length <= longest]
    if not config.vocab_size:
        sample: Any = {"inputs_embeds": [rng.standard_normal((n, config.table_width), np.float32) for n in lengths]}
    else:
        sample = {"input_ids": [rng.integers(0, config.vocab_size, n) for n in lengths]}
    return np.concatenate(engine.forward(**sample))


def _least_cosine(vectors: np.ndarray, expected: np.ndarray) -> float:
    """Return the least cosine between row i of one array and row i of the other, [n, D] each."""
    a, b = (normalize(rows.astype(np.float64)) for rows in (vectors, expected))
    return float(np.min((a * b).sum(axis=1)))
