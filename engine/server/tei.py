"""The routes of Hugging Face's text-embeddings-inference (TEI): fields of requests, and bodies of answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ..interface.reranker import Reranker
from ..methods.steps import STEP_CHARACTERS, STEP_INPUTS
from ..text.sentences import add_prompt, check_texts, slices
from ..text.tokenizer import Tokenizer
from .forms import (
    NO_TASK,
    AnyModel,
    Asked,
    Form,
    Kind,
    Route,
    Wanted,
    characters_of,
    check_items,
    check_most,
    check_not_empty,
    dimensions_of,
    finite,
    prompt_of,
    texts_or_ids,
    top_of,
)
from .images import Inputs, Item, SentImages, images_or_texts, inputs_of, reads_images
from .json_steps import JsonRows
from .refusals import TEI, Refusal
from .requests import Answer
from .settings import MAX_DECODED, MAX_TOKENIZED
from .token_routes import TOKENIZE


class EmbedForm(Form):
    """A request to /embed."""

    inputs: Inputs
    normalize: bool = True
    dimensions: int | None = None


class InputsForm(Form):
    """A request to /embed_all or /embed_sparse."""

    inputs: Inputs


class PredictForm(Form):
    """A request to /predict: a text, a pair of texts, or a list of lists with one or two texts each; or images."""

    inputs: str | Item | list[str | list[str] | Item]
    raw_scores: bool = False


class RerankForm(Form):
    """A request to /rerank with `texts`."""

    query: str
    texts: list[str]
    raw_scores: bool = False
    return_text: bool = False
    top_n: int | None = None
    """How many of the best texts the answer has, a field of llama-server; None for all."""


class Sentences(msgspec.Struct, forbid_unknown_fields=True):
    """The texts of a request to /similarity: one, and those that it is compared with."""

    source_sentence: str
    sentences: list[str]


class Parameters(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that some requests of TEI have in an object `parameters`, and all others at their top."""

    truncate: bool | str | None = None
    truncation_direction: str | None = None
    prompt_name: str | None = None


def take_parameters(form: Form, parameters: Parameters | None) -> None:
    """Copy the fields of `parameters` that are not None to the form itself, where `forms.py` reads them."""
    for name in Parameters.__struct_fields__ if parameters is not None else ():
        if (value := getattr(parameters, name)) is not None:
            setattr(form, name, value)


class SimilarityForm(Form):
    """A request to /similarity."""

    inputs: Sentences
    parameters: Parameters | None = None

    def __post_init__(self) -> None:
        take_parameters(self, self.parameters)


class TokenizeForm(Form):
    """A request to /tokenize."""

    inputs: str | list[str]
    add_special_tokens: bool = True


class DecodeForm(Form):
    """A request to /decode."""

    ids: list[int | list[int]]
    skip_special_tokens: bool = True


def embed(form: EmbedForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /embed: a vector for each input; raises `Refusal`."""
    inputs, single = inputs_of("inputs", form.inputs, model)
    options = {"normalize_embeddings": form.normalize} | dimensions_of(form, model)
    return Wanted("embed", inputs, lambda answer, asked: JsonRows(finite(answer.value)), options=options, single=single)


def embed_all(form: InputsForm, model: AnyModel) -> Wanted:
    """Return the work for /embed_all: vectors of tokens, for late interaction if the model has a head for it.

    Other models give the vectors that pooling reads.
    """
    inputs, single = inputs_of("inputs", form.inputs, model)
    late = not isinstance(model, Reranker) and "encode_tokens" in model.heads
    return Wanted("late" if late else "tokens", inputs,
                  lambda answer, asked: JsonRows(map(finite, answer.value)), single=single)


def embed_sparse(form: InputsForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /embed_sparse; raises `Refusal`."""
    inputs, single = inputs_of("inputs", form.inputs, model)

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer: for each input, the nonzero entries of its sparse vector."""
        finite(answer.value.values)
        return JsonRows([{"index": index, "value": value}
                     for index, value in zip(row.indices.tolist(), row.values, strict=True)] for row in answer.value)

    return Wanted("sparse", inputs, body, single=single)


def predict(form: PredictForm, model: AnyModel) -> Wanted:
    """Return the work for /predict: all labels of each text or image, the best first; raises `Refusal`."""
    inputs, single = _images_or_pairs(form.inputs, model)

    def body(answer: Answer, asked: Asked) -> Any:
        for row in answer.value:
            finite([label["score"] for label in row])
        labels = ([{"score": label["score"], "label": label["label"]} for label in row] for row in answer.value)
        return next(labels) if single else JsonRows(labels)

    options = {"top_k": None} | ({"function_to_apply": "none"} if form.raw_scores else {})
    return Wanted("classify", inputs, body, options=options, single=single)


def _images_or_pairs(value: Any, model: AnyModel) -> tuple[Any, bool]:
    """Return the inputs of /predict (images, texts or pairs of texts), and whether there is one input, not a list.

    A list of two texts is one pair. Raises `Refusal`.
    """
    has_items = isinstance(value, Item) or any(isinstance(item, Item) for item in value)
    if has_items or reads_images(model):
        inputs, single = images_or_texts("inputs", value, model)
        if isinstance(inputs, SentImages):
            return inputs, single
        if has_items:       # each object is a whole text, so two of them are no pair
            value = inputs[0] if single else [[text] for text in inputs]
    single = isinstance(value, str) or any(isinstance(item, str) for item in value)
    rows: Sequence[Any] = [value] if single else value
    check_items("inputs", rows)
    texts = [_text_or_pair(row) for row in rows]
    check_not_empty("inputs", texts)
    return texts, single


def rerank(form: RerankForm, model: AnyModel) -> Wanted:
    """Return the work for a request to /rerank in TEI's form; raises `Refusal`."""
    check_items("texts", form.texts)
    raw = {"logits": True} if isinstance(model, Reranker) else {"activation_fn": "identity"}
    options = {"return_documents": form.return_text} | top_of(form.top_n) | (raw if form.raw_scores else {})

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer: the best texts, the best first."""
        finite([rank["score"] for rank in answer.value])
        return JsonRows({"index": rank["corpus_id"], "score": rank["score"]}
                        | ({"text": rank["text"]} if form.return_text else {}) for rank in answer.value)

    return Wanted("rank", (form.query, form.texts), body, options=options)


def similarity(form: SimilarityForm, model: AnyModel) -> Wanted:
    """Return the work for /similarity: the similarity of one text to each of the others; raises `Refusal`."""
    check_items("inputs.sentences", form.inputs.sentences)
    texts = [form.inputs.source_sentence, *form.inputs.sentences]
    check_not_empty("inputs", texts)

    def body(answer: Answer, asked: Asked) -> Any:
        """Return the JSON of an answer, a number for each text, from the vectors of all texts, the one first."""
        assert not isinstance(model, Reranker)
        vectors = finite(answer.value)
        return finite(model.similarity(vectors[:1], vectors[1:])[0])

    return Wanted("embed", texts, body)


_TOKENIZE_BYTES, _DECODE_BYTES = 700, 64
"""Estimated bytes of an answer for each character of /tokenize, which may be a token, and each token of /decode."""


def tokenize(form: TokenizeForm, model: AnyModel) -> Wanted:
    """Return the work for /tokenize: all tokens of each text with their places, in steps; raises `Refusal`."""
    texts = [form.inputs] if isinstance(form.inputs, str) else form.inputs
    check_items("inputs", texts)
    check_not_empty("inputs", texts)
    prompt = prompt_of(form, model)
    characters = characters_of(texts) + len(prompt) * len(texts)
    check_most("inputs", characters, MAX_TOKENIZED, "characters", "tokens")
    prompted = add_prompt(prompt, check_texts(texts, "inputs"))

    def rows() -> Iterator[list[dict[str, Any]]]:
        """Yield the tokens of each text, a few texts at a time."""
        for part in slices(prompted, STEP_INPUTS, STEP_CHARACTERS):
            chunk: Any = prompted[part.start : part.stop]       # texts, and no pairs
            for text, places in zip(chunk, _uncut_tokenizer(model).places(chunk), strict=True):
                yield _tokens(text, places, form.add_special_tokens)

    return Wanted(NO_TASK, texts, lambda answer, asked: JsonRows(rows()), single=isinstance(form.inputs, str),
                  # A normalizer may turn one character that is not ASCII into several.
                  bytes=_TOKENIZE_BYTES * characters * (1 if all(map(str.isascii, texts)) else 4))


@lru_cache(maxsize=4)
def _uncut_tokenizer(model: AnyModel) -> Tokenizer:
    """Return the tokenizer of a model without its limit of tokens; the last few models have theirs kept."""
    assert model.text is not None
    return Tokenizer(model.text, max_tokens=None, threads=1, truncates=False)


def decode(form: DecodeForm, model: AnyModel) -> Wanted:
    """Return the work for /decode: the text of each list of token ids; raises `Refusal`."""
    rows, single = texts_or_ids("ids", form.ids)
    count = sum(map(len, rows))
    check_most("ids", count, MAX_DECODED, "token ids", "texts")
    return Wanted(NO_TASK, rows, lambda answer, asked: JsonRows(
        model.tokenizer.decode(ids, skip_special_tokens=form.skip_special_tokens) for ids in rows), single=single,
        bytes=_DECODE_BYTES * count)


def _text_or_pair(value: str | list[str]) -> Any:
    """Return a text for a str or a list of one, and a tuple for a list of two; raises `Refusal` for other lists."""
    if isinstance(value, str):
        return value
    if len(value) not in (1, 2) or not all(isinstance(text, str) for text in value):
        raise Refusal("wrong", "inputs must be a text, a pair of texts, or a list of lists with one or two texts",
                      "inputs")
    return value[0] if len(value) == 1 else (value[0], value[1])


def _tokens(text: str, places: Any, special: bool) -> list[dict[str, Any]]:
    """Return the JSON of the tokens of a text. places: of `Tokenizer.places`. special: whether to list special tokens.

    A special token has no place; start and stop of others count characters.
    """
    rows = zip(places.input_ids.tolist(), places.tokens, places.offsets, places.special, strict=True)
    return [{"id": number, "text": token if added else text[start:stop], "special": added,
             "start": None if added else start, "stop": None if added else stop}
            for number, token, (start, stop), added in rows if special or not added]


RERANK = Kind(TEI, RerankForm, rerank, ("rank",))
ROUTES = (Route("/tokenize", Kind(TEI, TokenizeForm, tokenize), TOKENIZE),
          *(Route(path, Kind(TEI, form, work, tasks)) for path, form, work, tasks in (
              ("/embed", EmbedForm, embed, ("embed",)), ("/embed_all", InputsForm, embed_all, ("late", "tokens")),
              ("/embed_sparse", InputsForm, embed_sparse, ("sparse",)),
              ("/predict", PredictForm, predict, ("classify",)),
              ("/similarity", SimilarityForm, similarity, ("embed",)), ("/decode", DecodeForm, decode, ()))))
