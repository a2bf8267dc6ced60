"""`Engine.encode`: a vector for each text or image, or the vectors of its tokens, or both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.arguments import flag, is_one_of, positive_int_or_none
from ..base.errors import InputError, TextTooLong, UnsupportedError, shown
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..encoding.image_encoder import ImageEncoder
from ..encoding.text_encoder import TextEncoder
from ..encoding.vector_encoder import VectorEncoder
from ..encoding.vector_precision import PRECISIONS, quantize_vectors
from ..images import Images
from ..model.generation_config import ids_array
from ..model.precision import canonical_name
from ..text.cuts import report_of_cuts
from ..text.sentences import add_prompt, choose_prompt, read_sentences, slices
from ..text.tokens import Tokens
from .columns import fixed_lists
from .method import EncodingModel, Listed, Method, listed_sentences, with_role_prompt
from .workload import NUMBER_BYTES, Cost, Slice, Workload, sentence_vectors, token_vectors

OUTPUTS = ("sentence_embedding", "token_embeddings", None)
"""The values of the option `output_value`, as in sentence-transformers; None returns both in a dictionary."""


def _output_value(name: str, value: Any) -> str | None:
    """Return the option `output_value`, one of `OUTPUTS`; raises `InputError`."""
    if not is_one_of(value, OUTPUTS):
        raise InputError(f"{name} must be one of {', '.join(map(repr, OUTPUTS))}, not {shown(value)}")
    return value


def _precision(name: str, value: Any) -> str:
    """Return the option `precision`, one of `PRECISIONS`; raises `InputError`."""
    known = canonical_name(value) if isinstance(value, str) else "float32" if value is None else ""
    if known not in PRECISIONS:
        raise InputError(f"Precision {shown(value)} is not supported: precision is that of the vectors, one of "
                         f"{', '.join(PRECISIONS)}. Engine.load(..., precision=...) chooses the precision of the "
                         "computation")
    return known


@dataclass(frozen=True)
class EncodeOptions(Options):
    """The options of `Engine.encode` that say what is computed."""

    prompt_name: str | None = None
    prompt: str | None = None
    output_value: str | None = option("sentence_embedding", _output_value)
    precision: str | None = option("float32", _precision)
    convert_to_numpy: bool = option(True, flag)
    normalize_embeddings: bool = option(False, flag)
    truncate_dim: int | None = option(None, positive_int_or_none)
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


def are_ids(inputs: Any) -> bool:
    """Return whether the first of some inputs is a list of token ids, perhaps an empty one, and not a text."""
    first = inputs[0] if isinstance(inputs, (list, tuple)) and inputs else None
    return isinstance(first, (list, np.ndarray)) and not (len(first) > 0 and isinstance(first[0], str))


class _Encoding(Workload):
    """The base of the two workloads of `encode`: reads its texts with a prompt, or images.

    Each input may be a list of token ids in place of a text, which the model reads as they are.
    """

    def __init__(self, encoder: VectorEncoder, inputs: Sequence[Any], options: EncodeOptions,
                 **settings: Any):
        """inputs: texts or pairs, token ids, or `Images`. settings: arguments of `Workload` besides `inputs`."""
        self._encoder, self._unprompted, self._options, self._are_ids = encoder, inputs, options, are_ids(inputs)
        self._width = min(options.truncate_dim or encoder.width, encoder.whole_width)
        self._prompt = ""
        if self._are_ids or isinstance(inputs, Images):
            if options.prompt or options.prompt_name is not None:
                raise InputError("a prompt is a text, and token ids and images are read as they are; send texts, or "
                                 "leave prompt and prompt_name out")
        else:
            self._prompt = choose_prompt(_of_texts(encoder).text, options.prompt, options.prompt_name)
        super().__init__(inputs=inputs if isinstance(inputs, Images) else add_prompt(self._prompt, inputs), **settings)

    def parts(self, most: int | None = None, most_characters: int | None = None) -> Iterator[range]:
        """Yield ranges of inputs to tokenize at one time."""
        if self._are_ids:       # lists of ids are tokens already, so they count as texts of one character
            return slices(["."] * len(self._unprompted), most, most_characters)
        return super().parts(most, most_characters)

    def slice(self, places: range, stop: Stop = NEVER) -> Slice:
        """Return a slice with the tokens of some inputs. A single short text may stay unread until its batch is
        computed (`UnreadText`). `Tokens.skips` has how many tokens of each are of the prompt, where pooling leaves it
        out."""
        inputs = self._unprompted[places.start : places.stop]
        if isinstance(inputs, Images):
            assert isinstance(self._encoder, ImageEncoder)
            return Slice(places, self._encoder.tokens(inputs, stop))
        encoder = _of_texts(self._encoder)
        if self._are_ids:
            return Slice(places, _tokens_of_ids(encoder, inputs, places.start))
        return Slice(places, encoder.tokens_or_unread(inputs, self._prompt, stop))

    def _finish(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors [n, whole_width], cut to the width of the results and normalized if the options say so."""
        return self._encoder.finished(vectors, self._width, self._options.normalize_embeddings)


def _of_texts(encoder: VectorEncoder) -> TextEncoder:
    """Return an encoder by its type: inputs that are no images have an encoder of texts."""
    assert isinstance(encoder, TextEncoder)
    return encoder


def _tokens_of_ids(encoder: TextEncoder, inputs: Sequence[Any], first: int) -> Tokens:
    """Return lists of token ids as `Tokens`, cut to the model's limit; raises `InputError` and `TextTooLong`.

    first: the number of the first of these inputs in the call, for messages. `TextTooLong` needs truncation=False.
    """
    limit, most, cuts = encoder.tokenizer.limit, encoder.vocab_size, report_of_cuts()
    rows: list[np.ndarray] = []
    for i, value in enumerate(inputs, first):
        ids = ids_array(f"input {i}", value)
        if not len(ids) or ids.max() >= most:
            largest = "none" if not len(ids) else str(ids.max())
            raise InputError(f"input {i} must have token ids from 0 to {most - 1}, at least one, not {largest}")
        if len(ids) > limit and cuts is not None and cuts.truncation is False:
            raise TextTooLong(f"truncation=False, and input {i} has {len(ids):,} tokens, more than the {limit:,} that "
                              "the model reads; shorten it, or leave truncation out", f"{len(ids):,}", limit, i)
        rows.append(ids)
    if cuts is not None and cuts.marks is not None:
        cuts.marks += [len(ids) > limit for ids in rows]
    rows = [ids[:limit].astype(np.int32) for ids in rows]
    return Tokens(rows, [np.zeros(len(ids), np.int32) for ids in rows])


class _Vectors(_Encoding):
    """The workload whose result is a vector for each input: [n, D'], float32 or in another precision."""

    def __init__(self, encoder: VectorEncoder, inputs: Sequence[Any], options: EncodeOptions):
        super().__init__(encoder, inputs, options, computation=sentence_vectors(encoder),
                         cost=Cost(sequence=NUMBER_BYTES * encoder.whole_width))
        self.results = np.empty((len(inputs), self._width), np.float32)

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Finish and keep the vectors of some sequences. rows: float32 [B, whole_width]."""
        self.results[[part.places[number] for number in numbers]] = self._finish(np.asarray(rows))

    def result(self) -> Any:
        """Return the vectors in the precision of the options, as one array or a list of arrays."""
        vectors, options = self.results, self._options
        if options.precision not in (None, "float32"):
            vectors = quantize_vectors(vectors, options.precision, options.ranges)
        return vectors if options.convert_to_numpy else list(vectors)


class _TokenVectors(_Encoding):
    """The workload whose results are the vectors of tokens of each input, [T_i, D], or dictionaries of all outputs."""

    def __init__(self, encoder: VectorEncoder, inputs: Sequence[Any], options: EncodeOptions):
        super().__init__(encoder, inputs, options, computation=token_vectors(encoder),
                         cost=Cost(token=NUMBER_BYTES * encoder.token_width))

    def take(self, part: Slice, numbers: Sequence[int], rows: Any, stop: Stop = NEVER) -> None:
        """Keep the vectors of the tokens of each sequence, or the dictionary of its features."""
        for number, row in zip(numbers, rows, strict=True):
            as_dictionary = self._options.output_value is None
            self.results[part.places[number]] = self._features(part.tokens, number, row) if as_dictionary else row

    def _features(self, tokens: Tokens, number: int, row: np.ndarray) -> dict[str, np.ndarray]:
        """Return the dictionary of one sequence, as sentence-transformers does for output_value=None, without padding.

        number: of the sequence among the tokens. row: the vectors of its tokens, [T, D].
        """
        ids, encoder = tokens.input_ids[number], self._encoder
        skip = 0 if tokens.skips is None else tokens.skips[number]
        [vector] = self._finish(encoder.after_pooling(encoder.pooled(row, np.array([0, len(row)]), skip)))
        if not isinstance(encoder, TextEncoder):
            return {"token_embeddings": row, "sentence_embedding": vector}
        types = {"token_type_ids": tokens.token_type_ids[number]} if encoder.uses_token_types else {}
        return {"input_ids": ids, "attention_mask": np.ones_like(ids), **types, "token_embeddings": row,
                "sentence_embedding": vector}


def _prepare(model: EncodingModel, inputs: Sequence[Any], options: EncodeOptions) -> Workload:
    """Return the workload of a call for texts, token ids or images."""
    kind = _Vectors if options.output_value == "sentence_embedding" else _TokenVectors
    return kind(model.image_encoder if isinstance(inputs, Images) else model.text_encoder, inputs, options)


def _listed(inputs: Any, options: EncodeOptions) -> Listed:
    """Return the inputs one by one: texts or pairs, or lists of token ids, which `_tokens_of_ids` checks later."""
    return Listed(inputs, lambda i, ids: ids) if are_ids(inputs) else listed_sentences(inputs)


def with_role(model: Any, role: Any, options: dict[str, Any], inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return (the engine for texts of a role, the options with the role's prompt), as `Engine.encode_query` does.

    model: an engine, with its routes. role: "query", "document" or None. Token ids have no prompt.
    """
    reader = model.engine_of(role if model.routes else None)
    if role is None or are_ids(inputs):
        return reader, options
    return reader, with_role_prompt(model.text_encoder.text, role, options)


ENCODE = Method("encode", EncodeOptions, _needs, lambda given, options: read_sentences(given), _prepare,
                prepare_images=_prepare, listed=_listed, with_role=with_role, streamed="vectors",
                columns=lambda vectors: {"vector": fixed_lists(vectors)})
