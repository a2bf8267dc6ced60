"""`Engine.encode`: a vector for each text, the vectors of its tokens, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, is_one_of, positive_int_or_none
from ..base.errors import InputError, UnsupportedError, shown
from ..base.other_names import same
from ..base.stop import NEVER, Stop
from ..encoding.pooling import pool
from ..encoding.text_encoder import TextEncoder
from ..encoding.vector_precision import PRECISIONS, quantize_vectors
from ..model.precision import canonical_name
from ..text.sentences import Sentence, add_prompt, choose_prompt, read_sentences
from ..text.tokenizer import Tokens
from .columns import fixed_lists
from .method import EncodingModel, Method, Options, option
from .workload import Slice, Workload, pooled_vectors, token_vectors

OUTPUTS = ("sentence_embedding", "token_embeddings", None)
"""Values of `output_value`."""


def _output_value(name: str, value: Any) -> str | None:
    if not is_one_of(value, OUTPUTS):
        raise InputError(f"{name} must be one of {', '.join(map(repr, OUTPUTS))}, not {shown(value)}")
    return value


def _precision(name: str, value: Any) -> str:
    """Return one of `PRECISIONS`; raises `UnsupportedError`."""
    known = canonical_name(value) if isinstance(value, str) else "float32" if value is None else ""
    if known not in PRECISIONS:
        raise UnsupportedError(f"encode returns vectors in {', '.join(PRECISIONS)}, not precision={shown(value)}. "
                               "Engine.load(..., precision=...) chooses the precision of the computation")
    return known


@dataclass(frozen=True)
class EncodeOptions(Options):
    """The options of `Engine.encode` that say what is computed."""

    prompt_name: str | None = None
    prompt: str | None = None
    output_value: str | None = option("sentence_embedding", _output_value)
    precision: str | None = option("float32", _precision)
    convert_to_numpy: bool = option(True, flag)
    normalize_embeddings: bool = option(False, flag, normalize=same("normalize_embeddings"))
    truncate_dim: int | None = option(None, positive_int_or_none, dimensions=same("truncate_dim"),
                                      output_dimension=same("truncate_dim"))
    ranges: Any = None

    def __post_init__(self) -> None:
        asked = self.precision
        super().__post_init__()
        if self.precision != "float32" and self.output_value != "sentence_embedding":
            raise UnsupportedError(f"precision={shown(asked)} is for the vectors of sentences alone, not for "
                                   f"output_value={shown(self.output_value)}")


def _needs(model: EncodingModel) -> None:
    """Raise `UnsupportedError` for a model that has no vectors of whole texts."""
    if model.text is not None and model.text.late is not None:
        raise UnsupportedError("this model has a vector for each token, and none for a whole text; encode_query, "
                               "encode_document and encode_tokens return the vectors of tokens (on the command "
                               "line, engine embed --result tokens)")
    if (sparse := model.heads.get("encode_sparse")) is not None and sparse.reads_numbers:
        raise UnsupportedError("this model has a number for each token and no vectors; encode_sparse returns its "
                               "sparse vectors")


class _Encoding(Workload):
    """A call of `encode`: its texts, with the prompt in front of each, and how vectors are finished."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[Sentence], options: EncodeOptions, **settings: Any):
        self._encoder, self._texts, self._options = encoder, texts, options
        self._prompt = choose_prompt(encoder.text, options.prompt, options.prompt_name)
        self._width = min(options.truncate_dim or encoder.width, encoder.whole_width)
        super().__init__(inputs=add_prompt(self._prompt, texts), **settings)

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return the tokens of some texts, with the number of those of the prompt, which pooling may leave out."""
        return Slice(places, self._encoder.tokens(self._texts[places.start : places.stop], self._prompt, stop))

    def _finished(self, pooled: np.ndarray) -> np.ndarray:
        return self._encoder.finished(pooled, self._width, self._options.normalize_embeddings)


class _Vectors(_Encoding):
    """A vector for each text: float32 [n, D'], or in another precision."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[Sentence], options: EncodeOptions):
        super().__init__(encoder, texts, options, computation=pooled_vectors(encoder),
                         bytes_of_sequence=4 * encoder.pooled_width)
        self.results = np.empty((len(texts), self._width), np.float32)

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors that pooled ones, [B, width], become."""
        self.results[[part.places[number] for number in numbers]] = self._finished(np.asarray(rows))

    def result(self) -> Any:
        """Return the vectors as the options say."""
        vectors, options = self.results, self._options
        if options.precision is not None and options.precision != "float32":
            vectors = quantize_vectors(vectors, options.precision, options.ranges)
        return vectors if options.convert_to_numpy else list(vectors)


class _TokenVectors(_Encoding):
    """The vectors of the tokens of each text, [T_i, D], or with output_value=None a dictionary of all that there is."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[Sentence], options: EncodeOptions):
        super().__init__(encoder, texts, options, computation=token_vectors(encoder),
                         bytes_of_token=4 * encoder.token_width)

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors of tokens, or the dictionary that is made of them."""
        for number, row in zip(numbers, rows, strict=True):
            whole = self._options.output_value is None
            self.results[part.places[number]] = self._features(part.tokens, number, row) if whole else row

    def _features(self, tokens: Tokens, number: int, row: np.ndarray) -> dict[str, np.ndarray]:
        """Return a dictionary of a sequence, as sentence-transformers for output_value=None, without padding."""
        ids, encoder = tokens.input_ids[number], self._encoder
        skip = 0 if tokens.skips is None else tokens.skips[number]
        [vector] = self._finished(pool(row, np.array([0, len(row)]), encoder.text.pooling, skip))
        types = {"token_type_ids": tokens.token_type_ids[number]} if encoder.uses_token_types else {}
        return {"input_ids": ids, "attention_mask": np.ones_like(ids), **types, "token_embeddings": row,
                "sentence_embedding": vector}


def _prepare(model: EncodingModel, texts: Sequence[Sentence], options: EncodeOptions) -> Workload:
    made = _Vectors if options.output_value == "sentence_embedding" else _TokenVectors
    return made(model.text_encoder, texts, options)


ENCODE = Method("encode", EncodeOptions, _needs, lambda given, options: read_sentences(given), _prepare,
                streamed="vectors", columns=lambda vectors: {"vector": fixed_lists(vectors)})
